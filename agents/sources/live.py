"""A live bridge: from its start to its graceful stop."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click
import msgspec

from hatcast.agents.clock import monotonic_s, now_ms, pause
from hatcast.agents.config.settings import Address, Settings
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.monitoring.declarations import BRIDGE_BUFFER
from hatcast.agents.monitoring.kinds import Process
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.monitoring.server import READY, OperatorServer
from hatcast.agents.sources.connection import Source, SourceConnection
from hatcast.agents.sources.filter import Filter
from hatcast.agents.sources.live_producer import SILENT_S, LiveProducer
from hatcast.agents.sources.target import live_addresses
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import FORMATS
from hatcast.stream.replay.heartbeats import TICK_MS, Addresses, ticks

IN_FLIGHT: Final = 10_000
LISTEN_OPTION: Final = "--metrics-listen"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person may choose of a live bridge.

    format   of what the source sends
    buffer   readings on their way to Kafka at most
    polled   the source sends all vehicles again and again
    seconds  stop after so long; None: at Ctrl-C or SIGTERM
    listen   for metrics and health; None: nowhere
    """

    format: str
    buffer: int = IN_FLIGHT
    polled: bool = False
    seconds: float | None = None
    listen: Address | None = None


class LiveSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a live bridge did.

    records      readings that Kafka has
    unconfirmed  messages, with ticks, of which Kafka did not say in time that it has them
    """

    topic: str
    partitions: int
    records: int
    undecodable: int
    arrived_in_future: int
    repeated: int
    dropped: int
    losses: int
    unconfirmed: int
    seconds: float

    def show(self, *, as_json: bool) -> None:
        """To standard output."""
        if as_json:
            click.echo(msgspec.json.encode(self))
            return
        click.echo(
            f"sent {self.records:,} readings to {self.topic} ({self.partitions} partitions) in {self.seconds:.1f} s"
        )
        for count, what in (
            (self.undecodable, "records could not be read"),
            (self.repeated, "readings had been sent before"),
            (self.arrived_in_future, "readings had come later than now and were not sent: the clock was set back"),
            (self.dropped, "messages found no room and were dropped"),
            (self.losses, "times the source was lost, or did not answer"),
            (self.unconfirmed, "messages that Kafka has not confirmed; a source that keeps them sends them again"),
        ):
            if count:
                click.echo(f"{count:,} {what}")


async def run_live(settings: Settings, wish: Wish, connect: Callable[[], Source]) -> LiveSummary:
    """Send what a source brings until Ctrl-C, SIGTERM or the time that was wished for.

    connect   makes the source, in the running loop
    Raises HatcastError: Kafka cannot be reached or takes no readings, or the source refuses us.
    """
    began_s = monotonic_s()
    stopping = _stopping(wish.seconds)
    async with AsyncExitStack() as held:
        parts: dict[str, Callable[[], str]] = {"bridge": lambda: "starting"}
        if wish.listen is not None:
            health = OperatorServer(
                wish.listen, Process.BRIDGE, lambda: {part: state() for part, state in parts.items()}, LISTEN_OPTION
            )
            await health.start()
            held.push_async_callback(health.stop)
        addresses = await asyncio.to_thread(live_addresses, settings)
        source = connect()
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        outlet = LiveProducer(
            confluent_options(settings), settings.topics.telemetry, wish.buffer, partial(_fail, failed)
        )
        held.push_async_callback(outlet.close)
        METERS.read(BRIDGE_BUFFER, lambda: {(): outlet.in_flight / outlet.limit})
        held.callback(METERS.unread)
        door = Filter(FORMATS[wish.format], addresses, settings.policy.max_ahead_ms, polled=wish.polled)
        link = SourceConnection(door, outlet, stopping)
        parts |= {"bridge": lambda: READY, "source": link.state, "kafka": outlet.state}
        work = asyncio.gather(link.keep(source), _tick(outlet, addresses, stopping))
        held.push_async_callback(_end, failed, work)
        await asyncio.wait((failed, work), return_when=asyncio.FIRST_COMPLETED)
        await (failed if failed.done() else work)
        unconfirmed = await outlet.finish(link.remaining_s())
    return LiveSummary(
        topic=outlet.topic,
        partitions=addresses.partitions,
        records=outlet.confirmed,
        undecodable=door.undecodable,
        arrived_in_future=door.arrived_in_future,
        repeated=door.repeated,
        dropped=link.dropped,
        losses=link.losses,
        unconfirmed=unconfirmed,
        seconds=round(monotonic_s() - began_s, 3),
    )


def _fail(failed: "asyncio.Future[None]", refusal: HatcastError) -> None:
    if not failed.done():
        failed.set_exception(refusal)


async def _end(*work: "asyncio.Future[Any]") -> None:
    for each in work:
        each.cancel()
    await asyncio.gather(*work, return_exceptions=True)


async def _tick(outlet: LiveProducer, addresses: Addresses, stopping: asyncio.Event) -> None:
    """A tick for every partition each 10 s of this bridge's clock, whatever the source does: time goes on.

    Not while Kafka is away: the first tick after that says as much as all of them.
    """
    while await pause((TICK_MS - now_ms() % TICK_MS) / 1000, stopping):
        if outlet.waits_s() < SILENT_S:
            for message in ticks(addresses.partitions, now_ms()):
                outlet.tick(message)


def _stopping(seconds: float | None) -> asyncio.Event:
    """Set by Ctrl-C, by SIGTERM, or after so many seconds; a second Ctrl-C ends the process at once."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def ask(number: signal.Signals) -> None:
        stopping.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask, number)
    if seconds is not None:
        loop.call_later(seconds, stopping.set)
    return stopping
