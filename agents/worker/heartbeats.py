"""Ticks: empty records that move the clock of a partition whose buses are silent.    [design 4, Ticks]

A tick is always in the log, so every replay sees it. A worker ticks a partition of its own only where nothing is left
to read, nothing came for `idle_after`, and the topic is live: an old recording must not be closed by today's clock.
"""

import asyncio
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import ConsumerStoppedError, KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import monotonic_s, now_ms, pause
from hatcast.agents.monitoring.declarations import HEARTBEATS
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.worker.ingest import Ingest

LIVE_MS: Final = 600_000  # the greatest stored clock of a live topic is at most this far in the past
_ROUND_S: Final = 1.0


class HeartbeatSender:
    """Ticks the idle partitions of one worker."""

    def __init__(
        self, ingest: Ingest, store: HatStore, producer: AIOKafkaProducer, topic: str, idle_after_ms: int
    ) -> None:
        self._ingest = ingest
        self._store = store
        self._producer = producer
        self._topic = topic
        self._idle_after_s = idle_after_ms / 1000

    async def run(self, stopping: asyncio.Event) -> None:
        """Look once a second, until `stopping` is set."""
        failures = FailureLog("ticks")
        while await pause(max(_ROUND_S, failures.wait_s), stopping):
            try:
                with failures.attempt("tick idle partitions"):
                    await self.round()
            except (RedisError, KafkaError, ConsumerStoppedError) as error:
                failures.failed(error)
            else:
                failures.clear()

    async def round(self) -> None:
        """Tick every partition of ours that is idle."""
        idle = [
            partition
            for partition, held in self._ingest.held.items()
            if monotonic_s() - held.heard_s >= self._idle_after_s
            and self._ingest.consumer.position_at_end(partition, held.next)
        ]
        if not idle:
            return
        clocks = [clock for clock in await self._store.watermarks() if clock is not None]
        if not clocks or now_ms() - max(clocks) > LIVE_MS:
            return
        for partition in idle:
            await self._producer.send_and_wait(self._topic, b"", partition=partition, timestamp_ms=now_ms())
            METERS.count(HEARTBEATS)
