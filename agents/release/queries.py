"""Answers to queries over days, by the steps of a release.    [decisions/0014]

What HATs had is kept when they are deleted (agents/redis/retained.py). Once the last slot of a period is final and
none of its HATs is open, each cell gets its one answer: loaded, drawn, committed, sent, acked, marked; and
what was kept is deleted when the last query that reads it is answered about all of them.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.cloud_events import release_event
from hatcast.agents.kafka.producers import Message
from hatcast.agents.monitoring.declarations import COMMIT_SECONDS
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.recovery import LedgerRecovery
from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.ledger import Committed, LedgerStore
from hatcast.agents.redis.retained import Gap, Retained, RetainedStore
from hatcast.agents.release.answer_batches import ANSWERS, DueAnswer, answer_proposal_of, batches_of, by_asked
from hatcast.agents.release.budget_records import budget_message
from hatcast.agents.release.counters import count_published
from hatcast.agents.release.lots import publish_by_owner
from hatcast.agents.release.query_inputs import asked_of_kept
from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.fold.watermark import closes_at, min_watermark
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Relation
from hatcast.stream.queries import RetainedDay
from hatcast.stream.readings.partitioner import by_murmur2
from hatcast.stream.release.queries import QueryPeriod, QueryRelease, query_periods, query_release_of
from hatcast.stream.release.schedule import listed_cells, released_at_ms

__all__ = ["DueAnswer", "QueryReleaser"]


class QueryReleaser:
    """The answers of one worker."""

    def __init__(
        self, settings: Settings, kept: RetainedStore, ledger: LedgerStore, recovery: LedgerRecovery, noise: Noise
    ) -> None:
        self._settings = settings
        self._policy = settings.policy
        self._calendar = Calendar(settings.policy)
        self._kept = kept
        self._ledger = ledger
        self._recovery = recovery
        self._noise = noise
        self._looked: object = None
        self._by_cell = settings.policy.relation is Relation.ADD_REMOVE

    async def round(self, store: HatStore, owned: frozenset[int], until: str) -> None:
        """Answer what is due: looked for whenever a slot becomes final or more is kept, until there is none left.

        until   the local date from which another policy releases
        """
        least = min_watermark(await store.watermarks())
        if least is None or not owned:
            return
        newest = self._calendar.slot_at(least - self._policy.lateness_ms).key
        looked = (newest, until, owned, self._recovery.guard.token)
        # Of a cluster a node may be lost that has HATs, which are kept again, and not the one that has the ledger.
        if self._looked == (looked, await self._kept.slot_counts()):
            return
        open_slots = await store.open_slots()
        # Final ones will be released by us or others, and kept: then there is more to look for.
        done = not any(least >= end + self._policy.lateness_ms for end in open_slots.values())
        over = [
            asked
            for asked in await asked_of_kept(self._kept, self._policy, self._calendar, until)
            if least >= closes_at(asked.closing, self._policy)
            and not any(slot.key in open_slots for slot in asked.slots)
        ]
        done &= await self.answer(over, owned, until)
        if done:
            self._looked = (looked, await self._kept.slot_counts())

    async def are_open(self, until: str) -> bool:
        """Whether anything is kept for a query that ends before a local date: it is not answered by all, or not yet."""
        return bool(await asked_of_kept(self._kept, self._policy, self._calendar, until))

    async def answer(
        self,
        asked: Sequence[QueryPeriod],
        owned: frozenset[int],
        until: str,
        cells: Sequence[str] | None = None,
        first_ms: int = 0,
    ) -> bool:
        """Answer queries about those of these cells that are ours; None: about all of which anything is kept.

        until      the local date from which another policy releases
        first_ms   slots that began earlier (ms UTC) are not the policy's
        False where a partition's clock has gone back, or a HAT is open again: then not all is done.
        """
        due = []
        sealed = [one for one in asked if self._is_sealed(one)]  # answered for good; what is kept again goes
        for one in asked:
            if self._is_sealed(one):
                continue
            users = await self._users(one)
            for cell in sorted(users if cells is None else cells):
                answer = DueAnswer(one.release_id(cell), cell, one, users.get(cell, 0))
                if self.release_partition(answer) in owned:
                    due.append(answer)
        all_records: dict[DueAnswer, Committed] = {}
        for batch in batches_of(due):
            records = await self._records(batch, first_ms)
            all_records |= records
            if not self._by_cell:
                await self._publish(records)
        done = len(all_records) == len(due)
        if self._by_cell and done and (done := await self._all_committed(asked)):
            # Lots are cut by who was there, which is nobody's to know: all is sent at once, and with it what the days
            # have come to with the answers of all workers.
            await self._publish(all_records)
        if done or not self._by_cell:
            answered = {one.asked.key: one.asked for one in all_records}
            await self._forget([*answered.values(), *sealed], until)
        return done

    def _is_sealed(self, asked: QueryPeriod) -> bool:
        return asked.closing.date <= self._recovery.sealed_through

    async def _users(self, asked: QueryPeriod) -> dict[str, int]:
        return await self._kept.cells([slot.key for slot in asked.slots])

    async def _all_committed(self, asked: Sequence[QueryPeriod]) -> bool:
        """Whether all workers have committed their answers about the listed cells."""
        cells = listed_cells(self._policy)
        for one in asked:
            if await self._ledger.count_missing(one.closing.date, [one.release_id(cell) for cell in cells]):
                return False
        return True

    def release_partition(self, one: DueAnswer) -> int:
        """Whose owner answers it: under `add_remove` that of the cell's HATs."""
        return self._partition_of(one.release_id, one.cell)

    def _partition_of(self, release_id: str, cell: str) -> int:
        return by_murmur2((cell if self._by_cell else release_id).encode(), self._kept.partitions)

    async def _records(self, due: Sequence[DueAnswer], first_ms: int) -> dict[DueAnswer, Committed]:
        """The one record of each, committed now where it is not there yet; without those that cannot be read now."""
        found = await self._ledger.find(due[0].asked.closing.date, [one.release_id for one in due])
        records = {one: record for one, record in zip(due, found, strict=True) if record is not None}
        drawn: dict[DueAnswer, QueryRelease] = {}
        for of_asked in by_asked([one for one in due if one not in records]):
            loaded = await self.load(of_asked)
            if loaded is not None:
                drawn.update(zip(of_asked, await self.draw(of_asked, loaded, first_ms), strict=True))
        if drawn:
            records.update(zip(drawn, await self.commit(list(drawn.values())), strict=True))
        return {one: records[one] for one in due if one in records}

    async def _publish(self, records: Mapping[DueAnswer, Committed]) -> None:
        """Send what is not published, by release partition. Raises ProducerGone where others took over one of these."""
        await publish_by_owner(records, self.release_partition, ANSWERS, self._send_and_mark)

    async def _send_and_mark(self, release_partition: int, waiting: Sequence[tuple[DueAnswer, Committed]]) -> None:
        await self.send(release_partition, waiting)
        await self.mark([one for one, _ in waiting])
        await self._recovery.confirm()
        count_published("query", [record for _, record in waiting])

    async def _forget(self, asked: Iterable[QueryPeriod], until: str) -> None:
        """Delete what no query is going to read, of what these have read.

        A slot goes as a whole, once every query that reads it is answered about every cell: whether it is missing is
        told by its cells together. Whoever publishes the last answer finds all the others published, and deletes.
        """
        over = {slot.key for one in asked for slot in one.slots}
        for reader in query_periods(self._policy, self._calendar, over):
            if reader.closing.date < until and not await self._is_answered(reader):
                over.difference_update(slot.key for slot in reader.slots)
        hats = [(key, cell) for key in sorted(over) for cell in await self._kept.cells([key])]
        if hats:
            await self.delete(hats)

    async def _is_answered(self, asked: QueryPeriod) -> bool:
        """Whether Kafka has the answers about all cells of which anything is kept."""
        if self._is_sealed(asked):
            return True
        cells = await self._users(asked)
        return all(await self._ledger.acknowledged(asked.closing.date, [*map(asked.release_id, cells)]))

    # The named steps. Tests wrap them from their own entry point.

    async def load(self, due: Sequence[DueAnswer]) -> Retained | None:
        """loaded: what is kept of the period; None if a clock is too small, or one of the HATs is open."""
        asked = due[0].asked
        slots, closes_ms = [slot.key for slot in asked.slots], closes_at(asked.closing, self._policy)
        return await self._kept.load(slots, closes_ms, [one.cell for one in due])

    async def draw(self, due: Sequence[DueAnswer], kept: Retained, first_ms: int) -> list[QueryRelease]:
        """drawn: each answer with its noise, in a thread."""
        return await asyncio.to_thread(self._draw, due, kept, first_ms)

    def _draw(self, due: Sequence[DueAnswer], kept: Retained, first_ms: int) -> list[QueryRelease]:
        asked = due[0].asked
        there = [slot for slot in asked.slots if not self._is_missing(slot, kept, first_ms)]
        return [
            query_release_of(
                asked,
                self._calendar,
                one.cell,
                {slot.date: RetainedDay.of(kept.parts.get((one.cell, slot.key), [])) for slot in there},
                self._noise,
            )
            for one in due
        ]

    def _is_missing(self, slot: Slot, kept: Retained, first_ms: int) -> bool:
        """Whether the slot cannot be read whole, by what is public."""
        if slot.start_ms < first_ms or (not self._by_cell and slot.key not in kept.data):
            return True
        starts, closes_ms = self._calendar.day_start(slot.date), closes_at(slot, self._policy)
        return any(_lost(gap, starts, closes_ms) for gap in kept.gaps)

    async def commit(self, answers: Sequence[QueryRelease]) -> list[Committed]:
        """committed: the records, with what the query reserves, in one step each; what was there already wins."""
        at_ms = now_ms()
        proposals = [answer_proposal_of(one, at_ms, self._partition_of(one.release_id, one.cell)) for one in answers]
        with METERS.timed(COMMIT_SECONDS):
            await self._recovery.confirm()
            return await self._ledger.commit_answers(proposals, self._recovery.guard)

    async def send(self, release_partition: int, waiting: Sequence[tuple[DueAnswer, Committed]]) -> None:
        """sent and acked: the bytes in Redis, and the budget of all days that were read, in one transaction."""
        topics, dates = self._settings.topics, {date for one, _ in waiting for date in one.asked.period.dates}
        public_ms = released_at_ms(waiting[0][0].asked.closing, self._policy) if self._by_cell else None
        messages = [
            Message(
                topic=topics.queries,
                partition=by_murmur2(one.cell.encode(), self._kept.partitions),
                key=one.release_id.encode(),
                value=record.record,
                headers=release_event("query", one.release_id, topics.telemetry, record.record),
                timestamp_ms=public_ms,
            )
            for one, record in waiting
        ]
        for date in sorted(dates):
            summary = await self._ledger.summary(date)
            # In a thread: composing a new number of charges takes up to a second of computing.
            messages.append(await asyncio.to_thread(budget_message, topics, self._policy, date, summary, public_ms))
        await self._recovery.confirm()
        await self._recovery.publishers.publish(release_partition, messages)

    async def mark(self, due: Sequence[DueAnswer]) -> None:
        """marked: Kafka has them."""
        await self._ledger.mark_published(due[0].asked.closing.date, [one.release_id for one in due])

    async def delete(self, hats: Sequence[tuple[str, str]]) -> None:
        """deleted: what was kept of these (slot, cell)."""
        await self._kept.delete(hats)


def _lost(gap: Gap, starts_ms: int, closes_ms: int) -> bool:
    """Whether a partition may have lost readings of a slot: its day begins within the gap, and it was open before."""
    return starts_ms < gap.until_ms and not (gap.from_ms is not None and gap.from_ms >= closes_ms)
