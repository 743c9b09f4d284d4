"""Releases of HATs: the estimate of each final HAT, from its contributions."""

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from hatcast.agents.clock import now_ms
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.redis.open_dates import OpenDates
from hatcast.agents.release.batches import MAX_BATCH, Due
from hatcast.agents.release.counters import ClosingDelays
from hatcast.agents.release.path import ReleaseContext, ReleasePath
from hatcast.stream.fold.watermark import min_watermark
from hatcast.stream.ledger.proposals import Committed, Proposal
from hatcast.stream.policy.policy import Policy
from hatcast.stream.queries import is_queried
from hatcast.stream.records.fields import Status, is_settlement, release_id
from hatcast.stream.release.hats import HatChunks, releases_of


@dataclass(frozen=True, slots=True)
class DueRelease(Due):
    """A final HAT that this worker releases, and its number of users."""

    max_users: ClassVar[int] = 200_000

    hat: FinalHat

    @classmethod
    def of(cls, policy: Policy, hat: FinalHat, users: int, released_at_ms: int | None = None) -> Self:
        """Return the due release of a HAT."""
        date = hat.slot.partition("/")[0]
        return cls(release_id(policy.name, hat.slot, hat.cell), hat.cell, date, users, released_at_ms, hat)


@dataclass(frozen=True, slots=True)
class Published:
    """Progress of the publication of a policy's releases.

    through_ms   ms UTC: all HATs of the slots that end by then are
    settled      local date: the settlements up to it are; "" if there is none
    """

    through_ms: int
    settled: str = ""


class HatPath(ReleasePath[DueRelease, list[HatChunks], Proposal]):
    """The path of HATs. Which are due, and when they may be sent, depends on the relation.

    closing_delays   delays until final slots are published
    """

    name = "hat"
    event = "release"
    noun = "releases"

    def __init__(self, context: ReleaseContext) -> None:
        super().__init__(context, context.settings.topics.means, context.ledger.commit)
        self.closing_delays = ClosingDelays()
        self._dates = OpenDates(context.store, context.ledger, self._calendar)

    @abstractmethod
    async def due_releases(self, owned: frozenset[int]) -> list[DueRelease]:
        """Return the final HATs of these release partitions that are not published, by slot, then cell."""

    @abstractmethod
    async def final_slots(self) -> list[str]:
        """Return the slots that are final and not yet published as a whole, of all owners."""

    @abstractmethod
    async def published_through(self) -> Published | None:
        """Return how far releases are published; None: it is not known now."""

    async def has_room(self, batch: Sequence[DueRelease]) -> bool:
        """Return False if the budget is known to be exhausted before the draw; each commit checks it anyway."""
        del batch
        return True

    async def has_lost(self, date: str) -> bool:
        """Return True if records since the start of a local date were deleted unread.

        Read after the load: a HAT that was complete then may be called incomplete, but not the reverse.
        """
        complete_from = await self._store.complete_from()
        return complete_from is not None and self._calendar.day_start(date) < complete_from

    async def is_closed(self, end_date: str) -> bool:
        """Return True if no partition accepts readings of days before a local date any more."""
        closes_ms = self._calendar.previous_day_end(end_date) + self._policy.lateness_ms
        watermark = min_watermark(await self._store.watermarks())
        return watermark is not None and watermark >= closes_ms

    def count(self, published: Sequence[tuple[DueRelease, Committed]]) -> None:
        """Count releases that are marked as published, and observe the delays of their slots, not of settlements."""
        super().count(published)
        self.closing_delays.published(due.hat.slot for due, _ in published if not is_settlement(due.release_id))

    async def load(self, batch: Sequence[DueRelease]) -> list[HatChunks] | None:
        """Load each HAT's chunks (step loaded); None if a partition's watermark is missing or too small.

        Raises HatcastError if they were folded under other rules of the local date than this process has.
        """
        loaded = await self._store.load([due.hat for due in batch])
        await self._dates.check()  # after the load: what was stored before it has its rules beside it
        for date in {due.date for due in batch}:
            await self._dates.pin(date)
        return loaded

    async def draw(self, batch: Sequence[DueRelease], loaded: Sequence[HatChunks]) -> list[Proposal]:
        """Draw each HAT's estimate with its noise (step drawn), in a thread: a large HAT takes a second of computing.

        Days that begin before `complete_from` have lost records: their HATs are incomplete.
        """
        closed = None
        if await self.has_lost(batch[0].date):
            closed = Status.INCOMPLETE
        elif not await self.has_room(batch):
            closed = Status.BUDGET_EXHAUSTED
        return await asyncio.to_thread(self._draw, batch, loaded, closed)

    def _draw(self, batch: Sequence[DueRelease], loaded: Sequence[HatChunks], closed: Status | None) -> list[Proposal]:
        hats = [(due.hat.slot, due.cell, chunks) for due, chunks in zip(batch, loaded, strict=True)]
        releases, at_ms = releases_of(self._policy, self._calendar, hats, self._noise, closed), now_ms()
        return [
            release.proposal(at_ms, self.release_partition(due)) for due, release in zip(batch, releases, strict=True)
        ]

    async def delete(self, released: Sequence[DueRelease]) -> None:
        """Delete contributions, except those that queries over days will read (step deleted). All are of one date."""
        await self._delete([due.hat for due in released], keep=is_queried(self._policy, released[0].date))

    async def _delete(self, hats: Sequence[FinalHat], *, keep: bool) -> None:
        for start in range(0, len(hats), MAX_BATCH):
            await self._store.delete(hats[start : start + MAX_BATCH], keep=keep)


class HatReleaser(HatPath):
    """Releases HATs under `replace`: those with contributions, once their slots are final."""

    async def round(self, owned: frozenset[int], stopping: asyncio.Event) -> int:
        """Release the final HATs of these release partitions. Return their number."""
        return await self.release(await self.due_releases(owned), stopping)

    async def due_releases(self, owned: frozenset[int]) -> list[DueRelease]:
        """Return the final HATs of these release partitions, by slot, then cell: the order in which budget is spent."""
        with self._failures.attempt("read the watermarks of the partitions"):
            final = await self.final()
        found = []
        for slot, end in final if owned else []:
            self.closing_delays.add([slot])
            found += [due for due in await self.due_of(slot, end) if self.release_partition(due) in owned]
        return found

    async def due_of(self, slot: str, end_ms: int) -> list[DueRelease]:
        """Return the HATs with contributions of a slot that ends at `end_ms`, by cell."""
        closes, cells = end_ms + self._policy.lateness_ms, sorted((await self._store.cells(slot)).items())
        return [DueRelease.of(self._policy, FinalHat(slot, cell, closes), users) for cell, users in cells]

    async def final(self) -> list[tuple[str, int]]:
        """Return the open slots (`date/slot`) that are final and ours, with their ends (ms UTC), by end."""
        watermark = min_watermark(await self._store.watermarks())
        if watermark is None:
            return []
        closed, end_date = watermark - self._policy.lateness_ms, await self._ledger.end_date()
        by_end = sorted((end, slot) for slot, end in (await self._store.open_slots()).items())
        return [(slot, end) for end, slot in by_end if end <= closed and slot < end_date]

    async def final_slots(self) -> list[str]:
        """Return the slots that are final and not yet published as a whole, of all owners."""
        return [slot for slot, _ in await self.final()]

    async def published_through(self) -> Published | None:
        """Return the time up to which slots are final, or before the end of the first one with an open HAT."""
        watermark = min_watermark(await self._store.watermarks())
        if watermark is None:
            return None
        # Read after the watermark: a HAT of a slot that is final by it is open now, or published and deleted.
        ends = (await self._store.open_slots()).values()
        return Published(min(watermark - self._policy.lateness_ms, min(ends, default=watermark) - 1))

    async def is_done(self, end_date: str) -> bool:
        """Return True if all HATs before a local date are released."""
        return await self.is_closed(end_date) and all(slot >= end_date for slot in await self._store.open_slots())
