"""`[[policy.running]]`: the keys of running means."""

from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.config.settings import parse_settings
from hatcast.stream.errors import SettingError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.running_keys import Running, RunningOf, Window

TABLE: dict[str, Any] = {
    "name": "test",
    "timezone": "UTC",
    "upper_bound": 65.0,
    "privacy": {"epsilon": 1.0, "max_hats_per_day": 4, "daily_limit": 10.0},
    "estimator": {"name": "array_averaging"},
}
TRACKER: dict[str, Any] = {"privacy": {"daily_limit": 5.0}, "estimator": {"name": "tracker"}}
TODAY: dict[str, Any] = {"name": "today", "window": "today"}


def policy(*running: dict[str, Any], **changes: Any) -> Policy:
    return parse_settings({"policy": TABLE | changes | {"running": list(running)}}, Path(), {}).policy


def test_running_means_are_of_releases_and_those_of_a_tracker_of_estimates() -> None:
    assert policy(TODAY).running == (Running("today", Window.TODAY, RunningOf.RELEASES, 1),)
    assert policy(TODAY | {"of": "estimates"}).running[0].of is RunningOf.ESTIMATES
    assert policy(TODAY, **TRACKER).running[0].of is RunningOf.ESTIMATES


def test_the_same_hour_is_of_28_dates_unless_another_number_is_written() -> None:
    same_hour = {"name": "weekdays", "window": "same_hour"}
    assert policy(same_hour).running[0].days == 28
    assert policy(same_hour | {"days": 7}).running[0].days == 7


def test_a_period_has_hours_and_is_of_its_date_unless_days_are_written() -> None:
    peak = {"name": "evening-peak", "window": "period", "hours": [16, 19]}
    assert policy(peak).running == (Running("evening-peak", Window.PERIOD, RunningOf.RELEASES, 1, (16, 19)),)
    assert policy(peak | {"days": 28}).running[0].days == 28
    assert not policy(peak).running[0].has_hour("15:30")
    assert policy(peak).running[0].has_hour("16:00")
    assert not policy(peak).running[0].has_hour("19:00")


def test_running_means_are_no_part_of_the_policy_id() -> None:
    assert policy(TODAY, {"name": "week", "window": "7d"}).policy_id == policy().policy_id
    assert policy(TODAY).canonical == policy().canonical


@pytest.mark.parametrize(
    ("running", "changes", "message"),
    [
        ([{"name": "today"}], {}, "policy.running[0].window: is missing; add it to [[policy.running]]"),
        ([TODAY | {"window": "24"}], {}, "policy.running[0].window: '24' is not a window; did you mean 24h?"),
        ([TODAY | {"of": "release"}], {}, "policy.running[0].of: 'release' is not a kind of records; did you mean"),
        ([TODAY | {"days": 3}], {}, 'policy.running[0].days: is only for window = "same_hour" and "period"; remove it'),
        ([{"name": "a", "window": "same_hour", "days": 93}], {}, "policy.running[0].days: 93 is out of range"),
        ([TODAY | {"hours": [7, 9]}], {}, 'policy.running[0].hours: is only for window = "period"; remove it'),
        (
            [{"name": "a", "window": "period"}],
            {},
            "policy.running[0].hours: is missing; write a period's hours, such as",
        ),
        (
            [{"name": "a", "window": "period", "hours": [22, 6]}],
            {},
            "policy.running[0].hours: [22, 6] are not two hours",
        ),
        ([{"name": "a", "window": "period", "hours": [5, 9]}], {}, "policy.running[0].hours: [5, 9] has no hour of"),
        ([TODAY | {"name": "a/b"}], {}, "policy.running[0].name: 'a/b' cannot be part of a key"),
        ([TODAY, TODAY], {}, "policy.running[1].name: 'today' is used twice; give each its own name"),
        ([TODAY | {"name": f"r{at}"} for at in range(9)], {}, "policy.running: 9 running means; write at most 8"),
        ([TODAY | {"of": "releases"}], TRACKER, "policy.running[0].of: a tracker's releases are not of every slot"),
    ],
)
def test_a_wrong_running_mean_is_refused_in_one_line(
    running: list[dict[str, Any]], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError) as refusal:
        policy(*running, **changes)
    assert str(refusal.value).startswith(message)


def test_a_continual_policy_has_no_running_means_of_its_running_means() -> None:
    continual = {"kind": "laplace", "horizon_days": 7, "max_slots": 14, "max_cells": 20}
    table = {key: value for key, value in TABLE.items() if key != "estimator"}
    table |= {"privacy": {"epsilon": 1.0}, "continual": continual, "hours": [0, 24]}
    assert parse_settings({"policy": table}, Path(), {}).policy.method.has_horizons
    with pytest.raises(SettingError, match=r"policy\.running: the releases of \[policy\.continual\]"):
        parse_settings({"policy": table | {"running": [TODAY]}}, Path(), {})
