"""Start and stop a transactional producer. Its start fences the older producers with the same `transactional.id`."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError

from hatcast.agents.kafka.backoff import back_off_reconnects
from hatcast.agents.kafka.unread_errors import ignore_unread_kafka_errors

_STOP_S: Final = 5.0  # stopping a fenced producer may hang


async def start_producer(transactional_id: str, client: dict[str, Any], **options: Any) -> AIOKafkaProducer:
    """Start a producer and fence the older ones with this id.

    client    aiokafka's connection options
    options   further options of aiokafka's producer
    Raises KafkaError, after closing all connections.
    """
    ignore_unread_kafka_errors()
    producer = AIOKafkaProducer(transactional_id=transactional_id, acks="all", **options, **client)
    try:
        back_off_reconnects(producer.client)
        await producer.start()
    except AssertionError:  # raised by aiokafka: the metadata of a broker that has just restarted may be empty
        await stop_producer(producer)
        raise KafkaConnectionError("no broker is known") from None
    except BaseException:
        await stop_producer(producer)
        raise
    return producer


async def stop_producer(producer: AIOKafkaProducer) -> None:
    """Close a producer, fenced or not, within 5 seconds."""
    with suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(_STOP_S):
            await producer.stop()
