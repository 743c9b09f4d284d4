"""Inputs of the demo's display: the public records from Kafka, and the worker's state from Redis."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Self

from hatcast.agents.config.settings import Settings
from hatcast.agents.demo.embedded import PARTITIONS
from hatcast.agents.demo.state import DemoState
from hatcast.agents.kafka.client import REQUEST_SECONDS, translate_kafka_errors
from hatcast.agents.kafka.partition_reader import is_end, open_consumer
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.connection import connect_redis_async
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.release.queries import count_unanswered
from hatcast.stream.fold.calendar import min_watermark
from hatcast.stream.ledger import rows
from hatcast.stream.readings.reading import Outcome
from hatcast.stream.records import BUDGET, ESTIMATE, QUERY, RELEASE, RUNNING, EstimateRecord, QueryRecord, ReleaseRecord
from hatcast.stream.records.fields import Status

_POLL_S: Final = 0.1
_POLL_RECORDS: Final = 1_000

Ends = Mapping[str, Sequence[int]]  # topic -> end offset of each of its partitions


class RecordListener:
    """Listener to public records: its methods, which do nothing, get each new record once, when the state has it."""

    def release(self, release: ReleaseRecord, record: bytes, state: DemoState) -> None:
        """Receive a release and its bytes."""

    def answer(self, answer: QueryRecord, record: bytes, state: DemoState) -> None:
        """Receive an answer to a query over days and its bytes."""

    def estimate(self, estimate: EstimateRecord, state: DemoState) -> None:
        """Receive an estimate of a new slot."""

    def settled(self, date: str, state: DemoState) -> None:
        """Receive a local date that a tracker has settled, once."""


class OutputReader:
    """Reader of releases, answers, budgets, estimates and running means, from the first record on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topics = settings.topics

    async def follow(self, state: DemoState, listener: RecordListener) -> None:
        """Add all published records to `state`, until cancelled. `listener` gets the new ones."""
        from confluent_kafka import TopicPartition

        named = self._topics
        topics = (named.means, named.queries, named.budget, named.estimates, named.running)
        with (
            translate_kafka_errors(self._settings),
            open_consumer(self._settings, "demo", {"enable.partition.eof": False}) as consumer,
        ):
            consumer.assign([TopicPartition(topic, each, 0) for topic in topics for each in range(PARTITIONS)])
            while True:
                messages = consumer.consume(_POLL_RECORDS, 0)  # librdkafka's own threads fetch: this does not block
                for message in messages:
                    topic, value = message.topic(), message.value()
                    if not is_end(message) and topic is not None and value is not None:
                        self._apply(topic, value, state, listener)
                await asyncio.sleep(0 if messages else _POLL_S)

    def _apply(self, topic: str, value: bytes, state: DemoState, listener: RecordListener) -> None:
        if topic == self._topics.budget:
            state.add_budget(BUDGET.decode(value))
        elif topic == self._topics.estimates:
            estimate = ESTIMATE.decode(value)
            is_first = estimate.stage == "settled" and estimate.date not in state.settled_dates
            if state.add_estimate(estimate):
                listener.estimate(estimate, state)
            if is_first and state.policy.method.settles_days:
                listener.settled(estimate.date, state)
        elif topic == self._topics.running:
            state.add_running(RUNNING.decode(value))
        elif topic == self._topics.queries:
            answer = QUERY.decode(value)
            if state.add_answer(answer):
                listener.answer(answer, value, state)
        else:
            release = RELEASE.decode(value)
            if state.add(release):
                listener.release(release, value, state)


class StoredState:
    """The worker's state in Redis, as `hatcast status` reads it."""

    def __init__(self, settings: Settings, redis: AnyRedis) -> None:
        policy, domain = settings.policy, settings.topics.telemetry
        self._domain = DomainKeys(domain)
        self._redis = redis
        self._policy = policy
        self._store = store = HatStore.of(redis, policy, PARTITIONS)
        self._offsets = {domain: store.telemetry.offsets}
        if store.reports is not None:
            self._offsets[settings.topics.reports] = store.reports.offsets
        self._retained = RetainedStore(redis, policy.name, PARTITIONS)
        self._ledger = LedgerStore(redis, domain, policy)

    @classmethod
    async def open(cls, settings: Settings) -> Self:
        """Open with a new connection to Redis. Raises HatcastError."""
        return cls(settings, await connect_redis_async(settings))

    async def close(self) -> None:
        """Close the connection."""
        await self._redis.aclose()

    async def refresh(self, state: DemoState) -> None:
        """Update the watermark and the outcomes of `state`."""
        state.watermark_ms = min_watermark(await self._store.watermarks())
        state.outcomes = _without_heartbeats(await self._store.telemetry.outcomes())
        if self._store.reports is not None:
            state.report_outcomes = _without_heartbeats(await self._store.reports.outcomes())

    async def is_finished(self, state: DemoState, ends: Ends) -> bool:
        """Return whether all is folded up to `ends`, every slot is released, and `state` has every record of it.

        Of queries over days those are answered whose periods are over.
        """
        for topic, until in ends.items():
            offsets = await self._offsets[topic]()
            if not all(offset is not None and offset >= end for offset, end in zip(offsets, until, strict=True)):
                return False
        if await self._store.open_slots():
            return False
        # In this order: what is retained is answered, and then counted.
        if await count_unanswered(self._store, self._retained, self._ledger, self._policy):
            return False
        if await self._committed() != state.records:
            return False
        if self._policy.method.settles_days:
            return state.settled >= state.settling
        charged = sum(budget.releases for budget in state.budgets.values())
        # The budget of a horizon counts no releases.
        return self._policy.method.has_horizons or charged == state.counts[Status.RELEASED]

    async def _committed(self) -> int:
        """Return the number of committed releases and answers of all days, sealed days included."""
        total = 0
        for date in await self._ledger.dates():
            total += int(
                await self._redis.hget(self._domain.row(rows.ledger(date)), f"commits:{self._policy.name}") or 0
            )
        return total


def _without_heartbeats(outcomes: Mapping[str, int]) -> dict[str, int]:
    return {name: records for name, records in outcomes.items() if records and name != Outcome.HEARTBEAT}


def source_ends(settings: Settings) -> Ends:
    """Return the end offset of each partition of the topics that workers fold. Blocks. Raises HatcastError."""
    from confluent_kafka import TopicPartition

    # A consumer asks for them, since the mock cluster does not answer an admin client.
    with translate_kafka_errors(settings), open_consumer(settings, "demo", {}) as consumer:
        return {
            topic: [
                consumer.get_watermark_offsets(TopicPartition(topic, each), REQUEST_SECONDS)[1]
                for each in range(PARTITIONS)
            ]
            for topic in settings.sources
        }
