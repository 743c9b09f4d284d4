"""Hours of readings for running sums, their releases by workers that may end at a step, and copies of Redis."""

import asyncio
import dataclasses
import json
import random
from datetime import date
from typing import Any, Final

import h3.api.basic_str as h3
import numpy as np
import pytest
from numpy.typing import NDArray

from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.release.continual import ContinualHats
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.stream.mechanisms import NoisyVector
from tests.integration.harness import Pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, Stores, store_closed
from tests.integration.readings import PLACES as AT
from tests.integration.test_release import (
    CrashError,
    CrashingProducers,
    abort_in_a_round,
    crash_after,
    releasing,
)

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
        assert not await releaser.final_slots()


def drawing(releaser: ReleaseLoop, noise: Any) -> None:
    assert isinstance(releaser._source, ContinualHats)
    releaser._source._context = dataclasses.replace(releaser._context, noise=noise)


async def crash(pipeline: Pipeline, stores: Stores, step: str, noise: Drawn, hour: int) -> None:
    """A worker that ends at a step of an hour's releases."""
    await close(stores, pipeline, hour)
    if step == "aborted":
        async with releasing(pipeline, stores) as releaser:
            drawing(releaser, noise)
            await abort_in_a_round(releaser)
        return
    producers = CrashingProducers if step == "sent" else TransactionalProducers
    with pytest.raises(CrashError):
        async with releasing(pipeline, stores, producers=producers) as releaser:
            drawing(releaser, noise)
            crash_after(releaser.hats_path, step)
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
