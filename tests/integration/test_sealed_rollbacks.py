"""Sealed days on a Redis that goes back in time: to before a seal, in the middle of one, or to another copy."""

import asyncio
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pytest

from hatcast.agents.kafka.registry import Registry
from hatcast.agents.recovery.adopter import Adopter
from hatcast.agents.recovery.domain import Domain
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.recovery import SealStore
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.rejections import Behind
from hatcast.stream.units import DAY_MS
from tests.integration.harness import Pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, Stores, open_stores, store_closed, ticks
from tests.integration.recovering import sealer_of
from tests.integration.test_release import ALL, due_hats, releasing
from tests.integration.test_sealed_days import DAYS, day, fold, release, samples, sealing, summaries
from tests.integration.test_succession import a_day, following
from tests.services.kafka_server import PARTITIONS

Copy = dict[bytes, bytes]
pytestmark = pytest.mark.pipeline(topics=True)


def copy_of(pipeline: Pipeline) -> Copy:
    """The keys of this test, as a copy of Redis has them."""
    with closing(pipeline.redis_server.client()) as redis:
        patterns = (f"{{{pipeline.name}}}*", f"{{{pipeline.settings.policy.name}:*")
        keys = {key for pattern in patterns for key in redis.scan_iter(pattern, count=1000)}
        return {key: redis.dump(key) or b"" for key in keys}


async def copy_with_days_to_release(pipeline: Pipeline, stores: Stores, days: int) -> Copy:
    """A copy whose ledger is recovered, with the HATs of some days that nobody has released."""
    async with releasing(pipeline, stores) as releaser:
        await releaser.round(asyncio.Event())
    await fold(pipeline, stores, days)
    return copy_of(pipeline)


def go_back(pipeline: Pipeline, copy: Copy) -> None:
    """The living Redis holds that copy from now on."""
    pipeline.forget()
    with closing(pipeline.redis_server.client()) as redis, redis.pipeline(transaction=True) as at_once:
        for key, value in copy.items():
            at_once.restore(key, 0, value)
        at_once.execute()


def assert_one_value_each(pipeline: Pipeline, hats: int) -> None:
    published = pipeline.published(committed=False)
    assert len(published) == hats
    assert {name: len(set(values)) for name, values in published.items()} == dict.fromkeys(published, 1)


async def test_the_next_owner_finds_that_a_living_redis_lost_a_day_that_was_sealed(pipeline: Pipeline) -> None:
    """Nobody else misses a commit sequence, and nothing is left to read behind the seal's offsets."""
    async with open_stores(pipeline) as stores:
        copy = await copy_with_days_to_release(pipeline, stores, DAYS)
        await release(pipeline, stores)
        before = await summaries(stores)
        go_back(pipeline, copy)
        await release(pipeline, stores)
        after = await summaries(stores)
    assert_one_value_each(pipeline, 3 * DAYS)
    assert after == before


async def test_a_record_that_another_copy_of_redis_never_sent_is_not_sent_once_its_day_is_sealed(
    pipeline: Pipeline,
) -> None:
    async with open_stores(pipeline) as stores:
        await fold(pipeline, stores, 1)
        empty = copy_of(pipeline)
        async with releasing(pipeline, stores) as releaser:  # commits, and dies before it sends
            await releaser._producers.start_missing(ALL)
            assert await releaser._recovery.ensure(ALL)
            records = await releaser.hats_path.records(await due_hats(releaser))
            assert records
        committed = copy_of(pipeline)
        go_back(pipeline, empty)
        await release(pipeline, stores)  # all is drawn anew, sent and sealed
        go_back(pipeline, committed)
        with closing(pipeline.redis_server.client()) as redis:  # another life of the server
            redis.hset(DomainKeys(pipeline.name).row(rows.RECOVERY), "run_id", "another")
        await release(pipeline, stores)
    assert_one_value_each(pipeline, 3)


async def test_a_seal_counts_only_if_redis_did_not_go_back_while_its_summary_was_made(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stores(pipeline) as stores:
        copy = await copy_with_days_to_release(pipeline, stores, 1)
        async with releasing(pipeline, stores) as releaser:
            await releaser.round(asyncio.Event())
            before = await summaries(stores, 1)
            sealer = sealer_of(releaser._context, stores.redis)
            product = SealStore.seal

            async def seal(self: SealStore, *arguments: Any) -> bool:
                go_back(pipeline, copy)
                return await product(self, *arguments)

            with monkeypatch.context() as patch:
                patch.setattr(SealStore, "seal", seal)
                await sealer.seal(ALL, releaser.is_done)
        await release(pipeline, stores)
        pipeline.forget()
        await fold(pipeline, stores, 1)
        await release(pipeline, stores)
        after = await summaries(stores, 1)
    assert_one_value_each(pipeline, 3)
    assert after == before


async def test_what_the_budget_topic_tells_of_an_open_day_is_read_again_after_another_day_was_sealed(
    pipeline: Pipeline,
) -> None:
    async with open_stores(pipeline) as stores:
        policy = pipeline.settings.policy
        many = [*samples(1), *(s for h in range(3) for s in hours(h))]
        await store_closed(stores, policy, many, NOON_MS + DAY_MS + 4 * HOUR_MS)
        async with sealing(pipeline, stores) as releaser:
            await releaser.round(asyncio.Event())
        before = await stores.ledger.summary(day(1))
        pipeline.forget()
        await store_closed(stores, policy, many, NOON_MS + DAY_MS + 4 * HOUR_MS)
        async with releasing(pipeline, stores) as releaser:
            await releaser._producers.start_missing(ALL)
            assert await releaser._recovery.ensure(ALL)
        after = await stores.ledger.summary(day(1))
    assert before.limit is not None
    assert after == before


def hours(number: int) -> list[Sample]:
    return [replace(each, time_ms=each.time_ms + DAY_MS + number * HOUR_MS) for each in samples(1)]


def test_who_follows_whom_outlives_a_redis_that_was_lost_when_all_days_were_sealed(pipeline: Pipeline) -> None:
    new = following(pipeline)
    telemetry = pipeline.settings.topics.telemetry
    old_worker = pipeline.worker()
    pipeline.wait_for_partitions(old_worker)
    pipeline.kafka.produce(telemetry, a_day(0, 0, 1))
    pipeline.wait(pipeline.is_caught_up, "first hour", old_worker)
    worker = new.worker()
    new.wait_for_partitions(worker)
    pipeline.kafka.produce(telemetry, [*a_day(1, 0, 1), *ticks(NOON_MS + 2 * DAY_MS)])
    assert old_worker.wait() == 0
    facts = asyncio.run(Registry(pipeline.settings).read())
    domain = Domain.of(facts, new.settings, PARTITIONS)
    assert domain.ended == {pipeline.settings.policy.name}, "it has sealed its last day before it went"
    pipeline.wait(lambda: "days sealed" in worker.logged(), "sealed days", worker)
    assert worker.terminate() == 0
    pipeline.forget()
    pipeline.redis_server.delete(f"{{{new.settings.policy.name}:*")
    again = new.worker()
    new.wait_for_partitions(again)
    pipeline.wait(new.is_settled, "nothing new", again)
    with closing(pipeline.redis_server.client()) as redis:
        kept = redis.hgetall(DomainKeys(pipeline.name).row(rows.NEXT_POLICIES))
    assert list(kept) == [pipeline.settings.policy.name.encode()]


async def test_a_redis_that_goes_back_right_after_a_catch_up_is_noticed_by_the_one_owner(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_stores(pipeline) as stores:
        copy = await copy_with_days_to_release(pipeline, stores, 1)
        async with releasing(pipeline, stores) as releaser:
            await releaser.round(asyncio.Event())
        product, went = Adopter.adopt, list[bool]()

        async def adopt(self: Adopter, *arguments: Any) -> int:
            missing = await product(self, *arguments)
            if not went:
                go_back(pipeline, copy)
                went.append(True)
            return missing

        with monkeypatch.context() as patch:
            patch.setattr(Adopter, "adopt", adopt)
            async with releasing(pipeline, stores) as releaser:
                for _ in range(3):
                    with suppress(Behind):  # as the release loop does
                        await releaser.round(asyncio.Event())
    assert_one_value_each(pipeline, 3)
