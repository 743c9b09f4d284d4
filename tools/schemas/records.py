"""Record types of all topics. How to add one: tools/schemas/__init__.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from hatcast.agents.kafka.dead_letters import DeadLetter
from hatcast.stream.records import (
    BudgetRecord,
    ClusterAnswerRecord,
    ClustersRecord,
    EstimateRecord,
    QueryRecord,
    ReleaseRecord,
    ReportRecord,
    RunningRecord,
    TelemetryRecord,
)


class Action(StrEnum):
    """AsyncAPI action of hatcast: `receive` for records that others produce and hatcast consumes."""

    SEND = "send"
    RECEIVE = "receive"


@dataclass(frozen=True, slots=True)
class RecordType:
    """One record type.

    name      name of its schema, its message and its goldens; `ce_type` is hatcast.NAME.v1
    type_     type of its value
    topic     key of [topics] in hatcast.toml
    summary   description in one line
    key       description of its Kafka key; None: no key
    key_of    fields whose values, joined by a slash, are the key; empty: the key is not in the value
    event_id  description of `ce_id`; None: no headers
    timed     whether it has `ce_time`, its `released_at`
    """

    name: str
    type_: type[msgspec.Struct]
    topic: str
    action: Action
    summary: str
    key: str | None
    key_of: tuple[str, ...] = ()
    event_id: str | None = None
    timed: bool = False


_ALL: Final = (
    RecordType(
        name="telemetry",
        type_=TelemetryRecord,
        topic="telemetry",
        action=Action.RECEIVE,
        summary="Vehicles' readings, for operators: one reading per record, and heartbeat records.",
        key="the vehicle's id; a heartbeat record has none",
        key_of=("vehicle",),
    ),
    RecordType(
        name="report",
        type_=ReportRecord,
        topic="reports",
        action=Action.RECEIVE,
        summary="Noisy means of devices that do not trust the operator: one report for each device, hexagon and slot.",
        key="the device's id of that day",
        key_of=("id",),
    ),
    RecordType(
        name="release",
        type_=ReleaseRecord,
        topic="means",
        action=Action.SEND,
        summary="Private mean speeds, public: one release for each hexagon and slot.",
        key="release_id",
        key_of=("release_id",),
        event_id="release_id",
        timed=True,
    ),
    RecordType(
        name="query",
        type_=QueryRecord,
        topic="queries",
        action=Action.SEND,
        summary="Answers to queries over days, public: one for each query, hexagon, slot and period.",
        key="release_id",
        key_of=("release_id",),
        event_id="release_id",
        timed=True,
    ),
    RecordType(
        name="budget",
        type_=BudgetRecord,
        topic="budget",
        action=Action.SEND,
        summary="Charges of a day's releases and queries, public: the record with the greatest `seq` of a key holds.",
        key="policy/date",
        key_of=("policy", "date"),
        event_id="policy/date/seq",
    ),
    RecordType(
        name="estimate",
        type_=EstimateRecord,
        topic="estimates",
        action=Action.SEND,
        summary="Estimates of every hexagon after each slot, public: made from the releases, so they cost nothing.",
        key="estimate_id",
        key_of=("estimate_id",),
        event_id="estimate_id/stage",
    ),
    RecordType(
        name="running",
        type_=RunningRecord,
        topic="running",
        action=Action.SEND,
        summary="Running means of every hexagon, public: made from the releases, so they cost nothing.",
        key="policy/name/cell",
        key_of=("policy", "name", "cell"),
        event_id="running_id/stage",
    ),
    RecordType(
        name="clusters",
        type_=ClustersRecord,
        topic="clusters",
        action=Action.SEND,
        summary="Rounds and results of private K-means with devices, public.",
        key="clusters_id",
        key_of=("clusters_id",),
        event_id="clusters_id",
    ),
    RecordType(
        name="cluster-answer",
        type_=ClusterAnswerRecord,
        topic="cluster_answers",
        action=Action.RECEIVE,
        summary="Devices' answers to the rounds of a clustering, with noise of their own.",
        key="the device's id in that clustering",
        key_of=("id",),
    ),
    RecordType(
        name="dead-letter",
        type_=DeadLetter,
        topic="dead_letters",
        action=Action.SEND,
        summary="Places of records that cannot be decoded, for operators: retained for a day, rate-limited.",
        key=None,
        event_id="topic/partition/offset",
    ),
)
RECORDS: Final[Mapping[str, RecordType]] = MappingProxyType({each.name: each for each in _ALL})
