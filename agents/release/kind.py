"""Kinds of release as values: each lists due work, loads it, draws noise for it, and says in which order it is sent."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final, Generic, Literal, TypeVar

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.kafka.registry import Registry
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.stream.ledger.commits import AnyProposal
from hatcast.stream.ledger.proposals import Committed
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import ContinualKeys, Policy, Relation, TrackerKeys
from hatcast.stream.readings.vehicles import by_murmur2
from hatcast.stream.records.fields import is_answer
from hatcast.stream.release.budget_records import Spent
from hatcast.stream.release.queries import AnyRelease

TRACKER_PARTITION: Final = 0  # the owner of this release partition makes a tracker's queries


@dataclass(frozen=True, slots=True)
class Due:
    """A release that is due."""

    max_users: ClassVar[int]  # of a batch, which is loaded at once: bounds memory

    release_id: str
    cell: str
    date: str  # local date that stores its record; a batch has one
    users: int = field(compare=False)  # number of users' rows to load, 0 or more

    @property
    def dates(self) -> Sequence[str]:
        """The local dates that it is charged to; their budget records are sent with it."""
        return (self.date,)

    @property
    def loaded_with(self) -> Hashable:
        """Equal for consecutive items of a batch that are loaded and drawn together."""
        return self.date


def release_partition_of(policy: Policy, release_id: str, cell: str, partitions: int) -> int:
    """Return the release partition of a record: its owner commits and sends the record.

    A tracker's releases follow from each other, so they have one owner; so have the running sums of a cell.

    Under `add_remove` the output partition, so that one producer sends its records, in the order of slots and cells.
    """
    if isinstance(policy.method, TrackerKeys) and not is_answer(release_id):
        return TRACKER_PARTITION
    by_cell = policy.relation is Relation.ADD_REMOVE or isinstance(policy.method, ContinualKeys)
    return _partition_of(cell if by_cell else release_id, partitions)


@lru_cache(maxsize=16_384)  # each step of a release asks again
def _partition_of(key: str, partitions: int) -> int:
    return by_murmur2(key.encode(), partitions)


D = TypeVar("D", bound=Due)
L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class Drawn(Generic[D]):
    """A batch before its commit: the records that are stored already, and the proposals of other items, in order.

    What cannot be loaded now is in neither.
    """

    items: Sequence[D]
    stored: Mapping[D, Committed]
    proposals: Mapping[D, AnyProposal]


@dataclass(frozen=True, slots=True)
class ReleaseContext:
    """Parts of a worker that all kinds of release use."""

    settings: Settings
    store: HatStore
    ledger: LedgerStore
    recovery: LedgerRecovery
    producers: TransactionalProducers
    registry: Registry  # of the requests that queries take
    noise: Noise
    failures: FailureLog = field(default_factory=lambda: FailureLog("release"))  # failure log of the release loop

    @property
    def policy(self) -> Policy:
        """The policy of the worker."""
        return self.settings.policy

    def release_partition(self, due: Due) -> int:
        """Return the release partition of a due item."""
        return release_partition_of(self.policy, due.release_id, due.cell, self.store.partitions)

    def proposals(self, batch: Sequence[D], releases: Sequence[AnyRelease]) -> dict[D, AnyProposal]:
        """Return the release of each due item as proposed to the ledger now. Encoding large batches takes a while."""
        at_ms, pairs = now_ms(), zip(batch, releases, strict=True)
        return {due: release.proposal(at_ms, self.release_partition(due)) for due, release in pairs}


async def _at_once() -> bool:
    return True


async def _nothing(_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class DuePart(Generic[D]):
    """The items that a kind releases next, in order."""

    due: Sequence[D]
    # of the order `together`: called once all items have records; nothing is sent before it returns True
    may_send: Callable[[], Awaitable[bool]] = _at_once


@dataclass(frozen=True, slots=True)
class Session(Generic[D]):
    """Memory of the order `chain` in this process: the numbers that it has released."""

    open: Callable[[], Awaitable[None]]  # makes it anew
    drop: Callable[[], None]  # forgets it
    # returns whether an item had a record when the session began its date: the same numbers lead to it
    has_stored: Callable[[D], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseKind(Generic[D, L]):
    """A kind of release: what differs between kinds.

    D            what is due: its `dates` name the budget records that are sent with it
    L            what is loaded
    """

    name: str  # in metrics
    noun: str  # of the releases in the log
    order: Literal["groups", "together", "chain"]  # see agents/release/path.py
    # yields what is due of these release partitions; what follows a `yield` runs once that is published
    due: Callable[[frozenset[int]], AsyncGenerator[DuePart[D]]]
    # loads the input of items that are loaded together; None if it is not complete now
    load: Callable[[Sequence[D]], Awaitable[L | None]]
    # draws the proposed record of each item, with its noise; of a chain those that follow from the items
    draw: Callable[[Sequence[D], L], Awaitable[Mapping[D, AnyProposal]]]
    # deletes the input of released items that no other release reads; a chain does that at its day's end
    delete: Callable[[Sequence[D]], Awaitable[None]]
    is_done: Callable[[str], Awaitable[bool]]  # returns True if everything before a local date is published
    # called with items of a date once they are marked as published
    after_mark: Callable[[Sequence[D]], Awaitable[None]] = _nothing
    # returns the charges of a tracker's users on a date; None: not known here
    spent: Callable[[str], Spent | None] = lambda _: None
    session: Session[D] | None = None  # of the order `chain` alone
