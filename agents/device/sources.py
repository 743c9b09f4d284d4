"""Sources of a device's readings, among them its MQTT topic, and filters for its own vehicle."""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO, Final, Self
from urllib.parse import unquote, urlsplit

import structlog
from aiomqtt import Client, MqttError

from hatcast.agents.clock import now_ms
from hatcast.agents.device.closing import Arrived, ReadingFilter
from hatcast.agents.monitoring.failures import back_off_s
from hatcast.agents.sources.endpoint import PASSWORD_VARIABLE, Endpoint, read_secret, source_error, tls_context
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import Format, Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.vehicles import canonical_vehicle

QUEUE_READINGS: Final = 10_000  # live readings; the source waits when the queue is full
_LINE_BYTES: Final = 1 << 16


def fleet_filter(vehicles: frozenset[str] | None) -> ReadingFilter:
    """Return a function that accepts the readings of some vehicles (canonical ids); None: of all."""
    return lambda reading: vehicles is None or canonical_vehicle(reading.vehicle) in vehicles


def single_vehicle_filter(source: str) -> ReadingFilter:
    """Return a function that accepts the readings of the first vehicle seen; it raises HatcastError for any other.

    source   its name in the error message
    """
    own: str | None = None

    def accepts(reading: Reading) -> bool:
        nonlocal own
        vehicle = canonical_vehicle(reading.vehicle)
        if vehicle is None:
            return False
        own = own or vehicle
        if vehicle != own:
            raise HatcastError(
                f"{source} has readings of several vehicles: name this device's with --vehicle, or run many devices"
                " with --fleet"
            )
        return True

    return accepts


def vehicles_in(records: Iterable[tuple[int, Recorded]]) -> set[str]:
    """Return the canonical ids of the vehicles in a recording."""
    sent = {recorded.reading.vehicle for _, recorded in records if recorded.reading is not None}
    return {vehicle for each in sent if (vehicle := canonical_vehicle(each)) is not None}


def read_lines(stream: BinaryIO, decode: Callable[[bytes], Reading | None]) -> "queue.Queue[Arrived]":
    """Queue the readings of a stream's lines with their arrival times; skip undecodable lines.

    A daemon thread reads the stream; it ends with the process.
    """
    arrived: queue.Queue[Arrived] = queue.Queue(QUEUE_READINGS)

    def read() -> None:
        while line := stream.readline(_LINE_BYTES):
            reading = decode(line.rstrip(b"\r\n"))
            if reading is not None:
                arrived.put((now_ms(), reading))
        arrived.put(None)

    threading.Thread(target=read, daemon=True, name="readings").start()
    return arrived


log = structlog.get_logger()

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_TIMEOUT_S: Final = 10.0
_JOIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class MqttTopic:
    """MQTT broker and topic of a device's readings."""

    broker: Endpoint
    topic: str

    @classmethod
    def parse(cls, url: str, environment: Mapping[str, str]) -> Self:
        """Parse `mqtt://[user@]host[:port]/topic` or `mqtts://...`; the topic may have levels. Raises HatcastError."""
        parts = urlsplit(url, allow_fragments=False)  # "#" is part of the topic
        topic = unquote(parts.path.removeprefix("/"))
        with suppress(ValueError):  # the port is not a number
            port = parts.port or _PORTS.get(parts.scheme)
            if port and parts.hostname and topic and parts.password is None:
                user = None if parts.username is None else unquote(parts.username)
                tls = tls_context() if parts.scheme == "mqtts" else None
                return cls(
                    Endpoint(parts.hostname, port, user, read_secret(PASSWORD_VARIABLE, None, environment), tls), topic
                )
        raise HatcastError(
            "--mqtt: not an MQTT address; write mqtt://user@host:1883/topic or mqtts://..., and set the password in"
            f" {PASSWORD_VARIABLE}"
        )


@contextmanager
def mqtt_readings(topic: MqttTopic, feed: Format) -> Iterator["queue.Queue[Arrived]"]:
    """Queue the topic's readings with their arrival times, until the end of the block."""
    arrived: queue.Queue[Arrived] = queue.Queue(QUEUE_READINGS)
    loop = asyncio.new_event_loop()
    task = loop.create_task(_read(topic, feed, arrived))

    def run() -> None:
        try:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        finally:
            loop.close()
            with suppress(queue.Full):
                arrived.put_nowait(None)

    thread = threading.Thread(target=run, daemon=True, name="mqtt")
    thread.start()
    try:
        yield arrived
    finally:
        with suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(task.cancel)
        thread.join(_JOIN_S)


async def _read(topic: MqttTopic, feed: Format, arrived: "queue.Queue[Arrived]") -> None:
    """Read for ever; reconnect after a lost connection."""
    broker = topic.broker
    failures, logged_reason = 0, ""
    while True:
        try:
            async with _client(broker) as client:
                await client.subscribe(topic.topic, qos=1)
                log.info("connected to the MQTT broker", broker=str(broker))
                failures, logged_reason = 0, ""
                async for message in client.messages:
                    for record in feed.split(message.payload, message.topic.value):
                        reading = feed.decode(record)
                        if reading is not None:
                            with suppress(queue.Full):  # it is dropped: memory stays bounded
                                arrived.put_nowait((now_ms(), reading))
        except MqttError as error:
            reason = str(source_error(error))
            if reason != logged_reason:
                log.warning("MQTT broker not reached, retrying", broker=str(broker), reason=reason)
            logged_reason = reason
            await asyncio.sleep(back_off_s(failures))
            failures += 1


def _client(broker: Endpoint) -> Client:
    return Client(
        broker.host,
        broker.port,
        username=broker.user,
        password=broker.password,
        tls_context=broker.tls,
        timeout=_TIMEOUT_S,
    )
