"""AMQP 0-9-1, as RabbitMQ speaks it: a message leaves the queue once Kafka has its readings.

Connecting again is ours, not aio-pika's `connect_robust`: that waits the same time before each try, and says nothing to
whoever wants to know whether the source is there (docs/decisions/0017).
"""

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue
from aio_pika.exceptions import (
    CONNECTION_EXCEPTIONS,
    AuthenticationError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    ProbableAuthenticationError,
)
from aiormq.exceptions import ChannelAccessRefused, ConnectionNotAllowed

from hatcast.agents.sources.acknowledgements import Window
from hatcast.agents.sources.connection import SourceConnection
from hatcast.agents.sources.endpoint import Endpoint, SourceLost, SourceRefuses, lost

NAME: Final = "amqp"
PREFETCH: Final = 1_000  # messages that the broker sends before it hears of the first
_TIMEOUT_S: Final = 10.0
_HEARTBEAT_S: Final = 30
_CLOSE_S: Final = 5.0

# What they have to say is said by ours, without the address that they put a password into.
for _name in ("aio_pika", "aiormq"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False

_REFUSED: Final = {
    AuthenticationError: "it does not know this user or password: correct --user, --password-file or"
    " HATCAST_FEED_PASSWORD",
    ProbableAuthenticationError: "it does not know this user or password: correct --user, --password-file or"
    " HATCAST_FEED_PASSWORD",
    ConnectionNotAllowed: "this user may not use that virtual host: correct --vhost or --user",
    ChannelNotFoundEntity: "there is no such queue or exchange: correct --queue and --exchange, or have it made",
    ChannelAccessRefused: "this user may not read that queue: correct --user, or let it",
    ChannelPreconditionFailed: "the queue is there with other properties: leave --exchange out",
}


@dataclass(frozen=True, slots=True)
class Consumption:
    """What is read.

    queue        its name
    exchange     None: the queue is there. Else it is made, durable, and bound to this exchange
    routing_key  of that binding
    """

    queue: str
    vhost: str = "/"
    exchange: str | None = None
    routing_key: str = "#"


class AmqpSource:
    """One connection after another to an AMQP broker."""

    name = NAME

    def __init__(self, access: Endpoint, wanted: Consumption) -> None:
        self.where = f"{access} ({wanted.queue})"
        self._access = access
        self._wanted = wanted

    async def serve(self, link: SourceConnection) -> None:
        """Consume and hand on. Raises SourceLost."""
        try:
            async with AsyncExitStack() as held:
                channel = await self._channel(held)
                queue = await self._queue(channel)
                window, teller = Window(), _Teller()
                held.callback(window.forget)
                telling = asyncio.create_task(teller.run())
                held.callback(telling.cancel)
                link.up(self)
                await link.until_stopped(self._read(channel, queue, link, window, teller))
                await link.settle(window)
                await teller.flush()
        except SourceLost:
            raise
        except tuple(_REFUSED) as error:
            raise SourceRefuses(_REFUSED[type(error)]) from None
        except CONNECTION_EXCEPTIONS as error:
            raise lost(error) from None

    async def _channel(self, held: AsyncExitStack) -> AbstractChannel:
        access = self._access
        connection = await aio_pika.connect(
            host=access.host,
            port=access.port,
            login=access.user or "guest",
            password=access.password or "guest",
            virtualhost=self._wanted.vhost,
            ssl=access.tls is not None,
            ssl_context=access.tls,
            timeout=_TIMEOUT_S,
            heartbeat=_HEARTBEAT_S,
        )
        held.push_async_callback(_close, connection)
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=PREFETCH)
        return channel

    async def _queue(self, channel: AbstractChannel) -> AbstractQueue:
        wanted = self._wanted
        if wanted.exchange is None:
            return await channel.get_queue(wanted.queue)
        queue = await channel.declare_queue(wanted.queue, durable=True)
        await queue.bind(await channel.get_exchange(wanted.exchange), wanted.routing_key)
        return queue

    async def _read(
        self, channel: AbstractChannel, queue: AbstractQueue, link: SourceConnection, window: Window, teller: "_Teller"
    ) -> None:
        cancelled = (await channel.get_underlay_channel()).on_consumer_cancel_callbacks
        async with queue.iterator() as messages:  # gives back what it holds when it is left
            # A queue that is deleted sends no more, and its connection stands: aio-pika alone would wait for ever.
            closing: list[asyncio.Future[None]] = []
            cancelled.add(lambda _: closing.append(asyncio.ensure_future(messages.close())))
            async for message in messages:
                await link.take(window, message.body, partial(teller.done, message))
        raise SourceLost("the queue was closed")


async def _close(connection: AbstractConnection) -> None:
    """In order, unless the broker does not answer: what it was not told of it sends again in any case."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await connection.close()


class _Teller:
    """Tells the broker of the last message that is done with, and so of all before it."""

    def __init__(self) -> None:
        self._last: AbstractIncomingMessage | None = None
        self._some = asyncio.Event()

    def done(self, message: AbstractIncomingMessage) -> None:
        self._last = message
        self._some.set()

    async def run(self) -> None:
        while await self._some.wait():
            await self.flush()

    async def flush(self) -> None:
        self._some.clear()
        last, self._last = self._last, None
        if last is not None:
            await last.ack(multiple=True)
