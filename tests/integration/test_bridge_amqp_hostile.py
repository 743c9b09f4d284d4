"""Messages of AMQP that mean harm, through a real RabbitMQ: none holds up the queue, and no valid one is lost."""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import pytest
from aio_pika.abc import AbstractChannel
from pamqp import encode
from pamqp.commands import Basic

from hatcast.agents.sources import amqp
from hatcast.agents.sources.amqp import AmqpQueue, AmqpSource
from hatcast.agents.sources.connection import MESSAGE_BYTES_MAX
from hatcast.agents.sources.endpoint import Endpoint
from tests.integration.bridging import arrived, bridge, stopped
from tests.integration.harness import Pipeline
from tests.integration.test_bridge_amqp import body, publish, queue_of, sent, until_taken, waiting
from tests.services import KafkaServer
from tests.services.rabbitmq import RabbitMQ

EXCHANGE: Final = "amq.topic"


class Raw(bytes):
    """Bytes of a field as they go over the network, whatever its type."""


# RabbitMQ takes all of these from a publisher and sends them on.
PROPERTIES: Final[tuple[Mapping[str, Any], ...]] = (
    {"timestamp": Raw(b"\xff" * 8)},
    {"content_type": Raw(b"\x03\xff\xfe\xfd")},
    {"message_id": Raw(b"\x02\xc3\x28")},
    {"headers": Raw(struct.pack(">I", 11) + b"\x01aT" + b"\xff" * 8)},
)


@pytest.fixture(autouse=True)
def raw_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process publish raw fields."""
    encoded = encode.by_type

    def by_type(value: Any, kind: str) -> bytes:
        return bytes(value) if isinstance(value, Raw) else encoded(value, kind)

    monkeypatch.setattr(encode, "by_type", by_type)


def source(rabbitmq: RabbitMQ, pipeline: Pipeline) -> AmqpSource:
    return AmqpSource(Endpoint("127.0.0.1", rabbitmq.port, None, None, None), AmqpQueue(pipeline.name))


async def publish_raw(
    channel: AbstractChannel, pipeline: Pipeline, number: int, fields: Mapping[str, Any], key: str | None = None
) -> None:
    """Publish a reading with properties or a routing key that are garbage."""
    properties = Basic.Properties()
    for name, value in fields.items():
        setattr(properties, name, value)
    exchange = "" if key is None else EXCHANGE
    raw = await channel.get_underlay_channel()
    await raw.basic_publish(
        body(number), exchange=exchange, routing_key=key or pipeline.name, properties=properties, mandatory=True
    )


async def test_garbage_beside_a_body_and_bodies_that_are_too_large_do_not_hold_up_the_queue(
    pipeline: Pipeline, rabbitmq: RabbitMQ
) -> None:
    async with queue_of(rabbitmq, pipeline) as channel:
        queue = await channel.get_queue(pipeline.name)
        await queue.bind(EXCHANGE, "#")
        for number, fields in enumerate(PROPERTIES):
            await publish_raw(channel, pipeline, number, fields)
        await publish_raw(channel, pipeline, 4, MappingProxyType({}), key=Raw(b"\x02\xff\xfe"))  # type: ignore[arg-type]
        large = b"x" * (MESSAGE_BYTES_MAX + 1)
        await publish(channel, pipeline.name, [large, body(5), b"\x00" * 1_000, large, body(6), body(6)])
        async with bridge(pipeline, "itms", lambda: source(rabbitmq, pipeline)) as task:
            found = await arrived(pipeline, task, lambda found: len(found) == 7)
            summary = await stopped(task)
        assert found.keys() == {sent(number) for number in range(7)}
        assert found[sent(6)] == 2, "what comes twice is sent twice: the fold counts it once"
        assert (summary.losses, summary.undecodable, summary.unconfirmed) == (0, 3, 0)
        assert await waiting(rabbitmq, pipeline.name) == 0


async def test_more_bytes_than_the_bridge_takes_at_once_come_over_several_connections(
    pipeline: Pipeline, rabbitmq: RabbitMQ, breakable_kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp, "_QUEUED_BYTES_MAX", 3_000)

    async with queue_of(rabbitmq, pipeline) as channel:
        await publish(channel, pipeline.name, [body(0)])
        async with bridge(pipeline, "itms", lambda: source(rabbitmq, pipeline), buffer=5) as task:
            await arrived(pipeline, task, lambda found: len(found) == 1)
            breakable_kafka.pause()
            await publish(channel, pipeline.name, map(body, range(1, 60)))
            await until_taken(channel, pipeline)
            breakable_kafka.resume()
            found = await arrived(pipeline, task, lambda found: len(found) == 60)
            summary = await stopped(task)
        assert found.keys() == {sent(number) for number in range(60)}
        assert summary.losses >= 1
        assert await waiting(rabbitmq, pipeline.name) == 0
