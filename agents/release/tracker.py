"""Releases of a tracker policy: slot after slot, then the settlement of the date.    [docs/specification/tracker.md, 4]

Each query follows from those before it, so one worker makes all of them: the owner of TRACKER_PARTITION. A date's
contributions stay until its settlement is published and the state after it is stored. Besides the steps of every
release there are these:

    loaded    all HATs of a slot
    drawn     all queries of a slot, or of a settlement, each from the numbers of those before it
    stored    the state after a settled date

What was drawn and not committed has not left the process: after any failure the tracker is made anew, from the stored
state and the stored records of the date. [hatcast.stream.release.tracker]
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import structlog

from hatcast.agents.clock import now_ms
from hatcast.agents.monitoring.declarations import TRACKER_MISMATCHES
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.release.batches import TRACKER_PARTITION, batches_of
from hatcast.agents.release.batches import Drawn as DrawnBatch
from hatcast.agents.release.hats import DueRelease, HatReleaser, Published
from hatcast.agents.release.path import ReleaseContext
from hatcast.stream.fold.hats import next_date
from hatcast.stream.fold.watermark import min_watermark
from hatcast.stream.ledger.proposals import Committed, Proposal
from hatcast.stream.ledger.rejections import Behind
from hatcast.stream.queries import is_queried
from hatcast.stream.records.fields import release_id
from hatcast.stream.release.hats import HatChunks
from hatcast.stream.release.spending import Spent
from hatcast.stream.release.tracker import PolicyTracker, closed_by, hat_users
from hatcast.stream.release.tracker_records import TrackerRelease
from hatcast.stream.tracker.tracker import HatUsers

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn release. is_stored: it had a record before the draw, and the same numbers lead to it."""

    proposal: Proposal
    is_stored: bool


@dataclass(slots=True)
class TrackerWork:
    """A tracker at work in this process.

    known     token of the recovery and commit sequence, as of the last commit: if they differ, others have committed
    closed    `date/slot` of the date's slots that are published
    """

    tracker: PolicyTracker
    known: tuple[str, int | None]
    closed: set[str] = field(default_factory=set)

    def has_stored(self, release: TrackerRelease) -> bool:
        """Return whether a release had a record before the tracker was at work on its date."""
        return not self.tracker.is_at(release.date) or self.tracker.is_known(release.release_id)


class TrackerReleaser(HatReleaser):
    """Releases the HATs of a tracker policy, and the queries of its settlements."""

    def __init__(self, context: ReleaseContext) -> None:
        super().__init__(context)
        self._state = context.ledger.tracker
        self._work: TrackerWork | None = None
        self._drawn: dict[str, Drawn] = {}
        self._published: set[str] = set()  # open slots that are known to be published

    async def round(self, owned: frozenset[int], stopping: asyncio.Event) -> int:
        """Work through the final slots, if this worker owns them. Return the number of HATs released."""
        if TRACKER_PARTITION not in owned:
            self._work = None
            return 0
        try:
            return await self._round(stopping)
        except BaseException:
            self._work = None  # it may have learned numbers that are not committed
            raise
        finally:
            self._drawn = {}

    async def due_releases(self, owned: frozenset[int]) -> list[DueRelease]:
        """Return the final HATs that are not published, by slot, then cell."""
        slots = await self.final_slots() if TRACKER_PARTITION in owned else []
        return [due for slot in slots for due in await self._due(slot)]

    async def final_slots(self) -> list[str]:
        """Return the slots that are final and not yet published as a whole."""
        final = await super().final_slots()
        self._published.intersection_update(final)
        for slot in final:
            if slot not in self._published:
                date, cells = slot.partition("/")[0], await self._store.cells(slot)
                names = [release_id(self._policy.name, slot, cell) for cell in cells]
                if all(await self._ledger.acknowledged(date, names)):
                    self._published.add(slot)
        return [slot for slot in final if slot not in self._published]

    async def published_through(self) -> Published | None:
        """Return the time up to which slots are final, or before the end of the first unpublished one."""
        watermark = min_watermark(await self._store.watermarks())
        if watermark is None:
            return None
        # Read after the watermark: a HAT of a slot that is final by it is open now, or its date is settled.
        ends = await self._store.open_slots()
        unpublished = [ends[slot] for slot in await self.final_slots() if slot in ends]
        through_ms = min(watermark - self._policy.lateness_ms, min(unpublished, default=watermark) - 1)
        return Published(through_ms, max(await self._state.settled(), self._recovery.sealed_through))

    def spent(self, date: str) -> Spent | None:
        """Return the users' charges on the date that the tracker works on."""
        return None if self._work is None or self._work.tracker.date != date else self._work.tracker.spent()

    async def _round(self, stopping: asyncio.Event) -> int:
        with self._failures.attempt("read the watermarks of the partitions"):
            final = await super().final_slots()
        done = 0
        for date, slots_of_date in groupby(final, lambda slot: slot.partition("/")[0]):
            slots = list(slots_of_date)
            if date <= self._recovery.sealed_through:  # folded again: all of it is published
                await self.delete_date(date, slots)
                continue
            work = await self._work_on(date)
            released = await self._release_date(work, date, slots, stopping)
            if released is None:
                return done
            done += released
            if not await self._has_released_all(date, slots):
                break
            await self._settle(work, date, slots)
        return done

    async def _has_released_all(self, date: str, slots: Sequence[str]) -> bool:
        """Return True if a date is closed and these, the final slots at the start of the round, are all it has.

        Slots that became final since, as after an outage, are released in the next round, and the date settled then.
        """
        if not await self.is_closed(next_date(date)):
            return False
        now_open = await self._store.open_slots()  # read after the watermark: every slot of the date is open now
        return all(slot in slots for slot in now_open if slot.partition("/")[0] == date)

    async def _release_date(
        self, work: TrackerWork, date: str, slots: Sequence[str], stopping: asyncio.Event
    ) -> int | None:
        """Release the HATs of a date's final slots; return their number, None if they are not all released."""
        done = 0
        for slot in slots:
            if stopping.is_set():
                return None
            if slot in work.closed:
                continue
            self.closing_delays.add([slot])
            due = await self._due(slot)
            loaded = await self.load_hats(due)
            if loaded is None:
                self._failures.skip_next_clear()
                return None
            await self._close_if_necessary(work, date)
            drawn = await self.draw_queries(work, slot, loaded)
            if not await self._release(work, drawn):
                return None
            work.closed.add(slot)
            done += len(due)
        return done

    async def _settle(self, work: TrackerWork, date: str, slots: Sequence[str]) -> None:
        """Settle a date whose HATs are released, store the state after it, and delete its contributions."""
        if work.tracker.is_at(date):
            await self._close_if_necessary(work, date)
            if not await self._release(work, await self.draw_settlement(work)):
                return
            await self.store_state(date, work.tracker.end_day())
        await self.delete_date(date, slots)

    async def _work_on(self, date: str) -> TrackerWork:
        """Return the tracker of a date; make it anew if other workers have committed or settled since.

        Then no slot of the date is closed: each is drawn again, from the stored records.
        """
        work = self._work
        if work is None or work.known != self._commits() or work.tracker.settled < work.tracker.date < date:
            work = self._work = TrackerWork(PolicyTracker(self._policy, await self._state.read()), self._commits())
        tracker = work.tracker
        if date > max(tracker.settled, tracker.date):
            tracker.begin_day(date, (await self._ledger.records(date)).items())
            work.closed.clear()
        return work

    def _commits(self) -> tuple[str, int | None]:
        guard = self._recovery.guard
        return guard.token, guard.written.get(TRACKER_PARTITION)

    async def _close_if_necessary(self, work: TrackerWork, date: str) -> None:
        """Stop the queries of a date that lacks records, or room in the day's limit.

        Raises Behind if others have committed since: the tracker does not know of it.
        """
        if work.known != self._commits():
            raise Behind
        if not work.tracker.is_at(date):
            return
        work.tracker.close_day(closed_by(await self._ledger.summary(date), lost=await self.has_lost(date)))

    async def _release(self, work: TrackerWork, drawn: Sequence[TrackerRelease]) -> bool:
        """Commit and publish drawn releases, in order. Return False if some are left."""
        at_ms, due = now_ms(), []
        self._drawn = {}
        for each in drawn:
            name, hat = each.release_id, FinalHat(each.slot.key, each.cell, 0)
            self._drawn[name] = Drawn(each.proposal(at_ms, TRACKER_PARTITION), work.has_stored(each))
            due.append(DueRelease(name, each.cell, each.date, 0, None, hat))
        is_complete = await self.release(due) == len(due)
        work.known = self._commits()
        return is_complete

    async def commit_drawn(self, batch: DrawnBatch[DueRelease, Proposal]) -> dict[DueRelease, Committed]:
        """Commit the drawn releases of a batch; return the one record of each.

        Raises Behind if another worker's record has replaced a draw: the next batch was drawn from the number it had.
        """
        records = await super().commit_drawn(batch)
        if any(not record.new and not self._drawn[due.release_id].is_stored for due, record in records.items()):
            raise Behind
        return records

    async def load(self, batch: Sequence[DueRelease]) -> list[HatChunks]:
        """Return no chunks: HATs are loaded by slots."""
        return [HatChunks(()) for _ in batch]

    async def draw(self, batch: Sequence[DueRelease], loaded: Sequence[HatChunks]) -> list[Proposal]:
        """Return the releases as they were drawn."""
        del loaded
        return [self._drawn[due.release_id].proposal for due in batch]

    async def delete(self, released: Sequence[DueRelease]) -> None:
        """Delete nothing before the date is settled."""

    async def _due(self, slot: str) -> list[DueRelease]:
        return await self.due_of(slot, (await self._store.open_slots()).get(slot, 0))

    # The named steps. Tests wrap them.

    async def load_hats(self, due: Sequence[DueRelease]) -> list[HatUsers] | None:
        """Load all HATs of a slot (step loaded); None if a partition's watermark is missing or too small."""
        found: list[HatUsers] = []
        for batch in batches_of(due):
            with self._failures.attempt("load contributions"):
                chunks = await super().load(batch)
            if chunks is None:
                return None
            found += [hat_users(each.cell, of_hat) for each, of_hat in zip(batch, chunks, strict=True)]
        return found

    async def draw_queries(self, work: TrackerWork, slot: str, hats: Sequence[HatUsers]) -> list[TrackerRelease]:
        """Draw the queries of a slot (step drawn), in a thread. A late slot, of a settled date, has none."""
        named = self._calendar.stored_slot(slot)
        releases = await asyncio.to_thread(work.tracker.close_slot, named, hats, self._noise)
        self._warn_if_different(work.tracker)
        return releases

    async def draw_settlement(self, work: TrackerWork) -> list[TrackerRelease]:
        """Draw the queries of a settlement (step drawn), in a thread."""
        releases = await asyncio.to_thread(work.tracker.settle, self._noise)
        self._warn_if_different(work.tracker)
        return releases

    async def store_state(self, date: str, state: bytes) -> None:
        """Store the state after a settled date (step stored)."""
        with self._failures.attempt("store the state of the tracker"):
            await self._recovery.confirm()
            await self._state.store(date, state, self._recovery.guard.token)

    async def delete_date(self, date: str, slots: Sequence[str]) -> None:
        """Delete the contributions of a settled date (step deleted), except those that queries over days will read."""
        for slot in slots:
            hats = [due.hat for due in await self._due(slot)]
            with self._failures.attempt("delete contributions"):
                await self._delete(hats, keep=is_queried(self._policy, date))

    def _warn_if_different(self, tracker: PolicyTracker) -> None:
        if tracker.is_different:
            tracker.is_different = False
            METERS.count(TRACKER_MISMATCHES)
            log.error("stored queries do not follow from the counts: no more queries are made", date=tracker.date)
