"""Seal days that are over: a mark that nothing of them is committed any more, and a summary in place of records.

A day of a policy is over once every watermark is past its close, nothing of it is open, and all of it is published. The
seal goes to Redis first, which ends commits, then to the registry topic, which outlives Redis; then the records go.
A crash between these steps is made good by the next look.    [decisions/0028]
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Final

import msgspec
import structlog

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.recovery import LedgerRecovery
from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.redis.sealed_days import SEALED_KEY, Sealed, SealedDay, registry_records
from hatcast.agents.redis.sealing import SealStore
from hatcast.agents.release.hats import Releaser
from hatcast.agents.worker.resending import Resender
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.fold.watermark import min_watermark
from hatcast.stream.policy.policy import Relation

log = structlog.get_logger()

Change = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""What is in the registry (key -> value) -> what is to be written to it."""

LOOK_S: Final = 5.0
_SEALER: Final = 0  # the release partition whose owner seals


class Sealer:
    """The seals of one worker."""

    def __init__(
        self,
        settings: Settings,
        store: HatStore,
        ledger: LedgerStore,
        seals: SealStore,
        recovery: LedgerRecovery,
        write: Callable[[Change], Awaitable[None]],
    ) -> None:
        """Args:
        write: changes the registry of the domain, on the newest facts
        """
        self._policy = settings.policy
        self._calendar = Calendar(settings.policy)
        self._store = store
        self._ledger = ledger
        self._seals = seals
        self._recovery = recovery
        self._write = write
        self._resender = Resender(settings, ledger, recovery, store.partitions)
        self._next_s = 0.0

    async def look(self, releaser: Releaser) -> None:
        """Seal what is over, every few seconds. Right after a round: the ledger is recovered, producers are held."""
        if monotonic_s() >= self._next_s:
            self._next_s = monotonic_s() + LOOK_S
            await self.seal(releaser)

    async def seal(self, releaser: Releaser) -> None:
        """Seal what is over now."""
        least = min_watermark(await self._store.watermarks())
        if least is None:
            return
        # The first date that a partition still takes readings of, or that is of the policy which follows ours.
        today = min(
            self._calendar.local(least - self._policy.lateness_ms).date().isoformat(), await releaser.end_date()
        )
        owned, dates = releaser.owned(), [each for each in await self._ledger.unsealed_dates() if each < today]
        if not dates or not await releaser.is_done(today):
            return
        # A record of a sealed day that is here again, from another copy of Redis, was never sent, or is published.
        unsealed = [each for each in dates if each > self._recovery.sealed_through]
        await self._resender.resend(unsealed, owned)
        if _SEALER in owned and not any([await self._ledger.count_unpublished(each) for each in unsealed]):
            await self._seal(today, dates)

    async def _seal(self, today: str, dates: Sequence[str]) -> None:
        name, through = self._policy.name, (date.fromisoformat(today) - timedelta(days=1)).isoformat()
        # Everything of these days has to be adopted, so that reading can begin behind it.
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
        await self._write(self._change(sealed, days))
        await self._seals.shrink(name, dates)
        log.info("days sealed", through=through, days=len(dates))

    def _summarised(self, dates: Sequence[str], through: str, before: str) -> list[str]:
        """The dates that are sealed, and those that were charged without a release of theirs.

        before   through which date Redis was sealed; not before `through` where a crash cut that seal short
        """
        found = set(dates)
        if self._policy.selection_cost is not None:
            since = before if before < through else ""
            found.update(each for each in self._policy.selection_cost.dates if since < each <= through)
        for query in self._policy.queries:
            for each in dates:
                period = query.period_of(each)
                if period is not None and period.dates[-1] <= through:
                    found.update(period.dates)
        return sorted(found)

    async def _sealed(self, today: str, through: str) -> Sealed:
        first_ms = done_ms = None
        if self._policy.relation is Relation.ADD_REMOVE:
            first_ms = (await self._ledger.progress.read()).first_ms
            done_ms = self._calendar.previous_day_end(today)
        return Sealed(
            policy=self._policy.name,
            through=through,
            partitions=self._store.partitions,
            starts=await self._seals.starts(today, self._policy.name),
            first_ms=first_ms,
            done_ms=done_ms,
        )

    def _change(self, sealed: Sealed, days: Mapping[str, SealedDay]) -> Change:
        records = registry_records(sealed, days)

        def change(stored: Mapping[str, bytes]) -> Mapping[str, bytes]:
            known = stored.get(f"{SEALED_KEY}{sealed.policy}")
            if known is not None and msgspec.json.decode(known, type=Sealed).through > sealed.through:
                return {}  # another worker has sealed more since
            return {key: value for key, value in records.items() if stored.get(key) != value}

        return change
