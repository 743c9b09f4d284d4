"""Several values of a reading through real Kafka and Redis: what `hatcast batch --ledger` releases, byte for byte.

The noise is acknowledged to be none, so both sides publish the true means.
"""

import json
import re
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
from tests.services import KafkaServer, RedisServer

NOON: Final = 1_641_124_800_000  # 2022-01-02T12:00Z
PLACES: Final = [(21.20, 72.80), (21.30, 72.80)]
BUSES, HOURS = 12, 3
VALUES: Final[dict[str, Any]] = {
    "values": ["speed", "delay"],
    "value": [{"name": "delay", "unit": "s", "lower": -600.0, "upper": 3600.0, "grid": 0.01}],
}
EXACT: Final = {"epsilon": 4e7, "acknowledge_weak_privacy": True, "daily_limit": 1e9, "max_hats_per_day": 1}
CLIPPED: Final = {"lower": -600_000, "upper": 3_600_000}


def readings() -> Iterator[dict[str, Any]]:
    """Each bus every 5 minutes, in one place; some without a delay, some with one that is not a number."""
    for step in range(12 * HOURS):
        for number in range(BUSES):
            lat, lon = PLACES[number % 2]
            delay: Any = -900 + 613 * number + 7.25 * step
            if (step, number) in {(2, 3), (9, 5)}:
                delay = None if number == 3 else "nan"
            at = NOON + step * 300_000 + number * 1000
            speed = 10.5 + number + step / 4
            yield {"vehicle": f"bus-{number}", "time": at, "lat": lat, "lon": lon, "speed": speed, "delay": delay}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "readings.jsonl"
    path.write_text("".join(f"{json.dumps(reading)}\n" for reading in readings()))
    return path


def pipeline_of(kafka: KafkaServer, redis: RedisServer, folder: Path, title: str, **privacy: Any) -> Any:
    changes = {"hours": [0, 24], "privacy": {**EXACT, "max_hats_per_day": HOURS, "min_users": 3, **privacy}}
    return open_pipeline(kafka, redis, folder, title, {"policy": VALUES | changes})


def without_commit(value: bytes) -> bytes:
    """Without what depends on the order and the time of the commit."""
    return re.sub(rb',"released_at":"[^"]*"', b"", re.sub(rb'"seq":\d+,', b"", value))


def true_means() -> dict[str, tuple[Fraction, Fraction]]:
    """`DATETSLOT/CELL` -> mean speed and clipped mean delay, of the readings that count."""
    found: dict[str, list[tuple[int, int]]] = {}
    for reading in readings():
        if isinstance(reading["delay"], float):
            hour = 12 + (reading["time"] - NOON) // 3_600_000
            cell = h3.latlng_to_cell(reading["lat"], reading["lon"], 7)
            delay = min(max(round(Fraction(reading["delay"]) * 1000), CLIPPED["lower"]), CLIPPED["upper"])
            found.setdefault(f"2022-01-02T{hour}:00/{cell}", []).append((round(reading["speed"] * 1000), delay))
    return {
        hat: (Fraction(sum(s for s, _ in each), len(each)), Fraction(sum(d for _, d in each), len(each)))
        for hat, each in found.items()
    }


@pytest.mark.timeout(240)
def test_the_pipeline_publishes_what_batch_releases_byte_for_byte_and_after_a_crash_the_same_bytes_again(
    kafka: KafkaServer, redis_server: RedisServer, recording: Path, tmp_path: Path
) -> None:
    with pipeline_of(kafka, redis_server, tmp_path, "values") as pipeline:
        dying = pipeline.worker(wrap=partial(die_after, "committed"))
        pipeline.wait_for_partitions(dying)
        pipeline.replay(recording, "jsonl")
        assert dying.wait() == -signal.SIGKILL, dying.log_tail()
        pipeline.bury()
        last = pipeline.worker()
        pipeline.wait(pipeline.is_settled, "releases of everything", last)
        assert pipeline.outcomes() == {"accepted": 12 * HOURS * BUSES - 2, "bad_value": 1, "undecodable": 1}
        published = {name: set(values) for name, values in pipeline.published(committed=False).items()}
        assert [name for name, values in published.items() if len(values) != 1] == []
        live = {name: without_commit(values.pop()) for name, values in published.items()}
        batch = pipeline.run("batch", recording, "--format", "jsonl", "--ledger", tmp_path / "ledger.db", "--json")
        lines = batch.out.encode().splitlines()
        assert live == {json.loads(line)["release_id"]: without_commit(line) for line in lines}
        assert len(live) == 2 * HOURS
        for name, (speed, delay) in true_means().items():
            record = json.loads(live[f"{pipeline.name}/{name}"], parse_float=Fraction)
            assert_follows("release", json.loads(lines[0]))
            assert [value["name"] for value in record["values"]] == ["speed", "delay"]
            assert abs(record["mean"] * 1000 - speed) <= 1
            assert abs(record["values"][1]["mean"] * 1000 - delay) <= 10
        oracle = pipeline.oracle()["outcomes"]
        assert {name: n for name, n in oracle.items() if name != "tick"} == pipeline.outcomes()


@pytest.mark.timeout(240)
def test_a_ledger_recovered_from_the_topics_reports_the_same_day(
    kafka: KafkaServer, redis_server: RedisServer, recording: Path, tmp_path: Path
) -> None:
    """With real noise: the records keep their values, and the day its (epsilon, delta)."""
    noisy = {"epsilon": 1.0, "daily_limit": 10.0}
    with pipeline_of(kafka, redis_server, tmp_path, "values-recovered", **noisy) as pipeline:
        first = pipeline.worker()
        pipeline.replay(recording, "jsonl")
        pipeline.wait(pipeline.is_settled, "releases of everything", first)
        before, day = pipeline.published(), pipeline.hatcast("budget", "show", "--json").json
        assert day[0]["epsilon_delta"]["epsilon"] < day[0]["epsilon_user_day"] == HOURS
        first.kill()
        pipeline.bury()
        redis_server.delete(f"{{{pipeline.name}}}*")
        redis_server.delete(f"{{{pipeline.settings.policy.name}:*")
        second = pipeline.worker()
        pipeline.wait(pipeline.is_settled, "recovered state", second)
        assert pipeline.hatcast("budget", "show", "--json").json == day
        assert {name: set(values) for name, values in pipeline.published().items()} == {
            name: set(values) for name, values in before.items()
        }
