"""Start and stop one transactional producer: its start fences whoever had the same `transactional.id` before."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError

from hatcast.agents.kafka.backoff import back_off_reconnects
from hatcast.agents.kafka.unread_errors import ignore_unread_kafka_errors

_STOP_S: Final = 5.0  # the stop of a fenced producer may hang


async def start_producer(transactional_id: str, client: dict[str, Any], **options: Any) -> AIOKafkaProducer:
    """Start a producer: from now on no older one of this id can send.

    client    how aiokafka reaches the brokers
    options   of aiokafka's producer
    Raises KafkaError; nothing is left open then.
    """
    ignore_unread_kafka_errors()
    producer = AIOKafkaProducer(transactional_id=transactional_id, acks="all", **options, **client)
    try:
        back_off_reconnects(producer.client)
        await producer.start()
    except AssertionError:  # aiokafka's: a broker that comes back may name no broker at all, not even itself
        await stop_producer(producer)
        raise KafkaConnectionError("no broker is known") from None
    except BaseException:
        await stop_producer(producer)
        raise
    return producer


async def stop_producer(producer: AIOKafkaProducer) -> None:
    """Close a producer, fenced or not, within seconds."""
    with suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(_STOP_S):
            await producer.stop()
