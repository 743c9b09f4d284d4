"""Workers that join, leave, hang or lose their Kafka: only what moves is given up, and every record is read once."""

import asyncio
import json
import time
from collections.abc import Collection
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, Message
from structlog.testing import capture_logs

from hatcast.agents.kafka.batches import group
from hatcast.agents.kafka.batches.batch import RecordBatch
from tests.integration.record_batch_worker import (
    SESSION,
    Store,
    Worker,
    assert_chained,
    committed,
    delete_records,
    in_the_log,
    in_the_queue,
    numbered,
    running,
    settings,
    until,
)
from tests.services import KafkaServer
from tests.services.fixtures import MakeTopic


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
