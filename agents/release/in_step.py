"""Releases under `add_remove`: slot by slot, every listed cell of it, with or without readings.

Which cells have readings is private, so neither the records, their batches nor their order may depend on it. Therefore
all workers process the slots in step: the HATs of a slot are sent once all of them have records, and the next slot
begins once all of them are published. Workers see each other's progress by marks in Redis. [decisions/0007;
docs/specification/estimators.md, section 5]
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from hatcast.agents.clock import now_ms
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.release.hats import DueHat, Hats
from hatcast.agents.release.kind import DuePart, ReleaseContext
from hatcast.agents.release.queries import AnswerReleases
from hatcast.stream.fold.calendar import Calendar, Slot, closes_at
from hatcast.stream.ledger.commits import AnyProposal
from hatcast.stream.ledger.day import reservations
from hatcast.stream.ledger.progress import Mark, Progress
from hatcast.stream.ledger.summary import fits
from hatcast.stream.records.fields import Status, release_id
from hatcast.stream.release.hats import HatChunks
from hatcast.stream.release.queries import query_periods_of
from hatcast.stream.release.schedule import earliest_send_ms, listed_cells, slots_due

_POLLS: Final = 10  # of other workers' progress, in at most _POLLS_S
_POLLS_S: Final = 0.5


class HatsInStep:
    """HATs of all listed cells, slot after slot, then the answers to queries that end with it; and their kind.

    answers   path of the answers; None: the policy has no queries
    """

    def __init__(self, context: ReleaseContext, hats: Hats, answers: AnswerReleases | None) -> None:
        self._context = context
        self._policy = context.policy
        self._calendar = Calendar(context.policy)
        self._store = context.store
        self._ledger = context.ledger
        self._hats = hats
        self._answers = answers
        self.kind = replace(hats.kind, order="together", due=self.due, draw=self.draw, is_done=self.is_done)

    async def due(self, owned: frozenset[int]) -> AsyncGenerator[DuePart[DueHat]]:
        """Yield the HATs of release partitions, slot by slot; once they are published, answer the slot's queries."""
        await self._delete_unreadable(owned)
        progress = self._ledger.progress
        for slot in await self._due_slots(await self._hats.watermark()) if owned else []:
            # Not by watermarks alone: a single vehicle's record may have moved them past the slot.
            if now_ms() < earliest_send_ms(slot, self._policy):
                return
            if (await progress.read()).through(Mark.PUBLISHED, owned) < slot.end_ms:
                token, due = self._context.recovery.guard.token, await self.listed(slot, owned)  # before the commits

                async def all_committed(slot: Slot = slot, token: str = token) -> bool:
                    await progress.advance(Mark.COMMITTED, owned, slot.end_ms, token)
                    return await self._wait_for_all(Mark.COMMITTED, slot)

                yield DuePart(due, all_committed)
                if not await self._answer_at(slot, due, owned):
                    return
                await progress.advance(Mark.PUBLISHED, owned, slot.end_ms, token)
            if not await self._wait_for_all(Mark.PUBLISHED, slot):
                return

    async def draw(self, batch: Sequence[DueHat], loaded: Sequence[HatChunks]) -> Mapping[DueHat, AnyProposal]:
        """Draw each HAT's estimate; nothing of a slot without room in the budget."""
        has_room = await self._has_room(batch[0].hat.slot)
        return await self._hats.draw(batch, loaded, None if has_room else Status.BUDGET_EXHAUSTED)

    async def final_slots(self, watermark: int) -> dict[str, int] | None:
        """Return the final slots that are not published by all workers, with their ends (ms UTC); None: not known."""
        if (await self._ledger.progress.read()).first_ms is None:
            return None
        return {slot.key: slot.end_ms for slot in await self._due_slots(watermark)}

    async def is_done(self, end_date: str) -> bool:
        """Return True if every slot before a local date is published; its queries are answered before."""
        # The watermark is read again: what has become final since the first look counts.
        return await self._hats.is_closed(end_date) and not await self._due_slots(await self._hats.watermark())

    async def _has_room(self, slot: str) -> bool:
        """Return True if the budget has room for a whole slot (`date/slot`); the same in all workers.

        For the slot as a whole, and from charges alone: which of its HATs were committed first is private.
        """
        date, cells = slot.partition("/")[0], listed_cells(self._policy)
        if fits(await self._ledger.summary(date), self._policy, len(cells), reservations(self._policy, date)):
            return True
        names = [release_id(self._policy.name, slot, cell) for cell in cells]
        while True:  # until no other worker commits HATs of this slot between both counts; a slot is finite
            missing = await self._ledger.count_missing(date, names)
            summary = await self._ledger.summary(date)
            if missing == await self._ledger.count_missing(date, names):
                return fits(summary, self._policy, missing, reservations(self._policy, date))

    async def _due_slots(self, watermark: int | None) -> list[Slot]:
        progress = await self._ledger.progress.read()
        if progress.first_ms is None or watermark is None:
            return []
        published_ms, end_date = self._through(progress, Mark.PUBLISHED), await self._ledger.end_date()
        due = slots_due(self._calendar, self._policy, progress.first_ms, published_ms, watermark)
        slots = [slot for slot in due if slot.date < end_date]
        self._hats.delays.add(slot.key for slot in slots)
        return slots

    async def listed(self, slot: Slot, owned: frozenset[int]) -> list[DueHat]:
        """Return the HATs of all listed cells of a slot in release partitions, with or without readings, by cell."""
        users = await self._store.cells(slot.key)
        hats = (FinalHat(slot.key, cell, closes_at(slot, self._policy)) for cell in listed_cells(self._policy))
        listed = (DueHat.of(self._policy, hat, users.get(hat.cell, 0)) for hat in hats)
        return [due for due in listed if self._context.release_partition(due) in owned]

    async def _answer_at(self, slot: Slot, due: Sequence[DueHat], owned: frozenset[int]) -> bool:
        """Answer the queries whose periods end with a slot, about the cells of these HATs, with or without readings.

        False if other workers have not sent all HATs of the slot, or not committed all answers: a budget record must
        not depend on which worker was faster.
        """
        first_ms = (await self._ledger.progress.read()).first_ms
        if self._answers is None or first_ms is None:
            return self._answers is None
        periods = query_periods_of(self._policy, self._calendar, slot.date, slot.name)
        ending = [period for period in periods if period.closing == slot]
        if not ending:
            return True
        names = [release_id(self._policy.name, slot.key, cell) for cell in listed_cells(self._policy)]
        if not all(await self._ledger.are_published(slot.date, names)):
            return False
        return await self._answers.answer(ending, owned, [each.cell for each in due], first_ms)

    async def _wait_for_all(self, mark: Mark, slot: Slot) -> bool:
        """Wait up to half a second until every worker has reached a mark of a slot. False if one has not."""
        for _ in range(_POLLS):
            if self._through(await self._ledger.progress.read(), mark) >= slot.end_ms:
                return True
            await asyncio.sleep(_POLLS_S / _POLLS)
        return False

    async def _delete_unreadable(self, owned: frozenset[int]) -> None:
        """Delete contributions that no release will read.

        Those to slots before the first, and those folded again, because Redis had lost them, after their slot was
        published. The latter are retained if a query over days may still read them.
        """
        progress, watermark = await self._ledger.progress.read(), await self._hats.watermark()
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
            due = [DueHat.of(self._policy, FinalHat(key, cell, closes), 0) for cell in await self._store.cells(key)]
            hats = [each.hat for each in due if self._context.release_partition(each) in owned]
            await self._hats.delete_hats(hats, keep=keep)

    def _through(self, progress: Progress, mark: Mark) -> int:
        return progress.through(mark, range(self._store.partitions))
