"""What the output topics hold of the ledger, as it is adopted from there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from hatcast.stream.queries import Period


class OutputPartition(NamedTuple):
    """One partition of an output topic."""

    topic: str
    partition: int

    @property
    def field(self) -> str:
        """How Redis names it."""
        return f"{self.topic}/{self.partition}"


class Position(NamedTuple):
    """An offset in a topic; `topic_id` is Kafka's, "" where the broker has none: a topic made anew has another."""

    topic_id: str
    offset: int

    @property
    def stored(self) -> str:
        """As it is stored."""
        return f"{self.topic_id}:{self.offset}"

    @staticmethod
    def of(stored: str) -> "Position":
        """As it was stored."""
        topic_id, _, offset = stored.rpartition(":")
        return Position(topic_id, int(offset))


class Published(msgspec.Struct, frozen=True):
    """A record found on an output topic, as the ledger needs it.

    place          `cell/slot`
    charge         1e-9
    fineness       of its noise; 0: not known
    slot_start_ms  ms UTC, of a HAT under `add_remove`, where all of a policy goes by slots; else None
    answered       of an answer to a query: what it has reserved
    """

    release_id: str
    name: str
    date: str
    place: str
    charge: int
    seq: int
    fineness: int
    record: bytes
    slot_start_ms: int | None = None
    answered: "Answered | None" = None


class Answered(NamedTuple):
    """What a query has reserved on the dates of a period: all its answers have the same."""

    policy: str
    query: str
    period: Period
    places: int
    epsilon: int


@dataclass(frozen=True, slots=True)
class Span:
    """From the first to the last slot of which something was published, under one policy with `add_remove`.

    Slots are published one after the other, so all between them is published too. Starts in ms UTC.
    """

    first_ms: int
    last_ms: int

    def widened(self, start_ms: int) -> "Span":
        """With one more slot."""
        return Span(min(self.first_ms, start_ms), max(self.last_ms, start_ms))


@dataclass(frozen=True, slots=True)
class Chunk:
    """The releases and answers in a stretch of one output partition.

    stored     up to where Redis says that the partition is adopted, before; None: nothing is
    following  the position after the stretch
    records    each with its offset
    days       (policy name, date) -> the first offset of what else tells of that day
    """

    place: OutputPartition
    stored: Position | None
    following: Position
    records: Sequence[tuple[int, Published]]
    days: Mapping[tuple[str, str], int] = field(default_factory=dict)
