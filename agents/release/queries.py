"""Answer queries over days, by the steps of a release.    [decisions/0014]

Contributions of queried HATs are retained when the HATs are deleted (agents/redis/retained.py). Once the last slot of a
period is final and none of its HATs is open, each cell gets its one answer: loaded, drawn, committed, sent, acked,
marked. The retained contributions are deleted when the last query that reads them is answered for all cells.
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
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.redis.proposals import Committed
from hatcast.agents.redis.retained import Gap, Retained, RetainedStore
from hatcast.agents.release.batches import (
    MAX_ANSWERS,
    DueAnswer,
    answer_proposal_of,
    batches_of,
    by_period,
    publish_by_partition,
)
from hatcast.agents.release.budget_records import budget_message
from hatcast.agents.release.counters import count_published
from hatcast.agents.release.query_inputs import retained_periods
from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.fold.watermark import closes_at, min_watermark
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Relation
from hatcast.stream.queries import RetainedDay
from hatcast.stream.readings.partitioner import by_murmur2
from hatcast.stream.release.queries import QueryPeriod, QueryRelease, query_periods, query_release_of
from hatcast.stream.release.schedule import listed_cells, released_at_ms


class QueryReleaser:
    """Answers queries over days, in one worker."""

    def __init__(
        self, settings: Settings, retained: RetainedStore, ledger: LedgerStore, recovery: LedgerRecovery, noise: Noise
    ) -> None:
        self._settings = settings
        self._policy = settings.policy
        self._calendar = Calendar(settings.policy)
        self._retained = retained
        self._ledger = ledger
        self._recovery = recovery
        self._noise = noise
        self._answered_state: object = None  # everything was answered when it was read
        self._by_cell = settings.policy.relation is Relation.ADD_REMOVE

    async def round(self, store: HatStore, owned: frozenset[int], end_date: str) -> None:
        """Answer due queries; after all are answered, look again once a slot becomes final or more is retained.

        end_date   the local date from which another policy releases
        """
        watermark = min_watermark(await store.watermarks())
        if watermark is None or not owned:
            return
        newest = self._calendar.slot_at(watermark - self._policy.lateness_ms).key
        state = (newest, end_date, owned, self._recovery.guard.token)
        # A cluster may lose a node with HATs, which are retained again, while the node with the ledger stays.
        if self._answered_state == (state, await self._retained.slot_counts()):
            return
        open_slots = await store.open_slots()
        # Final slots are still to be released, by any worker, and then retained: the next round finds more.
        done = not any(watermark >= end + self._policy.lateness_ms for end in open_slots.values())
        periods = [
            period
            for period in await retained_periods(self._retained, self._policy, self._calendar, end_date)
            if watermark >= closes_at(period.closing, self._policy)
            and not any(slot.key in open_slots for slot in period.slots)
        ]
        done &= await self.answer(periods, owned, end_date)
        if done:
            self._answered_state = (state, await self._retained.slot_counts())

    async def has_retained(self, end_date: str) -> bool:
        """Return True if contributions are retained for a query whose period ends before a local date.

        Then not all of its answers are published.
        """
        return bool(await retained_periods(self._retained, self._policy, self._calendar, end_date))

    async def answer(
        self,
        periods: Sequence[QueryPeriod],
        owned: frozenset[int],
        end_date: str,
        cells: Sequence[str] | None = None,
        first_ms: int = 0,
    ) -> bool:
        """Answer queries about those of these cells whose release partitions are owned.

        cells      None: all with retained contributions
        end_date   the local date from which another policy releases
        first_ms   slots that began earlier (ms UTC) are not the policy's
        Returns False if something is left: a partition's watermark has gone back, or a HAT is open again.
        """
        due = []
        sealed = [period for period in periods if self._is_sealed(period)]  # all answered; only retained again
        for period in periods:
            if self._is_sealed(period):
                continue
            users = await self._users(period)
            for cell in sorted(users if cells is None else cells):
                answer = DueAnswer(period.release_id(cell), cell, period, users.get(cell, 0))
                if self.release_partition(answer) in owned:
                    due.append(answer)
        all_records: dict[DueAnswer, Committed] = {}
        for batch in batches_of(due, MAX_ANSWERS):
            records = await self._records(batch, first_ms)
            all_records |= records
            if not self._by_cell:
                await self._publish(records)
        done = len(all_records) == len(due)
        if self._by_cell and done and (done := await self._all_committed(periods)):
            # Batches depend on user counts, which are private: so everything is sent at once, together with the cost of
            # the days after the answers of all workers.
            await self._publish(all_records)
        if done or not self._by_cell:
            answered = {answer.query_period.key: answer.query_period for answer in all_records}
            await self._delete_answered([*answered.values(), *sealed], end_date)
        return done

    def _is_sealed(self, period: QueryPeriod) -> bool:
        return period.closing.date <= self._recovery.sealed_through

    async def _users(self, period: QueryPeriod) -> dict[str, int]:
        return await self._retained.cells([slot.key for slot in period.slots])

    async def _all_committed(self, periods: Sequence[QueryPeriod]) -> bool:
        """Return True if all workers have committed their answers about the listed cells."""
        cells = listed_cells(self._policy)
        for period in periods:
            if await self._ledger.count_missing(period.closing.date, [period.release_id(cell) for cell in cells]):
                return False
        return True

    def release_partition(self, due: DueAnswer) -> int:
        """Return the release partition of an answer; under `add_remove` that of the cell's HATs."""
        return self._partition_of(due.release_id, due.cell)

    def _partition_of(self, release_id: str, cell: str) -> int:
        return by_murmur2((cell if self._by_cell else release_id).encode(), self._retained.partitions)

    async def _records(self, batch: Sequence[DueAnswer], first_ms: int) -> dict[DueAnswer, Committed]:
        """Return the one record of each answer; commit those that are missing. Omits what cannot be read now."""
        stored = await self._ledger.find(batch[0].date, [due.release_id for due in batch])
        records = {due: record for due, record in zip(batch, stored, strict=True) if record is not None}
        drawn: dict[DueAnswer, QueryRelease] = {}
        for of_period in by_period([due for due in batch if due not in records]):
            loaded = await self.load(of_period)
            if loaded is not None:
                drawn.update(zip(of_period, await self.draw(of_period, loaded, first_ms), strict=True))
        if drawn:
            records.update(zip(drawn, await self.commit(list(drawn.values())), strict=True))
        return {due: records[due] for due in batch if due in records}

    async def _publish(self, records: Mapping[DueAnswer, Committed]) -> None:
        """Send the unpublished records. Raises ProducerGone if another worker has taken over a release partition."""
        await publish_by_partition(records, self.release_partition, MAX_ANSWERS, self._send_and_mark)

    async def _send_and_mark(self, release_partition: int, pending: Sequence[tuple[DueAnswer, Committed]]) -> None:
        await self.send(release_partition, pending)
        await self.mark([due for due, _ in pending])
        await self._recovery.confirm()
        count_published("query", [record for _, record in pending])

    async def _delete_answered(self, periods: Iterable[QueryPeriod], end_date: str) -> None:
        """Delete retained contributions of these answered periods that no other query will read.

        A slot is deleted as a whole, once every query that reads it is answered for every cell: whether a slot is
        missing depends on all its cells. The worker that publishes the last answer finds all others published, and
        deletes.
        """
        slots = {slot.key for period in periods for slot in period.slots}
        for reader in query_periods(self._policy, self._calendar, slots):
            if reader.closing.date < end_date and not await self._is_answered(reader):
                slots.difference_update(slot.key for slot in reader.slots)
        hats = [(slot, cell) for slot in sorted(slots) for cell in await self._retained.cells([slot])]
        if hats:
            await self.delete(hats)

    async def _is_answered(self, period: QueryPeriod) -> bool:
        """Return True if Kafka has the answers about all cells with retained contributions."""
        if self._is_sealed(period):
            return True
        cells = await self._users(period)
        return all(await self._ledger.acknowledged(period.closing.date, [*map(period.release_id, cells)]))

    # The named steps. Tests wrap them.

    async def load(self, batch: Sequence[DueAnswer]) -> Retained | None:
        """Load the retained contributions of a period (step loaded); None if a watermark is low or a HAT is open."""
        period = batch[0].query_period
        slots, closes_ms = [slot.key for slot in period.slots], closes_at(period.closing, self._policy)
        return await self._retained.load(slots, closes_ms, [due.cell for due in batch])

    async def draw(self, batch: Sequence[DueAnswer], retained: Retained, first_ms: int) -> list[QueryRelease]:
        """Draw each answer with its noise, in a thread (step drawn)."""
        return await asyncio.to_thread(self._draw, batch, retained, first_ms)

    def _draw(self, batch: Sequence[DueAnswer], retained: Retained, first_ms: int) -> list[QueryRelease]:
        period = batch[0].query_period
        slots = [slot for slot in period.slots if not self._is_missing(slot, retained, first_ms)]
        return [
            query_release_of(
                period,
                self._calendar,
                due.cell,
                {slot.date: RetainedDay.of(retained.parts.get((due.cell, slot.key), [])) for slot in slots},
                self._noise,
            )
            for due in batch
        ]

    def _is_missing(self, slot: Slot, retained: Retained, first_ms: int) -> bool:
        """Return True if public facts show that the slot's contributions are not complete."""
        if slot.start_ms < first_ms or (not self._by_cell and slot.key not in retained.data):
            return True
        starts, closes_ms = self._calendar.day_start(slot.date), closes_at(slot, self._policy)
        return any(_affects(gap, starts, closes_ms) for gap in retained.gaps)

    async def commit(self, answers: Sequence[QueryRelease]) -> list[Committed]:
        """Commit record and reservation of each answer in one step (step committed); a stored record wins."""
        at_ms = now_ms()
        proposals = [
            answer_proposal_of(answer, at_ms, self._partition_of(answer.release_id, answer.cell)) for answer in answers
        ]
        with METERS.timed(COMMIT_SECONDS):
            await self._recovery.confirm()
            return await self._ledger.commit_answers(proposals, self._recovery.guard)

    async def send(self, release_partition: int, pending: Sequence[tuple[DueAnswer, Committed]]) -> None:
        """Send the stored bytes and the budget of all days read, in one transaction (steps sent and acked)."""
        topics = self._settings.topics
        dates = {date for due, _ in pending for date in due.query_period.period.dates}
        public_ms = released_at_ms(pending[0][0].query_period.closing, self._policy) if self._by_cell else None
        messages = [
            Message(
                topic=topics.queries,
                partition=by_murmur2(due.cell.encode(), self._retained.partitions),
                key=due.release_id.encode(),
                value=record.record,
                headers=release_event("query", due.release_id, topics.telemetry, record.record),
                timestamp_ms=public_ms,
            )
            for due, record in pending
        ]
        for date in sorted(dates):
            summary = await self._ledger.summary(date)
            # In a thread: composing a new number of charges takes up to a second of computing.
            messages.append(await asyncio.to_thread(budget_message, topics, self._policy, date, summary, public_ms))
        await self._recovery.confirm()
        await self._recovery.publishers.publish(release_partition, messages)

    async def mark(self, batch: Sequence[DueAnswer]) -> None:
        """Mark answers as published in Redis (step marked)."""
        await self._ledger.mark_published(batch[0].date, [due.release_id for due in batch])

    async def delete(self, hats: Sequence[tuple[str, str]]) -> None:
        """Delete the retained contributions of these (slot, cell) (step deleted)."""
        await self._retained.delete(hats)


def _affects(gap: Gap, starts_ms: int, closes_ms: int) -> bool:
    """Return True if a partition may have lost readings of a slot.

    The slot's day begins before the gap ends, and the slot was open when the gap began.
    """
    return starts_ms < gap.until_ms and not (gap.from_ms is not None and gap.from_ms >= closes_ms)
