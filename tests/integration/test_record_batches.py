"""Batches on a real Kafka: a chain without gaps, whatever is in the log.

While their Kafka is away nothing is lost, and stopping does not wait for it.
"""

import asyncio
import socket
from collections.abc import Iterable

import pytest
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Producer

from hatcast.agents.kafka.batches.batch import BatchSettings, RecordBatch
from tests.integration.record_batch_worker import (
    SESSION,
    Store,
    assert_chained,
    committed,
    delete_records,
    in_the_log,
    in_the_queue,
    numbered,
    resident,
    running,
    settings,
    until,
)
from tests.services import KafkaServer, Record
from tests.services.fixtures import MakeTopic


def produce_in_transactions(kafka: KafkaServer, topic: str, outcomes: Iterable[bool]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for number, commits in enumerate(outcomes):
        producer.begin_transaction()
        for record in range(7):
            producer.produce(topic, b"%d/%d %r" % (number, record, commits), partition=record % 2)
        producer.flush(30)
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


async def test_every_record_arrives_once_in_a_chain_of_batches(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic, store = make_topic(partitions=3), Store()
    kafka.produce(topic, [*numbered(1_000, 3), Record(None, None, 0, 5), Record(b"", None, 1, 6)])

    async with running(settings(kafka, topic), store) as worker:
        await until(lambda: len(store.rows) == 1_002)
        seen = worker.seen
    assert sorted(store.rows) == in_the_log(kafka, topic)
    assert_chained(seen)
    assert max(len(batch.offsets) for batch in seen) == 50


async def test_aborted_records_are_absent_and_markers_are_inside_batches(
    kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic, store = make_topic(partitions=2), Store()
    produce_in_transactions(kafka, topic, [True, False, True, True, False, False, True, False] * 5)

    async with running(settings(kafka, topic, batch_records=5), store) as worker:
        ranges = await worker.consumer.log_range([0, 1])
        await until(lambda: all(store.offsets.get(each) == ranges[each][1] for each in (0, 1)))
        at_end = [worker.consumer.position_at_end(each, store.offsets[each]) for each in (0, 1)]
        at_end.append(worker.consumer.position_at_end(0, store.offsets[0] - 1))
        seen, _ = worker.seen, ranges
    assert len(store.rows) == 20 * 7
    assert sorted(store.rows) == in_the_log(kafka, topic)
    assert_chained(seen)
    assert at_end == [True, True, False]  # though the last thing in the log is an aborted transaction


async def test_batches_from_before_a_new_start_are_stale(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic, store = make_topic(partitions=1), Store({0: 0})
    kafka.produce(topic, numbered(1_000, 1))

    async with running(settings(kafka, topic), store) as worker:
        worker.gate.clear()  # so batches of the first epoch wait in the queue
        await until(lambda: worker.consumer.epoch(0) is not None)
        await asyncio.sleep(1)
        store.offsets[0] = 900
        store.rows.clear()
        await worker.load([0])
        worker.gate.set()
        await until(lambda: len(store.rows) == 100)
        await asyncio.sleep(0.5)
        assert worker.stale > 0
    assert [offset for _, offset, *_ in store.rows] == list(range(900, 1_000))


async def test_a_parked_partition_delivers_nothing_and_holds_up_no_other(
    kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic, store = make_topic(partitions=4), Store(dict.fromkeys(range(4), 0))
    kafka.produce(topic, numbered(400, 4))

    async with running(settings(kafka, topic), store, start_by_itself=False) as worker:
        await until(lambda: len(worker.assignments) == 1)
        await worker.load([0, 2])
        await until(lambda: len(store.rows) == 200)
        await asyncio.sleep(1)
        assert {partition for partition, *_ in store.rows} == {0, 2}
        assert worker.consumer.epoch(1) is None
        await worker.consumer.park_partition(0)
        kafka.produce(topic, numbered(4, 4))
        await until(lambda: len(store.rows) == 201)
        await asyncio.sleep(1)
        assert len(store.rows) == 201
        await worker.load([0, 1, 3])
        await until(lambda: len(store.rows) == 404)
    assert sorted(store.rows) == in_the_log(kafka, topic)


async def test_a_stalled_agent_stays_in_its_group_and_its_memory_stops_growing(
    kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic, store = make_topic(partitions=4), Store()
    kafka.produce(topic, numbered(60_000, 4, size=1_000))  # 60 MB

    async with running(settings(kafka, topic, poll_seconds=SESSION), store) as worker:
        worker.gate.clear()
        await until(lambda: worker.consumer.epoch(3) is not None)
        await asyncio.sleep(3)
        before = resident()
        await asyncio.sleep(SESSION + 3)
        grown = resident() - before
        waiting = len(in_the_queue(worker.app.topics))
        worker.gate.set()
        await until(lambda: len(store.rows) == 60_000)
        assignments = len(worker.assignments)
    assert assignments == 1, "the worker left its group"
    assert waiting <= 16
    assert grown < 4 << 20


async def test_commits_keep_pace_and_an_old_epoch_does_not_move_them(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic, store = make_topic(partitions=2), Store()
    kafka.produce(topic, numbered(4_000, 2))

    async with running(settings(kafka, topic), store) as worker:
        await until(lambda: len(store.rows) == 4_000)
        await asyncio.sleep(1.5)
        assert await asyncio.to_thread(committed, kafka, topic, 2) == store.offsets
        old = worker.consumer.epoch(0)
        assert old is not None
        assert await worker.consumer.start_partition(0, 700) is not None
        worker.consumer.acknowledge(0, worker.consumer.epoch(0) or 0, 750)
        worker.consumer.acknowledge(0, old, 1_999)
        await asyncio.sleep(1.5)
        assert await asyncio.to_thread(committed, kafka, topic, 2) == {0: 750, 1: 2_000}


async def test_what_is_acknowledged_while_partitions_go_is_committed(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic, store = make_topic(partitions=1), Store()
    kafka.produce(topic, numbered(500, 1))

    async with running(settings(kafka, topic, commit_interval=60.0), store) as worker:
        await until(lambda: len(store.rows) == 500)
        await worker.app.stop()
        assert worker.revocations == [frozenset({0})]
    assert committed(kafka, topic, 1) == {0: 500}


async def test_a_position_that_the_log_has_deleted_is_lost_and_not_jumped_over(
    kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic, store = make_topic(partitions=2), Store({0: 10, 1: 10})
    kafka.produce(topic, numbered(200, 2))
    delete_records(kafka, topic, 0, 50)

    async with running(settings(kafka, topic), store) as worker:
        await until(lambda: bool(worker.lost) and len(store.rows) == 90)
        assert worker.lost == [(0, 10)]
        assert worker.consumer.epoch(0) is None
        assert await worker.consumer.log_range([0]) == {0: (50, 100)}
        store.offsets[0] = 50
        await worker.load([0])
        await until(lambda: len(store.rows) == 140)


async def test_no_web_server_is_started(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=1)

    def listens() -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", 6066)) == 0

    if listens():
        pytest.skip("something else listens on Faust's port")
    async with running(settings(kafka, topic), Store()) as worker:
        await until(lambda: bool(worker.assignments))
        assert not listens()


async def test_an_agent_that_raises_ends_the_worker(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=1)
    kafka.produce(topic, numbered(10, 1))

    async with running(settings(kafka, topic), Store()) as worker:

        def refuse(batch: RecordBatch) -> None:
            raise RuntimeError(f"no: {batch.base}")

        worker.take = refuse  # type: ignore[method-assign]
        async with asyncio.timeout(60):
            await worker.app.wait_until_stopped()
        assert repr(worker.app.crash_reason) == "RuntimeError('no: 0')"


async def test_a_handler_that_raises_at_an_assignment_ends_the_worker(
    kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    def refuse(partitions: frozenset[int]) -> None:
        raise RuntimeError(f"no: {sorted(partitions)}")

    with pytest.raises(RuntimeError, match=r"no: \[0\]"):
        async with running(settings(kafka, make_topic(partitions=1)), Store(), on_assigned=refuse) as worker:
            async with asyncio.timeout(60):
                await worker.app.wait_until_stopped()
            assert worker.app.crash_reason is not None
            raise worker.app.crash_reason


async def test_a_broker_that_is_not_there_is_said_at_the_start() -> None:
    with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1"):
        async with running(BatchSettings("nobody", "127.0.0.1:1", "nothing"), Store()):
            pass


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
