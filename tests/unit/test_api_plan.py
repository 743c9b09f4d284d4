"""`hatcast.plan`: the plans that `hatcast plan` prints."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import hatcast
from hatcast.agents.api.batching import ReadingOptions
from hatcast.lab.api import default_settings
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.policy import TrackerKeys
from tests import invoked
from tests.api_data import readings, written
from tests.batching import CONFIG
from tests.services.data import DATA
from tests.unit.test_api_policy import policy

COUNTS: list[dict[str, Any]] = [
    {"date": "2016-11-24", "hour": hour, "cell": cell, "vehicle": f"bus {bus}", "readings": 4 + bus}
    for hour in (7, 8)
    for cell in ("8748e3a34ffffff", "8748e3a35ffffff")
    for bus in range(5)
]


def printed(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoked.printed("plan", "tracker", *arguments, "--json"))
    return found


def check(found: hatcast.PlannedLimits, expected: dict[str, Any]) -> None:
    assert [f"{each.daily_limit:g}" for each in found] == [*expected["plans"]]
    for each, other in zip(found, expected["plans"].values(), strict=True):
        assert each.tracker == other["keys"]
        for name in ("live", "end"):
            assert round(getattr(each, name), 4) == other["first"][name]
            assert round(getattr(each, f"{name}_30"), 4) == other["30"][name]
        assert each.worth_having == other["first"]["worth_having"]["end"]
    assert round(found.constant, 4) == min(expected["constant"].values())


@pytest.mark.parametrize("frame", [pl.DataFrame, pd.DataFrame])
def test_a_plan_of_readings_is_that_of_the_command(tmp_path: Path, frame: Any) -> None:
    config = tmp_path / "hatcast.toml"
    config.write_text(CONFIG)
    path = written(tmp_path / "r.jsonl", readings())
    expected = printed("--data", path, "--format", "jsonl", "--config", config, "--daily-limit", "2,10")
    check(hatcast.plan(frame(readings()), policy(), daily_limits=(10, 2)), expected)
    check(hatcast.plan(path, config, format="jsonl", daily_limits=(2, 10)), expected)


def test_a_plan_of_counts_is_that_of_the_command_and_its_keys_make_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    frame = pd.DataFrame(COUNTS)
    frame.to_csv(path, index=False)
    expected = printed("--counts", path, "--daily-limit", "5")
    found = hatcast.plan(counts=frame, daily_limits=[5])
    check(found, expected)
    check(hatcast.plan(counts=path, daily_limits=[5]), expected)
    assert found.to_polars()["share"].to_list() == [found[0].share]
    made = policy(privacy={"daily_limit": found[0].daily_limit}, estimator="tracker", tracker=found[0].tracker)
    assert made.keys_of(TrackerKeys).share == found[0].share


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({}, "plan needs either data or counts"),
        ({"counts": "c.csv", "data": "r.jsonl"}, "plan needs either data or counts"),
        ({"counts": "absent.csv"}, "absent.csv: cannot be read"),
        ({"counts": pl.DataFrame({"date": ["x"]})}, "counts: a row is not counts: give the columns date, hour"),
        ({"counts": pl.DataFrame(COUNTS), "objective": "cell"}, "objective: 'cell' is not one; did you mean cells?"),
        ({"counts": pl.DataFrame(COUNTS), "daily_limits": (0,)}, "daily_limits: give epsilons from 0.001 to 1000"),
        ({"counts": pl.DataFrame(COUNTS), "min_users": 9}, "the data have no HAT with 9 users"),
        ({"data": "r", "format": "kafka"}, "plan does not read dumps"),
        (
            {
                "counts": pl.DataFrame(COUNTS),
                "policy": policy(
                    values=["speed", "delay"], value=[{"name": "delay", "unit": "s", "lower": 0, "upper": 9}]
                ),
            },
            "the policy has policy.values",
        ),
    ],
)
def test_a_wrong_argument_is_one_line(arguments: dict[str, Any], line: str) -> None:
    with pytest.raises(HatcastError) as refused:
        hatcast.plan(**arguments)
    assert str(refused.value).startswith(line)
    assert "--" not in str(refused.value)


def test_without_a_policy_the_time_zone_is_that_of_the_recognised_format() -> None:
    day = DATA / "feeds" / "capmetro.csv"
    for data in (day, pl.read_csv(day, infer_schema=False)):
        assert default_settings(None, data, ReadingOptions()).policy.timezone == "America/Chicago"
    assert default_settings(None, None, ReadingOptions()).policy.timezone == "UTC"
