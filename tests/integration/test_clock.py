"""Workers whose clock is behind, on real Kafka and Redis: no record that the broker has taken is lost by that."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka import KafkaAdminClient, TopicPartition

from hatcast.agents.kafka.topics import ensure_topics
from tests.exposed import figures
from tests.integration.clocked_worker import HASTY, PRODUCT
from tests.integration.harness import Pipeline, WorkerProcess, open_pipeline
from tests.integration.health import LISTEN, is_ready, missing, scraped
from tests.integration.readings import Sample, ticks
from tests.integration.tables import merged
from tests.integration.test_ingest import assert_exact, committed_offsets, restore, snapshot
from tests.integration.test_topics import alter
from tests.services import KafkaServer, Record, RedisServer
from tests.services.faketime import FakeClock
from tests.services.kafka_server import PARTITIONS

MAX_AHEAD_S: Final = 120
BEHIND_S: Final = 3_600  # so that no test is slow enough for such a clock to allow what was sent
VEHICLES: Final = 60
EVER_MS: Final = 4_070_908_800_000  # 2099-01-01
# No worker ticks a partition, and nothing closes: the state is what was sent.
CHANGES: Final = merged(LISTEN, {"worker": {"idle_after": "1h"}, "policy": {"lateness": "48h"}})
pytestmark = pytest.mark.pipeline(CHANGES, topics=True)


def readings(arrival_ms: int) -> list[Record]:
    """One of each vehicle, and a heartbeat record of each partition."""
    return [*(Sample(f"GJ05SECRET{n:03}", arrival_ms, n % 5).record() for n in range(VEHICLES)), *ticks(arrival_ms)]


def send(pipeline: Pipeline, *ago_s: int) -> None:
    """Readings that arrived so many seconds ago."""
    now = int(time.time() * 1000)
    pipeline.kafka.produce(pipeline.name, [each for ago in ago_s for each in readings(now - ago * 1000)])


def start(pipeline: Pipeline, clock: FakeClock, command: Sequence[str] = PRODUCT) -> WorkerProcess:
    return pipeline.start("worker", command=command, env=clock.env)


def all_wait(worker: WorkerProcess) -> bool:
    """Whether every partition has met a record ahead, and all before it is stored."""
    return worker.logged().count("waits at offset") == PARTITIONS


def offsets(pipeline: Pipeline) -> dict[int, int]:
    return {each["partition"]: each["offset"] for each in pipeline.status()["partitions"]}


def first_ahead(pipeline: Pipeline, from_ms: int) -> dict[int, int]:
    """Partition -> the offset of its first record that arrived at `from_ms` or later."""
    found: dict[int, int] = {}
    for each in pipeline.kafka.read(pipeline.name):
        if each.timestamp_ms >= from_ms:
            found.setdefault(each.partition, each.offset)
    return found


def test_a_worker_whose_clock_is_behind_waits_says_why_and_loses_nothing_that_the_broker_took(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    clock = FakeClock(tmp_path, -BEHIND_S)
    began_ms = int(time.time() * 1000)
    send(pipeline, BEHIND_S, 0)  # of these, such a clock allows the first
    worker = start(pipeline, clock)
    pipeline.wait(lambda: all_wait(worker), "worker that waits for its clock", worker)

    # What the clock allows is folded, stored and committed, and nothing behind it.
    waiting_at = first_ahead(pipeline, began_ms)
    assert len(waiting_at) == PARTITIONS
    pipeline.wait(lambda: offsets(pipeline) == waiting_at, "checkpoint", worker)
    assert pipeline.outcomes() == {"accepted": VEHICLES}
    pipeline.wait(lambda: committed_offsets(pipeline) == waiting_at, "commit to Kafka", worker)

    # It says so: to whoever asks whether it is ready, in its metrics, and once a partition in its log.
    pipeline.wait(lambda: missing(worker).keys() == {"clock"}, "worker that is not ready", worker)
    reason = missing(worker)["clock"]
    assert reason.startswith(f"{pipeline.name} partition ")
    assert f"({PARTITIONS - 1} more of its partitions wait)" in reason
    page = scraped(worker)
    assert figures(page, "hatcast_ready")["clock",] == 0
    ahead_s = figures(page, "hatcast_ahead_seconds")
    assert len(ahead_s) == PARTITIONS
    assert all(MAX_AHEAD_S < each <= BEHIND_S for each in ahead_s.values())
    said = [json.loads(line) for line in worker.logged().splitlines() if "waits at offset" in line]
    assert len(said) == PARTITIONS
    assert all(line["level"] == "error" and "NTP" in line["event"] for line in said)

    # More comes meanwhile, and nothing of it is read. Then the clock is set.
    send(pipeline, 0)
    assert offsets(pipeline) == waiting_at
    clock.set(0)
    pipeline.wait(pipeline.is_caught_up, "rest of the log", worker)
    assert_exact(pipeline)
    assert sum(pipeline.outcomes().values()) == 3 * VEHICLES
    assert "arrived_in_future" not in pipeline.outcomes()
    pipeline.wait(lambda: is_ready(worker), "worker that is ready", worker)
    assert set(figures(scraped(worker), "hatcast_ahead_seconds").values()) == {0}
    assert worker.logged().count("waits at offset") == PARTITIONS
    assert worker.logged().count("no record is dated too far ahead any more") == PARTITIONS
    assert "SECRET" not in worker.logged() + page + reason
    assert worker.terminate() == 0


def test_a_worker_that_rejects_what_is_ahead_of_its_clock_is_told_apart(pipeline: Pipeline, tmp_path: Path) -> None:
    send(pipeline, BEHIND_S, 0)
    worker = start(pipeline, FakeClock(tmp_path, -BEHIND_S), HASTY)
    pipeline.wait(pipeline.is_caught_up, "log that is read to its end", worker)
    assert pipeline.outcomes() == {"accepted": VEHICLES, "arrived_in_future": VEHICLES + PARTITIONS}
    assert pipeline.contributions() != pipeline.oracle()


def test_a_redis_that_goes_back_and_is_emptied_while_partitions_wait_is_folded_again_exactly(
    pipeline: Pipeline, breakable_redis: RedisServer, tmp_path: Path
) -> None:
    clock = FakeClock(tmp_path, -BEHIND_S)
    began_ms = int(time.time() * 1000)
    send(pipeline, BEHIND_S + 10)
    worker = start(pipeline, clock)
    pipeline.wait(pipeline.is_caught_up, "first readings", worker)
    kept = snapshot(pipeline)
    send(pipeline, BEHIND_S, 0)
    pipeline.wait(lambda: all_wait(worker), "worker that waits for its clock", worker)
    waiting_at = first_ahead(pipeline, began_ms)
    pipeline.wait(lambda: offsets(pipeline) == waiting_at, "checkpoint", worker)
    restore(pipeline, kept)
    pipeline.wait(lambda: "stored offset went back" in worker.logged(), "look at Redis", worker)
    pipeline.wait(lambda: offsets(pipeline) == waiting_at, "readings folded again", worker)
    breakable_redis.flush()
    pipeline.wait(lambda: pipeline.folded() == 2 * VEHICLES, "all folded again", worker)
    assert offsets(pipeline) == waiting_at
    assert "clock" in missing(worker)
    clock.set(0)
    pipeline.wait(pipeline.is_caught_up, "rest of the log", worker)
    assert_exact(pipeline)
    assert pipeline.outcomes() == {"accepted": 3 * VEHICLES}


def test_partitions_that_wait_move_to_a_worker_whose_clock_is_right_and_back(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    clock = FakeClock(tmp_path, -BEHIND_S)
    began_ms = int(time.time() * 1000)
    send(pipeline, BEHIND_S, 0)
    late = start(pipeline, clock)
    pipeline.wait(lambda: all_wait(late), "worker that waits for its clock", late)
    waiting_at = first_ahead(pipeline, began_ms)
    right = pipeline.worker()
    pipeline.wait_for_partitions(right)
    # What it has got is folded; the rest waits on, and is told of once more by nobody.
    pipeline.wait(
        lambda: sum(offset > waiting_at[p] for p, offset in offsets(pipeline).items()) == PARTITIONS // 2,
        "half of the partitions",
        late,
        right,
    )
    pipeline.wait(lambda: is_ready(right), "worker that is ready", right)
    pipeline.wait(
        lambda: f"({PARTITIONS // 2 - 1} more of its partitions wait)" in missing(late).get("clock", ""),
        "half that wait",
        late,
    )
    assert late.logged().count("waits at offset") == PARTITIONS
    assert right.terminate() == 0
    send(pipeline, 0)
    pipeline.wait(
        lambda: f"({PARTITIONS - 1} more of its partitions wait)" in missing(late).get("clock", ""),
        "all that wait",
        late,
    )
    assert late.logged().count("waits at offset") == PARTITIONS + PARTITIONS // 2
    assert late.terminate() == 0  # a worker that waits stops as quickly as any other
    assert "loops did not finish" not in late.logged()
    follower = pipeline.worker()
    pipeline.wait(pipeline.is_caught_up, "rest of the log", follower)
    assert_exact(pipeline)
    assert pipeline.outcomes() == {"accepted": 3 * VEHICLES}


def test_one_record_of_2099_holds_one_partition_until_it_is_deleted_and_the_gap_accepted(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    changes = merged(CHANGES, {"policy": {"estimator": {"name": "pwh"}}})
    with open_pipeline(kafka, redis_server, tmp_path, "2099", changes) as pipeline:
        ensure_topics(pipeline.settings)
        reports = pipeline.settings.topics.reports
        send(pipeline, 10)
        produce_in_2099(pipeline, pipeline.name, Record(b"{}", b"GJ05SECRET", 3, EVER_MS))
        produce_in_2099(pipeline, reports, Record(b"", None, 2, EVER_MS))  # a heartbeat moves the clock as well
        send(pipeline, 0)
        place = first_ahead(pipeline, EVER_MS)

        worker = pipeline.worker()
        pipeline.wait(lambda: missing(worker).keys() == {"clock", "reports clock"}, "two waits", worker)
        assert f"{pipeline.name} partition 3 waits at offset {place[3]}: " in missing(worker)["clock"]
        assert f"{reports} partition 2 waits at offset 0: " in missing(worker)["reports clock"]
        pipeline.wait(lambda: folded_but(pipeline) == {(pipeline.name, 3), (reports, 2)}, "all other records", worker)
        page = scraped(worker)
        assert {part for (part,), ready in figures(page, "hatcast_ready").items() if not ready} == {
            "clock",
            "reports clock",
        }
        waiting = {where for (where,), ahead in figures(page, "hatcast_ahead_seconds").items() if ahead}
        assert waiting == {"3", "reports/2"}
        assert "SECRET" not in worker.logged()
        assert worker.terminate() == 0

        # What the line says to do.
        delete_before(pipeline, {(pipeline.name, 3): place[3] + 1, (reports, 2): 1})
        refused = pipeline.hatcast("worker")
        assert (refused.code, "--accept-gap" in refused.err) == (1, True)
        worker = pipeline.worker("--accept-gap")
        pipeline.wait(pipeline.is_caught_up, "all that is left", worker)
        assert "waits at offset" not in worker.logged()
        assert pipeline.outcomes() == {"accepted": 2 * VEHICLES}
        pipeline.wait(lambda: is_ready(worker), "worker that is ready", worker)


def produce_in_2099(pipeline: Pipeline, topic: str, record: Record) -> None:
    """Send it past the topic's limit, as to a broker before 3.6, which has none."""
    alter(pipeline.kafka, topic, message_timestamp_after_max_ms=str((1 << 63) - 1), retention_ms="-1")
    pipeline.wait(lambda: is_taken(pipeline.kafka, topic, record), "a broker that has read the topic's new limit")
    alter(pipeline.kafka, topic, message_timestamp_after_max_ms=str(MAX_AHEAD_S * 1000), retention_ms="-1")


def is_taken(kafka: KafkaServer, topic: str, record: Record) -> bool:
    """Whether the broker took the record; False where it holds it to be too far ahead still."""
    try:
        kafka.produce(topic, [record])
    except KafkaException as refused:
        if refused.args[0].code() != KafkaError.INVALID_TIMESTAMP:
            raise
        return False
    return True


def folded_but(pipeline: Pipeline) -> set[tuple[str, int]]:
    """The partitions (topic, number) that are not folded to their ends."""
    status = pipeline.status()
    of_topics = {pipeline.name: status, pipeline.settings.topics.reports: status["reports"]}
    return {
        (topic, each["partition"])
        for topic, found in of_topics.items()
        for each in found["partitions"]
        if (each["offset"] or 0) != each["end"]
    }


def delete_before(pipeline: Pipeline, offsets: Mapping[tuple[str, int], int]) -> None:
    """What kafka-delete-records.sh does."""
    with closing(KafkaAdminClient(bootstrap_servers=pipeline.kafka.bootstrap_servers)) as admin:
        admin.delete_records({TopicPartition(*place): offset for place, offset in offsets.items()})
