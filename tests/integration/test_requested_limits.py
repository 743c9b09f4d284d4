"""A speed limit that an operator requests for a period: public, one a period, and the same in every answer."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hatcast.agents.kafka.registry import LimitRequest, Registry, request_key
from hatcast.stream.errors import HatcastError
from tests.integration.answering import answering, answers, assert_charged_once, crash_at, kept_keys
from tests.integration.days import DATES, DAY_MS, END_MS, EPSILON, LIMIT, POLICY, QUERIES, days, expected
from tests.integration.harness import Finished, Pipeline, open_pipeline
from tests.integration.readings import open_stores, store_closed
from tests.integration.tables import golden_table, merged
from tests.integration.test_release import STEPS
from tests.services import KafkaServer, RedisServer
from tests.services.data import golden, recording

KEYS: dict[str, Any] = {"name": "over", "kind": "over_speed_limit", "days": 3, "from": DATES[0], "epsilon": EPSILON}
REQUESTED = POLICY | {"query": [KEYS | {"on_request": True} if each["name"] == "over" else each for each in QUERIES]}
PLACES = 4  # places and hours, so answers of a period
OTHER = 17.5
pytestmark = pytest.mark.pipeline({"policy": REQUESTED}, topics=True)


def request(pipeline: Pipeline, limit: float | None, *options: object, date: str = DATES[1]) -> Finished:
    given = [] if limit is None else ["--speed-limit", limit]
    return pipeline.hatcast("query", "over", "--date", date, *given, *options)


def over(pipeline: Pipeline) -> list[dict[str, Any]]:
    found = [each for name, each in answers(pipeline).items() if name.endswith("/over")]
    assert len(found) == PLACES
    return found


def assert_answered(pipeline: Pipeline) -> None:
    """All answers are the true ones for the requested limit, each is charged once, and nothing is retained."""
    assert {each["speed_limit"] for each in over(pipeline)} == {LIMIT}
    wanted = expected(days(), "over")
    for name, record in answers(pipeline).items():
        if name.endswith("/over"):
            assert record["mean"] == pytest.approx(wanted[name], abs=0.002)
    assert_charged_once(pipeline)
    assert kept_keys(pipeline) == []


@pytest.mark.parametrize("step", STEPS)
async def test_after_a_crash_at_any_step_every_answer_has_the_requested_limit_and_one_value(
    step: str, pipeline: Pipeline
) -> None:
    assert request(pipeline, LIMIT).code == 0

    async with open_stores(pipeline) as stores:
        await store_closed(stores, pipeline.settings.policy, days(), END_MS)
        await crash_at(step, pipeline, stores)
        assert pipeline.hatcast("query", "over", "--date", DATES[0], "--speed-limit", OTHER).code == 1
        async with answering(pipeline, stores) as (releaser, _):
            await releaser.round(asyncio.Event())
    assert_answered(pipeline)


async def test_an_emptied_redis_forgets_no_request(pipeline: Pipeline) -> None:
    assert request(pipeline, LIMIT).code == 0

    async def release() -> None:
        async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
            await store_closed(stores, pipeline.settings.policy, days(), END_MS)
            await releaser.round(asyncio.Event())

    await release()
    before = pipeline.answers()
    pipeline.forget()
    await release()
    assert {name: set(each) for name, each in pipeline.answers(committed=False).items()} == {
        name: set(each) for name, each in before.items()
    }
    assert {each["speed_limit"] for each in over(pipeline)} == {LIMIT}


async def test_without_a_request_nothing_is_answered_and_a_later_request_is_rejected(pipeline: Pipeline) -> None:
    async def release(days_released: int) -> None:
        async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
            end = END_MS - (3 - days_released) * DAY_MS
            await store_closed(stores, pipeline.settings.policy, days(range(days_released)), end)
            await releaser.round(asyncio.Event())

    await release(2)
    assert request(pipeline, None).out == f"over, {DATES[0]} to {DATES[2]}: nothing is requested yet\n"
    await release(3)
    assert {(each["status"], each["reason"], each.get("speed_limit")) for each in over(pipeline)} == {
        ("suppressed", "not_requested", None)
    }
    done = request(pipeline, LIMIT)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "closed without a request" in done.err
    assert "it is not answered; a period takes one request" in done.err
    assert_charged_once(pipeline)
    assert kept_keys(pipeline) == []


def test_a_period_takes_one_request_and_says_which(pipeline: Pipeline) -> None:
    first = request(pipeline, LIMIT)
    assert first.out.startswith(f"over, {DATES[0]} to {DATES[2]}: 20 km/h was requested at ")
    assert request(pipeline, LIMIT).out == first.out, "it may be repeated"
    other = request(pipeline, OTHER, date=DATES[2])
    assert (other.code, other.err) == (1, f"hatcast: {first.out.strip()}; a period takes one request\n")
    shown = json.loads(request(pipeline, None, "--json").out)
    assert (shown["state"], shown["speed_limit"], shown["last_date"]) == ("requested", LIMIT, DATES[2])
    later = request(pipeline, OTHER, date="2022-01-05")
    assert later.out.startswith("over, 2022-01-05 to 2022-01-07: 17.5 km/h was requested at ")


def test_of_operators_who_request_other_limits_at_the_same_time_one_wins_and_all_read_its_limit(
    pipeline: Pipeline,
) -> None:
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda limit: request(pipeline, limit), (LIMIT, OTHER, 30.5)))
    (won,) = [each for each in done if each.code == 0]
    lost = f"hatcast: {won.out.strip()}; a period takes one request\n"
    assert [(each.code, each.err) for each in done if each is not won] == [(1, lost)] * 2
    assert request(pipeline, None).out == won.out


async def test_a_record_that_no_request_has_written_answers_nothing_and_is_one_line(pipeline: Pipeline) -> None:
    key = request_key(pipeline.settings.policy.name, "over", DATES[0])
    hostile = msgspec.json.encode(LimitRequest(speed_limit=-1, decided_at="2022-01-02T00:00:00.000Z"))

    await Registry(pipeline.settings).write(lambda facts: {} if key in facts.values else {key: hostile})
    async with open_stores(pipeline) as stores, answering(pipeline, stores) as (releaser, _):
        await store_closed(stores, pipeline.settings.policy, days(), END_MS)
        with pytest.raises(HatcastError, match="cannot be read"):
            await releaser.round(asyncio.Event())
    assert not [name for name in pipeline.answers() if name.endswith("/over")]
    done = request(pipeline, LIMIT)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("none",), "'none' is not a query of the policy; those that take requests are over"),
        (("daily",), "'daily' takes no requests: its limit is the policy's; those that take requests are over"),
        (("over", "--date", "2022-01-01"), "the first period of 'over' begins on 2022-01-02: give a later --date"),
        (("over", "--date", DATES[0], "--speed-limit", 1000), "is not below upper_bound"),
    ],
)
def test_a_request_that_cannot_be_made_is_one_line(
    arguments: tuple[object, ...], says: str, pipeline: Pipeline
) -> None:
    done = pipeline.hatcast("query", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert says in done.err


def test_a_worker_answers_with_the_requested_limit_and_else_with_the_policys(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    date = "2024-10-27"  # of the recording
    keys = {"kind": "over_speed_limit", "days": 1, "epsilon": 1.0, "on_request": True, "speed_limit": 30.0}
    queries = [keys | {"name": name} for name in ("fast", "slow")]
    spent = {"min_users": 3, "unit": "user", "total_limit": 1e5, "daily_limit": 1e4}
    changes = merged(golden_table(golden("edge"), privacy=spent), {"policy": {"query": queries}})
    with open_pipeline(kafka, redis_server, tmp_path, "asked", changes) as opened:
        worker = opened.worker()
        opened.wait_for_partitions(worker)
        assert opened.hatcast("query", "fast", "--date", date, "--speed-limit", 12.5).code == 0
        opened.replay(recording("golden/edge.jsonl"), "jsonl")
        opened.wait(opened.is_settled, "answers to everything", worker)
        found = [json.loads(value) for values in opened.answers().values() for value in values]
        assert {(each["query"], each["date"], each["speed_limit"]) for each in found} == {
            ("fast", date, 12.5),
            ("slow", date, 30.0),
        }
        done = opened.hatcast("query", "slow", "--date", date, "--speed-limit", 12.5)
        assert (done.code, "its limit is 30 km/h; a period takes one request" in done.err) == (1, True)
        assert worker.terminate() == 0
