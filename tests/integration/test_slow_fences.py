"""A recovery ends although fencing takes longer than others wait for it, however many workers there are."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from hatcast.agents.kafka.client import aiokafka_options
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.recovery import Domain, LedgerRecovery, ledger
from hatcast.agents.redis.attempts import Attempt
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.recovering import recovery_of
from tests.services import KafkaServer, RedisServer

WAIT_S = 0.5
PAUSE_S = 0.1  # between the rounds of a worker
WORKERS = 4


class SlowFence(LedgerRecovery):
    """Whose brokers take three times as long to fence as another worker waits at first."""

    async def _fence(self, attempt: Attempt, domain: Domain) -> bool:
        await asyncio.sleep(3 * WAIT_S)
        return await super()._fence(attempt, domain)


@pytest.fixture
def pipeline(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pipeline]:
    with open_pipeline(kafka, redis_server, tmp_path, "fences") as opened:
        ensure_topics(opened.settings)
        yield opened


def test_workers_that_fence_slowly_do_not_replace_each_other_for_ever(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_FENCE_TIMEOUT_S", WAIT_S)

    async def recover(recovery: LedgerRecovery) -> None:
        while not await recovery.ensure():
            await asyncio.sleep(PAUSE_S)

    async def recover_together() -> None:
        redis = Redis.from_url(pipeline.settings.redis.url)
        client = aiokafka_options(pipeline.settings)
        publishers = [
            TransactionalProducers(pipeline.settings.topics.telemetry, pipeline.settings.policy.name, client)
            for _ in range(WORKERS)
        ]
        try:
            async with asyncio.timeout(60):
                await asyncio.gather(*(recover(recovery_of(pipeline, redis, each, SlowFence)) for each in publishers))
        finally:
            await asyncio.gather(*(each.stop() for each in publishers))
            await redis.aclose()

    asyncio.run(recover_together())
