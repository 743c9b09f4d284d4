"""Workers on real Kafka and Redis, whatever happens to either: the state is that of the log, and of nothing else."""

import json
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, PLACES, Sample, ticks, traffic
from tests.integration.slow_worker import slow_down
from tests.services import KafkaServer, Record, RedisServer
from tests.services.kafka_server import PARTITIONS

OPEN = {"policy": {"lateness": "48h"}}
# Nothing closes: its contributions are all that was ever folded.
pytestmark = pytest.mark.pipeline(OPEN)


def hours(first: int, count: int = 1, vehicles: int = 40) -> list[Record]:
    """Some hours of traffic, from the hour `first` after noon on."""
    samples = traffic(count, vehicles, places=len(PLACES))
    return [Sample(s.vehicle, s.time_ms + first * HOUR_MS, s.place, s.speed).record() for s in samples]


def send(pipeline: Pipeline, records: Iterable[Record]) -> None:
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, records)


def assert_exact(pipeline: Pipeline) -> None:
    """The stored state is that of the log: HATs, and outcomes with every tick."""
    assert pipeline.contributions() == pipeline.oracle()


def snapshot(pipeline: Pipeline) -> dict[bytes, bytes]:
    """Every key of the pipeline's partitions, as Redis would load it after a failover."""
    with closing(pipeline.redis_server.client()) as redis:
        return {key: redis.dump(key) or b"" for key in redis.scan_iter(f"{{{pipeline.name}:*", count=1000)}


def restore(pipeline: Pipeline, kept: dict[bytes, bytes]) -> None:
    with closing(pipeline.redis_server.client()) as redis, redis.pipeline(transaction=True) as pipe:
        for key in redis.scan_iter(f"{{{pipeline.name}:*", count=1000):
            pipe.delete(key)
        for key, value in kept.items():
            pipe.restore(key, 0, value, replace=True)  # the worker may have made it again
        pipe.execute()


def test_a_redis_that_goes_back_in_time_or_is_emptied_is_folded_again_exactly(
    pipeline: Pipeline, breakable_redis: RedisServer
) -> None:
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    send(pipeline, hours(0))
    pipeline.wait(pipeline.is_caught_up, "first hour", worker)
    kept = snapshot(pipeline)
    send(pipeline, hours(1))
    pipeline.wait(pipeline.is_caught_up, "second hour", worker)
    restore(pipeline, kept)
    send(pipeline, hours(2))
    pipeline.wait(lambda: pipeline.is_caught_up() and pipeline.folded() == 600, "third hour", worker)
    # Whichever comes first: the look at the stored offsets, or the checkpoint of the third hour.
    assert any(noticed in worker.logged() for noticed in ("stored offset went back", "checkpoint rejected"))
    breakable_redis.flush()  # no start offset, no policy and no user key any more
    send(pipeline, hours(3))
    pipeline.wait(lambda: pipeline.is_caught_up() and pipeline.folded() == 800, "fourth hour", worker)
    assert_exact(pipeline)
    # What a first start keeps is kept again: a worker that joins now counts the same users as the same.
    assert worker.terminate() == 0
    follower = pipeline.worker()
    send(pipeline, hours(0))
    pipeline.wait(lambda: pipeline.is_caught_up() and pipeline.folded() == 1000, "records sent twice", follower)
    assert pipeline.outcomes() == {"accepted": 800, "duplicate": 200}
    assert_exact(pipeline)


def test_sigterm_in_the_middle_of_a_stream_loses_nothing_and_leaves_the_group(pipeline: Pipeline) -> None:
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    send(pipeline, hours(0, 4))
    pipeline.wait(lambda: pipeline.folded() > 0, "first checkpoint", worker)
    send(pipeline, hours(4, 4))
    assert worker.terminate() == 0
    assert "loops did not finish" not in worker.logged()
    assert pipeline.members() == []
    # The last checkpoint was written: what Kafka knows is acknowledged is stored, not more and not less.
    stored = {each["partition"]: each["offset"] for each in pipeline.status()["partitions"]}
    assert committed_offsets(pipeline) == {p: offset for p, offset in stored.items() if offset}
    send(pipeline, hours(8))
    follower = pipeline.worker()
    pipeline.wait(pipeline.is_caught_up, "the rest", follower)
    assert pipeline.folded() == 9 * 200
    assert_exact(pipeline)


def committed_offsets(pipeline: Pipeline) -> dict[int, int]:
    from kafka import KafkaAdminClient

    group = f"hatcast-{pipeline.settings.policy.name}"
    with closing(KafkaAdminClient(bootstrap_servers=pipeline.kafka.bootstrap_servers)) as admin:
        offsets = admin.list_group_offsets(group)
    return {tp.partition: found.offset for tp, found in offsets.get(group, offsets).items() if found.offset > 0}


def test_a_worker_that_stands_still_loses_its_partitions_and_writes_nothing_more(pipeline: Pipeline) -> None:
    one, other = pipeline.worker(), pipeline.worker()
    for worker in (one, other):
        pipeline.wait_for_partitions(worker)
    send(pipeline, hours(0))
    pipeline.wait(pipeline.is_caught_up, "first hour", one, other)
    one.pause()
    # The other one is idle when the group finds out, and what waits for it was sent before.
    send(pipeline, hours(1))
    pipeline.wait(pipeline.is_caught_up, "second hour", one, other)
    one.resume()
    send(pipeline, hours(2))
    pipeline.wait(pipeline.is_caught_up, "third hour", one, other)
    assert pipeline.folded() == 600
    assert_exact(pipeline)


def test_what_is_fetched_across_a_rebalance_is_folded(pipeline: Pipeline) -> None:
    # Faust's stream drops a message of an older generation of the group: the last frames before a silence were lost.
    one, other = pipeline.worker(wrap=slow_down), pipeline.worker(wrap=slow_down)
    for worker in (one, other):
        pipeline.wait_for_partitions(worker)
    send(pipeline, hours(0))
    pipeline.wait(pipeline.is_caught_up, "first hour", one, other)
    one.kill()
    send(pipeline, hours(1))
    pipeline.wait(pipeline.is_caught_up, "second hour", other, seconds=30)
    assert pipeline.folded() == 400


def test_an_idle_partition_of_a_live_topic_is_ticked_and_its_hour_closes(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    changes = {"policy": {"lateness": "1s", "slot_length": "1m"}}
    with open_pipeline(kafka, redis_server, tmp_path, "ticks", changes) as pipeline:
        worker = pipeline.worker()
        pipeline.wait_for_partitions(worker)
        ago = int(time.time() * 1000) - 90_000  # its minute is over by the wall, not by any record
        send(pipeline, [Sample(f"v{n}", ago, n % 3).record() for n in range(12)])
        send(pipeline, ticks(ago))  # a partition without a clock would keep the minute open
        pipeline.wait(lambda: pipeline.folded() == 12 and pipeline.is_settled(), "releases", worker)
        assert len(pipeline.published()) == 3
        sent = [each for each in kafka.read(pipeline.settings.topics.telemetry) if not each.value]
        assert {each.partition for each in sent if each.timestamp_ms > ago + 1_000} == set(range(PARTITIONS))


def test_an_old_recording_is_not_closed_by_the_clock_on_the_wall(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "old", {"worker": {"idle_after": "100ms"}}) as pipeline:
        worker = pipeline.worker()
        pipeline.wait_for_partitions(worker)
        send(pipeline, [*hours(0), *ticks(NOON_MS + HOUR_MS // 2)])
        pipeline.wait(pipeline.is_caught_up, "the recording", worker)
        time.sleep(2.5)  # two looks of the ticker
        assert pipeline.is_caught_up()
        assert len(kafka.read(pipeline.settings.topics.telemetry)) == 200 + PARTITIONS
        assert pipeline.status()["open_hats"] == len(PLACES)


def test_records_that_nobody_can_read_are_dead_letters_without_payload_and_hold_up_nothing(
    pipeline: Pipeline, kafka: KafkaServer
) -> None:
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    send(pipeline, [*hours(0), Record(b"GJ05SECRET {", b"GJ05SECRET", 3, NOON_MS), *hours(1)])
    pipeline.wait(lambda: pipeline.is_caught_up() and pipeline.folded() == 401, "all records", worker)
    topic = pipeline.settings.topics.dead_letters
    pipeline.wait(lambda: len(kafka.read(topic)) == 1, "a dead letter", worker)
    (letter,) = kafka.read(topic)
    record = json.loads(letter.value or b"")
    offset = next(each.offset for each in kafka.read(pipeline.settings.topics.telemetry) if each.key == b"GJ05SECRET")
    assert record == {"topic": pipeline.name, "partition": 3, "offset": offset, "reason": "undecodable"}
    assert letter.key is None
    assert b"SECRET" not in (letter.value or b"") + worker.logged().encode()
