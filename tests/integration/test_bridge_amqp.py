"""`hatcast feed amqp` against a real RabbitMQ and a real Kafka. It takes seconds to start: few tests."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel

from hatcast.agents.monitoring.declarations import BRIDGE_UP
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.sources.amqp import AmqpQueue, AmqpSource
from hatcast.agents.sources.endpoint import Endpoint, tls_context
from hatcast.stream.errors import HatcastError
from tests.exposed import figures
from tests.faults.proxy import Proxy
from tests.integration.bridging import BASE_MS, SECONDS, Sent, arrived, bridge, stopped, until
from tests.integration.harness import Pipeline
from tests.services import KafkaServer
from tests.services.rabbitmq import RabbitMQ


@asynccontextmanager
async def queue_of(rabbitmq: RabbitMQ, pipeline: Pipeline) -> AsyncIterator[AbstractChannel]:
    """A durable queue with the pipeline's name."""
    async with await aio_pika.connect(host="127.0.0.1", port=rabbitmq.port) as connection:
        channel = await connection.channel()
        await channel.declare_queue(pipeline.name, durable=True)
        try:
            yield channel
        finally:
            await channel.queue_delete(pipeline.name)


async def publish(channel: AbstractChannel, queue: str, bodies: Iterable[bytes]) -> None:
    for each in bodies:
        await channel.default_exchange.publish(aio_pika.Message(each), queue)


async def waiting(rabbitmq: RabbitMQ, queue: str) -> int:
    """How many messages the broker has for whoever asks next."""
    async with await aio_pika.connect(host="127.0.0.1", port=rabbitmq.port) as connection:
        declared = await (await connection.channel()).declare_queue(queue, passive=True)
        return declared.declaration_result.message_count or 0


def body(number: int) -> bytes:
    plate, time = sent(number)
    place = {"type": "Point", "coordinates": [72.829443, 21.176274]}
    return json.dumps({"license_plate": plate, "observationDateTime": time, "speed": 44, "location": place}).encode()


def sent(number: int) -> Sent:
    return f"GJ05BV{number % 5}", BASE_MS + number * 1_000


def source(rabbitmq: RabbitMQ, pipeline: Pipeline, port: int | None = None) -> AmqpSource:
    access = Endpoint(
        "127.0.0.1", port or rabbitmq.tls_port, "guest", "guest", tls_context(rabbitmq.certificate.ca_file)
    )
    return AmqpSource(access, AmqpQueue(pipeline.name))


def is_up() -> bool:
    return figures(METERS.render()[0].decode(), BRIDGE_UP.name).get(()) == 1.0


async def test_over_tls_every_reading_arrives_garbage_leaves_the_queue_and_a_cut_connection_is_made_again(
    pipeline: Pipeline, rabbitmq: RabbitMQ
) -> None:
    proxy = Proxy("127.0.0.1", rabbitmq.tls_port)
    try:
        async with queue_of(rabbitmq, pipeline) as channel:
            await publish(channel, pipeline.name, [body(0), b"{garbage", b"", body(1)])
            async with bridge(pipeline, "itms", lambda: source(rabbitmq, pipeline, proxy.port)) as task:
                await arrived(pipeline, task, lambda found: len(found) == 2)
                await asyncio.to_thread(proxy.cut)
                await publish(channel, pipeline.name, map(body, range(2, 40)))
                found = await arrived(pipeline, task, lambda found: len(found) == 40)
                summary = await stopped(task)
            assert found.keys() == {sent(number) for number in range(40)}
            assert (summary.undecodable, summary.unconfirmed) == (1, 0)
            assert summary.losses >= 1
            assert await waiting(rabbitmq, pipeline.name) == 0
    finally:
        await asyncio.to_thread(proxy.close)


async def test_what_kafka_has_not_got_stays_in_the_queue(
    pipeline: Pipeline, rabbitmq: RabbitMQ, breakable_kafka: KafkaServer
) -> None:
    async with queue_of(rabbitmq, pipeline) as channel:
        async with bridge(pipeline, "itms", lambda: source(rabbitmq, pipeline)) as task:
            await publish(channel, pipeline.name, [body(0)])
            await arrived(pipeline, task, lambda found: len(found) == 1)
            breakable_kafka.pause()
            await publish(channel, pipeline.name, map(body, range(1, 31)))
            await until_taken(channel, pipeline)
        # Broken off: what it had taken comes back.
        async with asyncio.timeout(SECONDS):
            while await waiting(rabbitmq, pipeline.name) != 30:
                await asyncio.sleep(0.05)
        breakable_kafka.resume()
        async with bridge(pipeline, "itms", lambda: source(rabbitmq, pipeline)) as task:
            found = await arrived(pipeline, task, lambda found: len(found) == 31)
            await stopped(task)
        assert found.keys() == {sent(number) for number in range(31)}
        assert await waiting(rabbitmq, pipeline.name) == 0


async def until_taken(channel: AbstractChannel, pipeline: Pipeline) -> None:
    """The bridge has all messages, and the broker has not heard that it is done with them."""
    async with asyncio.timeout(SECONDS):
        while (await channel.declare_queue(pipeline.name, passive=True)).declaration_result.message_count:
            await asyncio.sleep(0.05)


async def test_a_queue_that_is_deleted_is_a_source_that_is_lost(pipeline: Pipeline, rabbitmq: RabbitMQ) -> None:
    async with (
        queue_of(rabbitmq, pipeline) as channel,
        bridge(pipeline, "itms", lambda: source(rabbitmq, pipeline)) as task,
    ):
        await until(is_up, task)
        await channel.queue_delete(pipeline.name)
        await until(lambda: not is_up(), task)
        await channel.declare_queue(pipeline.name, durable=True)
        await until(is_up, task)
        assert (await stopped(task)).losses >= 1


async def test_a_queue_that_never_was_ends_the_bridge_in_one_line(pipeline: Pipeline, rabbitmq: RabbitMQ) -> None:
    with pytest.raises(HatcastError, match="--queue"):
        async with bridge(pipeline, "itms", lambda: source(rabbitmq, pipeline)) as task:
            await asyncio.wait_for(task, SECONDS)
