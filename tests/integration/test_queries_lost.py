"""Queries over days where something is lost, or not done by one worker: against real Kafka and Redis."""

import asyncio
from pathlib import Path

import pytest

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.release.queries import query_periods_of
from hatcast.stream.units import NANO
from tests.integration.answering import ANSWERS, answering, answers, assert_true, kept_keys
from tests.integration.days import DATES, DAY_MS, END_MS, POLICY, cell, days
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import NOON_MS, open_stores, store_closed
from tests.integration.test_release import ALL
from tests.services import KafkaServer, RedisServer

pytestmark = pytest.mark.pipeline({"policy": POLICY}, topics=True)


async def test_a_day_that_others_have_data_of_is_not_missing_though_they_were_answered_before(
    pipeline: Pipeline,
) -> None:
    # The second place has data on the last day only, and is another worker's.
    samples = [each for each in days() if each.place == 0 or each.time_ms >= NOON_MS + 2 * DAY_MS]

    async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, path):
        policy = pipeline.settings.policy
        await store_closed(stores, policy, samples, END_MS)
        releaser.paths = [releaser.hats_path]
        await releaser.round(asyncio.Event())
        asked = [
            one for slot in ("12:00", "13:00") for one in query_periods_of(policy, Calendar(policy), DATES[2], slot)
        ]
        assert releaser.answers is not None
        due = await releaser.answers.due_of(asked, ALL, [cell(0)])
        assert await path.release_groups(due) == len(due)
        await path.round(ALL, asyncio.Event())
    assert [record for record in answers(pipeline).values() if "missing" in record] == []
    assert_true(pipeline, samples)
    assert kept_keys(pipeline) == []


async def test_what_is_kept_again_by_partitions_that_were_lost_without_the_ledger_is_deleted_again(
    pipeline: Pipeline,
) -> None:
    # As on a cluster, where they are on other nodes: nothing becomes final meanwhile, and the ledger stays recovered.
    async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
        await store_closed(stores, pipeline.settings.policy, days(), END_MS)
        for lost in range(3):
            await releaser.round(asyncio.Event())
            assert kept_keys(pipeline) == []
            if lost < 2:
                pipeline.redis_server.delete(f"{{{pipeline.name}:*")
                await store_closed(stores, pipeline.settings.policy, days(), END_MS)
    assert len(answers(pipeline)) == ANSWERS
    assert_true(pipeline, days())


async def test_a_suppressed_answer_whose_day_had_no_room_takes_none_when_redis_has_forgotten_it(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    query = {"name": "daily", "kind": "mean_speed", "days": 1, "epsilon": 1.0, "min_n": 1000}
    privacy = {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 41.0}
    with open_pipeline(
        kafka, redis_server, tmp_path, "room", {"policy": {"privacy": privacy, "query": [query]}}
    ) as own:
        ensure_topics(own.settings)

        async def release() -> None:
            async with open_stores(own) as stores, answering(own, stores) as (releaser, _):
                await store_closed(stores, own.settings.policy, days([1]), END_MS)
                await releaser._recovery.ensure()
                await stores.redis.hset(f"{{{own.name}}}:ledger:{DATES[1]}", "cost:other", 2 * NANO)
                await releaser.round(asyncio.Event())
            own.forget()
            async with open_stores(own) as stores, answering(own, stores) as (releaser, _):
                assert await releaser._recovery.ensure()
                assert (await stores.ledger.summary(DATES[1])).queries["daily"].places == 0

        await release()
        assert {record["status"] for record in answers(own).values()} == {"suppressed"}
        (budget,) = own.budget_records().values()
        assert [(each["query"], each["places"]) for each in budget["queries"]] == [("daily", 0)]
