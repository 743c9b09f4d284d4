"""The transactional producers against real Kafka."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError

from hatcast.agents.kafka.client import aiokafka_options
from hatcast.agents.kafka.producers import Message, ProducerGone, TransactionalProducers
from hatcast.agents.kafka.topics import ensure_topics
from tests.integration.harness import Pipeline, open_pipeline
from tests.services import KafkaServer, RedisServer


@pytest.fixture
def pipeline(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pipeline]:
    with open_pipeline(kafka, redis_server, tmp_path, "publisher") as opened:
        ensure_topics(opened.settings)
        yield opened


def test_a_publisher_that_was_fenced_fails_once_publishes_nothing_and_leaves_no_failure_unread(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    async def fence() -> None:
        client = aiokafka_options(pipeline.settings)
        one, other = (
            TransactionalProducers(pipeline.name, "p", client),
            TransactionalProducers(pipeline.name, "p", client),
        )
        message = Message(pipeline.settings.topics.means, 0, b"key", b"value")
        try:
            await one.start_missing(frozenset([0]))
            await other.start_missing(frozenset([0]))
            with pytest.raises((ProducerGone, KafkaError)):
                await one.publish(0, [message, message])
        finally:
            await one.stop()
            await other.stop()
        gc.collect()  # asyncio complains of a failure that nobody has read once it is collected

    asyncio.run(fence())
    assert [record for record in caplog.records if record.name == "asyncio"] == []
    assert pipeline.published(committed=False) == {}
