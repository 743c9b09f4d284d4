"""Release under `add_remove`: slot after slot, every listed cell of it, with or without readings.

Who was there may not be told from what is sent, how it is grouped, or in which order. So all workers go through the
slots in step: the HATs of a slot are sent once all of them have their records, and the next slot is begun once all of
them are published. Each worker sees that by the marks in Redis.    [decisions/0007; estimators.md, section 5]
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from hatcast.agents.clock import now_ms, pause
from hatcast.agents.redis.ledger import Committed
from hatcast.agents.redis.partition_state import FinalHat
from hatcast.agents.redis.slot_progress import Mark, Progress
from hatcast.agents.release.batches import HATS, DueRelease, batches_of
from hatcast.agents.release.hats import ROUND_S, Releaser
from hatcast.stream.accounting.ledger import fits
from hatcast.stream.fold.hats import Slot
from hatcast.stream.fold.watermark import closes_at, min_watermark
from hatcast.stream.queries import reservations
from hatcast.stream.readings.partitioner import by_murmur2
from hatcast.stream.release.hats import release_id
from hatcast.stream.release.queries import query_periods_of
from hatcast.stream.release.schedule import earliest_send_ms, listed_cells, released_at_ms, slots_due

_LOOKS: Final = 10  # at the marks of other workers, within a round


class SlotReleaser(Releaser):
    """The release loop of one worker under `add_remove`."""

    def release_partition(self, one: DueRelease) -> int:
        """That of its record: one producer sends all of an output partition, so that its order is that of the cells."""
        return self._partition(one.hat.cell)

    async def due(self, owned: frozenset[int]) -> list[DueRelease]:
        """Our HATs of the slots that are final and were not published, by slot, then cell."""
        return [one for slot in await self._slots(owned) for one in await self._listed(slot, owned)]

    async def has_room(self, due: Sequence[DueRelease]) -> bool:
        """Whether the budget has room for all of the slot that these HATs are of; all workers give the same answer.

        For the slot as a whole, and from charges alone: which of its HATs were committed first is not public.
        """
        slot = due[0].hat.slot
        date, cells = slot.partition("/")[0], listed_cells(self._policy)
        if fits(await self._ledger.summary(date), self._policy, len(cells), reservations(self._policy, date)):
            return True
        names = [release_id(self._policy, slot, cell) for cell in cells]
        while True:  # until no other worker has committed of this slot between the looks: a slot has an end
            missing = await self._ledger.count_missing(date, names)
            summary = await self._ledger.summary(date)
            if missing == await self._ledger.count_missing(date, names):
                return fits(summary, self._policy, missing, reservations(self._policy, date))

    async def _advance(self, owned: frozenset[int], stopping: asyncio.Event) -> int:
        await self._forget(owned)
        done = 0
        for slot in await self._slots(owned):
            # Not by the clocks alone: what moved them past the slot may be a record of one bus.
            if stopping.is_set() or now_ms() < earliest_send_ms(slot, self._policy):
                break
            done += await self._release(slot, owned, stopping)
            if not await self._all(Mark.PUBLISHED, slot, stopping):
                break
        return done

    async def _slots(self, owned: frozenset[int]) -> list[Slot]:
        progress, least = await self._ledger.progress.read(), min_watermark(await self._store.watermarks())
        if progress.first_ms is None or least is None or not owned:
            return []
        done, until = self._through(progress, Mark.PUBLISHED), await self.until()
        slots = slots_due(self._calendar, self._policy, progress.first_ms, done, least)
        ours = [slot for slot in slots if slot.date < until]
        self.closing.saw(slot.key for slot in ours)
        return ours

    async def final_slots(self) -> list[str]:
        """The slots that are final, and of which not all is published, whoever owns it."""
        return [slot.key for slot in await self._slots(frozenset(range(self._store.partitions)))]

    async def is_done(self, until: str) -> bool:
        """Whether every slot of ours before a local date is published."""
        return await self._is_closed(until) and not await self._slots(frozenset(range(self._store.partitions)))

    async def _listed(self, slot: Slot, owned: frozenset[int]) -> list[DueRelease]:
        users = await self._store.cells(slot.key)
        closes, released_at = closes_at(slot, self._policy), released_at_ms(slot, self._policy)
        ours = (cell for cell in listed_cells(self._policy) if self._partition(cell) in owned)
        return [
            DueRelease(
                FinalHat(slot.key, cell, closes),
                release_id(self._policy, slot.key, cell),
                users.get(cell, 0),
                released_at,
            )
            for cell in ours
        ]

    async def _release(self, slot: Slot, owned: frozenset[int], stopping: asyncio.Event) -> int:
        """Our HATs of a slot through all steps; returns how many. 0 where other workers have no records yet."""
        store, token = self._ledger.progress, self._recovery.guard.token
        if (await store.read()).through(Mark.PUBLISHED, owned) >= slot.end_ms:
            return 0
        due = await self._listed(slot, owned)
        records: dict[DueRelease, Committed] = {}
        for batch in batches_of(due):  # cut by users too, for memory's sake: nothing of it is sent yet
            of_batch = await self.records(batch)
            if of_batch is None:
                self._failures.skip_next_clear()
                return 0  # a clock went back: its partition is being folded again
            records |= of_batch
        await store.advance(Mark.COMMITTED, owned, slot.end_ms, token)
        if not await self._all(Mark.COMMITTED, slot, stopping):
            return 0
        await self.publish(records)
        for at in range(0, len(due), HATS):
            await self.delete(due[at : at + HATS])
        if not await self._answer_at(slot, [one.hat.cell for one in due], owned):
            return 0
        await store.advance(Mark.PUBLISHED, owned, slot.end_ms, token)
        return len(due)

    async def _answer_at(self, slot: Slot, cells: Sequence[str], owned: frozenset[int]) -> bool:
        """Answer the queries whose periods end with a slot, about our cells: each of them, whoever was there.

        False where other workers have not sent all of the slot, or not committed all answers: what a record of
        `hats.budget` tells of the day must not depend on who of us was faster.
        """
        first_ms = (await self._ledger.progress.read()).first_ms
        if self.queries is None or first_ms is None:
            return self.queries is None
        ending = [
            asked
            for asked in query_periods_of(self._policy, self._calendar, slot.date, slot.name)
            if asked.closing == slot
        ]
        if not ending:
            return True
        names = [release_id(self._policy, slot.key, cell) for cell in listed_cells(self._policy)]
        if not all(await self._ledger.acknowledged(slot.date, names)):
            return False
        return await self.queries.answer(ending, owned, await self.until(), cells, first_ms)

    async def _all(self, mark: Mark, slot: Slot, stopping: asyncio.Event) -> bool:
        """Whether every worker has come so far with a slot, or comes within the time of a round."""
        for _ in range(_LOOKS):
            if self._through(await self._ledger.progress.read(), mark) >= slot.end_ms:
                return True
            if not await pause(ROUND_S / _LOOKS, stopping):
                break
        return False

    async def _forget(self, owned: frozenset[int]) -> None:
        """Delete what no release will read.

        Contributions to slots before the first, and those that were folded again, since Redis had lost them, after
        their slot was published; of these a query over days may have to read what is kept.
        """
        progress, least = await self._ledger.progress.read(), min_watermark(await self._store.watermarks())
        if progress.first_ms is None or least is None:
            return
        published = self._through(progress, Mark.PUBLISHED)
        for key, end in (await self._store.open_slots()).items():
            slot, closes = self._calendar.slot_named(*key.split("/")), end + self._policy.lateness_ms
            if slot is None or least < closes or (published < end and slot.start_ms >= progress.first_ms):
                continue
            keep = slot.start_ms >= progress.first_ms and any(
                asked.closing.end_ms > published
                for asked in query_periods_of(self._policy, self._calendar, slot.date, slot.name)
            )
            cells = [cell for cell in await self._store.cells(key) if self._partition(cell) in owned]
            for at in range(0, len(cells), HATS):
                hats = [FinalHat(key, cell, closes) for cell in cells[at : at + HATS]]
                await self._store.delete(hats, keep=keep)

    def _through(self, progress: Progress, mark: Mark) -> int:
        return progress.through(mark, range(self._store.partitions))

    def _partition(self, cell: str) -> int:
        return by_murmur2(cell.encode(), self._store.partitions)
