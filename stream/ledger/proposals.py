"""Proposed releases and answers to queries, and the results of their commits."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hatcast.stream.ledger.day import Reserved


@dataclass(frozen=True, slots=True)
class StateChange:
    """Change of a horizon by the commit of a running sum's record."""

    horizon: str  # first local date
    cell: str
    before: bytes | None  # the state that `after` was drawn from; None: there was none. The commit compares it
    after: bytes | None  # state to store; None: none
    closes: str | None = None  # status with which the horizon ends; None: it goes on


@dataclass(frozen=True, slots=True)
class Proposal:
    """A release before its commit: its charge, and the two records it may become."""

    release_id: str
    date: str
    place: str  # `cell/slot`
    charge: int  # 1e-9
    record: tuple[bytes, bytes]  # the bytes before and after `seq`; nothing after if the record has no `seq`
    exhausted: tuple[bytes, bytes]  # the same, if the day's budget does not allow the charge
    fineness: int = 0  # of its noise, as `Release.fineness`; 0 if unknown
    change: StateChange | None = None  # of a running sum: what the commit does to its horizon
    release_partition: int = field(kw_only=True)  # its owner commits the release

    @property
    def ends_horizon(self) -> bool:
        """Whether no running sum of its horizon is drawn any more."""
        return self.change is not None and self.change.closes is not None


@dataclass(frozen=True, slots=True)
class AnswerProposal:
    """An answer to a query over days before its commit."""

    release_id: str
    date: str  # the local date that stores the record
    dates: Sequence[str]  # the dates of its period
    query: str  # name of the query
    reserved: Reserved  # cost of the query for a user on each of these dates
    # record, exhausted: as in Proposal
    record: tuple[bytes, bytes]
    exhausted: tuple[bytes, bytes]
    release_partition: int  # its owner commits the answer


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
