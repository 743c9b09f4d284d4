"""Telemetry in every compression that Kafka has; one that a worker cannot read ends it in one line."""

import pytest
from confluent_kafka import Producer

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.worker.topic_fold import TopicFold
from tests.integration.harness import Pipeline, WorkerProcess
from tests.integration.readings import HOUR_MS, NOON_MS, ticks, traffic
from tests.services.kafka_server import PARTITIONS

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
pytestmark = pytest.mark.pipeline(topics=True)


def produce(pipeline: Pipeline, codec: str, vehicles: int = 12) -> int:
    """Readings in batches of one compression; returns how many."""
    producer = Producer(
        {"bootstrap.servers": pipeline.kafka.bootstrap_servers, "compression.type": codec, "linger.ms": 200}
    )
    samples = [each.record() for each in traffic(1, vehicles, 1)]
    for hour, record in enumerate(samples * 3):
        at_ms = NOON_MS + hour * 1_000
        value = (record.value or b"").replace(str(record.timestamp_ms).encode(), str(at_ms).encode())
        producer.produce(pipeline.name, value, record.key, record.partition or 0, timestamp=at_ms)
    assert producer.flush(30) == 0
    return 3 * len(samples)


def test_records_of_every_compression_are_folded_and_so_are_those_that_the_topic_compresses_again(
    pipeline: Pipeline,
) -> None:
    worker = pipeline.worker()
    sent = sum(produce(pipeline, codec) for codec in CODECS)
    for codec in CODECS[1:]:
        pipeline.kafka.alter_topic(pipeline.name, {"compression.type": codec})
        assert ensure_topics(pipeline.settings) == PARTITIONS
        sent += produce(pipeline, "none")
    pipeline.kafka.produce(pipeline.name, ticks(NOON_MS + HOUR_MS + 600_000))
    pipeline.wait(pipeline.is_settled, "releases", worker)
    assert pipeline.folded() == sent
    assert "undecodable" not in pipeline.outcomes()


def without_codecs() -> None:
    """As where the wheel of cramjam could not be installed."""
    import aiokafka.codec

    aiokafka.codec.cramjam = None


def without_codecs_and_without_words() -> None:
    """A mutant: what ended the app is raised as it is."""
    without_codecs()
    TopicFold.crash = property(lambda self: self.app.crash_reason)  # type: ignore[assignment,method-assign]  # wrapped


def refused(pipeline: Pipeline, worker: WorkerProcess) -> str:
    """The last line of a worker that ends by itself."""
    assert worker.wait() == 1, worker.log_tail()
    assert pipeline.folded() == 0
    return worker.logged().splitlines()[-1]


def is_told(line: str) -> bool:
    return line.startswith("hatcast: topic ") and line.endswith(
        "holds records in a compression that this worker cannot read (it reads gzip): install the package cramjam"
        " beside hatcast, or let the producers use gzip in a new topic; nothing was skipped"
    )


def test_a_worker_that_meets_a_compression_that_it_cannot_read_says_so_in_one_line_and_skips_nothing(
    pipeline: Pipeline,
) -> None:
    sent = produce(pipeline, "zstd")
    assert is_told(refused(pipeline, pipeline.worker(wrap=without_codecs)))
    assert not is_told(refused(pipeline, pipeline.worker(wrap=without_codecs_and_without_words)))
    pipeline.bury()
    worker = pipeline.worker()
    pipeline.wait(pipeline.is_caught_up, "folded records", worker)
    assert pipeline.folded() == sent


def test_a_topic_that_compresses_so_that_a_worker_cannot_read_it_is_refused_at_the_start(pipeline: Pipeline) -> None:
    pipeline.kafka.alter_topic(pipeline.name, {"compression.type": "zstd"})
    line = refused_at_start(pipeline)
    assert line.startswith(
        f"hatcast: topic {pipeline.name}: compression.type is zstd, expected producer, uncompressed or"
    )
    assert line.endswith(f"--entity-name {pipeline.name} --add-config compression.type=producer")


def refused_at_start(pipeline: Pipeline) -> str:
    worker = pipeline.worker(wrap=without_codecs)
    assert worker.wait() == 1, worker.log_tail()
    (line,) = worker.logged().splitlines()
    return line
