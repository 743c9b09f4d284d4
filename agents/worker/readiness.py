"""Readiness of a worker, for `/readyz` and `/metrics`, with its topics and its gauges."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from hatcast.agents.clock import monotonic_s, now_ms, pause
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.aio import KafkaError, UnknownTopicOrPartitionError
from hatcast.agents.kafka.topic_ids import TopicIds
from hatcast.agents.kafka.topic_rules import output_topics
from hatcast.agents.kafka.topics import broken_topics
from hatcast.agents.monitoring import declarations as declared
from hatcast.agents.monitoring.meters import METERS, Samples
from hatcast.agents.monitoring.server import READY
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.agents.worker.ingest import Ingest
from hatcast.agents.worker.source import repeat
from hatcast.agents.worker.topic_fold import TopicFold
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import RUNNING_SUMS, TRACKER_QUERIES

log = structlog.get_logger()

LOOK_S: Final = 5.0  # between looks at whether all topics exist: one metadata request, 0.5 ms of CPU
COMPARE_S: Final = 180.0  # between comparisons of their settings, each with a connection of its own
_FIX: Final = "see HatcastTopicsWrong in docs/runbook.md"


class TopicWatch:
    """Compares the topics with what hatcast's guarantees need while a worker runs: part `topics` of `/readyz`.

    A start compares them too, and rejects what breaks a promise. A running worker goes on: what it can do about a
    changed setting is to say so before records are lost by it.
    """

    def __init__(self, settings: Settings, partitions: int, ids: TopicIds) -> None:
        """Args: `partitions`, of telemetry at the first start."""
        self._settings = settings
        self._partitions = partitions
        self._ids = ids
        self._names = [settings.topics.telemetry, *(each.name for each in output_topics(settings, partitions))]
        self._first: Mapping[str, str | None] | None = None  # the ids at the first look
        self._compared_s: float | None = None
        self._wrong: dict[str, str] = {}  # what is wrong with existence or ids, then with settings: text -> fix
        self._settings_wrong: dict[str, str] = {}

    def state(self) -> str:
        """Return `READY`, or the topics and settings that are wrong, with their values."""
        wrong = [*self._wrong, *self._settings_wrong]
        return READY if not wrong else wrong[0] + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "")

    async def run(self, stopping: asyncio.Event) -> None:
        """Look at once, and then regularly until `stopping` is set.

        While Kafka does not answer, the last result stays; the part `group` of readiness reports that.
        """
        going_on = True
        while going_on:
            await self._look_and_tell()
            going_on = await pause(LOOK_S, stopping)

    async def _look_and_tell(self) -> None:
        known = {**self._wrong, **self._settings_wrong}
        try:
            await self._look()
        except (KafkaError, HatcastError):
            return
        now = {**self._wrong, **self._settings_wrong}
        for text in now.keys() - known.keys():
            log.warning("topic breaks a promise", problem=text, fix=now[text])
        if known and not now:
            log.info("topics are as expected again")

    async def _look(self) -> None:
        try:
            ids = await self._ids.read(self._names)
        except UnknownTopicOrPartitionError as error:
            self._wrong = {f"missing: topic {error.args[0]}": _FIX}
            return
        first = self._first = self._first or ids
        self._wrong = {
            f"topic {name} was deleted and created again": _FIX for name in self._names if first[name] != ids[name]
        }
        if self._compared_s is None or monotonic_s() - self._compared_s >= COMPARE_S:
            self._compared_s = monotonic_s()
            found = await asyncio.to_thread(broken_topics, self._settings, self._partitions)
            self._settings_wrong = {each.difference: each.fix for each in found}


_INTERVALS: Final = 5  # checkpoint intervals that may pass without a good checkpoint
_SLOW_S: Final = 1.0  # for an answer of Redis: a checkpoint and a release need several
_LEAST_S: Final = 5.0  # shorter limits are raised to this: a large state takes seconds to write


@dataclass(frozen=True, slots=True)
class Readiness:
    """Readiness of one topic's ingest and the ledger recovery, by what their loops have seen: it makes no request."""

    ingest: Ingest
    recovery: LedgerRecovery
    checkpoint_interval_s: float
    session_timeout_s: float

    def parts(self) -> dict[str, str]:
        """Return part -> `READY`, or the reason why it is not.

        The texts contain only counts of partitions, seconds, a record's offset and timestamp, and the number of a slot
        of a Redis Cluster, which follows from public names.
        """
        consumer = self.ingest.consumer
        assigned = consumer.assigned()
        loaded = len(assigned & self.ingest.partitions.keys())
        return {
            "redis": self.ingest.redis_problem() or self._redis(),
            "ledger": READY if self.recovery.is_recovered or not assigned else "the ledger is not recovered yet",
            "group": self._group(),
            "partitions": READY if loaded == len(assigned) else f"{loaded} of {len(assigned)} loaded",
            "checkpoint": self._recent("checkpoint", self.ingest.stored_s),
            "clock": self.ingest.early_records.problem() or READY,
            "transactions": self.ingest.open_transactions.problem() or READY,
        }

    def _redis(self) -> str:
        least_s = min(self.ingest.answers_s, default=0.0)  # of the last three, so that no single pause counts
        state = self._recent("answer", self.ingest.answered_s)
        return state if state != READY or least_s < _SLOW_S else f"an answer takes {least_s:.1f} s or more"

    def _recent(self, what: str, last_s: float | None) -> str:
        if last_s is None:
            return f"no {what} yet"
        ago_s = monotonic_s() - last_s
        return READY if ago_s <= max(_INTERVALS * self.checkpoint_interval_s, _LEAST_S) else _no(what, ago_s)

    def _group(self) -> str:
        consumer = self.ingest.consumer
        if not consumer.in_group():
            return "not in the consumer group"
        answered_ms = consumer.answered_ms()
        if answered_ms is None:  # no partition, or the agent waits for Redis and its queue is full
            return READY
        silent_s = (now_ms() - answered_ms) / 1000
        if not answered_ms:
            return "no answer from Kafka yet"
        return READY if silent_s <= self.session_timeout_s else _no("answer from Kafka", silent_s)


def _no(what: str, seconds: float) -> str:
    return f"no {what} for {seconds:.0f} s"


# Gauges of a worker on `/metrics`, beside the counters of its loops; only if `worker.listen` is set.
#
# Gauges of its own partitions are computed at each scrape. Figures from Redis are read every few seconds by a separate
# loop, so that a release loop that hangs is still visible.
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
        await repeat("watch", "read figures for /metrics from Redis", self.update, ROUND_S, stopping)

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
