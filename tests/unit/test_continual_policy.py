"""`[policy.continual]`: its keys and defaults, its horizons, and what is rejected."""

import json
from collections.abc import Callable
from datetime import date
from fractions import Fraction
from typing import Any

import pytest

from hatcast.agents.config.settings import policy_of_table
from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.users import SlotIndex, horizon_of
from hatcast.stream.ledger.day import Reserved, reservations
from hatcast.stream.policy.continual_keys import AtEnd, ContinualKind
from hatcast.stream.policy.policy import ContinualKeys, NoiseKind, Policy, read_policy
from hatcast.stream.policy.query import RUNNING_SUMS
from hatcast.stream.release.continual import setting_of
from hatcast.stream.units import NANO

CONTINUAL: dict[str, Any] = {"kind": "toeplitz", "horizon_days": 7, "max_slots": 14, "max_cells": 20}
POLICY: dict[str, Any] = {"name": "surat-week", "upper_bound": 65.0, "timezone": "Asia/Kolkata"}


FILES: dict[str, str] = {}
READ: Callable[[str], str] = FILES.__getitem__


def policy(continual: dict[str, Any] | None = None, **changes: Any) -> Policy:
    table = POLICY | {"continual": CONTINUAL | (continual or {})} | changes
    table["privacy"] = {"epsilon": 1.0} | changes.get("privacy", {})
    given = {key: value for key, value in table["continual"].items() if value is not None}
    return read_policy(table | {"continual": given}, ESTIMATOR_KEYS, READ)


def keys_of(made: Policy) -> Any:
    return made.keys_of(ContinualKeys)


def test_a_continual_policy_has_the_limits_that_its_participation_implies() -> None:
    made = policy()
    assert (made.unit, made.estimator, made.daily_limit, made.epsilon_nano) == ("user_horizon", "continual", 20.0, 0)
    assert made.max_hats_per_day == 20 * 12  # a day has 12 slots within the hours, fewer than max_slots
    assert policy({"min_separation": 5}, hours=[0, 24]).max_hats_per_day == 20 * 5
    keys = keys_of(made)
    assert (keys.kind, keys.noise, keys.slots, keys.at_end) == (ContinualKind.TOEPLITZ, NoiseKind.GAUSSIAN, 84, "renew")
    assert not made.is_pure
    assert policy({"kind": "tree"}).is_pure


def test_every_key_is_hashed_and_a_default_is_its_value() -> None:
    changed: list[dict[str, Any]] = [
        {},
        {"kind": "blt"},
        {"kind": "blt", "buffers": 4},
        {"kind": "kary"},
        {"kind": "kary", "branching": 3},
        {"noise": "laplace"},
        {"horizon_days": 8},
        {"max_slots": 13},
        {"min_separation": 2},
        {"max_cells": 19},
        {"from": "2022-01-01"},
        {"from": "2022-01-01", "at_end": "stop"},
    ]
    assert len({policy(each).policy_id for each in changed}) == len(changed)
    assert policy({"noise": "gaussian", "at_end": "renew", "min_separation": 1}).policy_id == policy().policy_id
    assert policy({"kind": "blt", "buffers": 3}).policy_id == policy({"kind": "blt"}).policy_id
    assert policy(privacy={"daily_limit": 20.0}).policy_id == policy().policy_id
    assert json.loads(policy().canonical)["continual"] == CONTINUAL | {
        "noise": "gaussian",
        "min_separation": 1,
        "at_end": "renew",
    }


def test_the_mechanism_has_the_branching_of_the_least_error_unless_one_is_given() -> None:
    assert keys_of(policy({"kind": "kary", "max_slots": 24}, hours=[0, 24])).branching is None
    assert keys_of(policy({"kind": "kary", "branching": 7})).branching == 7


def test_a_week_is_monday_to_sunday_and_other_horizons_are_counted_from_one() -> None:
    keys = keys_of(policy())
    assert horizon_of(keys, "2022-01-05").dates[0] == "2022-01-03"  # a Monday
    assert {horizon_of(keys, day).dates[0] for day in horizon_of(keys, "2022-01-05").dates} == {"2022-01-03"}
    assert keys.horizon_of("1970-01-04") is None
    assert policy({"from": "1970-01-05"}).policy_id == policy().policy_id
    assert horizon_of(keys_of(policy({"horizon_days": 10})), "1970-01-15").dates[0] == "1970-01-15"


def test_a_first_date_begins_the_first_horizon_and_stop_makes_it_the_only_one() -> None:
    renewed = keys_of(policy({"from": "2022-01-01"}))
    assert renewed.horizon_of("2021-12-31") is None
    assert [horizon_of(renewed, day).dates[0] for day in ("2022-01-07", "2022-01-08")] == ["2022-01-01", "2022-01-08"]
    stopped = keys_of(policy({"from": "2022-01-01", "at_end": "stop"}))
    assert stopped.at_end is AtEnd.STOP
    assert stopped.horizon_of("2022-01-07") is not None
    assert stopped.horizon_of("2022-01-08") is None
    with pytest.raises(ValueError, match="not in a horizon"):
        horizon_of(stopped, "2022-01-08")
    replacing = policy({"from": None}, replaces="old", **{"from": "2022-01-04"})
    assert keys_of(replacing).first == date(2022, 1, 4)


def test_slots_are_numbered_by_the_local_clock_without_gaps_but_for_skipped_hours() -> None:
    made = policy(timezone="Europe/Helsinki", hours=[0, 24])
    index, calendar = SlotIndex(made), Calendar(made)
    days = horizon_of(keys_of(made), "2022-03-27").dates  # on its Sunday 03:00 to 04:00 is skipped
    numbers = [index.of(day, slot.name) for day in days for slot in calendar.slots_of(day)]
    assert numbers == [number for number in range(168) if number != 6 * 24 + 3]
    autumn = horizon_of(keys_of(made), "2022-10-30").dates  # 03:00 to 04:00 is repeated
    assert sorted(index.of(day, slot.name) for day in autumn for slot in calendar.slots_of(day)) == list(range(168))


def test_numbers_of_slots_count_only_those_within_the_hours() -> None:
    made = policy(slot_length="30m", hours=[9, 21])
    index = SlotIndex(made)
    assert keys_of(made).slots == 7 * 24
    assert [index.of("2022-01-03", name) for name in ("09:00", "09:30", "20:30")] == [0, 1, 23]
    assert index.of("2022-01-04", "09:00") == 24
    for name in ("08:30", "21:00", "09:15"):
        with pytest.raises(ValueError, match="within the policy's hours"):
            index.of("2022-01-03", name)


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"kind": "topelitz"}, {}, "policy.continual.kind: 'topelitz' is not a kind; did you mean toeplitz? use one of"),
    ({"kind": None}, {}, 'policy.continual.kind: is missing; add it to [policy.continual], such as kind = "toeplitz"'),
    ({"max_slot": 3}, {}, "policy.continual.max_slot: is not a known key; did you mean max_slots?"),
    ({"horizon_days": 0}, {}, "policy.continual.horizon_days: 0 is not a valid number of days; use 1 to 3660"),
    ({"horizon_days": 3661}, {}, "policy.continual.horizon_days: 3661 is not a valid number of days"),
    (
        {"horizon_days": 366},
        {"slot_length": "1m"},
        "policy.continual.horizon_days: 366 days have 263,520 slots; use at most 138, or longer slots",
    ),
    ({"max_slots": 85}, {}, "policy.continual.max_slots: 85 is out of range; use 1 to 84"),
    ({"max_slots": 0}, {}, "policy.continual.max_slots: 0 is out of range"),
    ({"min_separation": 0}, {}, "policy.continual.min_separation: 0 is out of range; use 1 to 84"),
    ({"max_cells": 0}, {}, "policy.continual.max_cells: 0 is out of range; use 1 to 5461"),
    ({"max_cells": 5462}, {}, "policy.continual.max_cells: 5462 is out of range"),
    (
        {"max_slots": 14, "min_separation": 7},
        {},
        "policy.continual.max_slots: 14 slots that are 7 apart do not fit into the 84 of a horizon; use at most 12",
    ),
    ({"noise": "gauss"}, {}, "policy.continual.noise: 'gauss' is not a noise distribution; did you mean gaussian?"),
    ({"kind": "laplace", "noise": "gaussian"}, {}, "policy.continual.noise: kind 'laplace' has laplace noise; remove"),
    ({"branching": 5}, {}, "policy.continual.branching: is not used by kind 'toeplitz'; remove it"),
    ({"kind": "kary", "branching": 4}, {}, "policy.continual.branching: 4 is not an odd number from 3 to 4095"),
    ({"buffers": 3}, {}, "policy.continual.buffers: is not used by kind 'toeplitz'; remove it"),
    ({"kind": "blt", "buffers": 0}, {}, "policy.continual.buffers: 0 is out of range; use 1 to 10"),
    ({"at_end": "renewed"}, {}, "policy.continual.at_end: 'renewed' is unknown; did you mean renew?"),
    ({"at_end": "stop"}, {}, 'policy.continual.from: is missing, and at_end = "stop" requires it'),
    ({"from": "1970-01-04"}, {}, "policy.continual.from: '1970-01-04' is too early; use 1970-01-05 or later"),
    ({"from": ""}, {}, "policy.continual.from: '' is not a date; use a local date"),
    ({"from": "January"}, {}, "policy.continual.from: 'January' is not a date; use a local date"),
    (
        {"from": "2022-01-01"},
        {"replaces": "old", "from": "2022-02-01"},
        "policy.continual.from: '2022-01-01' is before policy.from; use 2022-02-01 or later",
    ),
    ({}, {"estimator": {"name": "levy"}}, "policy.estimator: is not used with [policy.continual]; remove it: policy."),
    ({}, {"tracker": {"share": 0.3}}, "policy.tracker: is not used with [policy.continual]"),
    ({}, {"query": [{"name": "q"}]}, "policy.query: is not used with [policy.continual]; remove it, or move it to"),
    ({}, {"values": ["speed", "delay"]}, "policy.values: is not used with [policy.continual]"),
    ({}, {"value": [{"name": "delay"}]}, "policy.value: is not used with [policy.continual]; write [policy.value]"),
    ({}, {"hours": [9, 10], "slot_length": "2h"}, "policy.hours: no slot starts within them"),
    ({}, {"privacy": {"max_hats_per_day": 9}}, "policy.privacy.max_hats_per_day: is not used with [policy.continual]"),
    ({}, {"privacy": {"total_limit": 9.0}}, "policy.privacy.total_limit: is not used with [policy.continual]"),
    ({}, {"privacy": {"local_epsilon": 1.0}}, "policy.privacy.local_epsilon: is not used with [policy.continual]"),
    ({}, {"privacy": {"relation": "add_remove"}}, "policy.privacy.relation: 'add_remove' is not proved for"),
    ({}, {"privacy": {"unit": "user_day"}}, "policy.privacy.unit: 'user_day' is not proved for [policy.continual]"),
    ({}, {"privacy": {"unit": "user"}}, "policy.privacy.unit: 'user' is not proved for [policy.continual]; remove it"),
    ({}, {"privacy": {"epsilon": 20.0}}, "policy.privacy.epsilon: 20 gives hardly any privacy; use at most 10"),
    ({}, {"privacy": {"epsilon": "1"}}, "policy.privacy.epsilon: '1' is text, not a number"),
    (
        {},
        {"privacy": {"daily_limit": 19.0}},
        "policy.privacy.daily_limit: 19 is below what a horizon costs a vehicle: 20 cells at epsilon 1; leave it out",
    ),
    ({}, {"privacy": {"delta": 0.01}}, "policy.privacy.delta: 0.01 is part of the guarantee with Gaussian noise"),
    ({}, {"privacy": {"delta": 1e-15}}, "policy.privacy.delta: 1e-15 leaves less than 1e-15 for each of 20 cells"),
]


@pytest.mark.parametrize(("continual", "changes", "line"), WRONG, ids=[line[:60] for _, _, line in WRONG])
def test_a_wrong_continual_policy_is_one_line_with_the_key_and_the_fix(
    continual: dict[str, Any], changes: dict[str, Any], line: str
) -> None:
    with pytest.raises(SettingError) as refused:
        policy(continual, **changes)
    assert str(refused.value).startswith(line)


def test_a_horizon_that_costs_more_than_the_ledger_counts_is_rejected() -> None:
    with pytest.raises(SettingError, match=r"policy\.privacy\.epsilon: .* more than the ledger can count"):
        policy({"max_cells": 5000}, privacy={"epsilon": 1e6, "acknowledge_weak_privacy": True})


@pytest.mark.parametrize(
    ("continual", "epsilon", "line"),
    [
        (
            {"horizon_days": 417},
            1.0,
            (
                "policy.continual.kind: toeplitz stores two numbers for each of the 10008 slots, and 10000 are the "
                'most; use kind = "blt", or fewer horizon_days'
            ),
        ),
        (
            {"kind": "laplace"},
            1e-6,
            "policy.privacy.epsilon: needs noise too wide for 64 bits; use a larger epsilon or fewer max_slots",
        ),
    ],
)
def test_what_would_fail_when_the_first_slot_closes_is_rejected_at_once(
    continual: dict[str, Any], epsilon: float, line: str
) -> None:
    table = POLICY | {
        "hours": [0, 24],
        "upper_bound": 100_000.0,
        "reject_above": "none",
        "continual": CONTINUAL | continual,
        "privacy": {"epsilon": epsilon},
    }
    with pytest.raises(SettingError) as refused:
        policy_of_table(table, "jsonl", READ)
    assert str(refused.value) == line


def test_the_unit_of_a_horizon_needs_one() -> None:
    table = POLICY | {
        "privacy": {"unit": "user_horizon", "epsilon": 1.0, "max_hats_per_day": 9, "daily_limit": 9.0},
        "estimator": {"name": "levy"},
    }
    with pytest.raises(SettingError, match=r"'user_horizon' needs a horizon; add the table \[policy.continual\]"):
        read_policy(table, ESTIMATOR_KEYS, READ)


def test_each_date_of_a_horizon_reserves_its_whole_cost_and_no_date_after_the_last_one() -> None:
    made = policy({"at_end": "stop", "from": "2022-01-03"})
    cost = {RUNNING_SUMS: Reserved(20, NANO, is_required=True)}
    assert [reservations(made, day) for day in ("2022-01-03", "2022-01-09")] == [cost, cost]
    assert [reservations(made, day) for day in ("2022-01-02", "2022-01-10")] == [{}, {}]


def test_the_deltas_of_all_cells_of_a_user_are_at_most_the_policy_s() -> None:
    assert Fraction(1e-6 / 9) * 9 > Fraction(1e-6), "the nearest float is too large"
    for cells in (1, 9, 13, 20):
        made = policy({"max_cells": cells}, privacy={"delta": 1e-6})
        delta = setting_of(made).delta
        assert Fraction(delta) * cells <= Fraction(1e-6)
        assert delta == pytest.approx(1e-6 / cells, rel=1e-15)
