"""`[topics]` of hatcast.toml: topic names."""

import re
from collections.abc import Collection
from typing import Annotated, Final

import msgspec

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.toml_tables import Duration, such_as

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
    """prefix of every topic name that is not written in this table, such as `"surat."`"""
    telemetry: str = "telemetry"
    """input: key = vehicle id in UTF-8; also the name of the budget's domain. Under `add_remove` it has
    `message.timestamp.type = LogAppendTime`, so recordings cannot be replayed into it: use `batch --ledger`"""
    telemetry_format: str = "jsonl"
    """or another of [feeds.md](feeds.md): one reading per record"""
    telemetry_partitioner: str = "murmur2"
    """partitioner of its producers: `murmur2` (Java, aiokafka, kafka-python) or `crc32` (librdkafka)"""
    telemetry_retention: Duration = "72h"
    """its retention, if hatcast creates it: 72h or more; `"none"` for recordings"""
    means: str = "hats.means"
    """output: the means of HATs"""
    queries: str = "hats.queries"
    """output: answers to queries over days"""
    budget: str = "hats.budget"
    """output: the charges of each day"""
    estimates: str = "hats.estimates"
    """output: estimates of every cell, which are made from the means and cost nothing"""
    running: str = "hats.running"
    """output: running means of `[[policy.running]]`, which are made from the means and cost nothing"""
    dead_letters: str = "hats.dead-letters"
    """output, for operators: place and reason of each record that could not be decoded"""
    reports: str = "reports"
    """input: devices' reports ([device.md](device.md)), if the estimator is [hybrid](hybrid.md); key = the device's
    id of the day. Created with the settings of telemetry"""
    clusters: str = "hats.clusters"
    """output: rounds and results of `hatcast cluster live` ([cluster.md](cluster.md#live))"""
    cluster_answers: str = "cluster-answers"
    """input: devices' answers to these rounds"""

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
