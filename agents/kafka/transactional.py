"""Transactional aiokafka producers: start, stop, and transactions.

Also what aiokafka lacks: a reconnect backoff, and silence about errors that were raised elsewhere.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from aiokafka.producer.producer import TransactionContext

from hatcast.agents.clock import monotonic_s
from hatcast.agents.monitoring.failures import back_off_s

# aiokafka stores each error in more futures than it reads. asyncio reports such a future when it is garbage collected,
# at any later time, although the failed call has already raised the error.


def ignore_unread_kafka_errors() -> None:
    """Set the running loop's exception handler to one that ignores KafkaError, unless it has a handler."""
    loop = asyncio.get_running_loop()
    if loop.get_exception_handler() is None:
        loop.set_exception_handler(_handle)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), KafkaError):
        loop.default_exception_handler(context)


# Every loop of an aiokafka client dials an unreachable broker ten times a second; aiokafka has no setting like Kafka's
# `reconnect.backoff.max.ms`. As with that setting, an attempt during the backoff fails at once, so that the caller can
# try another broker.


def back_off_reconnects(client: AIOKafkaClient) -> None:
    """Give an aiokafka client a growing backoff before it reconnects to a broker."""
    _ReconnectBackoff(client)


class _ReconnectBackoff:
    """Backoff for each broker of one client. Replaces the client's `_get_conn`."""

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client
        self._connect = client._get_conn  # noqa: SLF001 - there is no public API; test_faust_pins.py pins it
        self._failures: dict[Any, int] = {}  # broker -> failures since the last success
        self._next_s: dict[Any, float] = {}  # broker -> time of the next attempt
        client._get_conn = self._connection  # noqa: SLF001 - as above

    async def _connection(
        self, broker: Any, *, group: ConnectionGroup = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> Any:
        """Return the open connection or a new one; None if it fails, or during the backoff."""
        existing = self._client._conns.get((broker, group))  # noqa: SLF001 - as above
        if existing is not None and existing.connected():
            return existing
        if monotonic_s() < self._next_s.get(broker, 0.0):
            return None
        connection = await self._connect(broker, group=group, no_hint=no_hint)
        if connection is None:
            failures = self._failures[broker] = self._failures.get(broker, 0) + 1
            self._next_s[broker] = monotonic_s() + back_off_s(failures - 1)
        else:
            self._failures.pop(broker, None)
            self._next_s.pop(broker, None)
        return connection


# A start fences the older producers with the same `transactional.id`.


# aiokafka repeats without end what a broker does not do. Kafka itself aborts a transaction after 60 seconds.
_LIMIT_S: Final = 60.0
_STOP_S: Final = 5.0  # stopping a fenced producer may hang
_ABANDON_S: Final = 1.0
_ABORT_S: Final = 5.0  # aiokafka's abort waits until a broker answers: a worker could not stop while Kafka is away


@asynccontextmanager
async def time_limit() -> AsyncIterator[None]:
    """Raise aiokafka's KafkaTimeoutError if the block, a start or a transaction, takes longer than 60 seconds."""
    try:
        async with asyncio.timeout(_LIMIT_S):
            yield
    except TimeoutError:
        raise KafkaTimeoutError(f"not done in {_LIMIT_S:g} s") from None


class Transaction(TransactionContext):  # type: ignore[misc] # aiokafka has no types
    """A transaction that is committed at the end of the block, or aborted after an error.

    After a cancellation the abort takes at most 5 seconds, and stays a cancellation if it fails. A transaction that is
    then still open is aborted by the start of the next producer with its `transactional.id`.
    """

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit or abort. Raises KafkaError."""
        if kind is not asyncio.CancelledError:
            await super().__aexit__(kind, error, traceback)
            return
        with suppress(TimeoutError, KafkaError):  # only here: after a commit it would hide that the end is unknown
            async with asyncio.timeout(_ABORT_S):
                await super().__aexit__(kind, error, traceback)


async def start_producer(transactional_id: str, client: dict[str, Any], **options: Any) -> AIOKafkaProducer:
    """Start a producer and fence the older ones with this id.

    client    aiokafka's connection options
    options   further options of aiokafka's producer
    Raises KafkaError, after closing all connections: KafkaTimeoutError if Kafka gave no producer id within 60 seconds.
    """
    ignore_unread_kafka_errors()
    producer = AIOKafkaProducer(transactional_id=transactional_id, acks="all", **options, **client)
    try:
        back_off_reconnects(producer.client)
        async with time_limit():
            await producer.start()
    except AssertionError:  # raised by aiokafka: the metadata of a broker that has just restarted may be empty
        await stop_producer(producer)
        raise KafkaConnectionError("no broker is known") from None
    except BaseException:
        await stop_producer(producer)
        raise
    return producer


async def stop_producer(producer: AIOKafkaProducer) -> None:
    """Close a producer, fenced or not, within some seconds. What it has not sent by then is not sent any more."""
    try:
        async with asyncio.timeout(_STOP_S):
            await producer.stop()
    except (TimeoutError, KafkaError):
        await _abandon(producer)


async def _abandon(producer: AIOKafkaProducer) -> None:
    """End a producer that did not stop: its tasks and connections would last until it is fenced, or longer.

    Its client refuses first, so that a commit that still waits cannot be sent after its messages have failed.
    """
    producer.client.send = _refuse
    sender = producer._sender  # noqa: SLF001 - there is no public API; test_publisher.py shows that nothing is left
    with suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(_ABANDON_S):  # its end also cancels what the sender waits for
            await sender.close()
    producer._message_accumulator.fail_all(KafkaTimeoutError("the producer is closed"))  # noqa: SLF001 - as above
    with suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(_ABANDON_S):
            await producer.client.close()


async def _refuse(*_: Any, **__: Any) -> None:
    raise KafkaConnectionError("the producer is closed")
