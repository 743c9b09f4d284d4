"""Start and stop a transactional producer, and its transactions.

A start fences the older producers with the same `transactional.id`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from aiokafka.producer.producer import TransactionContext

from hatcast.agents.kafka.backoff import back_off_reconnects
from hatcast.agents.kafka.unread_errors import ignore_unread_kafka_errors

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
