"""Gauges of a worker on `/metrics`, beside the counters of its loops; only if `worker.listen` is set.

Gauges of its own partitions are computed at each scrape. Figures from Redis are read every few seconds by a separate
loop, so that a release loop that hangs is still visible.
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
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.agents.worker.topic_fold import TopicFold
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.policy.policy import Policy
from hatcast.stream.queries import RUNNING_SUMS, TRACKER_QUERIES

ROUND_S: Final = 5.0


def register_readiness(parts: Callable[[], Mapping[str, str]]) -> None:
    """Register the gauge of the parts of `/readyz`; the part `worker` is ready unless the worker starts or stops."""

    def samples() -> Samples:
        states = {"worker": READY, **parts()}
        return {(part,): float(state == READY) for part, state in states.items()}

    METERS.register(declared.READY, samples)


class Gauges:
    """Gauges of one worker."""

    def __init__(
        self, policy: Policy, store: HatStore, ledger: LedgerStore, folds: Sequence[TopicFold], releases: ReleaseLoop
    ) -> None:
        self._policy = policy
        self._calendar = Calendar(policy)
        self._store = store
        self._ledger = ledger
        self._folds = folds
        self._releases = releases

    def register(self) -> None:
        """Register the gauges of the worker's own partitions. Call after its app has started."""
        ingests = [fold.ingest for fold in self._folds]
        METERS.set(declared.POLICY_INFO, 1, policy=self._policy.name, policy_id=self._policy.policy_id)
        METERS.register(declared.WATERMARK, self._watermarks)
        METERS.register(declared.BEHIND, self._behind)
        METERS.register(declared.AHEAD, self._early)
        METERS.register(declared.BATCHES_WAITING, lambda: {(): sum(ingest.consumer.waiting() for ingest in ingests)})
        METERS.register(
            declared.UNSTORED,
            lambda: {(): sum(each.next - each.base for ingest in ingests for each in ingest.partitions.values())},
        )
        METERS.register(declared.PARTITIONS, self._partitions)
        METERS.register(declared.OLDEST_FINAL, lambda: {(): self._releases.delays.oldest_s()})

    def _partitions(self) -> Samples:
        ingests = [fold.ingest for fold in self._folds]
        return {
            ("assigned",): sum(len(ingest.consumer.assigned()) for ingest in ingests),
            ("loaded",): sum(len(ingest.partitions) for ingest in ingests),
            ("topic",): len(ingests) * self._store.partitions,
        }

    def _watermarks(self) -> Samples:
        return {
            (fold.label(partition),): owned.fold.watermark / 1000
            for fold in self._folds
            for partition, owned in fold.ingest.partitions.items()
            if owned.fold.watermark is not None
        }

    def _behind(self) -> Samples:
        return {
            (fold.label(partition),): max(0, end - owned.next)
            for fold in self._folds
            for partition, owned in fold.ingest.partitions.items()
            if (end := fold.ingest.consumer.end(partition)) is not None
        }

    def _early(self) -> Samples:
        waiting = [(fold, fold.ingest.early_records.waiting()) for fold in self._folds]
        return {
            (fold.label(partition),): records[partition].seconds() if partition in records else 0.0
            for fold, records in waiting
            for partition in fold.ingest.partitions
        }

    async def run(self, stopping: asyncio.Event) -> None:
        """Update every few seconds until `stopping` is set."""
        failures = FailureLog("watch")
        while await pause(max(ROUND_S, failures.wait_s), stopping):
            try:
                with failures.attempt("read figures for /metrics from Redis"):
                    await self.update()
            except RedisError as error:
                failures.failed(error)
            else:
                failures.clear()

    async def update(self) -> None:
        """Update the gauges of which only Redis has the figures."""
        read_s = monotonic_s()
        self._releases.delays.replace(await self._releases.final_slots(), read_s)
        METERS.set(declared.OPEN_SLOTS, len(await self._store.open_slots()))
        dates = await self._ledger.unsealed_dates()
        METERS.set(declared.UNPUBLISHED, sum([await self._ledger.count_unpublished(date) for date in dates]))
        watermarks = [watermark for watermark in await self._store.watermarks() if watermark is not None]
        if watermarks:
            summary = await self._ledger.summary(self._calendar.local(max(watermarks)).date().isoformat())
            limit = self._policy.daily_limit_nano if summary.limit is None else summary.limit
            METERS.set(declared.BUDGET_RATIO, (summary.epsilon_user_day - reserved_up_front(summary)) / limit)
        if (total_limit := self._policy.total_limit_nano) is not None:
            METERS.set(declared.TOTAL_RATIO, (await self._ledger.total()).spent / total_limit)


def reserved_up_front(summary: DaySummary) -> int:
    """Return the reservation of a day's first commit for a tracker or a horizon, in 1e-9 epsilon."""
    reserved = (summary.queries.get(name) for name in (TRACKER_QUERIES, RUNNING_SUMS))
    return sum(each.amount for each in reserved if each is not None)
