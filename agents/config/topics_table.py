"""`[topics]` of hatcast.toml: topic names."""

import re
from collections.abc import Collection
from typing import Annotated, Final

import msgspec

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.key_errors import such_as

REGISTRY_SUFFIX: Final = ".hatcast"
_NAMED: Final = (
    "telemetry",
    "means",
    "queries",
    "budget",
    "estimates",
    "running",
    "dead_letters",
    "reports",
    "clusters",
    "cluster_answers",
)  # topics, by their keys
_NAME_MAX: Final = 249  # Kafka's own limit
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


class TopicsTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[topics]`: names and settings of the topics."""

    prefix: Annotated[str, such_as("surat.")] = ""
    telemetry: str = "telemetry"
    telemetry_format: str = "jsonl"
    telemetry_partitioner: str = "murmur2"
    telemetry_retention: str = "72h"
    means: str = "hats.means"
    queries: str = "hats.queries"
    budget: str = "hats.budget"
    estimates: str = "hats.estimates"
    running: str = "hats.running"
    dead_letters: str = "hats.dead-letters"
    reports: str = "reports"
    clusters: str = "hats.clusters"
    cluster_answers: str = "cluster-answers"

    @property
    def registry(self) -> str:
        """The domain's registry topic. Its name is not configurable, so that all workers of the telemetry find it."""
        return self.telemetry + REGISTRY_SUFFIX

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all topics."""
        return *(getattr(self, role) for role in _NAMED), self.registry

    def prefixed(self, written: Collection[str]) -> "TopicsTable":
        """Return the table with `prefix` before every default topic name. `written`: the keys in the file."""
        names = {role: self.prefix + getattr(self, role) for role in _NAMED if role not in written}
        return msgspec.structs.replace(self, **names)

    def check_names(self) -> None:
        """Raise SettingError if a name is invalid for Kafka, or two topics have the same name."""
        if len(set(self.names)) != len(self.names):
            raise SettingError("topics", "two topics have the same name", "give each its own name")
        for name in self.names:
            if len(name) > _NAME_MAX or not _TOPIC_NAME.fullmatch(name):
                raise SettingError(
                    "topics",
                    f"{name!r} is not a valid topic name",
                    f"use at most {_NAME_MAX} letters, digits, dots, underscores and hyphens",
                )
