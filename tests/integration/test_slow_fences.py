"""A recovery ends although fencing takes longer than others wait for it, however many workers there are."""

import asyncio

import pytest
from redis.asyncio import Redis

from hatcast.agents.kafka.client import aiokafka_options
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.recovery import ledger_recovery
from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.keys import DomainKeys
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.recovery import Attempt
from tests.integration.harness import Pipeline
from tests.integration.recovering import recovery_of
from tests.services import RedisServer

WAIT_S = 0.5
PAUSE_S = 0.1  # between the rounds of a worker
WORKERS = 4


class SlowFence(LedgerRecovery):
    """Whose brokers take six times as long to fence as another worker waits at first."""

    async def _fence(self, attempt: Attempt, domain: Domain) -> bool:
        await asyncio.sleep(6 * WAIT_S)
        return await super()._fence(attempt, domain)


pytestmark = pytest.mark.pipeline(topics=True)


async def test_workers_that_fence_slowly_do_not_replace_each_other_for_ever(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_recovery, "_FENCE_TIMEOUT_S", WAIT_S)

    async def recover(recovery: LedgerRecovery) -> None:
        while not await recovery.ensure():
            await asyncio.sleep(PAUSE_S)

    redis = Redis.from_url(pipeline.settings.redis.url)
    client = aiokafka_options(pipeline.settings)
    producers = [
        TransactionalProducers(pipeline.settings.topics.telemetry, pipeline.settings.policy.name, client)
        for _ in range(WORKERS)
    ]
    try:
        async with asyncio.timeout(60):
            await asyncio.gather(*(recover(recovery_of(pipeline, redis, each, SlowFence)) for each in producers))
    finally:
        await asyncio.gather(*(each.stop() for each in producers))
        await redis.aclose()


def test_a_worker_that_only_waits_for_others_recoveries_waits_no_longer_for_the_next(
    pipeline: Pipeline, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_recovery, "_FENCE_TIMEOUT_S", 60.0)

    async def wait_for_others() -> float:
        redis = Redis.from_url(pipeline.settings.redis.url)
        telemetry, client = pipeline.settings.topics.telemetry, aiokafka_options(pipeline.settings)
        producers = [TransactionalProducers(telemetry, pipeline.settings.policy.name, client) for _ in range(2)]
        other, ours = (recovery_of(pipeline, redis, each, SlowFence) for each in producers)
        try:
            for _ in range(3):
                await redis.delete(DomainKeys(telemetry).row(rows.RECOVERY))
                recovers = asyncio.create_task(other.ensure())
                while not (await ours._store.read_state()).attempt:
                    await asyncio.sleep(PAUSE_S)
                assert not await ours.ensure()  # waits for the other
                assert await recovers
                assert await ours.ensure()
            return ours._patience_s
        finally:
            await asyncio.gather(*(each.stop() for each in producers))
            await redis.aclose()

    assert asyncio.run(wait_for_others()) == 60.0
