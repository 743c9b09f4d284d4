"""A live device's readings from an MQTT broker: its own topic, in a thread that connects again and again."""

import asyncio
import queue
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import unquote, urlsplit

import structlog
from aiomqtt import Client, MqttError

from hatcast.agents.clock import now_ms
from hatcast.agents.device.live import Arrived
from hatcast.agents.device.sources import QUEUE_READINGS
from hatcast.agents.monitoring.failures import back_off_s
from hatcast.agents.sources.endpoint import PASSWORD_VARIABLE, Endpoint, read_secret, source_error, tls_context
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import Format

log = structlog.get_logger()

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_TIMEOUT_S: Final = 10.0
_LEAVE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Published:
    """Where a device's readings are published."""

    broker: Endpoint
    topic: str

    @classmethod
    def of(cls, url: str, environment: Mapping[str, str]) -> Self:
        """`mqtt://[user@]host[:port]/topic`, or `mqtts` for TLS; topic levels as they are. Raises HatcastError."""
        parts = urlsplit(url, allow_fragments=False)  # a "#" is a part of the topic
        topic = unquote(parts.path.removeprefix("/"))
        with suppress(ValueError):  # of a port that is no number
            port = parts.port or _PORTS.get(parts.scheme)
            if port and parts.hostname and topic and parts.password is None:
                user = None if parts.username is None else unquote(parts.username)
                tls = tls_context() if parts.scheme == "mqtts" else None
                return cls(
                    Endpoint(parts.hostname, port, user, read_secret(PASSWORD_VARIABLE, None, environment), tls), topic
                )
        raise HatcastError(
            "--mqtt is no address: write mqtt://user@host:1883/topic or mqtts://..., and the password in"
            f" {PASSWORD_VARIABLE}"
        )


@contextmanager
def mqtt_readings(published: Published, feed: Format) -> Iterator["queue.Queue[Arrived]"]:
    """Readings as they are published, each with its time of arrival, until the end of the block."""
    arrived: queue.Queue[Arrived] = queue.Queue(QUEUE_READINGS)
    loop = asyncio.new_event_loop()
    task = loop.create_task(_read(published, feed, arrived))

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
        with suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(task.cancel)
        thread.join(_LEAVE_S)


async def _read(published: Published, feed: Format, arrived: "queue.Queue[Arrived]") -> None:
    """For ever; a connection that is lost is made again."""
    broker = published.broker
    failures, told = 0, ""
    while True:
        try:
            async with _client(broker) as client:
                await client.subscribe(published.topic, qos=1)
                log.info("MQTT broker reached", broker=str(broker))
                failures, told = 0, ""
                async for message in client.messages:
                    for record in feed.split(message.payload, message.topic.value):
                        reading = feed.decode(record)
                        if reading is not None:
                            _put(arrived, (now_ms(), reading))
        except MqttError as error:
            reason = str(source_error(error))
            if reason != told:
                log.warning("MQTT broker not reached, tried again", broker=str(broker), reason=reason)
            told = reason
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


def _put(arrived: "queue.Queue[Arrived]", each: Arrived) -> None:
    """A device that is that far behind loses a reading rather than its memory."""
    with suppress(queue.Full):
        arrived.put_nowait(each)
