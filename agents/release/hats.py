"""Releases of HATs: which are final, their contributions, and the noisy mean of each."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import structlog

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.agents.monitoring.declarations import CLOSING_SECONDS, FRESHNESS
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.redis.hat_store import OpenDates
from hatcast.agents.release.batching import MAX_BATCH
from hatcast.agents.release.kind import Due, DuePart, ReleaseContext, ReleaseKind
from hatcast.stream.fold.calendar import Calendar, min_watermark
from hatcast.stream.ledger.commits import AnyProposal
from hatcast.stream.policy.policy import Policy
from hatcast.stream.queries import is_queried
from hatcast.stream.records.fields import Status, query_kind, release_id
from hatcast.stream.release.hats import HatChunks, releases_of

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DueHat(Due):
    """A final HAT that this worker releases, and its number of users."""

    max_users: ClassVar[int] = 200_000

    hat: FinalHat

    @classmethod
    def of(cls, policy: Policy, hat: FinalHat, users: int) -> Self:
        """Return the due release of a HAT."""
        date = hat.slot.partition("/")[0]
        return cls(release_id(policy.name, hat.slot, hat.cell), hat.cell, date, users, hat)


class Hats:
    """The HATs of a policy as Redis has them, and their kind under `replace`: those with contributions.

    Other kinds of HAT releases are this kind with other functions: in_step.py, continual.py, tracker.py.
    """

    def __init__(self, context: ReleaseContext) -> None:
        self.delays = ClosingDelays()  # until final slots are published
        self._context = context
        self._policy = context.policy
        self._calendar = Calendar(context.policy)
        self._store = context.store
        self._dates = OpenDates(context.store, context.ledger, self._calendar)
        self.kind = ReleaseKind(
            name="hat",
            noun="releases",
            order="groups",
            due=self.due,
            load=self.load,
            draw=self.draw,
            delete=self.delete,
            is_done=self.is_done,
            after_mark=self.observe,
        )

    async def due(self, owned: frozenset[int]) -> AsyncGenerator[DuePart[DueHat]]:
        """Yield the final HATs of release partitions, once: by slot, then cell, the order in which budget is spent."""
        yield DuePart(await self.due_now(owned))

    async def due_now(self, owned: frozenset[int]) -> list[DueHat]:
        """Return the final HATs with contributions of these release partitions, by slot, then cell."""
        with self._context.failures.attempt("read the watermarks of the partitions"):
            watermark = await self.watermark()
        final = await self.final_slots(watermark) if owned and watermark is not None else {}
        self.delays.add(final)
        found = [due for slot, end_ms in final.items() for due in await self.due_of(slot, end_ms)]
        return [due for due in found if self._context.release_partition(due) in owned]

    async def due_of(self, slot: str, end_ms: int) -> list[DueHat]:
        """Return the HATs with contributions of a slot that ends at `end_ms`, by cell."""
        closes, cells = end_ms + self._policy.lateness_ms, sorted((await self._store.cells(slot)).items())
        return [DueHat.of(self._policy, FinalHat(slot, cell, closes), users) for cell, users in cells]

    async def final_slots(self, watermark: int) -> dict[str, int]:
        """Return the open slots (`date/slot`) that are ours and final by a watermark, with their ends (ms UTC), by end.

        Read the watermark first: then each HAT of a slot that is final is here, or is published and deleted.
        """
        closed, end_date = watermark - self._policy.lateness_ms, await self._context.ledger.end_date()
        by_end = sorted((end, slot) for slot, end in (await self._store.open_slots()).items())
        return {slot: end for end, slot in by_end if end <= closed and slot < end_date}

    async def watermark(self) -> int | None:
        """Return the least watermark of the partitions; None if one has none."""
        return min_watermark(await self._store.watermarks())

    async def went_back(self, watermark: int) -> bool:
        """Return True if the least watermark is less than before: a Redis that lost something lacks slots too."""
        return (await self.watermark() or 0) < watermark

    async def is_closed(self, end_date: str) -> bool:
        """Return True if no partition accepts readings of days before a local date any more."""
        closes_ms = self._calendar.previous_day_end(end_date) + self._policy.lateness_ms
        watermark = await self.watermark()
        return watermark is not None and watermark >= closes_ms

    async def is_done(self, end_date: str) -> bool:
        """Return True if all HATs before a local date are released: it is closed, and none is open."""
        return (
            await self.is_closed(end_date)
            and all(slot >= end_date for slot in await self._store.open_slots())
            and await self.is_closed(end_date)  # or Redis went back meanwhile, and lacks slots
        )

    async def has_lost(self, date: str) -> bool:
        """Return True if records since the start of a local date were deleted unread.

        Read after the load: a HAT that was complete then may be called incomplete, but not the reverse.
        """
        complete_from = await self._store.complete_from()
        return complete_from is not None and self._calendar.day_start(date) < complete_from

    async def load(self, batch: Sequence[DueHat]) -> list[HatChunks] | None:
        """Load each HAT's chunks; None if a partition's watermark is missing or too small.

        Raises HatcastError if they were folded under other rules of the local date than this process has.
        """
        loaded = await self._store.load([due.hat for due in batch])
        await self._dates.check()  # after the load: what was stored before it has its rules beside it
        for date in {due.date for due in batch}:
            await self._dates.pin(date)
        return loaded

    async def draw(
        self, batch: Sequence[DueHat], loaded: Sequence[HatChunks], closed: Status | None = None
    ) -> Mapping[DueHat, AnyProposal]:
        """Draw each HAT's estimate in a thread, because a large HAT takes a second of computing.

        Days that begin before `complete_from` have lost records: their HATs are incomplete.

        closed   status of HATs that nothing is drawn for; None: they are drawn
        """
        if await self.has_lost(batch[0].date):
            closed = Status.INCOMPLETE
        return await asyncio.to_thread(self._draw, batch, loaded, closed)

    def _draw(
        self, batch: Sequence[DueHat], loaded: Sequence[HatChunks], closed: Status | None
    ) -> Mapping[DueHat, AnyProposal]:
        hats = [(due.hat.slot, due.cell, chunks) for due, chunks in zip(batch, loaded, strict=True)]
        releases = releases_of(self._policy, self._calendar, hats, self._context.noise, closed)
        return self._context.proposals(batch, releases)

    async def delete(self, released: Sequence[DueHat]) -> None:
        """Delete contributions, except those that queries over days will read. All are of one date."""
        await self.delete_hats([due.hat for due in released], keep=is_queried(self._policy, released[0].date))

    async def delete_hats(self, hats: Sequence[FinalHat], *, keep: bool) -> None:
        """Delete contributions of HATs. keep: retains the parts that queries over days read."""
        for start in range(0, len(hats), MAX_BATCH):
            await self._store.delete(hats[start : start + MAX_BATCH], keep=keep)

    async def observe(self, published: Sequence[DueHat]) -> None:
        """Observe the delays and the freshness of published HATs, not of queries of several."""
        slots = [due.hat.slot for due in published if not query_kind(due.release_id)]
        self.delays.published(slots)
        if self._context.settings.retention_ms is not None:  # the slots of a recording ended long ago
            now, ends = now_ms(), {slot: self._calendar.stored_slot(slot).end_ms for slot in set(slots)}
            for slot in slots:
                METERS.observe(FRESHNESS, (now - ends[slot]) / 1000)


class ClosingDelays:
    """Delays from the time when this process first saw a slot final to its publication. A slot is named `date/slot`."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def add(self, slots: Iterable[str]) -> None:
        """Add slots that are final and not yet published as a whole."""
        now_s = monotonic_s()
        for slot in slots:
            self._since_s.setdefault(slot, now_s)

    def replace(self, slots: Iterable[str], read_s: float) -> None:
        """Replace all slots by those read at `read_s` (monotonic seconds); slots added since then remain."""
        final = set(slots)
        self.add(final)
        self._since_s = {slot: since for slot, since in self._since_s.items() if slot in final or since >= read_s}

    def published(self, slots: Iterable[str]) -> None:
        """Observe the delays of published HATs: one slot for each HAT."""
        now_s = monotonic_s()
        for slot in slots:
            METERS.observe(CLOSING_SECONDS, now_s - self._since_s.get(slot, now_s))

    def oldest_s(self) -> float:
        """Return how long the oldest slot has waited; 0 if none waits."""
        return monotonic_s() - min(self._since_s.values()) if self._since_s else 0.0
