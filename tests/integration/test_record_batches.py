"""Batches on a real Kafka: a chain without gaps, whatever is in the log and whoever joins, leaves or stands still.
Batches while their Kafka is away: nothing is lost, and stopping does not wait for it.
"""

import asyncio
import json
import socket
import time
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import OFFSET_INVALID, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from hatcast.agents.kafka.batches import group
from hatcast.agents.kafka.batches.batch import BatchSettings, RecordBatch
from tests.integration.record_batch_worker import (
    Row,
    Store,
    Worker,
    assert_chained,
    committed,
    in_the_queue,
    resident,
    running,
    until,
)
from tests.services import KafkaServer, Record
from tests.services.fixtures import MakeTopic

SESSION = 6.0  # the least that a broker takes


def settings(kafka: KafkaServer, topic: str, **more: float) -> BatchSettings:
    wanted = {"session_timeout": SESSION, "commit_interval": 0.5, "batch_records": 50}
    return BatchSettings(topic, kafka.bootstrap_servers, topic, **{**wanted, **more})  # type: ignore[arg-type]


def numbered(count: int, partitions: int, size: int = 0) -> list[Record]:
    return [Record(b"%d" % i + b" " * size, b"k%d" % i, i % partitions, 1_000 + i) for i in range(count)]


def in_the_log(kafka: KafkaServer, topic: str) -> list[Row]:
    return [(each.partition, each.offset, each.timestamp_ms, each.value) for each in kafka.read(topic)]


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


def test_workers_that_come_and_go_keep_the_chain_exact(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic, store = make_topic(partitions=8), Store()
    kafka.produce(topic, numbered(40_000, 8))
    wanted = settings(kafka, topic)

    async def run() -> list[list[RecordBatch]]:
        async with running(wanted, store, pause=0.05) as first:
            await until(lambda: len(store.rows) > 1_000)
            async with running(wanted, store, pause=0.05) as second:
                await until(lambda: len(second.seen) > 20)
                await until(lambda: len(first.consumer.assigned()) == 4)
                async with running(wanted, store, pause=0.05) as third:
                    await until(lambda: len(third.seen) > 10)
                await until(lambda: len(second.consumer.assigned()) == 4)
                await second.app.stop()
                assert len(store.rows) < 40_000, "the log must be longer than the comings and goings"
                first.pause = 0.0
                await until(lambda: len(store.rows) >= 40_000)
                assert first.consumer.assigned() == frozenset(range(8))
                assert first.revocations
            return [each.seen for each in (first, second, third)]

    for seen in asyncio.run(run()):
        assert_chained(seen)
    assert sorted(store.rows) == in_the_log(kafka, topic)


async def test_what_a_rebalance_does_not_move_is_read_on_while_the_rest_is_given_up(
    kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic, store = make_topic(partitions=4), Store()
    kafka.produce(topic, numbered(4_000, 4))
    wanted = settings(kafka, topic)

    async with running(wanted, store) as first:
        await until(lambda: len(store.rows) == 4_000)
        epochs = {partition: first.consumer.epoch(partition) for partition in range(4)}
        give_up = first.on_revoked

        async def give_up_late(partitions: frozenset[int]) -> None:
            await give_up(partitions)
            await asyncio.to_thread(kafka.produce, topic, numbered(8_000, 4))
            await until(lambda: len(store.rows) == 4_000 + 8_000 * (4 - len(partitions)) // 4)

        first.on_revoked = give_up_late  # type: ignore[method-assign]
        async with running(wanted, store) as second:
            await until(lambda: len(store.rows) == 12_000)
            first.on_revoked = give_up  # type: ignore[method-assign]
            stayed = first.consumer.assigned()
            assert len(stayed) == 2
            assert second.consumer.assigned() == first.revocations[0] == frozenset(range(4)) - stayed
        await until(lambda: first.consumer.assigned() == frozenset(range(4)))
        assert first.assignments == [frozenset(range(4)), frozenset(range(4)) - stayed]
        assert {partition: first.consumer.epoch(partition) for partition in stayed} == {
            partition: epochs[partition] for partition in stayed
        }
    assert_chained(first.seen)
    assert sorted(store.rows) == in_the_log(kafka, topic)


async def test_who_reads_what_is_agreed_without_reading_it_and_commits_go_on_without_a_warning(
    kafka: KafkaServer, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, store = make_topic(partitions=8), Store()
    kafka.produce(topic, numbered(40_000, 8))  # 3 MB
    options, seen = group.GroupMember._options, list[tuple[int, int]]()

    def note(statistics: str) -> None:
        for broker in json.loads(statistics)["brokers"].values():
            seen.append((broker["req"].get("OffsetCommit", 0), broker["rxbytes"]))

    def with_statistics(member: group.GroupMember) -> dict[str, Any]:
        return {**options(member), "statistics.interval.ms": 200, "stats_cb": note}

    monkeypatch.setattr(group.GroupMember, "_options", with_statistics)
    wanted = settings(kafka, topic, commit_interval=0.05)
    with capture_logs() as lines:
        async with running(wanted, store, pause=0.02) as first:
            for _ in range(2):
                async with running(wanted, store, pause=0.02) as second:
                    await until(lambda: len(second.consumer.assigned()) == 4)
                    await until(lambda: len(second.seen) > 10)
                await until(lambda: len(first.consumer.assigned()) == 8)
    commits, received = (max(each) for each in zip(*seen, strict=True))
    assert commits > 0
    assert received < 200_000  # of the log nothing; a fetch at its end, before the partition is paused, brings nothing
    assert [line for line in lines if line["log_level"] == "warning"] == []


async def test_a_worker_that_stops_while_it_gains_partitions_takes_none(
    kafka: KafkaServer, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(settings(kafka, make_topic(partitions=2)), Store())
    loop, thread, gaining = asyncio.get_running_loop(), worker.consumer._thread, asyncio.Event()
    assign = thread.assign

    async def assign_late(partitions: Collection[int]) -> None:
        loop.call_soon_threadsafe(gaining.set)
        while not worker.consumer.should_stop:
            await asyncio.sleep(0.01)
        await assign(partitions)

    monkeypatch.setattr(thread, "assign", assign_late)
    starting = asyncio.create_task(worker.app.start())
    await gaining.wait()
    await worker.app.stop()
    await starting
    assert worker.assignments == []


async def test_a_stop_gives_up_the_rest_beside_what_a_rebalance_is_giving_up_and_waits_for_both(
    kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic, store = make_topic(partitions=4), Store()
    kafka.produce(topic, numbered(400, 4))
    wanted = settings(kafka, topic)

    async with running(wanted, store) as first:
        await until(lambda: len(store.rows) == 400)
        give_up, stored = first.on_revoked, asyncio.Event()

        async def give_up_late(partitions: frozenset[int]) -> None:
            await give_up(partitions)
            await stored.wait()

        first.on_revoked = give_up_late  # type: ignore[method-assign]
        joining = Worker(wanted, store)
        starting = asyncio.create_task(joining.app.start())
        await until(lambda: len(first.revocations) == 1)
        stopping = asyncio.create_task(first.app.stop())
        await until(lambda: len(first.revocations) == 2, 10)
        assert not stopping.done()
        stored.set()
        await stopping
        assert frozenset.union(*first.revocations) == frozenset(range(4))
        await starting
        await until(lambda: joining.consumer.assigned() == frozenset(range(4)))
        await joining.app.stop()


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


def delete_records(kafka: KafkaServer, topic: str, partition: int, before: int) -> None:
    deleting = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in deleting.delete_records([TopicPartition(topic, partition, before)]).values():
        future.result()


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


@pytest.mark.parametrize("first_offset", [0, 50])
async def test_a_worker_that_hangs_gives_up_its_partitions_also_after_one_was_lost(
    kafka: KafkaServer, make_topic: MakeTopic, first_offset: int
) -> None:
    topic, store = make_topic(partitions=2), Store({0: 10, 1: 10})
    kafka.produce(topic, numbered(200, 2))
    delete_records(kafka, topic, 0, first_offset)

    async with running(settings(kafka, topic, poll_seconds=SESSION), store) as worker:
        if first_offset > 10:
            await until(lambda: worker.lost == [(0, 10)])
            store.offsets[0] = first_offset
            await worker.load([0])
        await until(lambda: store.offsets == {0: 100, 1: 100})
        assert not worker.revocations
        with capture_logs() as lines:
            time.sleep(SESSION + 2)  # the event loop hangs
            await until(lambda: len(worker.assignments) == 2)
        assert worker.revocations == [frozenset({0, 1})]
        (why,) = [line["why"] for line in lines if line["event"] == "not in the consumer group, joining again"]
        assert "maximum poll interval" in why


async def test_what_is_acknowledged_before_a_session_ends_is_not_committed_after_it(
    kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic, store = make_topic(partitions=1), Store()
    kafka.produce(topic, numbered(100, 1))

    async with running(settings(kafka, topic, poll_seconds=SESSION, commit_interval=60.0), store) as worker:
        await until(lambda: len(store.rows) == 100)
        worker.start_by_itself = False  # as if another worker had the partition, and had read on
        time.sleep(SESSION + 2)  # the event loop hangs
        await until(lambda: len(worker.assignments) == 2)
    assert committed(kafka, topic, 1) == {0: OFFSET_INVALID}


async def test_workers_that_stop_together_leave_their_group_at_once(kafka: KafkaServer, make_topic: MakeTopic) -> None:
    topic, store = make_topic(partitions=4), Store()
    # A member hears of the others with its next heartbeat, after a fifth of the session: twice in this test.
    wanted = settings(kafka, topic, session_timeout=45.0)

    async with running(wanted, store) as first, running(wanted, store) as second:
        await until(lambda: [len(each.consumer.assigned()) for each in (first, second)] == [2, 2])
        await first.app.stop()
        assert await first.consumer.start_partition(0, 0) is None
        await until(lambda: second.consumer.assigned() == frozenset(range(4)))
        second.consumer.close()  # as Faust does where a rebalance meets a stop
        async with asyncio.timeout(30):
            await second.app.stop()
    async with running(wanted, store) as third:
        await until(lambda: third.consumer.assigned() == frozenset(range(4)), 30)


async def test_a_worker_that_looked_for_its_topic_before_that_was_there_gets_partitions_soon(
    kafka: KafkaServer, make_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, store = make_topic(partitions=2), Store()
    await asyncio.to_thread(kafka.delete_topics, [topic])
    answers: list[Message] = []
    error_of = group._error_of

    def note(answer: Message | None) -> KafkaError | None:
        answers.extend([] if answer is None else [answer])
        return error_of(answer)

    monkeypatch.setattr(group, "_error_of", note)
    worker = Worker(settings(kafka, topic), store)
    with capture_logs() as lines:
        starting = asyncio.create_task(worker.app.start())
        await until(lambda: bool(answers))
    assert lines == []  # that it is not there says who looks at all topics
    await asyncio.to_thread(kafka.create_topic, topic, 2)
    await asyncio.to_thread(kafka.produce, topic, numbered(100, 2))
    await until(lambda: len(store.rows) == 100)  # librdkafka by itself would take five minutes
    await starting
    await worker.app.stop()


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


async def test_without_its_broker_a_worker_is_not_in_its_group_also_if_it_has_no_partition(
    breakable_kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    wanted, store = settings(breakable_kafka, make_topic(partitions=1)), Store()

    async with running(wanted, store) as first, running(wanted, store) as second:
        await until(lambda: first.consumer.in_group() and second.consumer.in_group())
        await asyncio.to_thread(breakable_kafka.kill)
        await until(lambda: not (first.consumer.in_group() or second.consumer.in_group()))
        await asyncio.to_thread(breakable_kafka.start)
        await until(lambda: first.consumer.in_group() and second.consumer.in_group())


async def test_a_broker_that_is_lost_in_a_rebalance_is_joined_again_however_long_it_was_away(
    breakable_kafka: KafkaServer, make_topic: MakeTopic
) -> None:
    topic, store = make_topic(partitions=4), Store()
    wanted = settings(breakable_kafka, topic, poll_seconds=SESSION)

    async with running(wanted, store) as worker:
        await until(lambda: len(worker.memory) == 4)
        worker.gate.clear()
        await asyncio.to_thread(breakable_kafka.produce, topic, numbered(8_000, 4))
        await until(lambda: len(in_the_queue(worker.app.topics)) == wanted.queued_batches)
        give_up, lost = worker.on_revoked, asyncio.Event()

        async def lose_the_broker(partitions: frozenset[int]) -> None:
            await give_up(partitions)
            await asyncio.to_thread(breakable_kafka.kill)
            lost.set()

        worker.on_revoked = lose_the_broker  # type: ignore[method-assign]
        joining = Worker(wanted, store)
        starting = asyncio.create_task(joining.app.start())
        await lost.wait()
        worker.on_revoked = give_up  # type: ignore[method-assign]
        await asyncio.sleep(2 * wanted.poll_seconds)
        worker.gate.set()
        await asyncio.to_thread(breakable_kafka.start)
        await starting
        await until(lambda: len(store.rows) >= 8_000)
        await until(lambda: [len(each.consumer.assigned()) for each in (joining, worker)] == [2, 2])
        await joining.app.stop()

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
