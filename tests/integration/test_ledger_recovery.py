"""Ledger recovery: what was published once is never drawn again, whatever Redis has forgotten."""

import asyncio
from contextlib import AbstractContextManager

import pytest
from confluent_kafka import Consumer
from redis.asyncio import Redis

from hatcast.agents.recovery.outputs import OutputReader
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.ledger_store import CommitGuard, LedgerStore
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.stream.ledger.proposals import Proposal
from hatcast.stream.ledger.rejections import Unrecovered
from tests.integration.harness import Pipeline
from tests.integration.readings import open_stores, store_closed, traffic
from tests.integration.recovering import guard_of_all
from tests.integration.test_release import (
    DATE,
    OVER_MS,
    abort_in_a_round,
    assert_one_value_and_one_charge,
    finish,
    releasing,
    stored_records,
)
from tests.replayed import policy_of
from tests.services import RedisServer

pytestmark = pytest.mark.pipeline(topics=True)


async def test_releases_that_redis_forgot_keep_their_values_and_their_charges(
    pipeline: Pipeline, redis_server: RedisServer
) -> None:
    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
        await finish(pipeline, stores)
        before, day = await stored_records(pipeline, stores), await stores.ledger.summary(DATE)
        pipeline.forget()
        await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
        await finish(pipeline, stores)
        assert day.least_fineness is not None
        assert await stores.ledger.summary(DATE) == day
        after = await stored_records(pipeline, stores)
    assert before == after
    assert_one_value_and_one_charge(pipeline, after, 6)


def abort_forget_release(pipeline: Pipeline, redis_server: RedisServer) -> dict[bytes, bytes]:
    """All releases are sent and none is committed, then Redis forgets them; what it has at the end."""

    async def run() -> dict[bytes, bytes]:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
            async with releasing(pipeline, stores) as releaser:
                await abort_in_a_round(releaser)
            assert pipeline.published() == {}
            assert len(pipeline.published(committed=False)) == 6
            pipeline.forget()
            await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
            await finish(pipeline, stores)
            return await stored_records(pipeline, stores)

    return asyncio.run(run())


def test_bytes_of_an_aborted_transaction_are_taken_back_too(pipeline: Pipeline, redis_server: RedisServer) -> None:
    kept = abort_forget_release(pipeline, redis_server)
    assert_one_value_and_one_charge(pipeline, kept, 6)


def test_a_recovery_that_reads_committed_records_only_publishes_a_second_value(
    pipeline: Pipeline, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant of the test before: what that one checks depends on the isolation level alone."""
    product = OutputReader._consumer

    def consumer(self: OutputReader, isolation: str) -> AbstractContextManager[Consumer]:
        del isolation
        return product(self, "read_committed")

    monkeypatch.setattr(OutputReader, "_consumer", consumer)
    kept = abort_forget_release(pipeline, redis_server)
    with pytest.raises(AssertionError):
        assert_one_value_and_one_charge(pipeline, kept, 6)
    assert {len(set(values)) for values in pipeline.published(committed=False).values()} == {2}


def test_after_a_restart_of_redis_nothing_is_committed_before_the_ledger_is_recovered(
    breakable_redis: RedisServer,
) -> None:
    def proposal(hour: str) -> Proposal:
        parts = (b'{"seq":', b"}"), (b"{", b"}")
        return Proposal(f"p/2022-01-02T{hour}:00/c", DATE, f"c/{hour}:00", 10**9, *parts, release_partition=0)

    async def recover_restart_commit() -> None:
        domain = "t-recovery-restart"
        async with Redis.from_url(breakable_redis.url) as redis:
            guard = await guard_of_all(redis, domain, "p")
            assert (await RecoveryStore(redis, domain, "p").read_state()).token == guard.token
            ledger = LedgerStore(redis, domain, policy_of(name="p"))
            assert (await ledger.commit([proposal("09")], guard))[0].new
        breakable_redis.restart()
        async with Redis.from_url(breakable_redis.url) as redis:
            assert (await RecoveryStore(redis, domain, "p").read_state()).token == ""
            ledger = LedgerStore(redis, domain, policy_of(name="p"))
            for hour in ("09", "10"):  # one that is there, and one that is not
                sequences = {0: 1}
                with pytest.raises(Unrecovered):
                    await ledger.commit([proposal(hour)], CommitGuard(guard.token, sequences))
            assert (await ledger.summary(DATE)).releases == 1
            await redis.delete(*(await redis.keys(DomainKeys(domain).prefix + "*")))

    asyncio.run(recover_restart_commit())
