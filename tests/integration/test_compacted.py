"""Telemetry that compaction has thinned out: refused, and where that is accepted, never passed off as complete.

The broker of the other tests compacts nothing, so these have one of their own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from hatcast.agents.kafka.topics import ensure_topics
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, traffic
from tests.integration.test_gap import SMALL, day, send, statuses
from tests.services import KafkaServer, Record, RedisServer
from tests.services.kafka_server import PARTITIONS, local_kafka

CLEANER = {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "200"}
COMPACTING = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}


@pytest.fixture(scope="module")
def compacting_kafka() -> Iterator[KafkaServer]:
    with local_kafka("256m", CLEANER) as server:
        yield server


@pytest.fixture
def pipeline(compacting_kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pipeline]:
    with open_pipeline(compacting_kafka, redis_server, tmp_path, "compacted", SMALL) as opened:
        ensure_topics(opened.settings)
        yield opened


def compact(pipeline: Pipeline) -> None:
    """Somebody's mistake, noticed later: the topic is compacted for a while."""
    before = len(pipeline.kafka.read(pipeline.name))
    pipeline.kafka.alter_topic(pipeline.name, COMPACTING)
    send(pipeline, [Record(b"{}", b"any", partition, NOON_MS + 4 * HOUR_MS) for partition in range(PARTITIONS)])
    pipeline.wait(lambda: len(pipeline.kafka.read(pipeline.name)) < before * 0.6, "compaction", seconds=60)
    pipeline.kafka.alter_topic(pipeline.name, {"cleanup.policy": "delete"})
    pipeline.wait(lambda: takes_records_without_key(pipeline), "a topic that is not compacted any more")


def takes_records_without_key(pipeline: Pipeline) -> bool:
    """Return False while a partition is compacted: the broker answers a change of the topic before it applies it."""
    try:
        send(pipeline, [Record(b"{}", None, partition, NOON_MS + 4 * HOUR_MS) for partition in range(PARTITIONS)])
    except KafkaException:
        return False
    return True


def test_records_compacted_before_they_were_folded_stop_a_worker_unless_the_gap_is_accepted(pipeline: Pipeline) -> None:
    send(pipeline, day(0)[:20])  # nothing of it closes
    worker = pipeline.worker()
    pipeline.wait(pipeline.is_caught_up, "a folded log", worker)
    assert worker.terminate() == 0
    send(pipeline, day(0)[20:])
    compact(pipeline)
    send(pipeline, day(1))

    refused = pipeline.hatcast("worker")
    assert refused.code == 1
    assert "compaction removed records" in refused.err
    assert "--accept-gap" in refused.err
    assert "Traceback" not in refused.err
    assert statuses(pipeline) == {}

    worker = pipeline.worker("--accept-gap")
    pipeline.wait(lambda: "2022-01-03" in statuses(pipeline), "the next day's releases", worker)
    pipeline.wait(pipeline.is_settled, "all released", worker)
    assert statuses(pipeline) == {"2022-01-02": {"incomplete"}, "2022-01-03": {"released"}}


def test_a_worker_that_runs_meets_what_was_compacted_while_it_was_paused(pipeline: Pipeline) -> None:
    send(pipeline, day(0)[:20])
    worker = pipeline.worker("--accept-gap")
    pipeline.wait(pipeline.is_caught_up, "a folded log", worker)
    worker.pause()
    send(pipeline, day(0)[20:])
    compact(pipeline)
    send(pipeline, day(1))
    worker.resume()
    pipeline.wait(lambda: "2022-01-03" in statuses(pipeline), "the next day's releases", worker)
    assert statuses(pipeline) == {"2022-01-02": {"incomplete"}, "2022-01-03": {"released"}}
    assert "records were compacted away" in worker.logged()


def test_aborted_transactions_are_no_gap(pipeline: Pipeline) -> None:
    """Whatever a transactional producer of telemetry leaves in the log: markers, and records that do not count."""
    producer = Producer({"bootstrap.servers": pipeline.kafka.bootstrap_servers, "transactional.id": pipeline.name})
    producer.init_transactions(30)
    records = day(0)
    for number, first in enumerate(range(0, len(records), 5)):
        for commits in (number % 2 == 0, True):
            producer.begin_transaction()
            for record in records[first : first + 5]:
                time_ms = record.timestamp_ms or 0
                producer.produce(pipeline.name, record.value, record.key, record.partition or 0, timestamp=time_ms)
            producer.flush(30)
            if commits:
                producer.commit_transaction(30)
                break
            producer.abort_transaction(30)
    worker = pipeline.worker()
    pipeline.wait(pipeline.is_settled, "releases", worker)
    assert statuses(pipeline) == {"2022-01-02": {"released"}}
    assert pipeline.folded() == len(traffic())
