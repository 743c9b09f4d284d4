"""Between a live source and Kafka: what every bridge shares, whatever its source speaks."""

import asyncio
from collections.abc import Callable, Coroutine
from secrets import randbelow  # to wait a little more or less: nothing that is published
from typing import Any, Final, Protocol

import structlog

from hatcast.agents.clock import monotonic_s, pause
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
from hatcast.agents.sources.acknowledgements import Window
from hatcast.agents.sources.endpoint import SourceLost, SourceRefuses
from hatcast.agents.sources.filter import Filter
from hatcast.agents.sources.live_producer import LiveProducer
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

FINISH_S: Final = 10.0  # for what was taken when a bridge is told to stop
_STEADY_S: Final = 10.0  # a connection that lasted so long was a good one: the next is dialled at once
_SPREAD_PERCENT: Final = 25  # on top of each wait
_BREATH: Final = 500  # readings of one message after which others have a turn


class Source(Protocol):
    """A client of what a city sends.

    name    as commands name it: mqtt, gtfs-rt, amqp
    where   host, port and what is read there, for people; no secret
    """

    @property
    def name(self) -> str:
        """As commands name it."""

    @property
    def where(self) -> str:
        """For people and logs."""

    async def serve(self, link: "SourceConnection") -> None:
        """Connect, and hand on what comes until `link.stopping` is set. Raises SourceLost."""


class SourceConnection:
    """What a source hands its messages to, and how its connection is.

    stopping     set once the bridge is to end
    is_up        the source is connected
    losses       how often the connection was lost, or could not be made
    dropped      messages for which there was no room, of a source that does not send them again
    """

    def __init__(self, door: Filter, outlet: LiveProducer, stopping: asyncio.Event) -> None:
        self.door = door
        self.outlet = outlet
        self.stopping = stopping
        self.is_up = False
        self.losses = 0
        self.dropped = 0
        self._was_up = False
        self._up_s = 0.0
        self._failures = 0  # one after another
        self._told = ""
        self._end_s: float | None = None
        METERS.set(BRIDGE_UP, 0)
        METERS.set_now(BRIDGE_LAST_READING)  # one that never has any is silent too

    async def keep(self, source: Source) -> None:
        """Serve a source until `stopping` is set, connecting again and again.

        Raises HatcastError where the source refuses us and has never let us in.
        """
        wait_s = 0.0
        while await pause(wait_s, self.stopping):
            try:
                await source.serve(self)
            except SourceRefuses as error:
                if not self._was_up:
                    raise HatcastError(f"{source.name} at {source.where}: {error}") from None
                wait_s = self._lost(source, error)
            except SourceLost as error:
                wait_s = self._lost(source, error)
            finally:
                self.is_up = False
                METERS.set(BRIDGE_UP, 0)

    def up(self, source: Source) -> None:
        """The source is connected, and has answered."""
        if self.is_up:
            return
        self.is_up = self._was_up = True
        METERS.set(BRIDGE_UP, 1)
        self._up_s = monotonic_s()
        log.info("source reached", source=source.name, where=source.where, losses=self.losses)

    def state(self) -> str:
        """For `/readyz`."""
        return READY if self.is_up else "not connected"

    def _lost(self, source: Source, error: SourceLost) -> float:
        """Tell it, if it is another trouble than before; returns how many seconds to wait."""
        # One that lets us in and throws us out at once is not to be hammered either.
        if self.is_up and monotonic_s() - self._up_s >= _STEADY_S:
            self._failures, self._told = 0, ""
        self.losses += 1
        METERS.count(BRIDGE_RECONNECTS)
        self._failures += 1
        reason = str(error)
        if reason != self._told:
            log.warning("source lost, tried again", source=source.name, where=source.where, reason=reason)
        self._told = reason
        # All that a broker had lose it at one moment, and are not to come back at one.
        return max(back_off_s(self._failures - 1), error.wait_s) * (1 + randbelow(_SPREAD_PERCENT + 1) / 100)

    async def take(self, window: Window, body: bytes, done: Callable[[], object], topic: str = "") -> None:
        """Hand on one message; waits while too much is on its way. `done` is called once Kafka has its readings."""
        self.heard()
        before = self.door.readings
        parcel = window.add(done)
        try:
            for number, message in enumerate(self.door.messages(body, topic), 1):
                await self.outlet.send(message, parcel)
                if not number % _BREATH:
                    await asyncio.sleep(0)
        except BaseException:
            window.withdraw(parcel)
            raise
        parcel.confirmed()
        if self.door.readings > before:
            METERS.set_now(BRIDGE_LAST_READING)

    def heard(self) -> None:
        """The source has said something, if only that there is nothing new."""
        METERS.set_now(BRIDGE_LAST_POLL)

    def drop(self, messages: int) -> None:
        """So many messages found no room, and nobody sends them again."""
        self.dropped += messages
        METERS.count(BRIDGE_DROPPED, messages)

    async def until_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what reads a source until it ends, or until `stopping` is set. Raises what it raises."""
        reading = asyncio.create_task(work)
        stop = asyncio.create_task(self.stopping.wait())
        try:
            await asyncio.wait((reading, stop), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                await reading
        finally:
            for task in (reading, stop):
                task.cancel()
            await asyncio.gather(reading, stop, return_exceptions=True)

    async def settle(self, window: Window) -> None:
        """Before a connection is closed in order: wait until Kafka has what it brought, so that the source is told."""
        while len(window) and self.remaining_s() > 0:
            await asyncio.sleep(0.01)

    def remaining_s(self) -> float:
        """Of the seconds to end in, which begin with the first question for them."""
        if self._end_s is None:
            self._end_s = monotonic_s() + FINISH_S
        return self._end_s - monotonic_s()
