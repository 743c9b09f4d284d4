"""Releases of a tracker policy: slot after slot, then the settlement of the date.    [docs/specification/tracker.md, 4]

Each query follows from those before it, so one worker makes all of them: the owner of TRACKER_PARTITION. A date's
contributions stay until its settlement is published and the state after it is stored:

    loaded    all HATs of a slot
    drawn     all queries of a slot, or of a settlement, each from the numbers of those before it
    stored    the state after a settled date; of a policy with a timetable also one before its first date
    deleted   the contributions of a settled date

The session is a `PolicyTracker`. It may have learned numbers that are not committed, so path.py drops it after any
failure; a new one is made from the stored state and the stored records of the date. [hatcast.stream.release.tracker]
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import structlog

from hatcast.agents.monitoring.declarations import TRACKER_MISMATCHES
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.release.batching import batches_of
from hatcast.agents.release.hats import DueHat, Hats
from hatcast.agents.release.kind import DuePart, ReleaseContext, Session
from hatcast.agents.timetable.speeds import timetable_of
from hatcast.stream.fold.calendar import Calendar, later
from hatcast.stream.ledger.commits import AnyProposal
from hatcast.stream.ledger.rejections import Behind
from hatcast.stream.queries import is_queried
from hatcast.stream.records.fields import release_id
from hatcast.stream.release.budget_records import Spent
from hatcast.stream.release.hats import HatChunks
from hatcast.stream.release.tracker import PolicyTracker, closed_by, hat_users
from hatcast.stream.release.tracker_records import TrackerRelease
from hatcast.stream.tracker.timetable import Timetable

log = structlog.get_logger()


class TrackedHats:
    """The HATs of a tracker policy with the queries of its settlements, and their kind."""

    def __init__(self, context: ReleaseContext, hats: Hats) -> None:
        # the session: at work on one date after the other; None: there is none
        self.tracker: PolicyTracker | None = None
        self.closed: set[str] = set()  # of its date the slots (`date/slot`) that are published
        self._context = context
        self._policy = context.policy
        self._timetable = timetable_of(context.policy, lambda hint: log.warning("timetable", hint=hint))
        self._calendar = Calendar(context.policy)
        self._store = context.store
        self._ledger = context.ledger
        self._hats = hats
        self._published: set[str] = set()  # open slots that are known to be published
        self.kind = replace(
            hats.kind,
            order="chain",
            due=self.due,
            load=self.load,
            draw=self.draw,
            spent=self.spent,
            session=Session(self.open, self.drop, self.has_stored),
        )

    async def open(self) -> None:
        """Make a tracker from the stored state."""
        self.tracker = PolicyTracker(self._policy, await self._ledger.tracker.read(), self._timetable)
        self.closed.clear()

    def drop(self) -> None:
        """Forget the tracker."""
        self.tracker = None

    def has_stored(self, due: DueHat) -> bool:
        """Return whether a release had a record before the tracker was at work on its date."""
        return not self._at_work.is_at(due.date) or self._at_work.is_known(due.release_id)

    def spent(self, date: str) -> Spent | None:
        """Return the users' charges on the date that the tracker works on."""
        return None if self.tracker is None or self.tracker.date != date else self.tracker.spent()

    async def due(self, owned: frozenset[int]) -> AsyncGenerator[DuePart[DueHat]]:
        """Yield the HATs of each final slot, then of each closed date nothing: what follows then is its settlement."""
        del owned
        with self._context.failures.attempt("read the watermarks of the partitions"):
            watermark = await self._hats.watermark()
        final = {} if watermark is None else await self._hats.final_slots(watermark)
        for date, slots_of_date in groupby(final, lambda slot: slot.partition("/")[0]):
            slots = list(slots_of_date)
            if date <= self._context.recovery.sealed_through:  # folded again: all of it is published
                await self.delete_date(date, slots)
                continue
            tracker = await self._begin(date)
            for slot in slots:
                self._hats.delays.add([slot])
                if slot not in self.closed and (due := await self._due_of(slot)):
                    yield DuePart(due)
                self.closed.add(slot)
            if not await self._has_released_all(date, slots):
                return
            if tracker.is_at(date):
                yield DuePart([])
                await self._end(date)
            await self.delete_date(date, slots)

    async def load(self, due: Sequence[DueHat]) -> list[HatChunks] | None:
        """Load all HATs of a slot; None if a partition's watermark is missing or too small."""
        found: list[HatChunks] = []
        for batch in batches_of(due):
            chunks = await self._hats.load(batch)
            if chunks is None:
                return None
            found += chunks
        return found

    async def draw(self, due: Sequence[DueHat], loaded: Sequence[HatChunks]) -> Mapping[DueHat, AnyProposal]:
        """Draw what follows from the HATs of a slot, or without HATs the settlement, in the order of commits.

        Nothing is drawn of a date that lacks records, or room in the day's limit.
        """
        tracker = self._at_work
        date = due[0].date if due else tracker.date
        if tracker.is_at(date):
            tracker.close_day(closed_by(await self._ledger.summary(date), lost=await self._hats.has_lost(date)))
        releases = await (self.draw_slot(due, loaded) if due else self.draw_settlement())
        if tracker.is_different:
            tracker.is_different = False
            METERS.count(TRACKER_MISMATCHES)
            log.error("stored queries do not follow from the counts: no more queries are made", date=tracker.date)
        due_of = [
            DueHat(each.release_id, each.cell, each.date, 0, FinalHat(each.slot.key, each.cell, 0)) for each in releases
        ]
        return self._context.proposals(due_of, releases)

    async def final_slots(self, watermark: int) -> dict[str, int]:
        """Return the final slots that are not published as a whole, with their ends (ms UTC), by end."""
        final = await self._hats.final_slots(watermark)
        self._published.intersection_update(final)
        for slot in final:
            if slot not in self._published:
                date, cells = slot.partition("/")[0], await self._store.cells(slot)
                names = [release_id(self._policy.name, slot, cell) for cell in cells]
                if all(await self._ledger.are_published(date, names)):
                    self._published.add(slot)
        return {slot: end_ms for slot, end_ms in final.items() if slot not in self._published}

    @property
    def _at_work(self) -> PolicyTracker:
        if self.tracker is None:
            raise RuntimeError("the session is not open")
        return self.tracker

    async def _begin(self, date: str) -> PolicyTracker:
        """Begin a date that is neither settled nor begun; none of its slots is closed. Raises Behind if one is left.

        Returns the session, which is another one if the date is the first: its timetable is stored before it.
        """
        tracker = self._at_work
        if tracker.settled < tracker.date < date:
            raise Behind
        if date > max(tracker.settled, tracker.date):
            if (first := tracker.first_state(date)) is not None:
                await self.store_state(*first)
                await self.open()
                tracker = self._at_work
                self._log_timetable(date, None)
            tracker.begin_day(date, (await self._ledger.records(date)).items())
            self.closed.clear()
        return tracker

    async def _end(self, date: str) -> None:
        """Store the state after a settled date. Raises Behind if another is stored: the next date begins with it."""
        before = self._at_work.timetable
        state = self._at_work.end_day()
        await self.store_state(date, state)
        if await self._ledger.tracker.read() != state:  # another worker has stored one before: that one holds
            raise Behind
        self._log_timetable(later(date, 1), before)

    def _log_timetable(self, date: str, before: Timetable | None) -> None:
        """Log that another timetable holds from a date on."""
        timetable = self._at_work.timetable
        if timetable is not None and timetable != before:
            former = None if before is None else before.digest
            log.info("timetable", holds_from=date, digest=timetable.digest, former=former, cells=len(timetable.speeds))

    async def _has_released_all(self, date: str, slots: Sequence[str]) -> bool:
        """Return True if a date is closed and these, the final slots at the start of the round, are all it has.

        Slots that became final since, as after an outage, are released in the next round, and the date settled then.
        """
        if not await self._hats.is_closed(later(date, 1)):
            return False
        now_open = await self._store.open_slots()  # read after the watermark: every slot of the date is open now
        return all(slot in slots for slot in now_open if slot.partition("/")[0] == date)

    async def _due_of(self, slot: str) -> list[DueHat]:
        return await self._hats.due_of(slot, (await self._store.open_slots()).get(slot, 0))

    # The named steps of a chain. Tests wrap them.

    async def draw_slot(self, due: Sequence[DueHat], loaded: Sequence[HatChunks]) -> list[TrackerRelease]:
        """Draw the queries of a slot (step drawn), in a thread. A late slot, of a settled date, has none."""
        hats = [hat_users(each.cell, chunks) for each, chunks in zip(due, loaded, strict=True)]
        slot = self._calendar.stored_slot(due[0].hat.slot)
        return await asyncio.to_thread(self._at_work.close_slot, slot, hats, self._context.noise)

    async def draw_settlement(self) -> list[TrackerRelease]:
        """Draw the queries of a settlement (step drawn), in a thread."""
        return await asyncio.to_thread(self._at_work.settle, self._context.noise)

    async def store_state(self, date: str, state: bytes) -> None:
        """Store the state after a settled date (step stored)."""
        with self._context.failures.attempt("store the state of the tracker"):
            await self._context.recovery.confirm()
            await self._ledger.tracker.store(date, state, self._context.recovery.guard.token)

    async def delete_date(self, date: str, slots: Sequence[str]) -> None:
        """Delete the contributions of a settled date (step deleted), except those that queries over days will read."""
        for slot in slots:
            hats = [due.hat for due in await self._due_of(slot)]
            with self._context.failures.attempt("delete contributions"):
                await self._hats.delete_hats(hats, keep=is_queried(self._policy, date))
