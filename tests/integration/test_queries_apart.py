"""Answers to one query that are not made together (by lots, by workers) are as if they were."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

import hatcast.agents.redis.retained
import hatcast.agents.release.batching
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.redis.clients import Call
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.redis.stored_values import digest_of
from hatcast.stream.fold.packing import Row, pack, strip
from tests.integration.answering import answering, answers, assert_true, kept_keys
from tests.integration.days import END_MS, POLICY, QUERIES, days
from tests.integration.harness import Pipeline
from tests.integration.hidden import CELLS, SLOTS, open_hidden
from tests.integration.readings import Sample, open_stores, store_closed, traffic
from tests.integration.test_add_remove import (
    DATE,
    DAY_MS,
    HALVES,
    OVER_LIMIT,
    OVER_MS,
    assert_means_are_true,
    cell_of,
)
from tests.integration.test_release import ALL, STEPS, CrashError, CrashingProducers, crash_after
from tests.services import KafkaServer, RedisServer
from tests.services.kafka_server import PARTITIONS

SLOW, FAST = "87608b0d2ffffff", "87608b0d6ffffff"
pytestmark = pytest.mark.pipeline(
    {"policy": POLICY | {"query": [query for query in QUERIES if query["days"] == 3]}}, topics=True
)


def a_place_a_day() -> list[Sample]:
    """On each of three days all buses are at one place, and at another one the next day."""
    return [each for each in days(places=3) if each.time_ms // 86_400_000 % 3 == each.place]


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_day_of_which_all_was_answered_is_not_missing_for_the_cells_that_are_answered_later(
    workers: int, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hatcast.agents.release.batching, "MAX_BATCH", 1)

    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, a_place_a_day(), END_MS)
        for number in range(workers):
            share = frozenset(p for p in ALL if p % workers == number)
            owned = partial(frozenset[int], share)
            async with answering(pipeline, stores, owned=owned) as (releaser, _):
                await releaser.round(asyncio.Event())
        async with answering(pipeline, stores) as (releaser, _):
            await releaser.round(asyncio.Event())
    assert {tuple(record.get("missing", [])) for record in answers(pipeline).values()} == {()}
    assert_true(pipeline, a_place_a_day(), ["mean", "over"])
    assert kept_keys(pipeline) == []


async def _retained_hats(redis: Redis, pipeline: Pipeline, cells: int) -> str:
    """Count so many cells with retained contributions of a slot; return their key."""
    keys = PartitionKeys(pipeline.name, 1)
    await redis.hset(keys.state, "kept", "1")
    await redis.hset(keys.retained, "2022-01-02/12:00", str(cells))
    return keys.retained_hats("2022-01-02/12:00")


def test_which_answers_are_made_together_does_not_depend_on_speeds(pipeline: Pipeline) -> None:
    def rows(speed: int) -> list[Row]:
        return [Row(bytes(8), 3, 3 * speed, speed, 1) for _ in range(200)]

    async def counted() -> None:
        async with open_stores(pipeline) as stores:
            kept = RetainedStore(stores.redis, pipeline.name, PARTITIONS)
            key = await _retained_hats(stores.redis, pipeline, cells=2)
            slow, fast = (strip(pack(rows(speed))) for speed in (1, 90_000))
            assert len(slow) < len(fast)
            for cell, chunks in ((SLOW, slow + slow), (FAST, fast + slow)):
                await stores.redis.hset(key, cell, chunks + digest_of(key, cell, chunks))
            assert await kept.cells(["2022-01-02/12:00"]) == {SLOW: 400, FAST: 400}

    asyncio.run(counted())


async def test_what_is_forgotten_is_cut_into_calls_that_redis_takes(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hatcast.agents.redis.retained, "_DELETE_BATCH", 2)
    named: list[int] = []

    async with open_stores(pipeline) as stores:
        kept = RetainedStore(stores.redis, pipeline.name, PARTITIONS)
        run_each = kept._delete.run_each

        async def counted(calls: Sequence[Call]) -> list[Any]:
            named.extend(len(arguments) for _, arguments in calls)
            return await run_each(calls)

        monkeypatch.setattr(kept._delete, "run_each", counted)
        key = await _retained_hats(stores.redis, pipeline, cells=6)
        await stores.redis.hset(key, mapping=dict.fromkeys("abcdef", b""))
        await kept.delete([("2022-01-02/12:00", cell) for cell in "abcde"])
        assert await stores.redis.hkeys(key) == [b"f"]
    assert max(named) == 2 + 2


async def test_under_add_remove_no_worker_sends_answers_before_all_have_records(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    async def one_after_the_other(pipeline: Pipeline) -> None:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS)
            async with (
                answering(pipeline, stores, owned=lambda: HALVES[0]) as (one, _),
                answering(pipeline, stores, owned=lambda: HALVES[1]) as (other, _),
            ):
                await one.round(asyncio.Event())  # recovers the ledger, which takes every producer
                while await one.final_slots():
                    await other.round(asyncio.Event())
                    await one.round(asyncio.Event())

    with open_hidden(kafka, redis_server, tmp_path, "in-step", {"policy": {"query": OVER_LIMIT}}) as pipeline:
        await one_after_the_other(pipeline)
        assert len(answers(pipeline)) == len(SLOTS) * len(CELLS)
        told = [json.loads(each.value or b"") for each in pipeline.kafka.read(pipeline.settings.topics.budget)]
        # A slot's means, then its answers: nothing tells how far one worker was when another one sent.
        assert {each["seq"] for each in told} == {len(CELLS) * n for n in range(1, 1 + 2 * len(SLOTS))}


async def test_a_query_over_days_has_one_answer_for_each_listed_cell_whatever_crashes_and_nothing_is_kept_after(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    two_days = OVER_LIMIT[0] | {"name": "two", "days": 2, "from": DATE, "speed_limit": 12.0}

    async def crash_and_go_on(pipeline: Pipeline) -> None:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, traffic(), OVER_MS + DAY_MS)
            for step in STEPS:
                producers = CrashingProducers if step == "sent" else TransactionalProducers
                with pytest.raises(CrashError):
                    async with answering(pipeline, stores, producers) as (releaser, queries):
                        crash_after(queries, step)
                        await releaser.round(asyncio.Event())
            async with answering(pipeline, stores) as (releaser, _):
                await releaser.round(asyncio.Event())
                assert not await releaser.final_slots()

    changes = {"policy": {"hours": [12, 14], "query": [*OVER_LIMIT, two_days]}}
    with open_hidden(kafka, redis_server, tmp_path, "asked", changes) as pipeline:
        await crash_and_go_on(pipeline)
        assert_means_are_true(pipeline)
        published = pipeline.answers(committed=False)
        assert {name: len(set(values)) for name, values in published.items() if len(set(values)) != 1} == {}
        answers = [json.loads(values[0]) for values in published.values()]
        assert len(answers) == len(CELLS) * 2 * (2 + 1)
        for each in answers:
            place = {cell_of(place): place for place in range(3)}.get(each["cell"])
            there = place is not None and (each["query"] == "two" or each["date"] == DATE)
            over = sum(10 + vehicle + (place or 0) > each["speed_limit"] for vehicle in range(12)) * there
            assert each["mean"] == pytest.approx(over / each["days"], abs=0.002)
            assert not each.keys() & {"seq", "user_days"}
        with closing(redis_server.client()) as redis:
            assert not list(redis.scan_iter(match=f"{{{pipeline.name}:*}}:k*", count=10_000))
