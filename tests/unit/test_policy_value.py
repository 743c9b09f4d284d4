"""`[policy.value]`: one value other than the speed, from the policy to the published record."""

import json
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.config.settings import parse_settings
from hatcast.agents.sources.synthetic import check_speeds_only
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.policy.policy import Policy, TrackerKeys
from hatcast.stream.policy.query import Kind
from hatcast.stream.policy.table import differing_keys
from hatcast.stream.tracker.prior import Prior

DELAY: dict[str, Any] = {"name": "delay", "unit": "s", "lower": -600, "upper": 3600, "grid": 1}
PM25: dict[str, Any] = {"name": "pm25", "unit": "ug/m3", "lower": 0, "upper": 500}
PRIVACY: dict[str, Any] = {"epsilon": 1.0, "max_hats_per_day": 4, "daily_limit": 10.0}
TABLE: dict[str, Any] = {
    "name": "test",
    "timezone": "UTC",
    "privacy": PRIVACY,
    "estimator": {"name": "array_averaging"},
    "value": DELAY,
}
MEAN = {"name": "q", "kind": "mean_value", "days": 1, "epsilon": 0.1, "min_n": 4}
OVER = {"name": "q", "kind": "over_threshold", "days": 1, "epsilon": 0.1, "threshold": 300.0}


def policy(form: str = "jsonl", **changes: Any) -> Policy:
    table = {key: value for key, value in (TABLE | changes).items() if value is not None}
    return parse_settings({"policy": table, "topics": {"telemetry_format": form}}, Path(), {}).policy


def test_a_value_has_its_range_and_rejects_nothing_unless_it_is_written() -> None:
    found = policy()
    assert (found.upper_bound, found.lower, str(found.grid)) == (4_200_000, -600_000, "1.0")
    assert (found.reject_above, found.drop_zero) == (None, False)
    assert (found.released_value.name, found.released_value.unit, found.value_name) == ("delay", "s", "delay")
    assert found.released_values == (found.value,)
    assert policy(value=PM25).released_value.upper == 500_000
    set_keys = policy(reject_above=4000.0, drop_zero=True)
    assert (set_keys.reject_above, set_keys.drop_zero) == (4_000_000, True)


def test_the_value_is_part_of_the_policy_id_and_replaces_the_upper_bound() -> None:
    canonical = policy().canonical
    assert b'"value":{"grid":1000,"lower":-600000,"name":"delay","unit":"s","upper":3600000}' in canonical
    assert b"upper_bound" not in canonical
    ids = {policy().policy_id}
    for key, value in (("name", "lag"), ("unit", "min"), ("lower", -601), ("upper", 3601), ("grid", 2)):
        ids.add(policy(value=DELAY | {key: value}).policy_id)
    assert len(ids) == 6
    changed = differing_keys(canonical, policy(value=DELAY | {"upper": 3601}).canonical)
    assert changed == "policy.value.upper"


def test_a_value_named_speed_is_in_km_h_and_of_any_format() -> None:
    speed = policy("gtfs-rt", value={"name": "speed", "unit": "km/h", "lower": 5, "upper": 65})
    assert (speed.value_name, speed.value_units.single, speed.upper_bound, speed.lower) == (None, None, 60_000, 5_000)


def test_queries_have_a_threshold_in_the_values_unit() -> None:
    mean, over = policy(query=[MEAN, OVER | {"name": "late"}]).queries
    assert (mean.kind, mean.kind_name) == (Kind.MEAN_SPEED, "mean_value")
    assert (over.kind, over.kind_name, over.speed_limit) == (Kind.OVER_SPEED_LIMIT, "over_threshold", 900_000)
    assert over.canonical["threshold"] == 300_000
    early = policy(query=[OVER | {"threshold": -60}]).queries[0]
    assert (early.speed_limit, early.canonical["threshold"]) == (540_000, -60_000)


LINES: list[tuple[str, dict[str, Any], str]] = [
    (
        "jsonl",
        {"upper_bound": 65.0},
        "policy.upper_bound: is not used with [policy.value]; remove it: write policy.value.upper",
    ),
    ("jsonl", {"grid": 1.0}, "policy.grid: is not used with [policy.value]; remove it: write policy.value.grid"),
    ("jsonl", {"value": None}, "policy.upper_bound: is missing; add it to [policy], such as upper_bound = 65.0"),
    (
        "jsonl",
        {"value": DELAY | {"grid": 7}},
        "policy.value.lower: -600 is not a multiple of grid 7.0; use a multiple of it, or another grid",
    ),
    (
        "jsonl",
        {"value": PM25 | {"lower": -0.0005, "grid": 0.0001}},
        "policy.value.lower: -0.0005 is not a multiple of 0.001; use a unit in which a thousandth is fine enough",
    ),
    (
        "jsonl",
        {"value": DELAY | {"name": "speed"}},
        "policy.value.unit: 's' is not the unit of speed; write \"km/h\", or use another name",
    ),
    (
        "jsonl",
        {"value": DELAY | {"usual": [300, 0]}},
        (
            "policy.value.usual: [300, 0] is not a range within lower to upper; write two numbers from -600 to 3600,"
            " the smaller one first, or remove it"
        ),
    ),
    (
        "jsonl",
        {"value": DELAY | {"missing": -999}},
        "policy.value.missing: -999 is an integer, not a list of numbers; write missing = [-999]",
    ),
    (
        "jsonl",
        {"value": DELAY | {"usual": [0, 3601]}},
        (
            "policy.value.usual: [0, 3601] is not a range within lower to upper; write two numbers from -600 to 3600,"
            " the smaller one first, or remove it"
        ),
    ),
    (
        "jsonl",
        {"value": DELAY | {"usual": [0, 0.0001]}},
        (
            "policy.value.usual: [0, 0.0001] is not a range within lower to upper; write two numbers from -600 to 3600,"
            " the smaller one first, or remove it"
        ),
    ),
    (
        "jsonl",
        {"value": {"name": "speed", "unit": "km/h", "lower": 0, "upper": 65, "usual": [0, 30]}},
        "policy.value.usual: is not used with a speed: how speeds differ is known; remove it",
    ),
    (
        "jsonl",
        {"value": DELAY | {"name": "PM 2.5"}},
        "policy.value.name: 'PM 2.5' is not a name; use lower-case letters, digits and '_', a letter first",
    ),
    (
        "jsonl",
        {"value": {"name": "delay", "lower": 0, "upper": 1}},
        'policy.value.unit: is missing; add it to [policy.value], such as unit = "s"',
    ),
    (
        "jsonl",
        {"reject_above": 3599.0},
        'policy.reject_above: 3599 is not between value.upper and 1e6; correct it, or write "none"',
    ),
    ("jsonl", {"reject_above": "never"}, "policy.reject_above: 'never' is not a number; write s or \"none\""),
    (
        "jsonl",
        {"query": [MEAN | {"kind": "mean_speed"}]},
        (
            "policy.query[0].kind: 'mean_speed' is not a kind of query; did you mean mean_value? use one of mean_value,"
            " over_threshold"
        ),
    ),
    (
        "jsonl",
        {"query": [OVER | {"threshold": -601}]},
        (
            "policy.query[0].threshold: -601 is below lower -600, as which smaller values count; write s in"
            " [-600, upper), such as 1500, or on_request = true"
        ),
    ),
    (
        "jsonl",
        {"query": [OVER | {"threshold": 3600}]},
        (
            "policy.query[0].threshold: 3600 is not below upper 3600, so no value exceeds it; write s in [-600, upper),"
            " such as 1500, or on_request = true"
        ),
    ),
    (
        "jsonl",
        {"query": [OVER | {"speed_limit": 50.0}]},
        "policy.query[0].speed_limit: is not used by this policy's value; write threshold, in s",
    ),
    ("itms", {}, "policy.value: itms records have no value but the speed; use jsonl, hfp, siri, or remove it"),
    ("hfp", {"value": PM25}, "policy.value.name: hfp records have no 'pm25'; use 'delay', or format jsonl"),
    ("hfp", {"value": DELAY | {"unit": "min"}}, 'policy.value: hfp gives delay in s, not in min; write "s"'),
    (
        "jsonl",
        {"value": DELAY | {"name": "lat"}},
        "policy.value.name: 'lat' is a field of every jsonl record; use another name",
    ),
]


@pytest.mark.parametrize(("form", "changes", "line"), LINES, ids=[line.partition(";")[0] for *_, line in LINES])
def test_what_does_not_fit_a_value_is_rejected_with_one_line(form: str, changes: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingError) as rejected:
        policy(form, **changes)
    assert str(rejected.value) == line


def test_a_synthetic_city_has_no_other_value() -> None:
    with pytest.raises(HatcastError) as rejected:
        check_speeds_only(policy())
    assert str(rejected.value) == (
        "policy.value: a synthetic city has speeds only; replay a recording that has 'delay'"
    )


def test_the_price_of_a_tracker_is_in_proportion_to_the_range() -> None:
    def price(**value: Any) -> float:
        value = {"name": "v", "unit": "1", **value}
        tracked = policy(privacy={"daily_limit": 5.0}, estimator={"name": "tracker"}, value=value)
        return tracked.keys_of(TrackerKeys).price

    assert price(lower=-65, upper=0) == 1.5
    assert price(lower=-6500, upper=0) == 150.0
    assert price(lower=0, upper=0.065) == 0.0015
    assert price(lower=-300, upper=6500, usual=[-30, 35]) == 1.95


def test_where_most_values_are_is_a_part_of_the_policy_and_what_its_estimates_begin_with() -> None:
    plain, known = policy(), policy(value=DELAY | {"usual": [-60, 200]})
    assert plain.policy_id != known.policy_id
    assert "usual" not in json.loads(plain.canonical)["value"]
    assert json.loads(known.canonical)["value"]["usual"] == [-60_000, 200_000]
    wide, narrow = Prior.of_policy(plain), Prior.of_policy(known)
    assert (wide.city, narrow.city) == (600.0, 670.0)  # above lower: 0 and the middle, 70
    assert narrow.variances.cell == pytest.approx((1.3 * 260 / 65) ** 2 * 32)
    assert wide.variances.cell == pytest.approx((4200 / 65) ** 2 * 32)
    assert wide.variances.is_guess
    assert narrow.variances.is_guess
