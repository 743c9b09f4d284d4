"""A group that was formed while the broker did not know its topics yet."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from agents.topics import ensure_topics
from tests.integration.harness import open_pipeline
from tests.integration.readings import traffic
from tests.services import KafkaServer, RedisServer

SECONDS = 120.0  # aiokafka by itself would take five minutes


def go_blind_once() -> None:
    """In a worker: the first time that it leads the group, it has heard of no partitions."""
    assign = RoundRobinPartitionAssignor.assign
    seen: list[None] = []

    def blind(cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        if not seen:
            seen.append(None)
            cluster._partitions.clear()
        assigned: dict[str, Any] = assign(cluster, members)
        return assigned

    RoundRobinPartitionAssignor.assign = staticmethod(blind)


@pytest.mark.timeout(200)
def test_a_worker_that_led_its_group_before_the_broker_knew_the_topic_gets_partitions_soon(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "blind") as pipeline:
        ensure_topics(pipeline.settings)
        kafka.produce(pipeline.settings.topics.telemetry, [sample.record() for sample in traffic()])
        worker = pipeline.worker(wrap=go_blind_once)
        pipeline.wait(pipeline.is_caught_up, "the whole log", worker, seconds=SECONDS)
        assert "No partition metadata" in worker.logged()
        assert pipeline.folded() == len(traffic())
