"""Proposed releases and answers to queries, and the results of their commits."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hatcast.stream.ledger.day import Reserved


@dataclass(frozen=True, slots=True)
class StateChange:
    """Change of a horizon by the commit of a running sum's record.

    horizon   first local date
    before    the state that `after` was drawn from; None: there was none. The commit compares it
    after     state to store; None: none
    closes    status with which the horizon ends; None: it goes on
    """

    horizon: str
    cell: str
    before: bytes | None
    after: bytes | None
    closes: str | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A release before its commit: its charge, and the two records it may become.

    place       `cell/slot`
    charge      1e-9
    record      the bytes before and after `seq`; nothing after if the record has no `seq`
    exhausted   the same, if the day's budget does not allow the charge
    fineness    of its noise, as `Release.fineness`; 0 if unknown
    change      of a running sum: what the commit does to its horizon
    release_partition   its owner commits the release
    """

    release_id: str
    date: str
    place: str
    charge: int
    record: tuple[bytes, bytes]
    exhausted: tuple[bytes, bytes]
    fineness: int = 0
    change: StateChange | None = None
    release_partition: int = field(kw_only=True)

    @property
    def ends_horizon(self) -> bool:
        """Whether no running sum of its horizon is drawn any more."""
        return self.change is not None and self.change.closes is not None


@dataclass(frozen=True, slots=True)
class AnswerProposal:
    """An answer to a query over days before its commit.

    date        the local date that stores the record
    dates       the dates of its period
    query       name of the query
    reserved    cost of the query for a user on each of these dates
    record, exhausted   as in Proposal
    release_partition   its owner commits the answer
    """

    release_id: str
    date: str
    dates: Sequence[str]
    query: str
    reserved: Reserved
    record: tuple[bytes, bytes]
    exhausted: tuple[bytes, bytes]
    release_partition: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The one record of a HAT, and whether Kafka has acknowledged it."""

    record: bytes
    published: bool
    new: bool


def numbered(record: tuple[bytes, bytes], number: int) -> bytes:
    """Return a record's bytes with its `seq`."""
    head, tail = record
    return b"%b%d%b" % (head, number, tail) if tail else head
