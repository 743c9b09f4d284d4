"""Types for adopting records from the output topics into the ledger."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from hatcast.stream.policy.query import Period
from hatcast.stream.records import BudgetRecord


class OutputPartition(NamedTuple):
    """One partition of an output topic."""

    topic: str
    partition: int

    @property
    def field(self) -> str:
        """Name of the partition in a ledger."""
        return f"{self.topic}/{self.partition}"


class Position(NamedTuple):
    """An offset in a topic. `topic_id` is Kafka's, "" if the broker has none; a recreated topic has another id."""

    topic_id: str
    offset: int

    @property
    def stored(self) -> str:
        """Text of the position in a ledger."""
        return f"{self.topic_id}:{self.offset}"


class Published(msgspec.Struct, frozen=True):
    """A record of an output topic, reduced to the fields that the ledger needs."""

    release_id: str
    name: str
    date: str
    place: str  # `cell/slot`
    charge: int  # 1e-9
    seq: int
    fineness: int  # of its noise; 0 if unknown
    record: bytes
    slot_start_ms: int | None = None  # ms UTC; only of a HAT under `add_remove`, whose progress is by slot
    answered: "Answered | None" = None  # the query's reservation, if the record answers a query
    horizon: str = ""  # first local date of the horizon of a running sum; "" for other records
    is_drawn: bool = False  # of a running sum: whether the state of its cell changed with it
    # start, end: local times, as published
    start: str = ""
    end: str = ""


class Answered(NamedTuple):
    """A query's reservation on each date of a period; the same for all answers of the query and period."""

    policy: str
    query: str
    period: Period
    places: int
    epsilon: int


@dataclass(frozen=True, slots=True)
class Span:
    """The first and the last published slot of a policy under `add_remove`, by their starts (ms UTC).

    Slots are published in order, so all slots between them are published too.
    """

    first_ms: int
    last_ms: int

    def widened(self, start_ms: int) -> "Span":
        """Return the span extended by one slot."""
        return Span(min(self.first_ms, start_ms), max(self.last_ms, start_ms))


@dataclass(frozen=True, slots=True)
class AdoptionBatch:
    """The contents of consecutive records of one output partition."""

    partition: OutputPartition
    # the position up to which the ledger has adopted the partition before this batch; None for nothing
    stored: Position | None
    following: Position  # the position after the batch
    records: Sequence[tuple[int, Published]]  # releases and answers, each with its offset
    # (policy name, date) -> the offset of the first budget record about that day
    days: Mapping[tuple[str, str], int] = field(default_factory=dict)
    answered: Collection[Answered] = ()  # reservations of queries that these records answer
    budgets: Collection[BudgetRecord] = ()  # budget records, the newest of each policy and date
    # policy name -> its published slots and its number of release partitions, under `add_remove`
    spans: Mapping[str, tuple[Span, int]] = field(default_factory=dict)
