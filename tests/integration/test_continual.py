"""Running sums against real Kafka and Redis: no value of noise leaves twice, and a lost state ends its horizon."""

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any, Final

import h3.api.basic_str as h3
import numpy as np
import pytest
from numpy.typing import NDArray

from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.sealed_days import Sealed
from hatcast.agents.release.continual import ContinualReleaser
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.stream.mechanisms import NoisyVector
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, Stores, open_stores, store_closed
from tests.integration.readings import PLACES as AT
from tests.integration.test_release import (
    ALL,
    STEPS,
    CrashError,
    CrashingPublishers,
    abort_in_a_round,
    crash_after,
    releasing,
)
from tests.laws.redis_scripts import Mutant, break_scripts
from tests.services import KafkaServer, RedisServer

LATENESS_MS: Final = 300_000
PLACES: Final = 3
USERS: Final = 12
DAY: Final = 24  # hours
WEEK: Final = 7 * DAY
TABLE: dict[str, Any] = {
    "policy": {
        "privacy": {"epsilon": 10.0, "max_hats_per_day": None, "daily_limit": None},
        "estimator": None,
        "continual": {"kind": "laplace", "horizon_days": 7, "max_slots": 40, "max_cells": 3},
    }
}


class Drawn:
    """Noise of 30 bits, all different: a sum of two of them is not one of them."""

    def __init__(self) -> None:
        self._random = random.Random(0)
        self.values: set[int] = set()

    def laplace_many(self, values: NDArray[np.int64], distance: int, epsilon: float) -> NoisyVector:
        drawn = [self._random.randrange(2**30) for _ in values]
        self.values.update(drawn)
        return NoisyVector(values + np.array(drawn, np.int64), distance / epsilon)


Check = Callable[[Pipeline, int, str], None]


@pytest.fixture(scope="module")
def pipeline(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pipeline]:
    """Of all tests here: each has a week, which is a horizon, of its own, in the order of the tests."""
    with open_pipeline(kafka, redis_server, tmp_path_factory.mktemp("running"), "running", TABLE) as opened:
        ensure_topics(opened.settings)
        yield opened


def noon_of(day: str) -> int:
    """In hours after NOON_MS."""
    return (date.fromisoformat(day) - date(2022, 1, 2)).days * DAY


def hour_of(hour: int) -> list[Sample]:
    """Every vehicle at every place in an hour after NOON_MS, at speeds of its own."""
    return [
        Sample(f"GJ05BX{vehicle:04}", NOON_MS + hour * HOUR_MS + place * 60_000, place, 10.0 + vehicle + place)
        for place in range(PLACES)
        for vehicle in range(USERS)
    ]


async def close(stores: Stores, pipeline: Pipeline, hour: int, *, has_data: bool = True) -> None:
    """An hour's samples, and all that makes its HATs final."""
    samples = hour_of(hour) if has_data else []
    await store_closed(stores, pipeline.settings.policy, samples, NOON_MS + (hour + 1) * HOUR_MS + LATENESS_MS)


async def release(
    pipeline: Pipeline, stores: Stores, noise: Drawn, hour: int, *, has_data: bool = True, **options: Any
) -> None:
    """The hour's releases, in a round of a new worker."""
    await close(stores, pipeline, hour, has_data=has_data)
    async with releasing(pipeline, stores, **options) as releaser:
        drawing(releaser, noise)
        await releaser.round(asyncio.Event())
        assert await releaser.hats.due_releases(ALL) == []


def drawing(releaser: ReleaseLoop, noise: Any) -> None:
    assert isinstance(releaser.hats, ContinualReleaser)
    releaser.hats._noise = noise


async def crash(pipeline: Pipeline, stores: Stores, step: str, noise: Drawn, hour: int) -> None:
    """A worker that ends at a step of an hour's releases."""
    await close(stores, pipeline, hour)
    if step == "aborted":
        async with releasing(pipeline, stores) as releaser:
            drawing(releaser, noise)
            await abort_in_a_round(releaser)
        return
    publishers = CrashingPublishers if step == "sent" else TransactionalProducers
    with pytest.raises(CrashError):
        async with releasing(pipeline, stores, publishers=publishers) as releaser:
            drawing(releaser, noise)
            crash_after(releaser.hats, step)
            await releaser.round(asyncio.Event())


def of_horizon(pipeline: Pipeline, first: str) -> dict[str, list[dict[str, Any]]]:
    """The records of each cell by slot; also bytes of aborted transactions, of which there is one value each."""
    published = pipeline.published(committed=False)
    assert {len(set(values)) for values in published.values()} == {1}
    records = sorted((json.loads(values[0]) for values in published.values()), key=lambda each: each["end"])
    cells: dict[str, list[dict[str, Any]]] = {h3.latlng_to_cell(*place, 7): [] for place in AT[:PLACES]}
    for record in records:
        if record["running"]["horizon"] == first:
            cells[record["cell"]].append(record)
    return cells


def assert_no_noise_left_twice(noise: Drawn, cells: dict[str, list[dict[str, Any]]]) -> None:
    """What a released sum has more than the one before and the hour's values is one draw, and no other sum's."""
    left = []
    for place, records in enumerate(cells.values()):
        values, before = sum(each.speed for each in hour_of(0) if each.place == place), 0.0
        for record in records:
            if "sum" in record["running"]:
                left.append(round(1000 * (record["running"]["sum"]["value"] - before - values)))
                before = record["running"]["sum"]["value"]
    assert len(set(left)) == len(left) > 0
    assert set(left) <= noise.values, "a sum has noise that was drawn again"


def statuses(cells: dict[str, list[dict[str, Any]]]) -> set[tuple[str, ...]]:
    """The statuses by slot, of each cell."""
    return {tuple(record["status"] for record in records) for records in cells.values()}


async def copied(stores: Stores, pipeline: Pipeline) -> dict[bytes, bytes]:
    """All of Redis."""
    keys: list[Any] = await stores.redis.keys(f"{{{pipeline.name}*")  # Any: bytes, without decoding
    return {key: await stores.redis.dump(key) or b"" for key in keys}


async def set_back(stores: Stores, pipeline: Pipeline, copy: dict[bytes, bytes]) -> None:
    """Redis as it was; an empty copy empties it."""
    for key in await stores.redis.keys(f"{{{pipeline.name}*"):
        await stores.redis.delete(key)
    for key, value in copy.items():
        await stores.redis.restore(key, 0, value)


def test_after_a_crash_at_any_step_no_value_of_noise_has_left_twice_and_the_horizon_is_charged_once(
    pipeline: Pipeline,
) -> None:
    noise, steps = Drawn(), [*STEPS, "aborted"]

    async def crash_and_go_on() -> None:
        keys = DomainKeys(pipeline.settings.topics.telemetry)
        async with open_stores(pipeline) as stores:
            for hour, step in enumerate(steps, noon_of("2022-01-03")):
                await crash(pipeline, stores, step, noise, hour)
                await release(pipeline, stores, noise, hour)
                assert await stores.redis.hlen(keys.states_before(pipeline.settings.policy.name, "2022-01-03")) == 0

    asyncio.run(crash_and_go_on())
    cells = of_horizon(pipeline, "2022-01-03")
    assert statuses(cells) == {("released",) * len(steps)}
    assert_no_noise_left_twice(noise, cells)
    (budget,) = pipeline.budget_records().values()
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
            await stores.redis.hdel(DomainKeys(pipeline.settings.topics.telemetry).recovery, "token")
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


DRAWS_AGAIN_AFTER_A_LOSS: Mutant = ("horizons", "set(horizons, 'closed:' .. horizon, status)", "")
STORES_NO_STATE: Mutant = ("horizons", "  set(states, cell, state)\nend", "end")
KEEPS_THE_STATE_OF_A_DISCARDED_DRAW: Mutant = ("horizons", "set(states, cell, state ~= '' and state)", "")


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
        (DRAWS_AGAIN_AFTER_A_LOSS, check_older_copy, "2022-02-14", "drawn again"),
        (STORES_NO_STATE, check_restart, "2022-02-21", "a draw is missing"),
        (KEEPS_THE_STATE_OF_A_DISCARDED_DRAW, check_restart, "2022-02-28", "drawn again|a draw is missing"),
    ],
)
def test_the_checks_see_scripts_that_draw_again_or_lose_a_state(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, mutant: Mutant, check: Check, horizon: str, seen: str
) -> None:
    break_scripts(monkeypatch, mutant)
    with pytest.raises(AssertionError, match=seen):
        check(pipeline, noon_of(horizon), horizon)


def test_the_check_sees_a_recovery_that_forgets_the_sealed_days_of_a_horizon(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sealed, "has_horizons", False)
    with pytest.raises(AssertionError, match="drawn again"):
        check_copy_from_before_a_seal(pipeline, noon_of("2022-03-07"), "2022-03-07")
