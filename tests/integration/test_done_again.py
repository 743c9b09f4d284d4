"""`retry succeeded` in a worker's log: for what it has done again, and not for what another worker did instead."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import structlog
from redis.exceptions import ConnectionError as RedisConnectionError

from hatcast.agents.kafka.batches.consumer import BatchConsumer
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.worker.ingest import Ingest
from tests.integration.harness import Pipeline, WorkerProcess
from tests.integration.readings import Sample, traffic
from tests.services.kafka_server import PARTITIONS

ALL = frozenset(range(PARTITIONS))


def fail_alone(*, boast: bool) -> None:
    """No checkpoint reaches Redis while this worker owns all partitions; `boast`: a mutant of FailureLog."""
    on_assigned, checkpoint = Ingest.on_assigned, PartitionStore.checkpoint
    consumers: list[BatchConsumer] = []

    def assigned(self: Ingest, partitions: frozenset[int]) -> None:
        consumers.append(self.consumer)
        on_assigned(self, partitions)

    async def failing(self: PartitionStore, *arguments: Any) -> bool:
        if consumers[0].assigned() == ALL or arguments[0] not in consumers[0].assigned():  # before and while some go
            structlog.get_logger().info("refused", partition=arguments[0])
            raise RedisConnectionError
        return await checkpoint(self, *arguments)

    Ingest.on_assigned, PartitionStore.checkpoint = assigned, failing  # type: ignore[method-assign,assignment]  # wrapped
    if boast:
        clear = FailureLog.clear

        def boasting(self: FailureLog) -> None:
            self._operations = dict.fromkeys(self._operations, True)
            clear(self)

        FailureLog.clear = boasting  # type: ignore[method-assign]


pytestmark = pytest.mark.pipeline(topics=True)


def lines(worker: WorkerProcess, event: str) -> list[Mapping[str, Any]]:
    found = (json.loads(line) for line in worker.logged().splitlines() if line.startswith("{"))
    return [line for line in found if line["event"] == event]


def partitions(worker: WorkerProcess, event: str) -> set[int]:
    """Of the checkpoints that a worker has logged so."""
    told = [line for line in lines(worker, event) if line["operation"] == "write a checkpoint"]
    return {partition for line in told for partition in line["partitions"]}


def share(pipeline: Pipeline, samples: list[Sample], *, boast: bool) -> tuple[WorkerProcess, set[int], set[int]]:
    """A worker fails all checkpoints until a second one takes some of its partitions; with the partitions of both."""
    pipeline.kafka.produce(pipeline.name, [each.record() for each in samples])
    first = pipeline.worker(wrap=partial(fail_alone, boast=boast))
    pipeline.wait(lambda: {line["partition"] for line in lines(first, "refused")} == ALL, "failed checkpoints", first)
    assert pipeline.folded() == 0
    second = pipeline.worker()
    pipeline.wait(pipeline.is_caught_up, "folded log", first, second)
    pipeline.wait(lambda: bool(partitions(first, "retry succeeded")), "end of the failures", first)
    theirs = {partition for line in lines(second, "partitions assigned") for partition in line["partitions"]}
    ours = set(ALL) - theirs
    assert ours
    assert theirs
    return first, ours, theirs


@pytest.mark.parametrize("kind", ["product", "mutant"])
def test_a_worker_whose_partitions_went_says_done_again_only_of_those_that_it_has_kept(
    kind: str, pipeline: Pipeline
) -> None:
    samples = traffic(hours=1, vehicles=100, places=1)
    assert {each.partition for each in samples} == ALL
    worker, ours, theirs = share(pipeline, samples, boast=kind == "mutant")
    assert pipeline.outcomes() == {"accepted": len(samples)}
    true = partitions(worker, "retry succeeded") == ours and partitions(worker, "retry not needed") == theirs
    assert true is (kind == "product")
