"""A live system whose devices are silent, or worse: topic `reports` is ticked, and holds nothing up."""

import time
from pathlib import Path

from tests.integration.harness import open_pipeline
from tests.integration.readings import Sample, ticks
from tests.services import KafkaServer, Record, RedisServer
from tests.services.kafka_server import PARTITIONS

CHANGES = {"policy": {"lateness": "1s", "slot_length": "1m", "estimator": {"name": "pwh"}}}


def test_without_any_report_hours_close_and_no_record_of_long_ago_holds_them_open(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "silent", CHANGES) as pipeline:
        topics, worker = pipeline.settings.topics, pipeline.worker()
        pipeline.wait_for_partitions(worker)
        now = int(time.time() * 1000)
        ago = now - 90_000  # its minute is over
        kafka.produce(topics.telemetry, [Sample(f"v{n}", ago).record() for n in range(12)])
        kafka.produce(topics.telemetry, ticks(now))

        def released() -> bool:
            """A device that anybody may run sends more often than `idle_after`, dated before all that counts."""
            kafka.produce(topics.reports, [Record(b"", None, 3, ago)])
            return pipeline.is_settled() and bool(pipeline.published())

        pipeline.wait(released, "release", worker)
        ticked = {each.partition for each in kafka.read(topics.reports) if each.timestamp_ms > now}
        assert ticked == set(range(PARTITIONS))
