"""A Kafka that has never served a consumer group: the first worker waits for it and logs no error."""

import asyncio
import logging

import pytest
from aiokafka import AIOKafkaConsumer

from hatcast.agents.kafka.groups import wait_for_group
from tests.services.kafka_server import KafkaServer, open_kafka
from tests.services.lifecycle import free_ports

GROUP, TOPIC = "hatcast-first", "telemetry"


async def joined(kafka: KafkaServer) -> None:
    """Return once a consumer of the group has partitions."""
    client = {"bootstrap_servers": kafka.bootstrap_servers}
    await wait_for_group(GROUP, client)
    consumer = AIOKafkaConsumer(TOPIC, group_id=GROUP, **client)
    await consumer.start()
    try:
        async with asyncio.timeout(60):
            while not consumer.assignment():
                await asyncio.sleep(0.05)
    finally:
        await consumer.stop()


async def test_the_first_group_of_a_fresh_kafka_is_joined_without_errors_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with open_kafka() as kafka:
        if kafka.lifecycle is None:
            pytest.skip("the Kafka of this run has served groups before")
        kafka.create_topic(TOPIC)
        with caplog.at_level(logging.WARNING):
            await joined(kafka)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("aiokafka")] == []


async def test_a_kafka_that_is_away_is_left_to_the_consumer_which_reports_it() -> None:
    async def waited(port: int) -> None:
        async with asyncio.timeout(60):
            await wait_for_group(GROUP, {"bootstrap_servers": f"127.0.0.1:{port}"})

    with free_ports(1) as (port,):
        await waited(port)
