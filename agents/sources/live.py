"""Live bridge: run a source from start to graceful stop."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import msgspec

from hatcast.agents.clock import cancel_all, monotonic_s, now_ms, pause
from hatcast.agents.config.settings import Settings
from hatcast.agents.config.tables import Address
from hatcast.agents.kafka.aio import UnknownTopicOrPartitionError
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.kafka.registry import read_registry
from hatcast.agents.monitoring.declarations import BRIDGE_BUFFER, Process
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.monitoring.server import READY, OperatorServer
from hatcast.agents.sources.connection import SILENCE_LIMIT_S, LiveProducer, LiveSource, SourceConnection
from hatcast.agents.sources.filter import Filter
from hatcast.agents.sources.pacing import print_summary
from hatcast.agents.sources.target import live_router
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.readings.formats import FormatChoice
from hatcast.stream.replay.heartbeats import HEARTBEAT_MS, Router, heartbeats


def check_registered_timezone(settings: Settings) -> None:
    """Check that the policies of this telemetry have the configuration's time zone. Blocks.

    Else a speed around their midnight would depend on two of their days.    [docs/proofs.md, Derived speeds]
    Raises HatcastError, and as `read_registry` does. Before the first start of a worker there is nothing to check.
    """
    try:
        policies = read_registry(settings, settings.topics.registry).policies.values()
    except UnknownTopicOrPartitionError:
        return
    for each in policies:
        if each.timezone != settings.policy.timezone:
            raise HatcastError(
                f"policy.timezone is {settings.policy.timezone!r}, policy {each.policy!r} of the same telemetry was"
                f" started with {each.timezone!r}, and speeds are derived within its days: use {each.timezone!r}"
            )


IN_FLIGHT: Final = 10_000
LISTEN_OPTION: Final = "--metrics-listen"


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """Options of a live bridge."""

    format: FormatChoice  # format of the source's messages
    buffer: int = IN_FLIGHT  # readings in flight to Kafka, at most
    polled: bool = False  # every message of the source has all vehicles, changed or not
    seconds: float | None = None  # stop after this time; None: at Ctrl-C or SIGTERM
    listen: Address | None = None  # address of metrics and health endpoints; None: not served


class LiveSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of a finished live bridge."""

    topic: str
    partitions: int
    records: int  # readings that Kafka has confirmed
    undecodable: int
    arrived_in_future: int
    repeated: int
    without_speed: int
    dropped: int
    losses: int
    unconfirmed: int  # messages, heartbeats included, that Kafka had not confirmed at the shutdown timeout
    seconds: float
    never_reached: str = ""  # the source and the reason, if it never answered; else empty

    def show(self, *, as_json: bool) -> None:
        """Print it to standard output."""
        print_summary(
            self,
            f"sent {self.records:,} readings to {self.topic} ({self.partitions} partitions) in {self.seconds:.1f} s",
            (self.undecodable, "records could not be decoded"),
            (self.repeated, "readings were repetitions and were not sent again"),
            (self.without_speed, "positions gave no speed and were not sent: docs/feeds.md, Speed from positions"),
            (self.arrived_in_future, "readings arrived in the future and were not sent: the clock was set back"),
            (self.dropped, "messages were dropped: the buffer was full"),
            (self.losses, "times the source was lost or did not answer"),
            (self.unconfirmed, "messages were not confirmed by Kafka; a source that stores them sends them again"),
            as_json=as_json,
        )


async def run_live(settings: Settings, options: LiveOptions, connect: Callable[[], LiveSource]) -> LiveSummary:
    """Forward a source's messages to Kafka until Ctrl-C, SIGTERM or `options.seconds`.

    connect   creates the source, in the running loop
    Raises HatcastError: Kafka cannot be reached or rejects readings, or the source rejects the connection.
    """
    started_s = monotonic_s()
    feed = policy_format(options.format, settings.policy, live=True)
    stopping = _stopping(options.seconds)
    async with AsyncExitStack() as stack:
        components: dict[str, Callable[[], str]] = {"bridge": lambda: "starting"}
        if options.listen is not None:
            health = OperatorServer(
                options.listen,
                Process.BRIDGE,
                lambda: {part: state() for part, state in components.items()},
                LISTEN_OPTION,
            )
            await health.start()
            stack.push_async_callback(health.stop)
        router = await asyncio.to_thread(live_router, settings)
        if feed.derivation is not None:
            await asyncio.to_thread(check_registered_timezone, settings)
        source = connect()
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def fail(error: HatcastError) -> None:
            if not failed.done():
                failed.set_exception(error)

        producer = LiveProducer(confluent_options(settings), settings.topics.telemetry, options.buffer, fail)
        stack.push_async_callback(producer.close)
        METERS.register(BRIDGE_BUFFER, lambda: {(): producer.in_flight / producer.limit})
        stack.callback(METERS.unregister_all)
        reading_filter = Filter(feed, router, settings.policy.max_ahead_ms, polled=options.polled)
        connection = SourceConnection(reading_filter, producer, stopping)
        components |= {"bridge": lambda: READY, "source": connection.state, "kafka": producer.state}
        work = asyncio.gather(connection.run(source), _send_heartbeats(producer, router, stopping))
        stack.push_async_callback(cancel_all, (failed, work))
        await asyncio.wait((failed, work), return_when=asyncio.FIRST_COMPLETED)
        await (failed if failed.done() else work)
        unconfirmed = await producer.finish(connection.remaining_s())
    return LiveSummary(
        topic=producer.topic,
        partitions=router.partitions,
        records=producer.confirmed,
        undecodable=reading_filter.undecodable,
        arrived_in_future=reading_filter.arrived_in_future,
        repeated=reading_filter.repeated,
        without_speed=reading_filter.without_speed,
        dropped=connection.dropped,
        losses=connection.losses,
        unconfirmed=unconfirmed,
        seconds=round(monotonic_s() - started_s, 3),
        never_reached=connection.never_reached(source),
    )


async def _send_heartbeats(producer: LiveProducer, router: Router, stopping: asyncio.Event) -> None:
    """Send every partition a heartbeat record every 10 s of this bridge's clock, even if the source is silent.

    None are sent while Kafka is unavailable: the first one after that advances the watermark as far as all of them.
    """
    while await pause((HEARTBEAT_MS - now_ms() % HEARTBEAT_MS) / 1000, stopping):
        if producer.silence_s() < SILENCE_LIMIT_S:
            for message in heartbeats(router.partitions, now_ms()):
                producer.send_heartbeat(message)


def _stopping(seconds: float | None) -> asyncio.Event:
    """Return an event that Ctrl-C, SIGTERM or the timeout sets. A second Ctrl-C ends the process at once."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def request_stop(number: signal.Signals) -> None:
        stopping.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, request_stop, number)
    if seconds is not None:
        loop.call_later(seconds, stopping.set)
    return stopping
