"""Running sums against real Kafka and Redis: no value of noise leaves twice, and a lost state ends its horizon."""

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray

from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.release.continual import ContinualReleaser
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.stream.mechanisms import NoisyVector
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, Stores, open_stores, store_closed
from tests.integration.test_release import (
    ALL,
    STEPS,
    CrashError,
    CrashingPublishers,
    abort_in_a_round,
    crash_after,
    releasing,
)
from tests.services import KafkaServer, RedisServer

LATENESS_MS: Final = 300_000
PLACES: Final = 3
USERS: Final = 12
DAY_MS: Final = 24 * HOUR_MS
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


@pytest.fixture
def pipeline(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pipeline]:
    with open_pipeline(kafka, redis_server, tmp_path, "running", TABLE) as opened:
        ensure_topics(opened.settings)
        yield opened


def hour_of(hour: int) -> list[Sample]:
    """Every vehicle at every place in an hour from noon on, at speeds of its own."""
    return [
        Sample(f"GJ05BX{vehicle:04}", NOON_MS + hour * HOUR_MS + place * 60_000, place, 10.0 + vehicle + place + hour)
        for place in range(PLACES)
        for vehicle in range(USERS)
    ]


async def close(stores: Stores, pipeline: Pipeline, hour: int) -> None:
    """An hour's samples, and all that makes its HATs final."""
    await store_closed(stores, pipeline.settings.policy, hour_of(hour), NOON_MS + (hour + 1) * HOUR_MS + LATENESS_MS)


async def release(pipeline: Pipeline, stores: Stores, noise: Drawn, **options: Any) -> int:
    """A round of a new worker."""
    async with releasing(pipeline, stores, **options) as releaser:
        drawing(releaser, noise)
        done = await releaser.round(asyncio.Event())
        assert await releaser.hats.due_releases(ALL) == []
        return done


def drawing(releaser: ReleaseLoop, noise: Any) -> None:
    assert isinstance(releaser.hats, ContinualReleaser)
    releaser.hats._noise = noise


def by_cell(pipeline: Pipeline) -> dict[str, list[dict[str, Any]]]:
    """The releases of each cell by slot; also bytes of aborted transactions, of which there is one value each."""
    published = pipeline.published(committed=False)
    assert {len(set(values)) for values in published.values()} == {1}
    records = sorted((json.loads(values[0]) for values in published.values()), key=lambda each: each["end"])
    cells: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        cells.setdefault(record["cell"], []).append(record)
    return cells


def noises(records: list[dict[str, Any]], hours: list[int], place: int) -> list[int]:
    """What each released sum has more than the one before and the hour's values: one draw, if none was drawn again."""
    found, before = [], 0.0
    for record, hour in zip(records, hours, strict=True):
        values = sum(each.speed for each in hour_of(hour) if each.place == place)
        found.append(round(1000 * (record["running"]["sum"]["value"] - before - values)))
        before = record["running"]["sum"]["value"]
    return found


async def crash(pipeline: Pipeline, stores: Stores, step: str, noise: Drawn) -> None:
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


def test_after_a_crash_at_any_step_no_value_of_noise_has_left_twice_and_the_horizon_is_charged_once(
    pipeline: Pipeline,
) -> None:
    noise, steps = Drawn(), [*STEPS, "aborted"]

    async def crash_and_go_on() -> None:
        async with open_stores(pipeline) as stores:
            for hour, step in enumerate(steps):
                await close(stores, pipeline, hour)
                await crash(pipeline, stores, step, noise)
                await release(pipeline, stores, noise)
                assert await stores.redis.hlen(f"{{{pipeline.name}}}:running-before:2021-12-27:{pipeline.name}") == 0

    asyncio.run(crash_and_go_on())
    cells = by_cell(pipeline)
    assert len(cells) == PLACES
    hours = list(range(len(steps)))
    left = [z for place, cell in enumerate(_by_place(cells)) for z in noises(cells[cell], hours, place)]
    assert len(set(left)) == len(left) == PLACES * len(steps)
    assert set(left) <= noise.values, "a sum has noise that was drawn again"
    (budget,) = pipeline.budget_records().values()
    assert budget["queries"] == [{"query": "continual", "epsilon": 10.0, "places": 3}]
    assert (budget["epsilon_user_day"], budget["epsilon_sum"]) == (30.0, 0.0)


def _by_place(cells: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The cells in the order of PLACES, by their first sums' true parts: found by the smallest noise that fits."""
    import h3.api.basic_str as h3

    from tests.integration.readings import PLACES as AT

    order = [h3.latlng_to_cell(*place, 7) for place in AT]
    return [cell for cell in order if cell in cells]
