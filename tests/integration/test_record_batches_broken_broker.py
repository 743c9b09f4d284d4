"""Batches while their Kafka is away: nothing is lost, and stopping does not wait for it."""

import asyncio

from tests.integration.record_batch_worker import Store, running, until
from tests.integration.test_record_batches import in_the_log, numbered, settings
from tests.services import KafkaServer
from tests.services.fixtures import MakeTopic


async def test_a_broker_that_starts_again_is_read_on_from_where_it_was(
    breakable_kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic, store = make_topic(partitions=4), Store()
    breakable_kafka.produce(topic, numbered(4_000, 4))

    async with running(settings(breakable_kafka, topic), store, pause=0.05) as worker:
        await until(lambda: len(store.rows) > 500)
        await asyncio.to_thread(breakable_kafka.kill)
        await asyncio.sleep(3)
        await asyncio.to_thread(breakable_kafka.start)
        await until(lambda: len(store.rows) >= 4_000)
        assert not worker.app.crashed
    assert sorted(store.rows) == in_the_log(breakable_kafka, topic)


def test_stopping_in_front_of_a_broker_that_is_gone_ends_in_order(
    breakable_kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic, store = make_topic(partitions=2), Store()
    breakable_kafka.produce(topic, numbered(100, 2))

    async def run() -> None:
        async with running(settings(breakable_kafka, topic), store) as worker:
            await until(lambda: len(store.rows) == 100)
            await asyncio.to_thread(breakable_kafka.kill)
            await until(
                lambda: not worker.consumer.in_group()
            )  # its fetches fail from now on, and wait for their next try
            async with asyncio.timeout(30):
                await worker.app.stop()
            assert not worker.app.crashed

    try:
        asyncio.run(run())
    finally:
        breakable_kafka.start()  # its topics are deleted before it is healed


def test_stopping_does_not_wait_for_a_broker_that_hangs(breakable_kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic, store = make_topic(partitions=2), Store()
    breakable_kafka.produce(topic, numbered(100, 2))

    async def run() -> None:
        async with running(settings(breakable_kafka, topic, commit_interval=60.0), store) as worker:
            await until(lambda: len(store.rows) == 100)
            breakable_kafka.pause()
            async with asyncio.timeout(30):
                await worker.app.stop()

    try:
        asyncio.run(run())
    finally:
        breakable_kafka.resume()
