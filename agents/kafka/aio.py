"""Names of aiokafka that other packages use, and two things that it lacks.

It lacks silence about errors that were raised elsewhere, and a reconnect backoff. Only agents/kafka imports aiokafka:
.importlinter has the contract.
"""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import (
    ConsumerStoppedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaConnectionError,
    KafkaError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
    for_code,
)
from aiokafka.structs import ConsumerRecord

from hatcast.agents.clock import monotonic_s
from hatcast.agents.monitoring.failures import back_off_s


def idempotent_producer(client: dict[str, Any]) -> AIOKafkaProducer:
    """Return a producer without transactions, not started. `client`: aiokafka's connection options."""
    producer = AIOKafkaProducer(acks="all", enable_idempotence=True, **client)
    back_off_reconnects(producer.client)
    return producer


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
    """Give an aiokafka client a growing backoff before it reconnects to a broker. Replaces its `_get_conn`."""
    connect = client._get_conn  # noqa: SLF001 - there is no public API; test_faust_pins.py pins it
    failures: dict[Any, int] = {}  # broker -> failures since the last success
    next_s: dict[Any, float] = {}  # broker -> time of the next attempt

    async def connection(
        broker: Any, *, group: ConnectionGroup = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> Any:
        """Return the open connection or a new one; None if it fails, or during the backoff."""
        existing = client._conns.get((broker, group))  # noqa: SLF001 - as above
        if existing is not None and existing.connected():
            return existing
        if monotonic_s() < next_s.get(broker, 0.0):
            return None
        made = await connect(broker, group=group, no_hint=no_hint)
        if made is None:
            failures[broker] = failures.get(broker, 0) + 1
            next_s[broker] = monotonic_s() + back_off_s(failures[broker] - 1)
        else:
            failures.pop(broker, None)
            next_s.pop(broker, None)
        return made

    client._get_conn = connection  # noqa: SLF001 - as above
