"""Queries over days against real Kafka and Redis: one answer, charged before, whatever crashes; nothing kept after."""

import asyncio
import copy
import json
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.policy_state import PolicyTransitionStore
from hatcast.agents.redis.stored_values import DIGEST_BYTES
from hatcast.stream.fold.checkpoint import FoldChanges
from hatcast.stream.ledger.transitions import NextPolicy
from tests.integration.answering import (
    ANSWERS,
    answering,
    answers,
    assert_charged_once,
    assert_true,
    crash_at,
    kept_keys,
)
from tests.integration.days import DATES, DAY_MS, END_MS, POLICY, QUERIES, cell, days, expected
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import Stores, open_stores, store_closed
from tests.integration.test_release import STEPS
from tests.services import KafkaServer, RedisServer
from tests.services.kafka_server import PARTITIONS

HATS = 12  # two places in two hours of three days
pytestmark = pytest.mark.pipeline({"policy": POLICY}, topics=True)


@pytest.mark.parametrize("step", STEPS)
async def test_after_a_crash_at_any_step_another_worker_leaves_one_true_answer_and_keeps_nothing(
    step: str, pipeline: Pipeline
) -> None:
    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, days(), END_MS)
        await crash_at(step, pipeline, stores)
        async with answering(pipeline, stores) as (releaser, _):
            await releaser.round(asyncio.Event())
            assert not await releaser.final_slots()
    assert len(pipeline.published()) == HATS
    assert len(answers(pipeline)) == ANSWERS
    assert_true(pipeline, days())
    assert_charged_once(pipeline)
    assert kept_keys(pipeline) == []


async def test_every_kind_confirms_before_a_commit_before_a_send_and_after_a_mark(pipeline: Pipeline) -> None:
    calls: list[str] = []

    def note(owner: object, name: str, title: str) -> None:
        wrapped = getattr(owner, name)

        async def noted(*arguments: Any) -> Any:
            calls.append(title)
            return await wrapped(*arguments)

        setattr(owner, name, noted)

    async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
        await store_closed(stores, pipeline.settings.policy, days(), END_MS)
        note(releaser._recovery, "confirm", "confirm")
        note(releaser._producers, "publish", "send")
        for path in releaser.paths:
            path._ledger = copy.copy(path._ledger)  # so that the commits of each path are known
            note(path._ledger, "commit", f"commit {path.kind.noun}")
            note(path, "mark", f"mark {path.kind.noun}")
        await releaser.round(asyncio.Event())
    steps = [f"{step} {noun}" for noun in ("releases", "answers") for step in ("commit", "mark")]
    assert set(calls) == {"confirm", "send", *steps}
    pairs = list(pairwise(calls))
    assert {before for before, call in pairs if call.startswith("commit")} == {"confirm"}
    # The transactions of several release partitions run at once, after one confirmation.
    assert {before for before, call in pairs if call == "send"} == {"confirm", "send"}
    assert {after for call, after in pairs if call.startswith("mark")} == {"confirm"}
    assert calls[-1] == "confirm"


async def test_answers_that_redis_forgot_keep_their_values_and_what_they_have_reserved(pipeline: Pipeline) -> None:
    async def release(*, again: bool) -> None:
        async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
            if not again:
                await store_closed(stores, pipeline.settings.policy, days(), END_MS)
            await releaser.round(asyncio.Event())
            if again:  # the log is folded again too
                await store_closed(stores, pipeline.settings.policy, days(), END_MS)
                await releaser.round(asyncio.Event())
                for date in DATES:
                    summary = await stores.ledger.summary(date)
                    assert summary.epsilon_user_day == (4 + 3 * 40) * 10**15
                    assert {name: one.places for name, one in summary.queries.items()} == dict.fromkeys(
                        ("mean", "over", "daily"), 40
                    )

    await release(again=False)
    before = pipeline.answers()
    pipeline.forget()  # FLUSHALL, for all that is ours
    await release(again=True)
    assert {name: set(values) for name, values in pipeline.answers(committed=False).items()} == {
        name: set(values) for name, values in before.items()
    }
    assert kept_keys(pipeline) == []


async def test_what_a_longer_query_reads_is_kept_until_it_is_answered_and_no_longer(pipeline: Pipeline) -> None:
    async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
        for day in range(3):
            await store_closed(stores, pipeline.settings.policy, days([day]), END_MS - (2 - day) * DAY_MS)
            await releaser.round(asyncio.Event())
            assert bool(kept_keys(pipeline)) == (day < 2)
            assert {key[:10] for key in answers(pipeline)} == set(DATES[: day + 1])
    assert_true(pipeline, days())
    assert_charged_once(pipeline)


def test_what_is_kept_names_nobody_and_says_nothing_of_when(pipeline: Pipeline) -> None:
    async def release() -> set[bytes]:
        async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
            await store_closed(stores, pipeline.settings.policy, days([0]), END_MS - 2 * DAY_MS)
            users = {name for number in range(PARTITIONS) for name in await pseudonyms(stores, number)}
            await releaser.round(asyncio.Event())
            return users

    async def pseudonyms(stores: Stores, partition: int) -> set[bytes]:
        stored = await stores.partitions.read(partition)
        return {pseudonym for hat in stored.open_hats().values() for pseudonym in hat.users}

    users = asyncio.run(release())
    assert len(users) == 9
    with closing(pipeline.redis_server.client()) as redis:
        kept: Any = [
            value[:-DIGEST_BYTES]
            for key in kept_keys(pipeline)
            if b":k:" in key
            for value in redis.hgetall(key).values()
        ]
    assert kept
    assert not [user for user in users for value in kept if user in value]
    # Five bytes of a header, then of each user a count, a total and a maximum in milli-units: nothing else has room.
    assert {(len(value) - 5) % value[1] for value in kept} == {0}
    assert {(len(value) - 5) // value[1] for value in kept} <= {1 + 2 + 2, 1 + 4 + 2}


@pytest.mark.parametrize("rule", ["suppress", "leave_out"])
async def test_a_day_of_outage_suppresses_a_query_or_is_left_out_and_named(
    rule: str, kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    changes = {"policy": POLICY | {"query": [query | {"missing_days": rule} for query in QUERIES]}}
    with open_pipeline(kafka, redis_server, tmp_path, "outage", changes) as pipeline:
        ensure_topics(pipeline.settings)

        async def release() -> None:
            async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
                await store_closed(stores, pipeline.settings.policy, days([0, 2]), END_MS)
                await releaser.round(asyncio.Event())

        await release()
        of_three = {key: record for key, record in answers(pipeline).items() if not key.endswith("daily")}
        assert len(of_three) == 8
        for key, record in of_three.items():
            assert record["missing"] == [DATES[1]]
            assert record["days_used"] == 2
            if rule == "suppress":
                assert (record["status"], record["reason"]) == ("suppressed", "missing_days")
                assert not record.keys() & {"mean", "raw", "noise", "interval95"}
            else:
                two = expected(days([0, 2]), key.rpartition("/")[2])[key]
                share = 3 / 2 if key.endswith("over") else 1.0
                assert record["mean"] == pytest.approx(two * share, abs=0.002)


@pytest.mark.parametrize("state", ["whole", "new"])
async def test_days_that_a_partition_cannot_vouch_for_are_missing_and_no_others(
    state: str, kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    # A gap in one partition: of the second day alone, if what it had folded before is there; else of all before too.
    changes = {"policy": POLICY | {"query": [query | {"missing_days": "leave_out"} for query in QUERIES]}}
    with open_pipeline(kafka, redis_server, tmp_path, "gap", changes) as pipeline:
        ensure_topics(pipeline.settings)

        async def release() -> None:
            async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
                await store_closed(stores, pipeline.settings.policy, days([0]), END_MS - 2 * DAY_MS)
                await releaser.round(asyncio.Event())
                if state == "new":
                    await stores.redis.delete(*await stores.redis.keys(f"{{{pipeline.name}:3}}:*"))
                offset, stored = await stores.partitions.open(3, 1000, accept_gap=True)
                assert (offset, stored.missing) == (1000, True)
                after_gap_ms = END_MS - 2 * DAY_MS + 60_000  # of the first record after the gap
                first = FoldChanges(after_gap_ms, {}, complete_from=after_gap_ms)
                assert await stores.partitions.checkpoint(3, offset, offset, first)
                await store_closed(stores, pipeline.settings.policy, days([1, 2]), END_MS)
                await releaser.round(asyncio.Event())

        await release()
        of_three = [record for key, record in answers(pipeline).items() if not key.endswith("daily")]
        assert len(of_three) == 8
        assert {tuple(record["missing"]) for record in of_three} == {DATES[:2] if state == "new" else (DATES[1],)}


async def test_a_policy_that_is_replaced_keeps_nothing_for_queries_that_it_will_never_answer(
    pipeline: Pipeline,
) -> None:
    async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
        await store_closed(stores, pipeline.settings.policy, days(), END_MS)
        await PolicyTransitionStore(stores.redis, pipeline.name).claim(pipeline.name, NextPolicy(DATES[2], "new"))
        assert not await releaser.is_done(DATES[2])
        await releaser.round(asyncio.Event())
        assert await releaser.is_done(DATES[2])
        assert kept_keys(pipeline) == [], "of one day each, and answered"
        await stores.partitions.final_hats.sweep(DATES[2], DATES[2])
    assert_true(pipeline, [each for each in days() if each.time_ms < END_MS - DAY_MS], ["daily"])
    assert len(pipeline.published()) == HATS * 2 // 3
    assert kept_keys(pipeline) == []


async def test_a_query_for_which_a_day_has_no_room_is_exhausted_and_the_hats_go_on(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    # Three queries cost 40 a day each, and there is room for one HAT beside them.
    queries = [{**query, "epsilon": 1.0} for query in QUERIES]
    privacy = {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 121.0}
    changes = {"policy": {"privacy": privacy, "query": queries}}
    with open_pipeline(kafka, redis_server, tmp_path, "no-room", changes) as pipeline:
        ensure_topics(pipeline.settings)

        async def release() -> None:
            async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
                await store_closed(stores, pipeline.settings.policy, days(), END_MS)
                await releaser._recovery.ensure()
                await stores.redis.hset(f"{{{pipeline.name}}}:ledger:{DATES[1]}", "cost:other", 2 * 10**9)
                await releaser.round(asyncio.Event())

        await release()
        statuses = {key: record["status"] for key, record in answers(pipeline).items()}
        refused = {key for key, status in statuses.items() if status == "budget_exhausted"}
        # On the second day another policy has spent 2: there the last of the three has no room.
        assert {key.partition("T")[0] for key in refused} == {DATES[1]}
        assert {key.rpartition("/")[2] for key in refused} == {"daily"}
        assert {json.loads(values[0])["status"] for values in pipeline.published().values()} >= {"released"}
        for budget in pipeline.budget_records().values():
            assert budget["epsilon_user_day"] <= budget["limit"]


async def test_too_few_user_days_are_suppressed_with_the_reason(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    changes = {"policy": POLICY | {"query": [QUERIES[0] | {"min_n": 20}]}}
    with open_pipeline(kafka, redis_server, tmp_path, "few", changes) as pipeline:
        ensure_topics(pipeline.settings)
        samples = [each for each in days(vehicles=12) if each.place == 0 or int(each.vehicle[-4:]) < 3]

        async def release() -> None:
            async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
                await store_closed(stores, pipeline.settings.policy, samples, END_MS)
                await releaser.round(asyncio.Event())

        await release()
        by_cell = {record["cell"]: record for record in answers(pipeline).values()}
        assert by_cell[cell(0)]["status"] == "released"
        assert by_cell[cell(0)]["user_days"] == 27
        assert (by_cell[cell(1)]["status"], by_cell[cell(1)]["reason"]) == ("suppressed", "too_few_user_days")
