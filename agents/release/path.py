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
| acked | All in-sync replicas have it | a record without its mark | the next owner sends the same bytes again |
| marked | Redis has that it is published | input that is not needed | the next owner deletes it |
| stored | Of a tracker: the state after a settled date | input that is not needed | the next owner deletes it |
| deleted | Input that no other release reads is gone | nothing | |

Where input is still there, `ReleaseKind.due` lists it for the next owner, and `LedgerStore.find` has the stored record.
Where it is gone, `Resender` (resending.py) sends the stored record before the date is sealed.

A crash leaves this if Redis lost nothing. If it did, a recovery comes first: what was committed and never sent is
discarded with its charge, and drawn again. Nobody has seen the first draw.

A draw does not leave the process before its commit, and only stored bytes are sent. Before the commit, before the send
and after the mark the path confirms that Redis has not gone back.

A kind of release is a value, `ReleaseKind`: what is due, how it is loaded, drawn and deleted, and in which order:

    groups     HATs, and answers under `replace`. A batch is drawn while the one before is committed, sent, marked and
               deleted
    together   slots under `add_remove`, with their answers, and running sums. All of a slot is committed before any of
               it is sent, and the next slot begins once it is published
    chain      a tracker: one owner draws each slot from the numbers of those before it, which a session in its process
               knows. After any failure the session is dropped, and made anew from the stored state and records

[docs/specification/release.md, Steps; decisions/0002]
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from itertools import chain, groupby
from typing import Final, Generic, TypeVar

from redis.exceptions import RedisError

from hatcast.agents.kafka.aio import KafkaError
from hatcast.agents.kafka.producers import OutputMessage, ProducerGone
from hatcast.agents.monitoring.declarations import COMMIT_SECONDS, RELEASES
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.release.batching import batches_of, groups_of, one_ahead, sends_of
from hatcast.agents.release.kind import TRACKER_PARTITION, Drawn, Due, DuePart, ReleaseContext, ReleaseKind, Session
from hatcast.agents.release.messages import budget_messages, release_message
from hatcast.stream.ledger.commits import AnyProposal
from hatcast.stream.ledger.proposals import Committed
from hatcast.stream.ledger.rejections import Behind, Unrecovered
from hatcast.stream.records.projections import HEAD

D = TypeVar("D", bound=Due)
L = TypeVar("L")

_SENT_AGAIN: Final = (RedisError, KafkaError, Unrecovered, ProducerGone)  # errors of a send that the next round repeats


class ReleasePath(Generic[D, L]):
    """The path of one kind of release, in one worker."""

    def __init__(self, context: ReleaseContext, kind: ReleaseKind[D, L]) -> None:
        self.kind = kind
        self._context = context
        self._ledger = context.ledger
        self._recovery = context.recovery
        self._failures = context.failures
        self._known: tuple[str, int | None] | None = None  # `_commits` of the open session at its last commit

    # The three orders of committing and sending.

    async def round(self, owned: frozenset[int], stopping: asyncio.Event) -> int:
        """Find and release all due items of these release partitions. Return the number of items released."""
        session = self.kind.session
        if session is None:
            return await self._release_parts(owned, stopping)
        try:
            if TRACKER_PARTITION not in owned:
                self._drop(session)
                return 0
            if self._known != self._commits():  # also if another worker has committed since
                await session.open()
                self._known = self._commits()
            return await self._release_parts(owned, stopping)
        except BaseException:
            self._drop(session)  # it may have learned numbers that are not committed
            raise

    async def _release_parts(self, owned: frozenset[int], stopping: asyncio.Event) -> int:
        done = 0
        async with aclosing(self.kind.due(owned)) as parts:
            async for part in parts:
                if stopping.is_set():
                    break
                released, is_published = await self._release_part(part, stopping)
                done += released
                if not is_published:
                    break
        return done

    async def _release_part(self, part: DuePart[D], stopping: asyncio.Event) -> tuple[int, bool]:
        """Return the number of items released, and whether all of the part is published."""
        if self.kind.order == "groups":
            released = await self.release_groups(part.due, stopping)
            return released, released == len(part.due)
        if self.kind.order == "together":
            is_published = await self.release_together(part.due, part.may_send)
        else:
            is_published = await self.release_chain(part.due)
        return len(part.due) * is_published, is_published

    async def release_groups(self, due: Iterable[D], stopping: asyncio.Event | None = None) -> int:
        """Order `groups`, until `stopping` is set. Return the number released; others cannot be loaded now."""
        done, groups = 0, list(groups_of(due))
        async with aclosing(one_ahead(self._draw_missing, chain.from_iterable(groups))) as drawn:
            for group in groups:
                if stopping is not None and stopping.is_set():
                    break
                records = await self._publish_group(group, drawn)
                done += await self._delete_released([*chain.from_iterable(group)], records)
        return done

    async def release_together(self, due: Sequence[D], may_send: Callable[[], Awaitable[bool]]) -> bool:
        """Order `together`, of items of a date. Return False if some are left."""
        records: dict[D, Committed] = {}
        for batch in batches_of(due):
            records |= await self.records(batch)
        sealed = sum(map(self._is_sealed, due))
        if sealed + len(records) < len(due) or not await may_send():
            return False
        await self.send_and_mark(records)
        await self._delete_released(due, records)
        return True

    async def release_chain(self, due: Sequence[D]) -> bool:
        """Order `chain`: release what follows from items. Return False if they cannot be loaded now.

        Raises Behind if another worker has committed since the session did: it does not know of it.
        """
        loaded = await self._load(due)
        if loaded is None:
            return False
        if self._known != self._commits():
            raise Behind
        proposals = await self.draw(due, loaded)
        groups = list(groups_of(proposals))
        async with aclosing(_already_drawn(proposals, groups)) as drawn:
            for group in groups:
                await self._publish_group(group, drawn)
        self._known = self._commits()
        return True

    def _commits(self) -> tuple[str, int | None]:
        """Return the token of the recovery, and the chain's commit sequence, as this worker knows them."""
        guard = self._recovery.guard
        return guard.token, guard.written.get(TRACKER_PARTITION)

    def _drop(self, session: Session[D]) -> None:
        self._known = None
        session.drop()

    # What the orders are made of.

    async def records(self, batch: Sequence[D]) -> dict[D, Committed]:
        """Return the one record of each item of a date; draw and commit those that are missing.

        Omits what is loaded together with an item that cannot be loaded now: a partition is folded again.
        """
        return await self.commit_drawn(await self._draw_missing(batch))

    async def _draw_missing(self, batch: Sequence[D]) -> Drawn[D]:
        """Find the stored records of a batch, and draw the others: no draw leaves the process before its commit."""
        if self._is_sealed(batch[0]):
            return Drawn(batch, {}, {})
        stored = await self._ledger.find(batch[0].date, [due.release_id for due in batch])
        records = {due: record for due, record in zip(batch, stored, strict=True) if record is not None}
        drawn: dict[D, AnyProposal] = {}
        for _, group in groupby(batch, lambda due: due.loaded_with):
            together = list(group)
            if missing := [due for due in together if due not in records]:
                loaded = await self._load(missing)
                if loaded is None:
                    records = {due: record for due, record in records.items() if due not in together}
                else:
                    drawn |= await self.draw(missing, loaded)
        return Drawn(batch, records, drawn)

    async def _load(self, items: Sequence[D]) -> L | None:
        with self._failures.attempt("load contributions"):
            loaded = await self.load(items)
        if loaded is None:
            self._failures.skip_next_clear()
        return loaded

    async def commit_drawn(self, batch: Drawn[D]) -> dict[D, Committed]:
        """Commit the proposals of a batch; return the one record of each item, in order.

        Raises Behind if another worker's record has replaced a draw of a chain: the next was drawn from the number that
        it had.
        """
        records, session = dict(batch.stored), self.kind.session
        if batch.proposals:
            records.update(zip(batch.proposals, await self.commit([*batch.proposals.values()]), strict=True))
        if session is not None and not all(each.new or session.has_stored(due) for due, each in records.items()):
            raise Behind
        return {due: records[due] for due in batch.items if due in records}

    async def _publish_group(self, group: Sequence[Sequence[D]], drawn: AsyncGenerator[Drawn[D]]) -> dict[D, Committed]:
        """Commit a group of batches, then publish it; if a batch fails, publish those before it."""
        records: dict[D, Committed] = {}
        try:
            for _ in group:
                records |= await self.commit_drawn(await anext(drawn))
        except Exception:
            with suppress(*_SENT_AGAIN):  # then the next round sends them: the first error is raised
                await self.send_and_mark(records)
            raise
        await self.send_and_mark(records)
        return records

    async def _delete_released(self, due: Sequence[D], records: Mapping[D, Committed]) -> int:
        """Delete the input of items of a date that are published; return their number."""
        if released := [each for each in due if each in records or self._is_sealed(each)]:
            with self._failures.attempt("delete contributions"):
                await self.delete(released)
        return len(released)

    def _is_sealed(self, due: D) -> bool:
        """Return True if an item of a sealed day was folded or retained again: all of that day is published."""
        return due.date <= self._recovery.sealed_through

    async def send_and_mark(self, records: Mapping[D, Committed]) -> None:
        """Send the unpublished records of a date, all release partitions at once, and mark them.

        Raises the error of a send after the others are published; ProducerGone, if another worker has taken over a
        release partition, after everything else is: otherwise two policies would take turns for each.
        """
        by_partition: dict[int, list[tuple[D, Committed]]] = {}
        for due, record in records.items():
            if not record.published:
                by_partition.setdefault(self._context.release_partition(due), []).append((due, record))
        taken_over: ProducerGone | None = None
        for pending in sends_of(by_partition):
            failed = await self.send(pending)
            if published := [each for r, part in pending.items() if r not in failed for each in part]:
                with self._failures.attempt(f"mark {self.kind.noun} as published"):
                    await self.mark([due for due, _ in published])
                await self._recovery.confirm()
                count_published(self.kind.name, [record for _, record in published])
            for error in failed.values():
                if not isinstance(error, ProducerGone):
                    with self._failures.name_operation(f"publish {self.kind.noun}"):
                        raise error
                taken_over = error
        if taken_over is not None:
            raise taken_over

    # The named steps. Tests wrap them.

    async def load(self, batch: Sequence[D]) -> L | None:
        """Load the input of items that are loaded together (step loaded); None if it is not complete now."""
        return await self.kind.load(batch)

    async def draw(self, batch: Sequence[D], loaded: L) -> Mapping[D, AnyProposal]:
        """Draw each item's record with its noise (step drawn)."""
        return await self.kind.draw(batch, loaded)

    async def commit(self, proposals: Sequence[AnyProposal]) -> list[Committed]:
        """Commit record and charge of each proposal in one step (step committed); a stored record wins."""
        operation = f"commit {self.kind.noun}"
        with METERS.timed(COMMIT_SECONDS), self._failures.name_operation(operation):
            await self._recovery.confirm()
            committed = await self._ledger.commit(proposals, self._recovery.guard)
        if any(each.new for each in committed):
            self._failures.succeeded(operation)
        return committed

    async def send(self, pending: Mapping[int, Sequence[tuple[D, Committed]]]) -> dict[int, BaseException]:
        """Send stored bytes and the budget records of their days, each release partition's in one transaction.

        The transactions run at once: each has its own producer (steps sent and acked). Return the error of each that
        is not known to be committed, by release partition.
        """
        operation = f"publish {self.kind.noun}"
        with self._failures.name_operation(operation):
            dates = sorted({date for part in pending.values() for due, _ in part for date in due.dates})
            messages = [[*map(self._message, part)] for part in pending.values()]
            public_ms = messages[-1][-1].timestamp_ms
            budgets = await budget_messages(self._context.settings, self._ledger, dates, public_ms, self.kind.spent)
            await self._recovery.confirm(pending)
            publish = self._context.producers.publish
            sends = [publish(r, [*of, *budgets]) for r, of in zip(pending, messages, strict=True)]
            ended = await asyncio.gather(*sends, return_exceptions=True)
        failed = {r: error for r, error in zip(pending, ended, strict=True) if error is not None}
        if not failed:
            self._failures.succeeded(operation)
        return failed

    def _message(self, unpublished: tuple[D, Committed]) -> OutputMessage:
        due, record = unpublished
        return release_message(self._context.settings, due.release_id, record.record, self._context.store.partitions)

    async def mark(self, batch: Sequence[D]) -> None:
        """Mark releases of a date as published in Redis (step marked)."""
        await self._ledger.mark_published(batch[0].date, [due.release_id for due in batch])
        await self.kind.after_mark(batch)

    async def delete(self, released: Sequence[D]) -> None:
        """Delete the input of released items that no other release reads (step deleted)."""
        await self.kind.delete(released)


async def _already_drawn(
    proposals: Mapping[D, AnyProposal], groups: Iterable[Iterable[Sequence[D]]]
) -> AsyncGenerator[Drawn[D]]:
    for batch in chain.from_iterable(groups):
        yield Drawn(batch, {}, {due: proposals[due] for due in batch})


def count_published(kind: str, records: Iterable[Committed]) -> None:
    """Count releases of a kind that Kafka has acknowledged, by the status in their bytes."""
    for record in records:
        METERS.count(RELEASES, kind=kind, status=HEAD.decode(record.record).status)
