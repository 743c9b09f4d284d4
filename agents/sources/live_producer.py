"""Kafka producer of a live bridge: bounded, in order, with a delivery report for every reading."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError

from hatcast.agents.clock import monotonic_s
from hatcast.agents.kafka.queued_producer import QUEUE_FULL_WAIT_S, QUEUE_KIB, QueuedProducer, one_line
from hatcast.agents.monitoring.declarations import BRIDGE_READINGS
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.monitoring.server import READY
from hatcast.agents.sources.acknowledgements import PendingMessage
from hatcast.stream.errors import HatcastError
from hatcast.stream.replay.heartbeats import Message

SILENCE_LIMIT_S: Final = 10.0  # without a delivery report, while messages are in flight
_POLL_TIMEOUT_S: Final = 0.1
_CLOCK_IS_AHEAD: Final = "correct this machine's clock, it is ahead of Kafka's by more than max_ahead"


class LiveProducer(QueuedProducer[PendingMessage]):
    """Producer for an event loop.

    It retries for ever: while Kafka is unavailable, produced messages stay queued and `send` waits. So nothing is
    lost, and memory is bounded by `limit` messages and 64 MiB.

    in_flight   messages that Kafka has not confirmed
    confirmed   readings that Kafka has confirmed
    """

    def __init__(
        self, options: Mapping[str, Any], topic: str, limit: int, on_failure: Callable[[HatcastError], object]
    ) -> None:
        """Args:
        options:     connection options (hatcast.agents.kafka.client.confluent_options)
        limit:       messages in flight, at most
        on_failure:  called in the loop when Kafka rejects a message permanently
        """
        super().__init__(
            options,
            topic,
            {
                "linger.ms": 5,
                "queue.buffering.max.messages": limit + 100_000,  # heartbeats are not counted in `limit`
                "queue.buffering.max.kbytes": QUEUE_KIB,
                "message.timeout.ms": 0,  # retry for ever: sources are acknowledged only what Kafka has confirmed
            },
        )
        self.limit = limit
        self.confirmed = 0
        self._last_report_s = monotonic_s()  # the last delivery report, or the first message in flight if later
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._closed = threading.Event()
        self._poller = threading.Thread(target=self._poll_reports, name="live-producer", daemon=True)
        self._poller.start()

    async def send(self, message: Message, pending: PendingMessage) -> None:
        """Produce a reading, waiting while the buffer is full; confirm it to `pending` once Kafka has it."""
        while self.in_flight >= self.limit:
            self._has_room.clear()
            await self._has_room.wait()
        while not self._produce(message, pending):
            await asyncio.sleep(QUEUE_FULL_WAIT_S)
        pending.unconfirmed += 1

    def send_heartbeat(self, message: Message) -> None:
        """Produce a heartbeat record; skip it if the queue is full, since the next one replaces it."""
        self._produce(message)

    def _produce(self, message: Message, tag: PendingMessage | None = None) -> bool:
        if not self.in_flight:
            self._last_report_s = monotonic_s()
        return super()._produce(message, tag)

    def silence_s(self) -> float:
        """Return the seconds since the last delivery report; 0 if no message is in flight."""
        return monotonic_s() - self._last_report_s if self.in_flight else 0.0

    def state(self) -> str:
        """Return the readiness of Kafka for `/readyz`."""
        silence_s = self.silence_s()
        return READY if silence_s < SILENCE_LIMIT_S else f"no answer for {silence_s:.0f} s"

    async def finish(self, seconds: float) -> int:
        """Wait until Kafka has confirmed everything, at most `seconds`; return the number of unconfirmed messages."""
        until_s = monotonic_s() + seconds
        while self.in_flight and monotonic_s() < until_s:
            self._producer.flush(0)  # ends the linger time
            await asyncio.sleep(QUEUE_FULL_WAIT_S)
        return self.in_flight

    async def close(self) -> None:
        """Stop, and drop queued messages."""
        self._closed.set()
        await asyncio.to_thread(self._poller.join)
        self._purge()

    def _poll_reports(self) -> None:
        """Collect delivery reports in a thread, and pass them to the loop in batches."""
        while not self._closed.is_set():
            self._producer.poll(_POLL_TIMEOUT_S)
            if self._reports:
                self._loop.call_soon_threadsafe(self._handle_reports)

    def _handle_reports(self) -> None:
        """Handle the collected delivery reports, in the loop."""
        self._last_report_s = monotonic_s()
        before = self.confirmed
        for pending, error in self._taken_reports():
            if error is not None:
                self._on_failure(self._rejection(error))
            elif pending is not None:
                self.confirmed += 1
                pending.confirm()
        if self.in_flight < self.limit:
            self._has_room.set()
        METERS.count(BRIDGE_READINGS, self.confirmed - before)

    def _rejection(self, error: KafkaError, _: int | None = None) -> HatcastError:
        fix = "fix that, and start again"
        if error.code() == KafkaError.INVALID_TIMESTAMP:
            fix = _CLOCK_IS_AHEAD
        return HatcastError(f"Kafka rejects readings on topic {self.topic} ({one_line(error)}): {fix}")
