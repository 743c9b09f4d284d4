"""What a worker has seen of Kafka is not what is there any more: it looks again, and goes on."""

from collections.abc import Iterable
from pathlib import Path

from hatcast.agents.kafka.batches.consumer import BatchConsumer
from hatcast.agents.kafka.topics import ensure_topics
from tests.integration.harness import open_pipeline
from tests.integration.readings import traffic
from tests.services import KafkaServer, RedisServer

AT_THE_BEGINNING = (0, 0)


def stand_still_after_the_look() -> None:
    """In a worker: it looks at the ends of the log, and stands still until others have folded what came since."""
    log_range = BatchConsumer.log_range
    seen: set[int] = set()

    async def stale(self: BatchConsumer, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        now = await log_range(self, partitions)
        before = {p: AT_THE_BEGINNING for p in now if p not in seen}
        seen.update(now)
        return {**now, **before}

    BatchConsumer.log_range = stale  # type: ignore[method-assign]  # the product has no switch for it


def test_a_worker_that_stood_still_while_the_log_was_folded_on_takes_it_for_no_other_topic(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "stale") as pipeline:
        ensure_topics(pipeline.settings)
        topic = pipeline.settings.topics.telemetry
        kafka.produce(topic, [sample.record() for sample in traffic(1)])
        first = pipeline.worker()
        pipeline.wait(pipeline.is_caught_up, "the first hour", first)
        assert first.terminate() == 0
        second = pipeline.worker(wrap=stand_still_after_the_look)
        kafka.produce(topic, [sample.record() for sample in traffic()])
        pipeline.wait(lambda: pipeline.is_caught_up() and pipeline.folded() == 108, "the rest", second)
        assert pipeline.outcomes() == {"accepted": 72, "duplicate": 36}
