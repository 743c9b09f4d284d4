"""The proof of Redis: what was published once is never drawn again, whatever Redis has forgotten."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from agents.store.errors import Unproven
from agents.store.keys import DomainKeys
from agents.store.ledger import LedgerStore, Proposal
from agents.store.proof import ProofStore
from agents.topics import ensure_topics
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import open_stores, store_closed, traffic
from tests.integration.test_release import (
    ALL,
    DATE,
    OVER_MS,
    assert_one_value_and_one_charge,
    finish,
    releasing,
    stored_records,
)
from tests.replayed import policy_of
from tests.services import KafkaServer, RedisServer


@pytest.fixture
def pipeline(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pipeline]:
    with open_pipeline(kafka, redis_server, tmp_path, "proof") as opened:
        ensure_topics(opened.settings)
        yield opened


def forget(pipeline: Pipeline, redis_server: RedisServer) -> None:
    """What FLUSHALL does, to the keys of this test."""
    redis_server.delete(f"{{{pipeline.name}}}*")
    redis_server.delete(f"{{{pipeline.settings.policy.name}:*")


def test_releases_that_redis_forgot_keep_their_values_and_their_charges(
    pipeline: Pipeline, redis_server: RedisServer
) -> None:
    async def release_forget_release() -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
            await finish(pipeline, stores)
            before, day = await stored_records(pipeline, stores), await stores.ledger.summary(DATE)
            forget(pipeline, redis_server)
            await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
            await finish(pipeline, stores)
            assert day.least_fineness is not None
            assert await stores.ledger.summary(DATE) == day
            return before, await stored_records(pipeline, stores)

    before, after = asyncio.run(release_forget_release())
    assert before == after
    assert_one_value_and_one_charge(pipeline, after, 6)


def test_bytes_of_an_aborted_transaction_are_taken_back_too(pipeline: Pipeline, redis_server: RedisServer) -> None:
    async def abort_forget_release() -> dict[bytes, bytes]:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
            async with releasing(pipeline, stores) as releaser:
                await releaser._publishers.hold(ALL)
                producers = dict(releaser._publishers._producers)
                for producer in producers.values():
                    producer.commit_transaction = producer.abort_transaction
                await releaser.round(asyncio.Event())
            forget(pipeline, redis_server)
            await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
            await finish(pipeline, stores)
            return await stored_records(pipeline, stores)

    kept = asyncio.run(abort_forget_release())
    assert_one_value_and_one_charge(pipeline, kept, 6)


def test_after_a_restart_of_redis_nothing_is_committed_before_it_is_proven_again(breakable_redis: RedisServer) -> None:
    async def prove_restart_commit() -> None:
        domain = "t-proof-restart"
        async with Redis.from_url(breakable_redis.url) as redis:
            proof = ProofStore(redis, domain)
            attempt = await proof.begin()
            assert await proof.prove(attempt)
            token = attempt.token
            assert await proof.token() == token
            ledger = LedgerStore(redis, domain, policy_of(name="p"))
            proposal = Proposal("p/2022-01-02T09:00/c", DATE, "c/09:00", 10**9, (b'{"seq":', b"}"), (b"{", b"}"))
            assert (await ledger.commit([proposal], token))[0].new
        breakable_redis.restart()
        async with Redis.from_url(breakable_redis.url) as redis:
            assert await ProofStore(redis, domain).token() is None
            with pytest.raises(Unproven):
                await LedgerStore(redis, domain, policy_of(name="p")).commit([proposal], token)
            await redis.delete(*(await redis.keys(DomainKeys(domain).prefix + "*")))

    asyncio.run(prove_restart_commit())
