"""Connection from a live source to Kafka: reconnects, forwards messages and reports health, for every protocol."""

import asyncio
from collections.abc import Callable, Coroutine
from secrets import randbelow  # jitter of the backoff, never noise
from typing import Any, Final, Protocol

import structlog

from hatcast.agents.clock import cancel_all, monotonic_s, pause
from hatcast.agents.monitoring.declarations import (
    BRIDGE_DROPPED,
    BRIDGE_LAST_POLL,
    BRIDGE_LAST_READING,
    BRIDGE_RECONNECTS,
    BRIDGE_UP,
)
from hatcast.agents.monitoring.failures import back_off_s
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.monitoring.server import READY
from hatcast.agents.sources.acknowledgements import AckTracker
from hatcast.agents.sources.endpoint import SourceLost, SourceRejection
from hatcast.agents.sources.filter import Filter
from hatcast.agents.sources.live_producer import LiveProducer
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

MESSAGE_BYTES_MAX: Final = 1 << 20  # of a broker's message: a larger one is dropped and counted, not decoded
SHUTDOWN_TIMEOUT_S: Final = 10.0  # to deliver the messages that were received before a stop
_STABLE_S: Final = 10.0  # a connection that lasted this long resets the backoff
_JITTER_PERCENT: Final = 25  # added to each wait, at most
_YIELD_EVERY: Final = 500  # readings of one message between two yields to the event loop


class Source(Protocol):
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
    """State of a source's connection, and the way of its messages to Kafka.

    stopping      set when the bridge has to stop
    is_connected  the source is connected
    losses        how often the connection was lost or could not be made
    dropped       messages dropped because a buffer was full; the source does not send them again
    """

    def __init__(self, reading_filter: Filter, producer: LiveProducer, stopping: asyncio.Event) -> None:
        self.reading_filter = reading_filter
        self.producer = producer
        self.stopping = stopping
        self.is_connected = False
        self.losses = 0
        self.dropped = 0
        self._ever_connected = False
        self._connected_s = 0.0
        self._failures = 0  # consecutive
        self._logged_reason = ""
        self._deadline_s: float | None = None
        METERS.set(BRIDGE_UP, 0)
        METERS.set_to_current_time(BRIDGE_LAST_READING)  # for the alert on feeds without readings

    async def run(self, source: Source) -> None:
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
                METERS.set(BRIDGE_UP, 0)

    def mark_connected(self, source: Source) -> None:
        """Record that the source has answered."""
        if self.is_connected:
            return
        self.is_connected = self._ever_connected = True
        METERS.set(BRIDGE_UP, 1)
        self._connected_s = monotonic_s()
        log.info("source reached", source=source.name, where=source.where, losses=self.losses)

    def never_reached(self, source: Source) -> str:
        """Return one line if the source has never answered; empty if it has."""
        if self._ever_connected:
            return ""
        reason = f" ({self._logged_reason})" if self._logged_reason else ""
        return f"{source.name} at {source.where} was never reached{reason}"

    def state(self) -> str:
        """Return the readiness of the source for `/readyz`."""
        return READY if self.is_connected else "not connected"

    def _handle_loss(self, source: Source, error: SourceLost) -> float:
        """Count the loss, log it if the reason is new; return the backoff in seconds."""
        # A source that accepts a connection and closes it at once must not reset the backoff.
        if self.is_connected and monotonic_s() - self._connected_s >= _STABLE_S:
            self._failures, self._logged_reason = 0, ""
        self.losses += 1
        METERS.count(BRIDGE_RECONNECTS)
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
            METERS.set_to_current_time(BRIDGE_LAST_READING)

    def drop_oversized(self, acks: AckTracker, acknowledge: Callable[[], object]) -> None:
        """Count a message that is too large as undecodable, and acknowledge it after all earlier messages."""
        self.record_poll()
        self.reading_filter.count_undecodable()
        acks.add(acknowledge).confirm()

    def record_poll(self) -> None:
        """Record that the source has answered, even if with nothing new."""
        METERS.set_to_current_time(BRIDGE_LAST_POLL)

    def count_dropped(self, messages: int) -> None:
        """Count messages that were dropped because a buffer was full."""
        self.dropped += messages
        METERS.count(BRIDGE_DROPPED, messages)

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
