"""Inputs of the demo's display: releases and budgets from Kafka, and the worker's state from Redis."""

from collections.abc import Callable
from typing import Final, Self

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from hatcast.agents.config.settings import Settings
from hatcast.agents.demo.embedded import PARTITIONS
from hatcast.agents.demo.state import Budget, Estimated, Published, State
from hatcast.agents.kafka.client import aiokafka_options
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.connection import connect_redis_async
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.partition_state import PartitionStore
from hatcast.stream.fold.watermark import min_watermark
from hatcast.stream.readings.reading import Outcome

_WAIT_MS: Final = 200


class OutputConsumer:
    """Consumer of releases, budgets and estimates, from the first record on."""

    def __init__(self, settings: Settings) -> None:
        self._topics = settings.topics
        # The mock cluster's transaction markers have no checksum: aiokafka would stop at the first one.
        self._consumer = AIOKafkaConsumer(
            **aiokafka_options(settings),
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            check_crcs=False,
        )

    async def __aenter__(self) -> Self:
        await self._consumer.start()
        topics = (self._topics.means, self._topics.budget, self._topics.estimates)
        self._consumer.assign([TopicPartition(topic, partition) for topic in topics for partition in range(PARTITIONS)])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def follow(
        self, state: State, show: Callable[[Published, bytes], object], show_estimate: Callable[[Estimated], object]
    ) -> None:
        """Add all published records to `state`, until cancelled.

        show            gets each release once, with its bytes
        show_estimate   gets the estimates of new slots
        """
        while True:
            for partition, records in (await self._consumer.getmany(timeout_ms=_WAIT_MS)).items():
                for record in records:
                    self._apply(partition.topic, record.value, state, show, show_estimate)

    def _apply(
        self,
        topic: str,
        value: bytes,
        state: State,
        show: Callable[[Published, bytes], object],
        show_estimate: Callable[[Estimated], object],
    ) -> None:
        if topic == self._topics.budget:
            state.add_budget(msgspec.json.decode(value, type=Budget))
            return
        if topic == self._topics.estimates:
            estimate = msgspec.json.decode(value, type=Estimated)
            if state.add_estimate(estimate):
                show_estimate(estimate)
            return
        release = msgspec.json.decode(value, type=Published)
        if state.add(release):
            show(release, value)


class StoredState:
    """The worker's state in Redis, as `hatcast status` reads it."""

    def __init__(self, settings: Settings, redis: AnyRedis) -> None:
        self._domain = DomainKeys(settings.topics.telemetry)
        self._redis = redis
        self._policy = settings.policy.name
        self._store = PartitionStore(redis, settings.policy.name, PARTITIONS)

    @classmethod
    async def open(cls, settings: Settings) -> Self:
        """Open with a new connection to Redis. Raises HatcastError."""
        return cls(settings, await connect_redis_async(settings))

    async def close(self) -> None:
        """Close the connection."""
        await self._redis.aclose()

    async def refresh(self, state: State) -> None:
        """Update the watermark and the outcomes of `state`."""
        state.watermark_ms = min_watermark(await self._store.watermarks())
        outcomes = await self._store.outcomes()
        state.outcomes = {name: records for name, records in outcomes.items() if records and name != Outcome.HEARTBEAT}

    async def is_finished(self, state: State, ends: list[int]) -> bool:
        """Return whether telemetry is folded up to `ends`, every slot is released, and `state` has all releases."""
        offsets = await self._store.offsets()
        if any(offset is None or offset < end for offset, end in zip(offsets, ends, strict=True)):
            return False
        if await self._store.open_slots() or await self._released() != state.releases:
            return False
        if state.policy.tracker is not None:
            return state.settled >= state.settling
        return sum(budget.releases for budget in state.budgets.values()) == state.counts["released"]

    async def _released(self) -> int:
        """Return the number of committed releases of all days, sealed days included."""
        total = 0
        for date in await self._redis.smembers(self._domain.dates):
            ledger = self._domain.ledger(date.decode() if isinstance(date, bytes) else date)
            total += int(await self._redis.hget(ledger, f"commits:{self._policy}") or 0)
        return total


async def telemetry_ends(settings: Settings) -> list[int]:
    """Return the end offset of each telemetry partition."""
    consumer = AIOKafkaConsumer(**aiokafka_options(settings))
    await consumer.start()
    try:
        tps = [TopicPartition(settings.topics.telemetry, partition) for partition in range(PARTITIONS)]
        ends = await consumer.end_offsets(tps)
        return [ends[tp] for tp in tps]
    finally:
        await consumer.stop()
