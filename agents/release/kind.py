"""Kinds of release as values: each lists due work, batches it, loads it, draws noise for it, and has a schedule."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby, islice
from typing import ClassVar, Final, Generic, Literal, TypeVar

from hatcast.agents.clock import cancel_all, now_ms
from hatcast.agents.config.settings import Settings
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
from hatcast.stream.release.proposals import AnyRelease
from hatcast.stream.release.spending import Spent

TRACKER_PARTITION: Final = 0  # the owner of this release partition makes a tracker's queries
_OF_HAT: Final = 2  # slashes in the release_id of a HAT, or of a query of a tracker; an answer to a query has more


@dataclass(frozen=True, slots=True)
class Due:
    """A release that is due.

    max_users   of a batch, which is loaded at once: bounds memory
    date        local date that stores its record; a batch has one
    users       number of users' rows to load, 0 or more
    """

    max_users: ClassVar[int]

    release_id: str
    cell: str
    date: str
    users: int = field(compare=False)

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
    if isinstance(policy.method, TrackerKeys) and release_id.count("/") == _OF_HAT:
        return TRACKER_PARTITION
    by_cell = policy.relation is Relation.ADD_REMOVE or isinstance(policy.method, ContinualKeys)
    return _partition_of(cell if by_cell else release_id, partitions)


@lru_cache(maxsize=16_384)  # each step of a release asks again
def _partition_of(key: str, partitions: int) -> int:
    return by_murmur2(key.encode(), partitions)


MAX_BATCH: Final = 500  # releases committed together; a transaction has at most so many, of one release partition
MAX_TOGETHER: Final = 4  # batches that are published together
_CONCURRENT_SENDS: Final = 16  # transactions at once: a worker may own hundreds of release partitions


D = TypeVar("D", bound=Due)
T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Drawn(Generic[D]):
    """A batch before its commit: the records that are stored already, and the proposals of other items, in order.

    What cannot be loaded now is in neither.
    """

    items: Sequence[D]
    stored: Mapping[D, Committed]
    proposals: Mapping[D, AnyProposal]


def batches_of(due: Iterable[D]) -> Iterator[list[D]]:
    """Cut into batches, in order: of one date, with at most MAX_BATCH items and `max_users` users.

    An item with more users is a batch of its own. Not cut by bytes: their number depends on speeds.
    """
    batch: list[D] = []
    users = 0
    for item in due:
        full = len(batch) >= MAX_BATCH or users + item.users > item.max_users
        if batch and (full or item.date != batch[0].date):
            yield batch
            batch, users = [], 0
        batch.append(item)
        users += item.users
    if batch:
        yield batch


def groups_of(due: Iterable[D]) -> Iterator[list[list[D]]]:
    """Cut into groups of 1, 2, 4, 4, ... batches of one date, in order: the records of a group are published together.

    The first releases do not wait for others, and many releases need few transactions. Not cut by time: how long an
    estimate takes may depend on speeds.
    """
    most = 1
    for _, batches in groupby(batches_of(due), lambda batch: batch[0].date):
        while group := list(islice(batches, most)):
            yield group
            most = min(2 * most, MAX_TOGETHER)


def sends_of(records: Mapping[int, Sequence[T]]) -> Iterator[dict[int, Sequence[T]]]:
    """Cut the records of each release partition into transactions; yield those that are sent at once.

    Of one release partition they are in order, one after the other.
    """
    partitions = sorted(records)
    for first in range(0, len(partitions), _CONCURRENT_SENDS):
        some = partitions[first : first + _CONCURRENT_SENDS]
        for start in range(0, max(len(records[r]) for r in some), MAX_BATCH):
            cut = {r: records[r][start : start + MAX_BATCH] for r in some}
            yield {r: part for r, part in cut.items() if part}


async def one_ahead(
    function: Callable[[T], Coroutine[object, object, R]], items: Iterable[T]
) -> AsyncGenerator[R, None]:
    """Yield the result of a call for each item, in order; one call at a time, each while the last result is used.

    An exception is raised in its place of the order. Close the generator: then a call that still runs is cancelled, and
    its result and its exception are dropped.
    """
    running: asyncio.Task[R] | None = None
    try:
        for item in items:
            result = None if running is None else (await running,)
            running = asyncio.create_task(function(item))
            if result is not None:
                yield result[0]
        if running is not None:
            yield await running
    finally:
        if running is not None:
            await cancel_all([running])


L = TypeVar("L")


@dataclass(frozen=True, slots=True)
class ReleaseContext:
    """Parts of a worker that all kinds of release use.

    registry   of the requests that queries take
    failures   failure log of the release loop
    """

    settings: Settings
    store: HatStore
    ledger: LedgerStore
    recovery: LedgerRecovery
    registry: Registry
    noise: Noise
    failures: FailureLog = field(default_factory=lambda: FailureLog("release"))

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
    """The items that a kind releases next, in order.

    may_send   of the schedule `together`: called once all items have records; nothing is sent before it returns True
    """

    due: Sequence[D]
    may_send: Callable[[], Awaitable[bool]] = _at_once


@dataclass(frozen=True, slots=True)
class Session(Generic[D]):
    """Memory of the schedule `chain` in this process: the numbers that it has released.

    open         makes it anew
    drop         forgets it
    has_stored   returns whether an item had a record when the session began its date: the same numbers lead to it
    """

    open: Callable[[], Awaitable[None]]
    drop: Callable[[], None]
    has_stored: Callable[[D], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseKind(Generic[D, L]):
    """A kind of release: what differs between kinds.

    D            what is due: its `dates` name the budget records that are sent with it
    L            what is loaded
    name         in metrics
    noun         of the releases in the log
    schedule     see agents/release/path.py
    due          yields what is due of these release partitions; what follows a `yield` runs once that is published
    load         loads the input of items that are loaded together; None if it is not complete now
    draw         draws the proposed record of each item, with its noise; of a chain those that follow from the items
    delete       deletes the input of released items that no other release reads; a chain does that at its day's end
    after_mark   called with items of a date once they are marked as published
    spent        returns the charges of a tracker's users on a date; None: not known here
    is_done      returns True if everything before a local date is published
    session      of the schedule `chain` alone
    """

    name: str
    noun: str
    schedule: Literal["groups", "together", "chain"]
    due: Callable[[frozenset[int]], AsyncGenerator[DuePart[D]]]
    load: Callable[[Sequence[D]], Awaitable[L | None]]
    draw: Callable[[Sequence[D], L], Awaitable[Mapping[D, AnyProposal]]]
    delete: Callable[[Sequence[D]], Awaitable[None]]
    is_done: Callable[[str], Awaitable[bool]]
    after_mark: Callable[[Sequence[D]], Awaitable[None]] = _nothing
    spent: Callable[[str], Spent | None] = lambda _: None
    session: Session[D] | None = None
