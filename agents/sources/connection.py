"""Connection from a live source to Kafka: reconnects, forwards messages and reports health, for every protocol."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from secrets import randbelow  # jitter of the backoff, never noise
from typing import Any, Final, Protocol

import structlog
from confluent_kafka import KafkaError

from hatcast.agents.clock import cancel_all, monotonic_s, pause
from hatcast.agents.kafka.queued_producer import QUEUE_FULL_WAIT_S, QUEUE_KIB, QueuedProducer, one_line
from hatcast.agents.monitoring import declarations as declared
from hatcast.agents.monitoring.failures import back_off_s
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.monitoring.server import READY
from hatcast.agents.sources.endpoint import SourceLost, SourceRejection
from hatcast.agents.sources.filter import Filter
from hatcast.stream.errors import HatcastError
from hatcast.stream.replay.heartbeats import TelemetryMessage

log = structlog.get_logger()

# Acknowledge messages to a source, in order, once Kafka has all of their readings.
#
# MQTT requires acknowledgements in order [MQTT 5.0, 4.6]. In AMQP one acknowledgement can cover all earlier messages.
_POLL_S: Final = 0.01


class PendingMessage:
    """One message of a source that has not been acknowledged."""

    __slots__ = ("_tracker", "acknowledge", "unconfirmed")

    def __init__(self, tracker: "AckTracker", acknowledge: Callable[[], object]) -> None:
        self.unconfirmed = 1  # its readings that Kafka has not confirmed, plus one until all of them have been produced
        self.acknowledge = acknowledge
        self._tracker = tracker

    def confirm(self) -> None:
        """Count one reading as confirmed by Kafka, or the message as produced completely."""
        self.unconfirmed -= 1
        if not self.unconfirmed:
            self._tracker.acknowledge_confirmed()


class AckTracker:
    """Unacknowledged messages of one connection, in order of receipt."""

    def __init__(self) -> None:
        self._pending: deque[PendingMessage] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, acknowledge: Callable[[], object]) -> PendingMessage:
        """Track a received message. Calls `acknowledge` when Kafka has it and all earlier messages."""
        pending = PendingMessage(self, acknowledge)
        self._pending.append(pending)
        return pending

    def acknowledge_confirmed(self) -> None:
        """Acknowledge the confirmed messages up to the first unconfirmed one."""
        while self._pending and not self._pending[0].unconfirmed:
            self._pending.popleft().acknowledge()

    async def wait_until_empty(self) -> None:
        """Wait until Kafka has all messages, however long that takes."""
        while self._pending:
            await asyncio.sleep(_POLL_S)

    def discard(self, pending: PendingMessage) -> None:
        """Stop tracking a message that was not produced completely: the source sends it again."""
        if pending in self._pending:
            self._pending.remove(pending)

    def clear(self) -> None:
        """Drop all messages of a lost connection: the source sends them again on the next one."""
        self._pending.clear()


SILENCE_LIMIT_S: Final = 10.0  # without a delivery report, while messages are in flight
_POLL_TIMEOUT_S: Final = 0.1
_CLOCK_IS_AHEAD: Final = "correct this machine's clock, it is ahead of Kafka's by more than max_ahead"


class LiveProducer(QueuedProducer[PendingMessage]):
    """Producer for an event loop.

    It retries for ever: while Kafka is unavailable, produced messages stay queued and `send` waits. So nothing is
    lost, and memory is bounded by `limit` messages and 64 MiB.

    in_flight   messages that Kafka has not confirmed
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
        self.confirmed = 0  # readings that Kafka has confirmed
        self._last_report_s = monotonic_s()  # the last delivery report, or the first message in flight if later
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._closed = threading.Event()
        self._poller = threading.Thread(target=self._poll_reports, name="live-producer", daemon=True)
        self._poller.start()

    async def send(self, message: TelemetryMessage, pending: PendingMessage) -> None:
        """Produce a reading, waiting while the buffer is full; confirm it to `pending` once Kafka has it."""
        while self.in_flight >= self.limit:
            self._has_room.clear()
            await self._has_room.wait()
        while not self._produce(message, pending):
            await asyncio.sleep(QUEUE_FULL_WAIT_S)
        pending.unconfirmed += 1

    def send_heartbeat(self, message: TelemetryMessage) -> None:
        """Produce a heartbeat record; skip it if the queue is full, since the next one replaces it."""
        self._produce(message)

    def _produce(self, message: TelemetryMessage, tag: PendingMessage | None = None) -> bool:
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
        METERS.count(declared.BRIDGE_READINGS, self.confirmed - before)

    def _rejection(self, error: KafkaError, _: int | None = None) -> HatcastError:
        is_ahead = error.code() == KafkaError.INVALID_TIMESTAMP
        fix = _CLOCK_IS_AHEAD if is_ahead else "fix that, and start again"
        return HatcastError(f"Kafka rejects readings on topic {self.topic} ({one_line(error)}): {fix}")


MESSAGE_BYTES_MAX: Final = 1 << 20  # of a broker's message: a larger one is dropped and counted, not decoded
SHUTDOWN_TIMEOUT_S: Final = 10.0  # to deliver the messages that were received before a stop
_STABLE_S: Final = 10.0  # a connection that lasted this long resets the backoff
_JITTER_PERCENT: Final = 25  # added to each wait, at most
_YIELD_EVERY: Final = 500  # readings of one message between two yields to the event loop


class LiveSource(Protocol):
    """Client of a live feed."""

    @property
    def name(self) -> str:
        """Name of its command: mqtt, gtfs-rt, siri or amqp."""

    @property
    def where(self) -> str:
        """Host, port and topic, queue or path, for logs and messages; no secret."""

    async def serve(self, connection: "SourceConnection") -> None:
        """Connect, and forward messages until `connection.stopping` is set. Raises SourceLost."""


class SourceConnection:
    """State of a source's connection, and the way of its messages to Kafka."""

    def __init__(self, reading_filter: Filter, producer: LiveProducer, stopping: asyncio.Event) -> None:
        self.reading_filter = reading_filter
        self.producer = producer
        self.stopping = stopping  # set when the bridge has to stop
        self.is_connected = False  # the source is connected
        self.losses = 0  # how often the connection was lost or could not be made
        self.dropped = 0  # messages dropped because a buffer was full; the source does not send them again
        self._ever_connected = False
        self._connected_s = 0.0
        self._failures = 0  # consecutive
        self._logged_reason = ""
        self._deadline_s: float | None = None
        METERS.set(declared.BRIDGE_UP, 0)
        METERS.set_to_current_time(declared.BRIDGE_LAST_READING)  # for the alert on feeds without readings

    async def run(self, source: LiveSource) -> None:
        """Serve a source until `stopping` is set, and reconnect with backoff after each loss.

        Raises HatcastError if the source rejects the connection and no earlier one succeeded.
        """
        wait_s = 0.0
        while await pause(wait_s, self.stopping):
            try:
                await source.serve(self)
            except SourceRejection as error:
                if not self._ever_connected:
                    raise HatcastError(f"{source.name} at {source.where}: {error}") from None
                wait_s = self._handle_loss(source, error)
            except SourceLost as error:
                wait_s = self._handle_loss(source, error)
            finally:
                self.is_connected = False
                METERS.set(declared.BRIDGE_UP, 0)

    def mark_connected(self, source: LiveSource) -> None:
        """Record that the source has answered."""
        if self.is_connected:
            return
        self.is_connected = self._ever_connected = True
        METERS.set(declared.BRIDGE_UP, 1)
        self._connected_s = monotonic_s()
        log.info("source reached", source=source.name, where=source.where, losses=self.losses)

    def never_reached(self, source: LiveSource) -> str:
        """Return one line if the source has never answered; empty if it has."""
        if self._ever_connected:
            return ""
        reason = f" ({self._logged_reason})" if self._logged_reason else ""
        return f"{source.name} at {source.where} was never reached{reason}"

    def state(self) -> str:
        """Return the readiness of the source for `/readyz`."""
        return READY if self.is_connected else "not connected"

    def _handle_loss(self, source: LiveSource, error: SourceLost) -> float:
        """Count the loss, log it if the reason is new; return the backoff in seconds."""
        # A source that accepts a connection and closes it at once must not reset the backoff.
        if self.is_connected and monotonic_s() - self._connected_s >= _STABLE_S:
            self._failures, self._logged_reason = 0, ""
        self.losses += 1
        METERS.count(declared.BRIDGE_RECONNECTS)
        self._failures += 1
        reason = str(error)
        if reason != self._logged_reason:
            log.warning("source lost, retrying", source=source.name, where=source.where, reason=reason)
        self._logged_reason = reason
        # Jitter: all clients of a broker lose it at the same moment and must not reconnect at the same moment.
        return max(back_off_s(self._failures - 1), error.wait_s) * (1 + randbelow(_JITTER_PERCENT + 1) / 100)

    async def forward(self, acks: AckTracker, body: bytes, acknowledge: Callable[[], object], topic: str = "") -> None:
        """Produce the readings of one message, waiting while too many are in flight.

        Calls `acknowledge` once Kafka has them and all earlier messages.
        """
        self.record_poll()
        before = self.reading_filter.readings
        pending = acks.add(acknowledge)
        try:
            for number, message in enumerate(self.reading_filter.messages(body, topic), 1):
                await self.producer.send(message, pending)
                if not number % _YIELD_EVERY:
                    await asyncio.sleep(0)
        except BaseException:
            acks.discard(pending)
            raise
        pending.confirm()
        if self.reading_filter.readings > before:
            METERS.set_to_current_time(declared.BRIDGE_LAST_READING)

    def drop_oversized(self, acks: AckTracker, acknowledge: Callable[[], object]) -> None:
        """Count a message that is too large as undecodable, and acknowledge it after all earlier messages."""
        self.record_poll()
        self.reading_filter.count_undecodable()
        acks.add(acknowledge).confirm()

    def record_poll(self) -> None:
        """Record that the source has answered, even if with nothing new."""
        METERS.set_to_current_time(declared.BRIDGE_LAST_POLL)

    async def run_until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until it ends or `stopping` is set. Its errors pass through."""
        reading = asyncio.create_task(work)
        stop = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait((reading, stop), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                await reading
        finally:
            await cancel_all((reading, stop))

    async def drain(self, acks: AckTracker) -> None:
        """Wait until all messages of a connection are acknowledged, or until the shutdown timeout."""
        while len(acks) and self.remaining_s() > 0:
            await asyncio.sleep(0.01)

    def remaining_s(self) -> float:
        """Return the seconds left of the shutdown timeout, which starts with the first call."""
        if self._deadline_s is None:
            self._deadline_s = monotonic_s() + SHUTDOWN_TIMEOUT_S
        return self._deadline_s - monotonic_s()
