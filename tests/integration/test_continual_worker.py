"""`hatcast worker` with running sums: one is killed and two go on, against `hatcast batch` over the same log."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hatcast.stream.mechanisms import NoisyVector
from hatcast.stream.mechanisms.system import SystemNoise
from tests.batching import batch, releases
from tests.integration.crashing_worker import die_after
from tests.integration.harness import Pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, ticks
from tests.integration.running_sums import LATENESS_MS, PLACES, TABLE, USERS, hour_of
from tests.integration.tables import merged

HOURS = (24, 25, 26, 48, 49)  # after a Sunday's noon: on two dates of a horizon
pytestmark = pytest.mark.pipeline(merged(TABLE, {"policy": {"continual": {"kind": "tree"}}}), topics=True)


def silent(self: SystemNoise, values: NDArray[np.int64], distance: int, epsilon: float) -> NoisyVector:
    """No noise, so that two ledgers have the same bytes."""
    return NoisyVector(values, distance / epsilon)


def quiet(step: str | None = None) -> None:
    """Wrap a worker: it draws no noise, and is killed at a step of its first release."""
    SystemNoise.laplace_many = silent  # type: ignore[method-assign]  # in the worker's own process
    if step is not None:
        die_after(step)


def elsewhere(hour: int) -> Sample:
    """A vehicle in one cell more than the policy lets it enter in a horizon."""
    return Sample("GJ05BX0000", NOON_MS + hour * HOUR_MS + PLACES * 60_000, PLACES, 50.0)


def comparable(records: list[dict[str, Any]]) -> dict[str, Any]:
    """All but the time and the order of the commits."""
    drop = {"seq", "released_at"}
    return {each["release_id"]: {key: value for key, value in each.items() if key not in drop} for each in records}


def published(pipeline: Pipeline) -> list[dict[str, Any]]:
    values = pipeline.published(committed=False)
    assert all(len(set(each)) == 1 for each in values.values()), "two values of one release"
    return [json.loads(each[0]) for each in values.values()]


@pytest.mark.timeout(240)
def test_releases_of_workers_of_which_one_is_killed_are_those_of_batch(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = pipeline.worker(wrap=partial(quiet, "committed"))
    pipeline.wait_for_partitions(killed)
    records = [sample.record(sample.time_ms) for hour in HOURS for sample in [*hour_of(hour), elsewhere(hour)]]
    pipeline.kafka.produce(
        pipeline.settings.topics.telemetry, [*records, *ticks(NOON_MS + (HOURS[-1] + 1) * HOUR_MS + LATENESS_MS)]
    )
    pipeline.wait(lambda: killed.code is not None, "killed worker")
    workers = pipeline.worker(wrap=quiet), pipeline.worker(wrap=quiet)
    pipeline.wait(lambda: len(pipeline.published()) == PLACES * len(HOURS), "released sums", *workers)
    live = published(pipeline)
    dump = pipeline.folder / "telemetry.jsonl"
    assert pipeline.hatcast("dump", "telemetry", "--output", dump).code == 0
    monkeypatch.setattr(SystemNoise, "laplace_many", silent)
    ledger = pipeline.folder / "ledger"
    done = batch(dump, "--format", "kafka", "--config", pipeline.config, "--ledger", ledger, "--json")
    assert comparable(releases(done)) == comparable(live)
    counted = {"accepted": PLACES * USERS * len(HOURS), "over_participation": len(HOURS)}
    assert pipeline.outcomes() == counted
    assert {each["status"] for each in live} == {"released"}
