"""What `/metrics` tells of a worker beside what its loops count: where it stands, and what waits.

Its own partitions are asked for when somebody looks. What only Redis knows is read every few seconds by a loop of its
own, so that a release that hangs is seen from outside of it. Only where `worker.listen` is set.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from redis.exceptions import RedisError

from hatcast.agents.clock import monotonic_s, pause
from hatcast.agents.monitoring import declarations as declared
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.monitoring.meters import METERS, Samples
from hatcast.agents.monitoring.server import READY
from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.ledger import LedgerStore
from hatcast.agents.release.hats import Releaser
from hatcast.agents.worker.topic_fold import TopicFold
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.policy.policy import Policy

ROUND_S: Final = 5.0


def tell_readiness(parts: Callable[[], Mapping[str, str]]) -> None:
    """Let the parts of `/readyz` be on the page; a worker that neither starts nor stops is ready as such."""

    def figures() -> Samples:
        found = {"worker": READY, **parts()}
        return {(part,): float(state == READY) for part, state in found.items()}

    METERS.register(declared.READY, figures)


class Gauges:
    """The figures of one worker."""

    def __init__(
        self, policy: Policy, store: HatStore, ledger: LedgerStore, folds: Sequence[TopicFold], releaser: Releaser
    ) -> None:
        self._policy = policy
        self._calendar = Calendar(policy)
        self._store = store
        self._ledger = ledger
        self._folds = folds
        self._releaser = releaser

    def tell(self) -> None:
        """Let what the worker has at hand be on the page. Once its app has started."""
        ingests = [fold.ingest for fold in self._folds]
        METERS.set(declared.POLICY_INFO, 1, policy=self._policy.name, policy_id=self._policy.policy_id)
        METERS.register(declared.WATERMARK, self._clocks)
        METERS.register(declared.BEHIND, self._behind)
        METERS.register(declared.AHEAD, self._ahead)
        METERS.register(declared.BATCHES_WAITING, lambda: {(): sum(one.consumer.waiting() for one in ingests)})
        METERS.register(
            declared.UNSTORED, lambda: {(): sum(h.next - h.base for one in ingests for h in one.held.values())}
        )
        METERS.register(declared.PARTITIONS, self._partitions)
        METERS.register(declared.OLDEST_FINAL, lambda: {(): self._releaser.closing_delays.oldest_s()})

    def _partitions(self) -> Samples:
        ingests = [fold.ingest for fold in self._folds]
        return {
            ("assigned",): sum(len(one.consumer.assigned()) for one in ingests),
            ("loaded",): sum(len(one.held) for one in ingests),
            ("topic",): len(ingests) * self._store.partitions,
        }

    def _clocks(self) -> Samples:
        return {
            (fold.label(partition),): held.fold.watermark / 1000
            for fold in self._folds
            for partition, held in fold.ingest.held.items()
            if held.fold.watermark is not None
        }

    def _behind(self) -> Samples:
        return {
            (fold.label(partition),): max(0, end - held.next)
            for fold in self._folds
            for partition, held in fold.ingest.held.items()
            if (end := fold.ingest.consumer.end(partition)) is not None
        }

    def _ahead(self) -> Samples:
        waiting = [(fold, fold.ingest.waits.waiting()) for fold in self._folds]
        return {
            (fold.label(partition),): records[partition].seconds() if partition in records else 0.0
            for fold, records in waiting
            for partition in fold.ingest.held
        }

    async def run(self, stopping: asyncio.Event) -> None:
        """Look every few seconds, until `stopping` is set."""
        failures = FailureLog("watch")
        while await pause(max(ROUND_S, failures.wait_s), stopping):
            try:
                with failures.attempt("read what Redis knows for /metrics"):
                    await self.look()
            except RedisError as error:
                failures.failed(error)
            else:
                failures.clear()

    async def look(self) -> None:
        """Read what only Redis knows."""
        asked_s = monotonic_s()
        self._releaser.closing_delays.replace(await self._releaser.final_slots(), asked_s)
        METERS.set(declared.OPEN_SLOTS, len(await self._store.open_slots()))
        dates = await self._ledger.unsealed_dates()
        METERS.set(declared.UNPUBLISHED, sum([await self._ledger.count_unpublished(date) for date in dates]))
        clocks = [clock for clock in await self._store.watermarks() if clock is not None]
        if clocks:
            summary = await self._ledger.summary(self._calendar.local(max(clocks)).date().isoformat())
            limit = self._policy.daily_limit_nano if summary.limit is None else summary.limit
            METERS.set(declared.BUDGET_RATIO, summary.epsilon_user_day / limit)
        if (most := self._policy.total_limit_nano) is not None:
            METERS.set(declared.TOTAL_RATIO, (await self._ledger.total()).spent / most)
