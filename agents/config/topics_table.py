"""`[topics]` of hatcast.toml: the topics' names."""

import re
from collections.abc import Collection
from typing import Final

import msgspec

from hatcast.stream.errors import SettingError

REGISTRY_SUFFIX: Final = ".hatcast"
_NAMED: Final = ("telemetry", "means", "queries", "budget", "dead_letters", "reports")  # topics, by their keys
_NAME_MAX: Final = 249  # Kafka's own limit
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


class TopicsTable(msgspec.Struct, frozen=True, kw_only=True):
    """`[topics]`"""

    prefix: str = ""
    telemetry: str = "telemetry"
    telemetry_format: str = "jsonl"
    telemetry_partitioner: str = "murmur2"
    telemetry_retention: str = "72h"
    means: str = "hats.means"
    queries: str = "hats.queries"
    budget: str = "hats.budget"
    dead_letters: str = "hats.dead-letters"
    reports: str = "reports"

    @property
    def registry(self) -> str:
        """The topic with what is fixed for this telemetry: its name is no setting, so that no worker misses it."""
        return self.telemetry + REGISTRY_SUFFIX

    @property
    def names(self) -> tuple[str, ...]:
        """Every topic's name."""
        return *(getattr(self, role) for role in _NAMED), self.registry

    def prefixed(self, written: Collection[str]) -> "TopicsTable":
        """The same, with `prefix` before every topic name that is a default: whose key is not in `written`."""
        names = {role: self.prefix + getattr(self, role) for role in _NAMED if role not in written}
        return msgspec.structs.replace(self, **names)

    def check_names(self) -> None:
        """Raise SettingError if Kafka would not take a name, or two topics have the same."""
        if len(set(self.names)) != len(self.names):
            raise SettingError("topics", "two topics have one name", "give each its own")
        for name in self.names:
            if len(name) > _NAME_MAX or not _TOPIC_NAME.fullmatch(name):
                raise SettingError(
                    "topics",
                    f"{name!r} is no topic name for Kafka",
                    f"use at most {_NAME_MAX} letters, digits, dots, underscores and hyphens",
                )
