"""Heartbeat records that advance the watermark of a partition while its vehicles are silent.

A heartbeat is a record in the log, so every replay sees it. A worker sends one to a partition that it owns only if the
log is read to its end, no record has arrived for `idle_after`, and the topic is live: today's clock must not close the
slots of an old recording, except in a drain.    [docs/specification/fold.md, Heartbeat records]
"""

import asyncio
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import monotonic_s, now_ms, pause
from hatcast.agents.monitoring.declarations import HEARTBEATS
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.worker.ingest import Ingest

LIVE_MS: Final = 600_000  # a live topic's greatest stored watermark is at most this old
_ROUND_S: Final = 1.0


class HeartbeatSender:
    """Sends heartbeats to the idle partitions of one worker."""

    def __init__(
        self,
        ingest: Ingest,
        store: HatStore,
        producer: AIOKafkaProducer,
        topic: str,
        idle_after_ms: int,
        live_ms: int | None = LIVE_MS,
    ) -> None:
        """Args: `live_ms`, the age of the greatest watermark of a live topic; None: send whatever it is, in a drain."""
        self._ingest = ingest
        self._store = store
        self._producer = producer
        self._topic = topic
        self._idle_after_s = idle_after_ms / 1000
        self._live_ms = live_ms

    async def run(self, stopping: asyncio.Event) -> None:
        """Run a round once a second until `stopping` is set."""
        failures = FailureLog("ticks")
        while await pause(max(_ROUND_S, failures.wait_s), stopping):
            try:
                with failures.attempt("send heartbeats to idle partitions"):
                    await self.round()
            except (RedisError, KafkaError) as error:
                failures.failed(error)
            else:
                failures.clear()

    async def round(self) -> None:
        """Send a heartbeat to each idle partition that this worker owns."""
        idle = [
            partition
            for partition, owned in self._ingest.partitions.items()
            if monotonic_s() - owned.last_arrival_s >= self._idle_after_s
            and self._ingest.consumer.position_at_end(partition, owned.next)
        ]
        if not idle:
            return
        if self._live_ms is not None:
            watermarks = [watermark for watermark in await self._store.watermarks() if watermark is not None]
            if not watermarks or now_ms() - max(watermarks) > self._live_ms:
                return
        for partition in idle:
            await self._producer.send_and_wait(self._topic, b"", partition=partition, timestamp_ms=now_ms())
            METERS.count(HEARTBEATS)
