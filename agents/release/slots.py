"""Release under `add_remove`: slot by slot, every listed cell of it, with or without readings.

Which cells have readings is private, so neither the records, their batches nor their order may depend on it. Therefore
all workers process the slots in step: the HATs of a slot are sent once all of them have records, and the next slot
begins once all of them are published. Workers see each other's progress by marks in Redis.
[decisions/0007; docs/specification/estimators.md, section 5]
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from hatcast.agents.clock import now_ms, pause
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.release.hats import DueRelease, HatPath, Published
from hatcast.agents.release.path import ReleaseContext
from hatcast.agents.release.queries import QueryReleaser
from hatcast.stream.fold.hats import Slot
from hatcast.stream.fold.watermark import closes_at, min_watermark
from hatcast.stream.ledger.progress import Mark, Progress
from hatcast.stream.ledger.reservations import reservations
from hatcast.stream.ledger.summary import fits
from hatcast.stream.records.fields import release_id
from hatcast.stream.release.queries import query_periods_of
from hatcast.stream.release.schedule import earliest_send_ms, listed_cells, released_at_ms, slots_due

_POLLS: Final = 10  # of other workers' progress, in at most _POLLS_S
_POLLS_S: Final = 0.5


class SlotReleaser(HatPath):
    """Releases HATs under `add_remove`, and answers queries once a slot's HATs are published."""

    def __init__(self, context: ReleaseContext, queries: QueryReleaser | None) -> None:
        super().__init__(context)
        self._queries = queries

    async def round(self, owned: frozenset[int], stopping: asyncio.Event) -> int:
        """Release the HATs of these release partitions slot by slot. Return their number."""
        await self._delete_unreadable(owned)
        done = 0
        for slot in await self._slots(owned):
            # Not by watermarks alone: a single vehicle's record may have moved them past the slot.
            if stopping.is_set() or now_ms() < earliest_send_ms(slot, self._policy):
                break
            done += await self._release_slot(slot, owned, stopping)
            if not await self._wait_for_all(Mark.PUBLISHED, slot, stopping):
                break
        return done

    async def due_releases(self, owned: frozenset[int]) -> list[DueRelease]:
        """Return the HATs of these release partitions in final, unpublished slots, by slot, then cell."""
        return [due for slot in await self._slots(owned) for due in await self._listed(slot, owned)]

    async def final_slots(self) -> list[str]:
        """Return the slots that are final and not yet published as a whole, of all owners."""
        return [slot.key for slot in await self._slots(frozenset(range(self._store.partitions)))]

    async def published_through(self) -> Published | None:
        """Return the end of the last slot that every worker has published."""
        progress = await self._ledger.progress.read()
        through_ms = 0 if progress.first_ms is None else self._through(progress, Mark.PUBLISHED)
        return Published(through_ms) if through_ms else None

    async def is_done(self, end_date: str) -> bool:
        """Return True if every slot before a local date is published; its queries are answered before."""
        return await self.is_closed(end_date) and not await self.final_slots()

    async def has_room(self, batch: Sequence[DueRelease]) -> bool:
        """Return True if the budget has room for the whole slot of these HATs; the same in all workers.

        For the slot as a whole, and from charges alone: which of its HATs were committed first is private.
        """
        slot = batch[0].hat.slot
        date, cells = slot.partition("/")[0], listed_cells(self._policy)
        if fits(await self._ledger.summary(date), self._policy, len(cells), reservations(self._policy, date)):
            return True
        names = [release_id(self._policy.name, slot, cell) for cell in cells]
        while True:  # until no other worker commits HATs of this slot between both counts; a slot is finite
            missing = await self._ledger.count_missing(date, names)
            summary = await self._ledger.summary(date)
            if missing == await self._ledger.count_missing(date, names):
                return fits(summary, self._policy, missing, reservations(self._policy, date))

    async def _slots(self, owned: frozenset[int]) -> list[Slot]:
        progress, watermark = await self._ledger.progress.read(), min_watermark(await self._store.watermarks())
        if progress.first_ms is None or watermark is None or not owned:
            return []
        published_ms, end_date = self._through(progress, Mark.PUBLISHED), await self._ledger.end_date()
        due = slots_due(self._calendar, self._policy, progress.first_ms, published_ms, watermark)
        slots = [slot for slot in due if slot.date < end_date]
        self.closing_delays.add(slot.key for slot in slots)
        return slots

    async def _listed(self, slot: Slot, owned: frozenset[int]) -> list[DueRelease]:
        users = await self._store.cells(slot.key)
        closes, released_at = closes_at(slot, self._policy), released_at_ms(slot, self._policy)
        hats = (FinalHat(slot.key, cell, closes) for cell in listed_cells(self._policy))
        listed = (DueRelease.of(self._policy, hat, users.get(hat.cell, 0), released_at) for hat in hats)
        return [due for due in listed if self.release_partition(due) in owned]

    async def _release_slot(self, slot: Slot, owned: frozenset[int], stopping: asyncio.Event) -> int:
        """Release the HATs of a slot in these release partitions. Return their number.

        0 if the slot is published already, or another worker has not finished a step yet.
        """
        progress, token = self._ledger.progress, self._recovery.guard.token
        if (await progress.read()).through(Mark.PUBLISHED, owned) >= slot.end_ms:
            return 0

        async def all_committed() -> bool:
            await progress.advance(Mark.COMMITTED, owned, slot.end_ms, token)
            return await self._wait_for_all(Mark.COMMITTED, slot, stopping)

        due = await self._listed(slot, owned)
        if not (await self.release_together(due, all_committed) and await self._answer_at(slot, due, owned)):
            return 0
        await progress.advance(Mark.PUBLISHED, owned, slot.end_ms, token)
        return len(due)

    async def _answer_at(self, slot: Slot, due: Sequence[DueRelease], owned: frozenset[int]) -> bool:
        """Answer the queries whose periods end with a slot, about the cells of these HATs, with or without readings.

        False if other workers have not sent all HATs of the slot, or not committed all answers: a budget record must
        not depend on which worker was faster.
        """
        first_ms = (await self._ledger.progress.read()).first_ms
        if self._queries is None or first_ms is None:
            return self._queries is None
        ending = [
            period
            for period in query_periods_of(self._policy, self._calendar, slot.date, slot.name)
            if period.closing == slot
        ]
        if not ending:
            return True
        names = [release_id(self._policy.name, slot.key, cell) for cell in listed_cells(self._policy)]
        if not all(await self._ledger.acknowledged(slot.date, names)):
            return False
        return await self._queries.answer(ending, owned, [each.cell for each in due], first_ms)

    async def _wait_for_all(self, mark: Mark, slot: Slot, stopping: asyncio.Event) -> bool:
        """Wait up to half a second until every worker has reached a mark of a slot. False if one has not."""
        for _ in range(_POLLS):
            if self._through(await self._ledger.progress.read(), mark) >= slot.end_ms:
                return True
            if not await pause(_POLLS_S / _POLLS, stopping):
                break
        return False

    async def _delete_unreadable(self, owned: frozenset[int]) -> None:
        """Delete contributions that no release will read.

        Those to slots before the first, and those folded again, because Redis had lost them, after their slot was
        published. The latter are retained if a query over days may still read them.
        """
        progress, watermark = await self._ledger.progress.read(), min_watermark(await self._store.watermarks())
        if progress.first_ms is None or watermark is None:
            return
        published_ms = self._through(progress, Mark.PUBLISHED)
        for key, end in (await self._store.open_slots()).items():
            slot, closes = self._calendar.slot_named(*key.split("/")), end + self._policy.lateness_ms
            if slot is None or watermark < closes or (published_ms < end and slot.start_ms >= progress.first_ms):
                continue
            keep = slot.start_ms >= progress.first_ms and any(
                period.closing.end_ms > published_ms
                for period in query_periods_of(self._policy, self._calendar, slot.date, slot.name)
            )
            due = [DueRelease.of(self._policy, FinalHat(key, cell, closes), 0) for cell in await self._store.cells(key)]
            await self._delete([each.hat for each in due if self.release_partition(each) in owned], keep=keep)

    def _through(self, progress: Progress, mark: Mark) -> int:
        return progress.through(mark, range(self._store.partitions))
