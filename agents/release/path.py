"""The one path of every release: from a due item to its record on a topic.

Each release belongs to the worker that owns its release partition. It passes through these states, and after a crash
in one of them the next owner of the partition finishes the rest. docs/reliability.md has this table too.

| state | what is done | a crash after it leaves | who goes on |
|---|---|---|---|
| loaded | Input is read, from partitions whose watermarks are past its close | nothing | the next owner, anew |
| drawn | The record has its noise, in this process alone | a draw that nobody saw | the next owner, by a new draw |
| committed | Record and charge are in Redis; a stored record wins | a record to send | the next owner sends it |
| barrier | Under `add_remove`: all workers have committed the slot | records to send | each owner sends its own |
| sent | The stored bytes are in a transaction | a transaction, whole or aborted | the next owner sends the same bytes |
| acked | All replicas have the transaction | a record without its mark | the next owner sends the same bytes again |
| marked | Redis has that it is published | input that is not needed | the next owner deletes it |
| stored | Of a tracker: the state after a settled date | input that is not needed | the next owner deletes it |
| deleted | Input that no other release reads is gone | nothing | |

A draw does not leave the process before its commit, and only stored bytes are sent. Before the commit, before the send
and after the mark the path confirms that Redis has not gone back. What is due is released by one of three schedules:

    groups     `release`: HATs, and answers under `replace`. A batch is drawn while the one before is committed, sent,
               marked and deleted
    together   `release_together`: slots under `add_remove`, with their answers, and running sums. All of a slot is
               committed before any of it is sent, and the next slot begins once it is published
    chain      a tracker: its one owner draws each release from the numbers of those before it. After any failure it
               begins anew from the stored state and the stored records [hatcast.agents.release.tracker]

[docs/specification/release.md, Steps; decisions/0030]
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import chain, groupby
from typing import ClassVar, Final, Generic, TypeVar

from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import cancel_all
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.cloud_events import release_event
from hatcast.agents.kafka.producers import Message, ProducerGone
from hatcast.agents.kafka.registry import Registry
from hatcast.agents.monitoring.declarations import COMMIT_SECONDS
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.recovery import LedgerRecovery
from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.guard import CommitGuard
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.release.batches import Drawn, Due, batches_of, groups_of, release_partition_of, sends_of
from hatcast.agents.release.budget_records import budget_messages
from hatcast.agents.release.counters import count_published
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.ledger.proposals import Committed
from hatcast.stream.ledger.rejections import Unrecovered
from hatcast.stream.mechanisms import Noise
from hatcast.stream.readings.partitioner import by_murmur2
from hatcast.stream.release.spending import Spent

D = TypeVar("D", bound=Due)
L = TypeVar("L")
P = TypeVar("P")
T = TypeVar("T")
R = TypeVar("R")

_SENT_AGAIN: Final = (RedisError, KafkaError, Unrecovered, ProducerGone)  # errors of a send that the next round repeats


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

    async def release(self, due: Iterable[D], stopping: asyncio.Event | None = None) -> int:
        """Release due items, in order, group by group. Return the number released; others cannot be loaded now.

        A batch is drawn while the one before is committed, sent and deleted. What is committed is sent also if a later
        batch fails.

        stopping   ends it after a group
        """
        done, groups = 0, list(groups_of(due))
        async with aclosing(one_ahead(self._draw_missing, chain.from_iterable(groups))) as drawn:
            for group in groups:
                if stopping is not None and stopping.is_set():
                    break
                records: dict[D, Committed] = {}
                try:
                    for _ in group:
                        records |= await self.commit_drawn(await anext(drawn))
                except Exception:
                    with suppress(*_SENT_AGAIN):  # then the next round sends them: the first error is raised
                        await self.publish(records)
                    raise
                await self.publish(records)
                done += await self._delete_released([*chain.from_iterable(group)], records)
        return done

    async def release_together(self, due: Sequence[D], may_send: Callable[[], Awaitable[bool]]) -> bool:
        """Release due items of a date, in order: commit all, then send all. Return False if some are left.

        may_send   asked once all items have records; nothing is sent before it returns True
        """
        records: dict[D, Committed] = {}
        for batch in batches_of(due):
            records |= await self.records(batch)
        sealed = sum(map(self._is_sealed, due))
        if sealed + len(records) < len(due) or not await may_send():
            return False
        await self.publish(records)
        await self._delete_released(due, records)
        return True

    async def records(self, batch: Sequence[D]) -> dict[D, Committed]:
        """Return the one record of each item of a date; draw and commit those that are missing.

        Omits what is loaded together with an item that cannot be loaded now: a partition is folded again.
        """
        return await self.commit_drawn(await self._draw_missing(batch))

    async def _draw_missing(self, batch: Sequence[D]) -> Drawn[D, P]:
        """Find the stored records of a batch, and draw the others: no draw leaves the process before its commit."""
        if self._is_sealed(batch[0]):
            return Drawn(batch, {}, {})
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
        return Drawn(batch, records, drawn)

    async def commit_drawn(self, batch: Drawn[D, P]) -> dict[D, Committed]:
        """Commit the proposals of a batch; return the one record of each item, in order."""
        records = dict(batch.stored)
        if batch.proposals:
            records.update(zip(batch.proposals, await self.commit([*batch.proposals.values()]), strict=True))
        return {due: records[due] for due in batch.items if due in records}

    async def _delete_released(self, due: Sequence[D], records: Mapping[D, Committed]) -> int:
        """Delete the input of items of a date that are published; return their number."""
        if released := [each for each in due if each in records or self._is_sealed(each)]:
            with self._failures.attempt("delete contributions"):
                await self.delete(released)
        return len(released)

    def _is_sealed(self, due: D) -> bool:
        """Return True if an item of a sealed day was folded or retained again: all of that day is published."""
        return due.date <= self._recovery.sealed_through

    async def publish(self, records: Mapping[D, Committed]) -> None:
        """Send the unpublished records of a date, all release partitions at once, and mark them.

        Raises the error of a send after the others are published; ProducerGone, if another worker has taken over a
        release partition, after everything else is: otherwise two policies would take turns for each.
        """
        by_partition: dict[int, list[tuple[D, Committed]]] = {}
        for due, record in records.items():
            if not record.published:
                by_partition.setdefault(self.release_partition(due), []).append((due, record))
        taken_over: ProducerGone | None = None
        for pending in sends_of(by_partition):
            failed = await self.send(pending)
            if published := [each for r, part in pending.items() if r not in failed for each in part]:
                with self._failures.attempt(f"mark {self.noun} as published"):
                    await self.mark([due for due, _ in published])
                await self._recovery.confirm()
                self.count(published)
            for error in failed.values():
                if not isinstance(error, ProducerGone):
                    with self._failures.name_operation(f"publish {self.noun}"):
                        raise error
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

    async def send(self, pending: Mapping[int, Sequence[tuple[D, Committed]]]) -> dict[int, BaseException]:
        """Send stored bytes and the budget records of their days, each release partition's in one transaction.

        The transactions run at once: each has its own producer (steps sent and acked). Return the error of each that
        is not known to be committed, by release partition.
        """
        operation = f"publish {self.noun}"
        with self._failures.name_operation(operation):
            sent = [due for part in pending.values() for due, _ in part]
            dates, public_ms = sorted({date for due in sent for date in due.dates}), sent[-1].released_at_ms
            budgets = await budget_messages(self._settings, self._ledger, dates, public_ms, self.spent)
            messages = [[*map(self._message, part), *budgets] for part in pending.values()]
            await self._recovery.confirm(pending)
            publish = self._recovery.publishers.publish
            ended = await asyncio.gather(*map(publish, pending, messages), return_exceptions=True)
        failed = {r: error for r, error in zip(pending, ended, strict=True) if error is not None}
        if not failed:
            self._failures.succeeded(operation)
        return failed

    def _message(self, unpublished: tuple[D, Committed]) -> Message:
        due, record = unpublished
        return Message(
            topic=self._topic,
            partition=by_murmur2(due.cell.encode(), self._store.partitions),
            key=due.release_id.encode(),
            value=record.record,
            headers=release_event(self.event, due.release_id, self._settings.topics.telemetry, record.record),
            timestamp_ms=due.released_at_ms,
        )

    async def mark(self, batch: Sequence[D]) -> None:
        """Mark releases of a date as published in Redis (step marked)."""
        await self._ledger.mark_published(batch[0].date, [due.release_id for due in batch])

    @abstractmethod
    async def delete(self, released: Sequence[D]) -> None:
        """Delete the input of released items that no other release reads (step deleted)."""


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
