"""A value other than the speed through real Kafka and Redis: delays from ten minutes early to an hour late.

The noise is acknowledged to be none, so `hatcast batch --ledger` and the pipeline publish the true means.
"""

import json
import signal
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final

import h3.api.basic_str as h3
import pytest

from tests.integration.crashing_worker import die_after
from tests.integration.harness import open_pipeline
from tests.integration.test_pipeline import assert_follows
from tests.integration.test_values import without_commit
from tests.services import KafkaServer, RedisServer

NOON: Final = 1_641_124_800_000  # 2022-01-02T12:00Z
PLACES: Final = [(21.20, 72.80), (21.30, 72.80)]
BUSES, HOURS = 12, 3
LOWER, UPPER = -600_000, 3_600_000
QUERY: Final = {"days": 1, "epsilon": 1e6}
POLICY: Final[dict[str, Any]] = {
    "upper_bound": None,
    "value": {"name": "delay", "unit": "s", "lower": -600, "upper": 3600, "grid": 0.01},
    "hours": [0, 24],
    "privacy": {
        "epsilon": 4e6,
        "acknowledge_weak_privacy": True,
        "daily_limit": 1e9,
        "max_hats_per_day": HOURS,
        "min_users": 3,
    },
    "query": [
        {"name": "mean-delay", "kind": "mean_value", "min_n": 3, **QUERY},
        {"name": "early", "kind": "over_threshold", "threshold": -300, **QUERY},
    ],
}


def readings() -> Iterator[dict[str, Any]]:
    """Each bus every 5 minutes, in one place: the first ones are early, the last ones more than an hour late.

    Some readings have no delay, one that is not a number, one in another unit, or a delay in the field `delay`.
    """
    for step in range(12 * HOURS):
        for number in range(BUSES):
            lat, lon = PLACES[number % 2]
            delay: Any = -700 + 410 * number + 7.25 * step
            named: dict[str, Any] = {"value": delay}
            if (step, number) in {(2, 3), (9, 5), (4, 4), (5, 4)}:
                odd: dict[int, dict[str, Any]] = {
                    3: {"speed": 30.0},
                    5: {"value": "nan"},
                    4: {"value": delay, "unit": "min"},
                }
                named = {"delay": delay} if (step, number) == (5, 4) else odd[number]
            at = NOON + step * 300_000 + number * 1000
            yield {"vehicle": f"bus-{number}", "time": at, "lat": lat, "lon": lon, **named}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "readings.jsonl"
    path.write_text("".join(f"{json.dumps(reading)}\n" for reading in readings()))
    return path


def counted() -> Iterator[tuple[str, str, int]]:
    """Of each reading that counts: `DATETSLOT/CELL`, its bus, and its delay clipped to the range, in milliseconds."""
    for reading in readings():
        delay = reading.get("delay", reading.get("value"))
        if delay is None or reading.get("unit") == "min":
            continue
        hour = 12 + (reading["time"] - NOON) // 3_600_000
        cell = h3.latlng_to_cell(reading["lat"], reading["lon"], 7)
        milli = LOWER if delay == "nan" else min(max(round(Fraction(delay) * 1000), LOWER), UPPER)
        yield f"2022-01-02T{hour}:00/{cell}", reading["vehicle"], milli


def true_means() -> dict[str, Fraction]:
    found: dict[str, list[int]] = {}
    for hat, _, milli in counted():
        found.setdefault(hat, []).append(milli)
    return {hat: Fraction(sum(each), len(each)) for hat, each in found.items()}


def true_numbers_over(threshold: int) -> dict[str, int]:
    """`DATETSLOT/CELL` -> buses with a greater delay at some time."""
    over = {(hat, bus) for hat, bus, milli in counted() if milli > threshold}
    return {hat: sum(1 for each, _ in over if each == hat) for hat in true_means()}


@pytest.mark.timeout(300)
def test_delays_are_published_as_batch_releases_them_with_their_unit_and_after_a_crash_the_same_bytes_again(
    kafka: KafkaServer, redis_server: RedisServer, recording: Path, tmp_path: Path
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "delays", {"policy": POLICY}) as pipeline:
        dying = pipeline.worker(wrap=partial(die_after, "committed"))
        pipeline.wait_for_partitions(dying)
        pipeline.replay(recording, "jsonl")
        assert dying.wait() == -signal.SIGKILL, dying.log_tail()
        pipeline.bury()
        last = pipeline.worker()
        pipeline.wait(pipeline.is_settled, "releases of everything", last)
        assert pipeline.outcomes() == {"accepted": 12 * HOURS * BUSES - 2, "undecodable": 2}
        published = {name: set(values) for name, values in pipeline.published(committed=False).items()}
        assert [name for name, values in published.items() if len(values) != 1] == []
        live = {name: without_commit(values.pop()) for name, values in published.items()}
        batch = pipeline.run("batch", recording, "--format", "jsonl", "--ledger", tmp_path / "ledger.db", "--json")
        of_batch = {json.loads(line)["release_id"]: without_commit(line) for line in batch.out.encode().splitlines()}
        means = {name: line for name, line in of_batch.items() if name.count("/") == 2}
        assert {name: line for name, line in live.items() if name.count("/") == 2} == means
        assert len(means) == 2 * HOURS
        for hat, mean in true_means().items():
            line = means[f"{pipeline.name}/{hat}"]
            record = json.loads(line, parse_float=Fraction)
            assert (record["value"], record["unit"]) == ("delay", "s")
            assert abs(record["mean"] * 1000 - mean) <= 10
        for hat, number in true_numbers_over(-300_000).items():
            record = json.loads(of_batch[f"{pipeline.name}/{hat}/early"])
            assert (record["kind"], record["threshold"], record["unit"]) == ("over_threshold", -300.0, "vehicles/day")
            assert record["mean"] == pytest.approx(number, abs=0.01)
        assert_estimates(pipeline)


def assert_estimates(pipeline: Any) -> None:
    shown = pipeline.hatcast("tail", "--estimates", "--from-beginning", "--json", "--for", "5")
    estimates = [json.loads(line) for line in shown.out.splitlines()]
    assert {(each["value"], each["unit"]) for each in estimates} == {("delay", "s")}
    for estimate in estimates:
        assert_follows("estimate", estimate)
        low, high = estimate["road"]["interval95"]
        assert -600 <= low <= estimate["road"]["value"] <= high <= 3600
    lines = pipeline.hatcast("tail", "--means", "--from-beginning", "--for", "5").out.splitlines()
    assert all(" s delay " in line for line in lines)
    assert len(lines) >= 2 * HOURS


LOCAL: Final = 20
DEVICES: Final[dict[str, Any]] = {
    **{key: POLICY[key] for key in ("upper_bound", "value", "hours")},
    "privacy": {"epsilon": 1e7, "acknowledge_weak_privacy": True, "daily_limit": 1e9, "max_hats_per_day": 1},
    "estimator": {"name": "pwh", "groups": "separate"},
}


def delays_of(buses: int) -> Iterator[dict[str, Any]]:
    """Each bus three times in one hour, ten minutes early to ten minutes late."""
    for step in range(3):
        for number in range(buses):
            at = NOON + step * 600_000 + number * 1000
            place = dict(zip(("lat", "lon"), PLACES[0], strict=True))
            yield {"vehicle": f"bus-{number:02}", "time": at, **place, "delay": -580 + 28.25 * number + step}


@pytest.mark.timeout(240)
def test_devices_report_delays_below_0_and_the_blend_is_in_the_values_unit(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    """The noise of both groups is acknowledged to be hardly any: their means are the true ones."""
    with open_pipeline(kafka, redis_server, tmp_path, "device-delays", {"policy": DEVICES}) as pipeline:
        hour, local = tmp_path / "hour.jsonl", tmp_path / "local.txt"
        readings = [*delays_of(2 * LOCAL)]
        hour.write_text("".join(f"{json.dumps(reading)}\n" for reading in readings))
        local.write_text("".join(f"bus-{number:02}\n" for number in range(LOCAL)))
        worker = pipeline.worker()
        pipeline.replay(hour, "jsonl", "--speedup", 0, "--except-vehicles", local)
        given = ("--vehicles-file", local, "--speedup", 0, "--state", tmp_path / "fleet.db", "--format", "jsonl")
        pipeline.run("device", hour, *given)
        pipeline.wait(pipeline.is_settled, "releases of everything", worker)
        reports = [json.loads(each.value) for each in kafka.read(pipeline.settings.topics.reports) if each.value]
        assert len(reports) == LOCAL
        assert [round(each["value"], 1) for each in sorted(reports, key=lambda each: each["value"])] == [
            round(-580 + 28.25 * number + 1, 1) for number in range(LOCAL)
        ]
        ((value,),) = pipeline.published().values()
        record = json.loads(value)
        assert (record["value"], record["unit"], record["users"]) == ("delay", "s", {"central": LOCAL, "local": LOCAL})
        local_mean, central_mean = (-579 + 28.25 * (first + (LOCAL - 1) / 2) for first in (0, LOCAL))
        groups, weight = record["groups"], record["weight"]
        assert groups["local"]["mean"] == pytest.approx(local_mean, abs=0.05)
        assert groups["central"]["mean"] == pytest.approx(central_mean, abs=0.05)
        assert local_mean < 0 < central_mean
        assert record["mean"] == pytest.approx(weight * central_mean + (1 - weight) * local_mean, abs=0.05)
