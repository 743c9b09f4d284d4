"""AMQP 0-9-1 source, as RabbitMQ speaks it: a message leaves the queue once Kafka has its readings.

`SourceConnection` reconnects, not aio-pika's `connect_robust`, which has a constant delay and no callback for a lost
connection (docs/decisions/0017).
"""

import asyncio
import logging
import struct
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import (
    CONNECTION_EXCEPTIONS,
    AuthenticationError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ProbableAuthenticationError,
)
from aio_pika.message import IncomingMessage
from aio_pika.queue import Queue, QueueIterator
from aiormq.exceptions import ChannelAccessRefused, ConnectionNotAllowed
from pamqp import decode
from pamqp.header import ContentHeader

from hatcast.agents.sources.connection import MESSAGE_BYTES_MAX, AckTracker, SourceConnection
from hatcast.agents.sources.endpoint import Endpoint, SourceLost, SourceRejection, source_error

OVERSIZED: Final = b"oversized"  # In place of the body of a message that is too large. It is compared by identity.

_QUEUED_BYTES_MAX: Final = 64 << 20
_HEADER: Final = struct.Struct(">HHQ")


def _decode_size(header: ContentHeader, data: bytes) -> None:
    """Decode the size of a message's body, and none of its properties, which no bridge reads.

    pamqp ends the connection at a time after the year 9999 or a text that is not UTF-8, in the properties or in a
    routing key. RabbitMQ checks neither, and would send the message again on each connection.
    """
    header.class_id, header.weight, header.body_size = _HEADER.unpack_from(data)


def _decode_short_text(value: bytes) -> tuple[int, str]:
    end = 1 + value[0]
    return end, value[1:end].decode(errors="replace")


cast("Any", ContentHeader).unmarshal = _decode_size  # pamqp has no hook for it
decode.METHODS["shortstr"] = _decode_short_text


class MessageIterator(QueueIterator):
    """Received messages that were not forwarded yet, bounded in bytes; the prefetch count bounds their number.

    overrun   a message did not fit. It and all later ones are dropped, and no later one may be acknowledged: that
              would acknowledge it too. The broker sends them again on the next connection
    """

    overrun = False
    _bytes = 0

    async def on_message(self, message: AbstractIncomingMessage) -> None:
        """Queue a message, without its body if that is too large."""
        if len(message.body) > MESSAGE_BYTES_MAX:
            cast("IncomingMessage", message).body = OVERSIZED
        self.overrun = self.overrun or self._bytes >= _QUEUED_BYTES_MAX
        if not self.overrun:
            self._bytes += len(message.body)
            await super().on_message(message)

    @property
    def is_finished(self) -> bool:
        """Return whether all queued messages were taken and no other will be."""
        return self.overrun and self._queue.empty()

    def release(self, message: AbstractIncomingMessage) -> None:
        """Return the room of a message that was forwarded."""
        self._bytes -= len(message.body)


NAME: Final = "amqp"
PREFETCH: Final = 1_000  # unacknowledged messages, at most
_TIMEOUT_S: Final = 10.0
_HEARTBEAT_S: Final = 30
_CLOSE_S: Final = 5.0

# Silence the libraries' loggers: they print the address with the password. Our own log lines report their failures.
for _name in ("aio_pika", "aiormq"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False

_UNKNOWN_USER: Final = (
    "it does not know this user or password: correct --user, --password-file or HATCAST_FEED_PASSWORD"
)
_REJECTIONS: Final = {
    AuthenticationError: _UNKNOWN_USER,
    ProbableAuthenticationError: _UNKNOWN_USER,
    ConnectionNotAllowed: "this user may not use that virtual host: correct --vhost or --user",
    ChannelNotFoundEntity: "the queue or exchange does not exist: correct --queue and --exchange, or create it",
    ChannelAccessRefused: "this user may not read that queue: correct --user, or grant it read access",
    ChannelPreconditionFailed: "the queue exists with other properties: omit --exchange",
}


@dataclass(frozen=True, slots=True)
class AmqpQueue:
    """Queue to consume."""

    queue: str
    vhost: str = "/"
    exchange: str | None = None  # None: the queue exists. Otherwise it is declared durable and bound to this exchange
    # routing key of that binding
    routing_key: str = "#"


class AmqpSource:
    """AMQP client: one connection for each `serve`."""

    name = NAME

    def __init__(self, endpoint: Endpoint, source_queue: AmqpQueue) -> None:
        self.where = f"{endpoint} ({source_queue.queue})"
        self._endpoint = endpoint
        self._source_queue = source_queue

    async def serve(self, connection: SourceConnection) -> None:
        """Consume the queue and forward its messages. Raises SourceLost."""
        try:
            async with AsyncExitStack() as stack:
                channel = await self._channel(stack)
                queue = await self._queue(channel)
                acks, acknowledger = AckTracker(), _Acknowledger()
                stack.callback(acks.clear)
                acknowledging = asyncio.create_task(acknowledger.run())
                stack.callback(acknowledging.cancel)
                await connection.run_until_stopped(self._read(channel, queue, connection, acks, acknowledger))
                await connection.drain(acks)
                await acknowledger.flush()
        except SourceLost:
            raise
        except tuple(_REJECTIONS) as error:
            raise SourceRejection(_REJECTIONS[type(error)]) from None
        except CONNECTION_EXCEPTIONS as error:
            raise source_error(error) from None

    async def _channel(self, stack: AsyncExitStack) -> AbstractChannel:
        endpoint = self._endpoint
        connection = await aio_pika.connect(
            host=endpoint.host,
            port=endpoint.port,
            login=endpoint.user or "guest",
            password=endpoint.password or "guest",
            virtualhost=self._source_queue.vhost,
            ssl=endpoint.tls is not None,
            ssl_context=endpoint.tls,
            timeout=_TIMEOUT_S,
            heartbeat=_HEARTBEAT_S,
        )
        stack.push_async_callback(_close, connection)
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        return channel

    async def _queue(self, channel: AbstractChannel) -> AbstractQueue:
        source_queue = self._source_queue
        if source_queue.exchange is None:
            return await channel.get_queue(source_queue.queue)
        queue = await channel.declare_queue(source_queue.queue, durable=True)
        await queue.bind(await channel.get_exchange(source_queue.exchange), source_queue.routing_key)
        return queue

    async def _read(
        self,
        channel: AbstractChannel,
        queue: AbstractQueue,
        connection: SourceConnection,
        acks: AckTracker,
        acknowledger: "_Acknowledger",
    ) -> None:
        cancelled = (await channel.get_underlay_channel()).on_consumer_cancel_callbacks
        messages = MessageIterator(cast("Queue", queue))
        # A deleted queue sends nothing and leaves the connection open: aio-pika alone would wait for ever. The callback
        # stands before the queue is read, which may be deleted at any time.
        closing: list[asyncio.Future[None]] = []
        cancelled.add(lambda _: closing.append(asyncio.ensure_future(messages.close())))
        async with messages:  # on exit it returns the prefetched messages to the queue
            connection.mark_connected(self)
            async for message in messages:
                if message.body is OVERSIZED:
                    connection.drop_oversized(acks, partial(acknowledger.schedule, message))
                else:
                    await connection.forward(acks, message.body, partial(acknowledger.schedule, message))
                messages.release(message)
                if messages.is_finished:
                    await acks.wait_until_empty()
                    await acknowledger.flush()
                    raise SourceLost("it sent more than 64 MiB of unacknowledged messages")
        raise SourceLost("the queue was closed")


async def _close(connection: AbstractConnection) -> None:
    """Close gracefully, or give up after a timeout: the broker redelivers unacknowledged messages either way."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await connection.close()


class _Acknowledger:
    """Acknowledge the latest confirmed message, and with it all earlier ones."""

    def __init__(self) -> None:
        self._last: AbstractIncomingMessage | None = None
        self._scheduled = asyncio.Event()

    def schedule(self, message: AbstractIncomingMessage) -> None:
        self._last = message
        self._scheduled.set()

    async def run(self) -> None:
        while await self._scheduled.wait():
            await self.flush()

    async def flush(self) -> None:
        self._scheduled.clear()
        last, self._last = self._last, None
        if last is not None:
            await last.ack(multiple=True)
