"""Seal finished days: allow no more commits, and replace their records by a summary.    [decisions/0013]

A day of a policy is finished once every watermark is past its close, none of its HATs is open, and everything is
published. The seal is written to Redis first, which ends commits, then to the registry topic, which outlives Redis;
then the records are deleted. After a crash between these steps the next round repeats them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from hatcast.agents.clock import monotonic_s
from hatcast.agents.kafka.registry import Decide, Facts
from hatcast.agents.recovery.domain import day_before
from hatcast.agents.redis.recovery import SealStore
from hatcast.agents.release.kind import ReleaseContext
from hatcast.agents.release.resending import Resender
from hatcast.stream.fold.calendar import Calendar, min_watermark
from hatcast.stream.ledger.sealed_days import SEALED_KEY, Sealed, SealedDay, registry_records
from hatcast.stream.policy.policy import Relation

log = structlog.get_logger()

ROUND_S: Final = 5.0  # between rounds
_SEAL_PARTITION: Final = 0  # the owner of this release partition seals


class Sealer:
    """Seals days, in one worker."""

    def __init__(self, context: ReleaseContext, seals: SealStore) -> None:
        self._policy = context.policy
        self._calendar = Calendar(context.policy)
        self._store = context.store
        self._ledger = context.ledger
        self._seals = seals
        self._recovery = context.recovery
        self._registry = context.registry
        self._resender = Resender(
            context.settings, context.ledger, context.recovery, context.producers, context.store.partitions
        )
        self._next_s = 0.0

    async def round(self, owned: frozenset[int], is_done: Callable[[str], Awaitable[bool]]) -> None:
        """Seal finished days, every few seconds. Call it after a release round, which recovers the ledger."""
        if monotonic_s() >= self._next_s:
            self._next_s = monotonic_s() + ROUND_S
            await self.seal(owned, is_done)

    async def seal(self, owned: frozenset[int], is_done: Callable[[str], Awaitable[bool]]) -> None:
        """Seal the days that are finished now, as the owner of release partitions.

        is_done   returns True if everything before a local date is published
        """
        watermark = min_watermark(await self._store.watermarks())
        if watermark is None:
            return
        # The first date of which a partition still accepts readings, or that belongs to the next policy.
        open_date = self._calendar.local(watermark - self._policy.lateness_ms).date().isoformat()
        today = min(open_date, await self._ledger.end_date())
        dates = [each for each in await self._ledger.unsealed_dates() if each < today]
        if not dates or not await is_done(today):
            return
        # A sealed day's record that is back from another copy of Redis was never sent, or is published.
        unsealed = [each for each in dates if each > self._recovery.sealed_through]
        await self._resender.resend(unsealed, owned)
        if _SEAL_PARTITION in owned and not any([await self._ledger.count_unpublished(each) for each in unsealed]):
            await self._seal(today, dates)

    async def _seal(self, today: str, dates: Sequence[str]) -> None:
        name, through = self._policy.name, day_before(today)
        # Adopt everything of these days first, so that a later recovery can begin reading after it.
        recovery, before = self._recovery, self._recovery.sealed_through
        if not await recovery.catch_up():
            return
        if not await self._seals.seal(name, through, recovery.guard.token, recovery.caught_up_to):
            return
        summarised = self._summarised(dates, through, before)
        days = {each: day for each in summarised if (day := await self._seals.day(name, each))}
        sealed = await self._sealed(today, through)
        if await self._seals.through(name) < through:  # Redis went back while that was read
            return
        await self._registry.write(_change(sealed, days))
        await self._seals.shrink(name, dates)
        log.info("days sealed", through=through, days=len(dates))

    def _summarised(self, dates: Sequence[str], through: str, before: str) -> list[str]:
        """Return the sealed dates, and those charged without a release of their own.

        before   date through which Redis was sealed; not before `through` if a crash cut that seal short
        """
        summarised = set(dates)
        if self._policy.selection_cost is not None:
            since = before if before < through else ""
            summarised.update(each for each in self._policy.selection_cost.dates if since < each <= through)
        for query in self._policy.queries:
            for each in dates:
                period = query.period_of(each)
                if period is not None and period.dates[-1] <= through:
                    summarised.update(period.dates)
        return sorted(summarised)

    async def _sealed(self, today: str, through: str) -> Sealed:
        first_ms = done_ms = None
        if self._policy.relation is Relation.ADD_REMOVE:
            first_ms = (await self._ledger.progress.read()).first_ms
            done_ms = self._calendar.previous_day_end(today)
        return Sealed(
            policy=self._policy.name,
            through=through,
            rules=self._calendar.rules_of(through),
            partitions=self._store.partitions,
            starts=await self._seals.starts(today, self._policy.name),
            first_ms=first_ms,
            done_ms=done_ms,
            has_horizons=self._policy.method.has_horizons,
        )


def _change(sealed: Sealed, days: Mapping[str, SealedDay]) -> Decide:
    records = registry_records(sealed, days)

    def change(facts: Facts) -> Mapping[str, bytes]:
        current = facts.values.get(f"{SEALED_KEY}{sealed.policy}")
        if current is not None and msgspec.json.decode(current, type=Sealed).through > sealed.through:
            return {}  # another worker has sealed more since
        return {key: value for key, value in records.items() if facts.values.get(key) != value}

    return change
