"""Running sums against real Kafka and Redis: no value of noise leaves twice, and a lost state ends its horizon."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

import pytest

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.agents.redis.policy_state import PolicyTransitionStore
from hatcast.agents.worker.policy_transition import PolicyTransition
from hatcast.stream.ledger import adopt, commits, rows, sums, unsent
from hatcast.stream.ledger.sealed_days import Sealed
from hatcast.stream.ledger.transitions import NextPolicy
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, open_stores
from tests.integration.running_sums import (
    DAY,
    PLACES,
    TABLE,
    WEEK,
    Drawn,
    assert_no_noise_left_twice,
    close,
    copied,
    crash,
    noon_of,
    of_horizon,
    release,
    set_back,
    statuses,
)
from tests.integration.test_release import (
    STEPS,
    releasing,
)
from tests.services import KafkaServer, RedisServer

Mutant = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[Pipeline, int, str], None]


@pytest.fixture(scope="module")
def pipeline(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    """Of all tests here: each has a week, which is a horizon, of its own, in the order of the tests."""
    with open_pipeline(kafka, redis_server, tmp_path_factory.mktemp("running"), "running", TABLE) as opened:
        ensure_topics(opened.settings)
        yield opened


async def test_after_a_crash_at_any_step_no_value_of_noise_has_left_twice_and_the_horizon_is_charged_once(
    pipeline: Pipeline,
) -> None:
    noise, steps = Drawn(), [*STEPS, "aborted"]

    keys = DomainKeys(pipeline.settings.topics.telemetry)
    async with open_stores(pipeline) as stores:
        for hour, step in enumerate(steps, noon_of("2022-01-03")):
            await crash(pipeline, stores, step, noise, hour)
            await release(pipeline, stores, noise, hour)
            assert (
                await stores.redis.hlen(keys.row(rows.states_before(pipeline.settings.policy.name, "2022-01-03"))) == 0
            )
    cells = of_horizon(pipeline, "2022-01-03")
    assert statuses(cells) == {("released",) * len(steps)}
    assert_no_noise_left_twice(noise, cells)
    (budget,) = (each for each in pipeline.budget_records().values() if each["date"] == "2022-01-03")
    assert budget["queries"] == [{"query": "continual", "epsilon": 10.0, "places": 3}]
    assert (budget["epsilon_user_day"], budget["epsilon_sum"]) == (30.0, 0.0)


def test_a_draw_that_was_never_sent_is_taken_back_with_its_state_and_ends_no_horizon(pipeline: Pipeline) -> None:
    """A Redis that restarts between commit and send: the recovery discards the records."""
    check_restart(pipeline, noon_of("2022-01-10"), "2022-01-10")


def check_restart(pipeline: Pipeline, hour: int, horizon: str) -> None:
    noise = Drawn()

    async def run() -> None:
        async with open_stores(pipeline) as stores:
            await release(pipeline, stores, noise, hour)
            await crash(pipeline, stores, "committed", noise, hour + 1)
            await stores.redis.hdel(DomainKeys(pipeline.settings.topics.telemetry).row(rows.RECOVERY), "token")
            await release(pipeline, stores, noise, hour + 1)
            await release(pipeline, stores, noise, hour + 2)

    asyncio.run(run())
    cells = of_horizon(pipeline, horizon)
    assert_no_noise_left_twice(noise, cells)
    assert statuses(cells) == {("released", "released", "released")}, "a draw is missing"


def test_a_redis_that_went_back_or_lost_everything_ends_the_horizon_and_the_next_one_begins_anew(
    pipeline: Pipeline,
) -> None:
    noise, hour = Drawn(), noon_of("2022-01-17")

    async def run() -> None:
        async with open_stores(pipeline) as stores:
            await release(pipeline, stores, noise, hour)
            older = await copied(stores, pipeline)
            await release(pipeline, stores, noise, hour + 1)
            await set_back(stores, pipeline, older)
            await release(pipeline, stores, noise, hour + 2)
            await release(pipeline, stores, noise, hour + WEEK)
            await set_back(stores, pipeline, {})
        async with open_stores(pipeline) as stores:
            await release(pipeline, stores, noise, hour + WEEK + 1)
            await release(pipeline, stores, noise, hour + 2 * WEEK)

    asyncio.run(run())
    first, second, third = (of_horizon(pipeline, each) for each in ("2022-01-17", "2022-01-24", "2022-01-31"))
    assert statuses(first) == {("released", "released", "incomplete")}
    assert statuses(second) == {("released", "incomplete")}
    assert statuses(third) == {("released",)}
    horizons = {each["first_date"]: each for each in pipeline.status()["horizons"]}
    ended = {"first_date": "2022-01-24", "last_date": "2022-01-30", "cells": 0, "closed": "incomplete"}
    going_on = {"first_date": "2022-01-31", "last_date": "2022-02-06", "cells": PLACES, "closed": None}
    assert (horizons["2022-01-24"], horizons["2022-01-31"]) == (ended, going_on)
    for cells in (first, second, third):
        assert_no_noise_left_twice(noise, cells)


def test_sealed_days_of_a_horizon_leave_its_sums_and_a_copy_from_before_them_ends_it(pipeline: Pipeline) -> None:
    check_copy_from_before_a_seal(pipeline, noon_of("2022-02-07"), "2022-02-07")


def check_copy_from_before_a_seal(pipeline: Pipeline, hour: int, first: str) -> None:
    noise, second = Drawn(), (date.fromisoformat(first) + timedelta(days=1)).isoformat()

    async def run() -> None:
        async with open_stores(pipeline) as stores:
            await release(pipeline, stores, noise, hour)
            older = await copied(stores, pipeline)
            await release(pipeline, stores, noise, hour + 1)
            await release(pipeline, stores, noise, hour + DAY, seals=True)
            assert await stores.ledger.sealed_through() == first
            await release(pipeline, stores, noise, hour + 2 * DAY, has_data=False, seals=True)
            assert await stores.ledger.sealed_through() == second
            assert await stores.ledger.horizons.known() == [first], "a horizon that is over has left states"
            await set_back(stores, pipeline, older)
            await release(pipeline, stores, noise, hour + 3 * DAY)

    asyncio.run(run())
    cells = of_horizon(pipeline, first)
    assert_no_noise_left_twice(noise, cells)
    assert statuses(cells) == {("released",) * 3 + ("incomplete",)}


def draws_again_after_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (adopt, sums, unsent):
        monkeypatch.setattr(module, "close_horizon", lambda *_: None)


def stores_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "store_sum_state", lambda *_: None)


def keeps_the_state_of_a_discarded_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsent, "take_back_state", lambda *_: None)


def check_older_copy(pipeline: Pipeline, hour: int, horizon: str) -> None:
    noise = Drawn()

    async def run() -> None:
        async with open_stores(pipeline) as stores:
            await release(pipeline, stores, noise, hour)
            older = await copied(stores, pipeline)
            await release(pipeline, stores, noise, hour + 1)
            await set_back(stores, pipeline, older)
            await release(pipeline, stores, noise, hour + 2)

    asyncio.run(run())
    assert_no_noise_left_twice(noise, of_horizon(pipeline, horizon))


@pytest.mark.parametrize(
    ("mutant", "check", "horizon", "seen"),
    [
        (draws_again_after_a_loss, check_older_copy, "2022-02-14", "drawn again"),
        (stores_no_state, check_restart, "2022-02-21", "a draw is missing"),
        (keeps_the_state_of_a_discarded_draw, check_restart, "2022-02-28", "drawn again|a draw is missing"),
    ],
)
def test_the_checks_see_ledgers_that_draw_again_or_lose_a_state(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, mutant: Mutant, check: Check, horizon: str, seen: str
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match=seen):
        check(pipeline, noon_of(horizon), horizon)


def test_the_check_sees_a_recovery_that_forgets_the_sealed_days_of_a_horizon(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sealed, "has_horizons", False)
    with pytest.raises(AssertionError, match="drawn again"):
        check_copy_from_before_a_seal(pipeline, noon_of("2022-03-07"), "2022-03-07")


async def test_a_horizon_that_lacks_records_is_incomplete_from_there_on_and_not_the_next_one(
    pipeline: Pipeline,
) -> None:
    noise, hour = Drawn(), noon_of("2022-03-14")
    state = PartitionKeys(pipeline.settings.policy.name, 0).state

    async with open_stores(pipeline) as stores:
        await release(pipeline, stores, noise, hour)
        await stores.redis.hset(state, "complete_from", str(NOON_MS + hour * HOUR_MS))
        await release(pipeline, stores, noise, hour + DAY)
        await release(pipeline, stores, noise, hour + WEEK)
    assert statuses(of_horizon(pipeline, "2022-03-14")) == {("released", "incomplete")}
    assert statuses(of_horizon(pipeline, "2022-03-21")) == {("released",)}


def test_a_damaged_state_is_not_drawn_from_its_horizon_ends_and_the_next_one_begins_anew(pipeline: Pipeline) -> None:
    noise, hour, first = Drawn(), noon_of("2022-03-28"), "2022-03-28"
    keys, name = DomainKeys(pipeline.settings.topics.telemetry), pipeline.settings.policy.name

    async def run() -> None:
        async with open_stores(pipeline) as stores:
            await release(pipeline, stores, noise, hour)
            states: Any = await stores.redis.hgetall(
                keys.row(rows.states(name, first))
            )  # bytes, but the types allow text
            cell, state = min(states.items())
            middle = len(state) // 2
            damaged = state[:middle] + bytes([state[middle] ^ 1]) + state[middle + 1 :]
            await stores.redis.hset(keys.row(rows.states(name, first)), cell, damaged)
            await release(pipeline, stores, noise, hour + 1)
            await stores.redis.hset(keys.row(rows.states(name, first)), cell, state)
            await release(pipeline, stores, noise, hour + 2)
            await release(pipeline, stores, noise, hour + WEEK)

    asyncio.run(run())
    damaged, following = (of_horizon(pipeline, each) for each in (first, "2022-04-04"))
    assert {each[-1] for each in statuses(damaged)} == {"incomplete"}
    assert ("released", "incomplete", "incomplete") in statuses(damaged)
    assert statuses(following) == {("released",)}
    for cells in (damaged, following):
        assert_no_noise_left_twice(noise, cells)


async def test_a_policy_that_was_replaced_leaves_no_state(pipeline: Pipeline) -> None:
    """The last test: nothing of the policy is released from the date on."""
    settings, noise = pipeline.settings, Drawn()

    async with open_stores(pipeline) as stores:
        await release(pipeline, stores, noise, noon_of("2022-04-11"))
        assert "2022-04-11" in await stores.ledger.horizons.known()
        transitions = PolicyTransitionStore(stores.redis, settings.topics.telemetry)
        await transitions.claim(settings.policy.name, NextPolicy("2022-04-13", "next"))
        producer: Any = None  # nothing is sent
        async with releasing(pipeline, stores) as releaser:
            ending = PolicyTransition(settings, stores.redis, stores.ledger, releaser._recovery, producer)
            await releaser.round(asyncio.Event())
            await close(stores, pipeline, noon_of("2022-04-14"), has_data=False)
            await ending.check(releaser)
        assert ending.ended.is_set()
        await ending.sweep(HatStore(stores.partitions))
        assert await stores.ledger.horizons.known() == []
