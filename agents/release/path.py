"""The one path of every release: from a due item to its record on a topic.

Each release belongs to the worker that owns its release partition. The steps are named; after a crash between two of
them the next owner finishes the rest:

    loaded     its input, from partitions whose watermarks are past its close
    drawn      the record with its noise, which has not left the process
    committed  record and charge in Redis, in one step; a stored record wins, and the draw is discarded
    sent       the record's bytes, as stored in Redis, inside a transaction
    acked      the transaction is committed by all replicas
    marked     Redis stores that it is published
    deleted    input that no other release reads is gone

Before the commit, before the send and after the mark the path confirms that Redis has not gone back.
[docs/specification/release.md, Steps; decisions/0030]
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar, Generic, TypeVar

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.cloud_events import release_event
from hatcast.agents.kafka.producers import Message, ProducerGone
from hatcast.agents.monitoring.declarations import COMMIT_SECONDS
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.recovery import LedgerRecovery
from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.guard import CommitGuard
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.redis.proposals import Committed
from hatcast.agents.release.batches import MAX_BATCH, Due, batches_of, release_partition_of
from hatcast.agents.release.budget_records import budget_message
from hatcast.agents.release.counters import count_published
from hatcast.agents.release.requests import RequestedLimits
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.mechanisms import Noise
from hatcast.stream.readings.partitioner import by_murmur2
from hatcast.stream.release.hats import Spent

D = TypeVar("D", bound=Due)
L = TypeVar("L")
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class ReleaseContext:
    """Parts of a worker that all kinds of release use.

    failures   failure log of the release loop
    limits     requested speed limits; None: no query of the policy takes requests
    """

    settings: Settings
    store: HatStore
    ledger: LedgerStore
    recovery: LedgerRecovery
    noise: Noise
    failures: FailureLog = field(default_factory=lambda: FailureLog("release"))
    limits: RequestedLimits | None = None


class ReleasePath(ABC, Generic[D, L, P]):
    """The path of one kind of release, in one worker. A kind is a subclass; it states what differs between kinds.

    D      what is due: its `dates` name the budget records that are sent with it
    L      what is loaded
    P      what is drawn, and proposed to the ledger
    name   of the kind in metrics
    event  name of the record's schema
    noun   of the releases in the log
    """

    name: ClassVar[str]
    event: ClassVar[str]
    noun: ClassVar[str]

    def __init__(
        self,
        context: ReleaseContext,
        topic: str,
        write: Callable[[Sequence[P], CommitGuard], Awaitable[list[Committed]]],
    ) -> None:
        """Args:
        topic: of the records
        write: writes record and charge of each proposal to the ledger, in one step; returns stored records instead
        """
        self._settings = context.settings
        self._policy = context.settings.policy
        self._calendar = Calendar(self._policy)
        self._store = context.store
        self._ledger = context.ledger
        self._recovery = context.recovery
        self._noise = context.noise
        self._failures = context.failures
        self._topic = topic
        self._write = write

    @abstractmethod
    async def round(self, owned: frozenset[int], stopping: asyncio.Event) -> int:
        """Find and release all due items of these release partitions. Return the number of HATs released."""

    @abstractmethod
    async def is_done(self, end_date: str) -> bool:
        """Return True if everything of this kind before a local date is published."""

    def release_partition(self, due: D) -> int:
        """Return the release partition of a due item."""
        return release_partition_of(self._policy, due.release_id, due.cell, self._store.partitions)

    async def release(self, due: Sequence[D], may_send: Callable[[], Awaitable[bool]] | None = None) -> bool:
        """Release due items, in order. Return False if some are left: not loadable now, or not to be sent yet.

        may_send   asked once all items have records, and nothing is sent before it returns True; None: the records of
                   each batch are sent once they are committed
        """
        # What is due of a sealed day was folded or retained again: all of it is published.
        sealed = [each for each in due if each.date <= self._recovery.sealed_through]
        records: dict[D, Committed] = {}
        for batch in batches_of(each for each in due if each.date > self._recovery.sealed_through):
            committed = await self.records(batch)
            records |= committed
            if may_send is None:
                await self.publish(committed)
        complete = len(sealed) + len(records) == len(due)
        if may_send is not None:
            if not complete or not await may_send():
                return False
            await self.publish(records)
        if released := [*sealed, *records]:
            with self._failures.attempt("delete contributions"):
                await self.delete(released)
        return complete

    async def records(self, batch: Sequence[D]) -> dict[D, Committed]:
        """Return the one record of each item of a date; commit those that are missing.

        Omits what is loaded together with an item that cannot be loaded now: a partition is folded again.
        """
        stored = await self._ledger.find(batch[0].date, [due.release_id for due in batch])
        records = {due: record for due, record in zip(batch, stored, strict=True) if record is not None}
        drawn: dict[D, P] = {}
        for _, group in groupby(batch, lambda due: due.loaded_with):
            together = list(group)
            if missing := [due for due in together if due not in records]:
                with self._failures.attempt("load contributions"):
                    loaded = await self.load(missing)
                if loaded is None:
                    self._failures.skip_next_clear()
                    records = {due: record for due, record in records.items() if due not in together}
                else:
                    drawn.update(zip(missing, await self.draw(missing, loaded), strict=True))
        if drawn:
            records.update(zip(drawn, await self.commit(list(drawn.values())), strict=True))
        return {due: records[due] for due in batch if due in records}

    async def publish(self, records: Mapping[D, Committed]) -> None:
        """Send the unpublished records of a date, in order, by release partition, and mark them.

        Raises ProducerGone if another worker has taken over a release partition, after the others are published:
        otherwise two policies would take turns for each.
        """
        by_partition: dict[int, list[tuple[D, Committed]]] = {}
        for due, record in records.items():
            if not record.published:
                by_partition.setdefault(self.release_partition(due), []).append((due, record))
        taken_over: ProducerGone | None = None
        for release_partition, pending in sorted(by_partition.items()):
            try:
                for start in range(0, len(pending), MAX_BATCH):
                    sent = pending[start : start + MAX_BATCH]
                    await self.send(release_partition, sent)
                    with self._failures.attempt(f"mark {self.noun} as published"):
                        await self.mark([due for due, _ in sent])
                    await self._recovery.confirm()
                    self.count(sent)
            except ProducerGone as error:
                taken_over = error
        if taken_over is not None:
            raise taken_over

    def spent(self, date: str) -> Spent | None:
        """Return the charges of a tracker's users on a date; None: not known here."""
        del date
        return None

    def count(self, published: Sequence[tuple[D, Committed]]) -> None:
        """Count releases that are marked as published."""
        count_published(self.name, [record for _, record in published])

    # The named steps. Tests wrap them.

    @abstractmethod
    async def load(self, batch: Sequence[D]) -> L | None:
        """Load the input of items that are loaded together (step loaded); None if it is not complete now."""

    @abstractmethod
    async def draw(self, batch: Sequence[D], loaded: L) -> list[P]:
        """Draw each item's record with its noise (step drawn)."""

    async def commit(self, proposals: Sequence[P]) -> list[Committed]:
        """Commit record and charge of each proposal in one step (step committed); a stored record wins."""
        operation = f"commit {self.noun}"
        with METERS.timed(COMMIT_SECONDS), self._failures.name_operation(operation):
            await self._recovery.confirm()
            committed = await self._write(proposals, self._recovery.guard)
        if any(each.new for each in committed):
            self._failures.succeeded(operation)
        return committed

    async def send(self, release_partition: int, pending: Sequence[tuple[D, Committed]]) -> None:
        """Send the stored bytes and the budget records of their days in one transaction (steps sent and acked)."""
        topics = self._settings.topics
        messages = [
            Message(
                topic=self._topic,
                partition=by_murmur2(due.cell.encode(), self._store.partitions),
                key=due.release_id.encode(),
                value=record.record,
                headers=release_event(self.event, due.release_id, topics.telemetry, record.record),
                timestamp_ms=due.released_at_ms,
            )
            for due, record in pending
        ]
        public_ms = pending[-1][0].released_at_ms
        for date in sorted({date for due, _ in pending for date in due.dates}):
            summary = await self._ledger.summary(date)
            # In a thread: composing a new number of charges takes up to a second of computing.
            spent = self.spent(date)
            message = await asyncio.to_thread(budget_message, topics, self._policy, date, summary, public_ms, spent)
            messages.append(message)
        with self._failures.attempt(f"publish {self.noun}"):
            await self._recovery.confirm()
            await self._recovery.publishers.publish(release_partition, messages)

    async def mark(self, batch: Sequence[D]) -> None:
        """Mark releases of a date as published in Redis (step marked)."""
        await self._ledger.mark_published(batch[0].date, [due.release_id for due in batch])

    @abstractmethod
    async def delete(self, released: Sequence[D]) -> None:
        """Delete the input of released items that no other release reads (step deleted)."""
