"""Kinds of release as values: what is due, how it is loaded, drawn and deleted, and by which schedule.

agents/release/path.py releases what they say.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.registry import Registry
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.release.due import Due, release_partition_of
from hatcast.stream.ledger.commits import AnyProposal
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.proposals import AnyRelease
from hatcast.stream.release.spending import Spent

D = TypeVar("D", bound=Due)
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
class Part(Generic[D]):
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
class Kind(Generic[D, L]):
    """A kind of release: what differs between kinds.

    D            what is due: its `dates` name the budget records that are sent with it
    L            what is loaded
    name         in metrics
    event        name of the record's schema
    noun         of the releases in the log
    topic        of the records
    schedule     see agents/release/path.py
    due          yields what is due of these release partitions, and goes on once that is published
    load         loads the input of items that are loaded together; None if it is not complete now
    draw         draws the proposed record of each item, with its noise; of a chain those that follow from the items
    delete       deletes the input of released items that no other release reads
    after_mark   called with items of a date once they are marked as published
    spent        returns the charges of a tracker's users on a date; None: not known here
    is_done      returns True if everything before a local date is published
    session      of the schedule `chain` alone
    """

    name: str
    event: str
    noun: str
    topic: str
    schedule: Literal["groups", "together", "chain"]
    due: Callable[[frozenset[int]], AsyncGenerator[Part[D]]]
    load: Callable[[Sequence[D]], Awaitable[L | None]]
    draw: Callable[[Sequence[D], L], Awaitable[Mapping[D, AnyProposal]]]
    delete: Callable[[Sequence[D]], Awaitable[None]]
    is_done: Callable[[str], Awaitable[bool]]
    after_mark: Callable[[Sequence[D]], Awaitable[None]] = _nothing
    spent: Callable[[str], Spent | None] = lambda _: None
    session: Session[D] | None = None
