"""`[policy] values`: what is accepted, what every other combination is told, and that nothing else changes."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hatcast.agents.cli.budget import command as budget
from hatcast.agents.config.settings import parse_settings
from hatcast.agents.sources.synthetic import check_speeds_only
from hatcast.lab.days import policy_of_recordings
from hatcast.lab.survey.run import survey_policy
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.table import differing_keys
from tests.batching import refusal
from tests.integration.tables import toml

DELAY: dict[str, Any] = {"name": "delay", "unit": "s", "lower": -600.0, "upper": 3600.0, "grid": 1.0}
LOAD: dict[str, Any] = {"name": "load", "unit": "%", "lower": 0, "upper": 100}
PRIVACY: dict[str, Any] = {"epsilon": 1.0, "max_hats_per_day": 4, "daily_limit": 10.0}
TABLE: dict[str, Any] = {
    "name": "test",
    "upper_bound": 65.0,
    "timezone": "UTC",
    "privacy": PRIVACY,
    "estimator": {"name": "array_averaging"},
    "values": ["delay", "speed"],
    "value": [DELAY],
}
PLAIN_ID = "b2:d211cf590a4490d71ea09ba6947d463d"  # as it was before there were values
ABLE = "baseline, array_averaging, opt_array_averaging, clipped_sum, weighted_mean"
QUERY = {"name": "q", "kind": "mean_speed", "days": 1, "epsilon": 0.1, "min_n": 4}


def policy(**changes: Any) -> Policy:
    table = {key: value for key, value in (TABLE | changes).items() if value is not None}
    return parse_settings({"policy": table}, Path(), {}).policy


def test_a_policy_has_its_values_with_the_speed_first() -> None:
    speed, load, delay = policy(values=["load", "speed", "delay"], value=[DELAY, LOAD]).released_values
    assert (speed.name, speed.unit, speed.lower, speed.upper, str(speed.grid)) == ("speed", "km/h", 0, 65_000, "0.001")
    assert (load.name, load.unit, load.lower, load.upper, str(load.grid)) == ("load", "%", 0, 100_000, "0.001")
    assert (delay.name, delay.unit, delay.lower, delay.upper, str(delay.grid)) == (
        "delay",
        "s",
        -600_000,
        3_600_000,
        "1.0",
    )
    assert delay.width == 4_200_000


def test_the_values_are_part_of_the_policy_id_and_a_policy_without_them_keeps_its_own() -> None:
    plain = policy(values=None, value=None)
    assert [value.name for value in plain.released_values] == ["speed"]
    assert b"values" not in plain.canonical
    assert plain.policy_id == PLAIN_ID
    several = policy()
    assert differing_keys(plain.canonical, several.canonical) == "policy.values"
    assert several.policy_id == policy(values=["speed", "delay"]).policy_id, "where the speed is listed is no matter"
    ids = {several.policy_id}
    for key, value in (("unit", "min"), ("lower", -601.0), ("upper", 3601.0), ("grid", 2.0)):
        ids.add(policy(value=[DELAY | {key: value}]).policy_id)
    ids.add(policy(values=["speed", "delay", "load"], value=[DELAY, LOAD]).policy_id)
    ids.add(policy(values=["speed", "load", "delay"], value=[DELAY, LOAD]).policy_id)
    assert len(ids) == 7


TRACKED: dict[str, Any] = {"privacy": {"daily_limit": 5.0}, "estimator": {"name": "tracker"}}
HIDDEN = {
    "privacy": {**PRIVACY, "relation": "add_remove"},
    "estimator": {"name": "capped_ratio", "array_length": 40},
}
LINES: list[tuple[dict[str, Any], str]] = [
    (
        {"values": "speed"},
        'policy.values: \'speed\' is text, not a list of texts; write values = ["speed", "delay"]',
    ),
    (
        {"values": ["speed"]},
        "policy.values: lists 'speed' alone, which is the default; remove it, or list another value",
    ),
    ({"values": ["delay"]}, 'policy.values: lacks \'speed\'; add it: values = ["speed", "delay"]'),
    ({"values": ["speed", "delay", "delay"]}, "policy.values: 'delay' is listed twice; list each value once"),
    (
        {"values": ["speed", "De lay"]},
        "policy.values: 'De lay' is not a name; use lower-case letters, digits and '_', a letter first",
    ),
    (
        {"values": ["speed", *(f"v{n}" for n in range(8))]},
        "policy.values: lists 9 values; list at most 8",
    ),
    (
        {"values": ["speed", "load"]},
        "policy.values: 'load' is not defined; add [[policy.value]] with its name, unit, lower and upper",
    ),
    (
        {"value": None},
        "policy.values: 'delay' is not defined; add [[policy.value]] with its name, unit, lower and upper",
    ),
    (
        {"values": None},
        (
            'policy.value: is not used without policy.values; add values = ["speed", ..]; for one value write '
            "[policy.value], with one bracket, and no upper_bound"
        ),
    ),
    (
        {"value": [DELAY, LOAD]},
        "policy.value: 'load' is not one of policy.values; add it to policy.values, or remove it",
    ),
    ({"value": [DELAY, DELAY]}, "policy.value: defines a value twice; give each value one table"),
    (
        {"value": DELAY},
        "policy.value: is one table; write [[policy.value]], with two brackets, for each value but speed",
    ),
    (
        {"value": [DELAY | {"name": "speed"}]},
        "policy.value[0].name: 'speed' is defined by policy.upper_bound and policy.grid; remove the table",
    ),
    (
        {"value": [{key: value for key, value in DELAY.items() if key != "unit"}]},
        'policy.value[0].unit: is missing; add it to [[policy.value]], such as unit = "s"',
    ),
    (
        {"value": [DELAY | {"unit": " "}]},
        "policy.value[0].unit: ' ' is not a unit; write 1 to 16 characters, such as \"s\"",
    ),
    ({"value": [DELAY | {"upper": 1e7}]}, "policy.value[0].upper: 1e+07 is too large; use at most 1e+06"),
    ({"value": [DELAY | {"lower": float("nan")}]}, "policy.value[0].lower: nan is too large; use at most 1e+06"),
    (
        {"value": [DELAY | {"lower": 3600}]},
        "policy.value[0].upper: 3600 is not above lower; write the largest value to count",
    ),
    (
        {"value": [DELAY | {"grid": 0}]},
        "policy.value[0].grid: 0 is not in (0, upper - lower]; use a small step, such as 0.001",
    ),
    (
        {"value": [DELAY | {"lower": 0.0005, "upper": 0.0019, "grid": 0.0014}]},  # one milli-unit apart
        "policy.value[0].grid: 0.0014 is not in (0, upper - lower]; use a small step, such as 0.001",
    ),
    (
        {"value": [DELAY | {"usual": [0, 300]}]},
        "policy.value[0].usual: is of one value alone, which has estimates; remove it",
    ),
    ({"value": [DELAY | {"grid": 1e-7}]}, "policy.value[0].grid: 1e-07 is too fine; use at least 0.000001"),
    (
        {"value": [DELAY | {"sigma": 1}]},
        "policy.value[0].sigma: is not a known key; known keys are grid, lower, missing, name, unit, upper, usual",
    ),
    (
        {"estimator": {"name": "levy"}},
        f"policy.values: levy releases speeds only; use one of {ABLE}, or remove it",
    ),
    (
        TRACKED,
        f"policy.values: tracker releases speeds only; use one of {ABLE}, or remove it",
    ),
    (
        {"estimator": {"name": "pwh"}},
        f"policy.values: pwh releases speeds only; use one of {ABLE}, or remove it",
    ),
    (
        {"query": [QUERY]},
        "policy.query: reads speeds only, but this policy has values; move the queries to a policy of their own",
    ),
]


@pytest.mark.parametrize(("changes", "line"), LINES, ids=[line.partition(";")[0] for _, line in LINES])
def test_every_other_combination_is_refused_with_one_line(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as refused:
        policy(**changes)
    assert str(refused.value) == line


def test_add_remove_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cells.txt").write_text('source = "public"\n87608b0d2ffffff\n')
    table = {"policy": TABLE | HIDDEN | {"cells": "cells.txt"}}
    with pytest.raises(SettingError) as refused:
        parse_settings(table, tmp_path, {})
    assert str(refused.value) == (
        "policy.values: several values are not proved for 'add_remove'; use relation = \"replace\", or remove it"
    )


@pytest.mark.parametrize(
    ("form", "changes", "line"),
    [
        ("itms", {}, "policy.values: itms records have no value but the speed; use jsonl, hfp, siri, or remove it"),
        (
            "gtfs-rt",
            {},
            "policy.values: gtfs-rt records have no value but the speed; use jsonl, hfp, siri, or remove it",
        ),
        (
            "hfp",
            {"values": ["speed", "load"], "value": [LOAD]},
            "policy.values: hfp records have no 'load'; use 'delay', or format jsonl",
        ),
        ("hfp", {"value": [DELAY | {"unit": "min"}]}, 'policy.value: hfp gives delay in s, not in min; write "s"'),
        (
            "jsonl",
            {"values": ["speed", "lat"], "value": [DELAY | {"name": "lat"}]},
            "policy.values: 'lat' is a field of every jsonl record; use another name",
        ),
    ],
)
def test_a_format_without_a_value_is_refused_with_one_line(form: str, changes: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as refused:
        parse_settings({"policy": TABLE | changes, "topics": {"telemetry_format": form}}, Path(), {})
    assert str(refused.value) == line


def written(tmp_path: Path) -> Path:
    path = tmp_path / "hatcast.toml"
    path.write_text(toml({"policy": TABLE}))
    return path


def test_batch_refuses_a_recording_whose_format_lacks_a_value(tmp_path: Path) -> None:
    said = refusal(tmp_path / "any.csv", "--format", "capmetro", "--config", written(tmp_path))
    assert said == "policy.values: capmetro records have no value but the speed; use jsonl, hfp, siri, or remove it"


def test_commands_that_measure_speeds_refuse_the_policy_and_name_the_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(HatcastError) as refused:
        policy_of_recordings(path, "jsonl")
    assert str(refused.value) == (
        f"{path}: has policy.values, but this command reads one value only; remove them in a copy"
    )


def test_a_synthetic_city_is_refused_since_it_has_speeds_only() -> None:
    with pytest.raises(HatcastError, match="a synthetic city has speeds only; remove them, or replay a recording"):
        check_speeds_only(policy())


def test_the_explained_budget_names_what_is_hidden_and_what_is_not(tmp_path: Path) -> None:
    result = CliRunner(catch_exceptions=False).invoke(budget, ["explain", "--config", str(written(tmp_path))])
    said = " ".join(result.output.split())
    assert "differ only in how fast one bus went and its delay on one day" in said
    assert "Hidden is how fast a bus went and its delay. Not hidden is " in said
    assert "which of its readings lack a value" in said


def test_a_survey_counts_the_readings_of_a_policy_with_values(tmp_path: Path) -> None:
    assert survey_policy(written(tmp_path), "jsonl", {}, None).released_values[1:] == ()
