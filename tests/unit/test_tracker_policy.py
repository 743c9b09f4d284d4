"""A tracker's policy: its keys, what it leaves to queries over days, and what is rejected.
What `hatcast budget explain` says of a tracker policy: a bus can lose `daily_limit`, and no more.
"""

import json
from typing import Any

import h3
import pytest

from hatcast.agents.cli.budget_explained import explanation, figures
from hatcast.agents.worker.readiness import reserved_up_front
from hatcast.stream.budget import day_loss
from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.ledger.day import DayLedger, Reserved, Total, reservations
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.policy.policy import Policy, read_policy
from hatcast.stream.policy.query import TRACKER_QUERIES
from hatcast.stream.policy.tracker_keys import TIMETABLE_PRIOR, TRACKER_ESTIMATOR, TrackerKeys
from hatcast.stream.units import NANO
from tests.contracts.goldens import SPEED, TRACKER

CELL = "87608b0d2ffffff"
FILES = {
    "six.txt": f'source = "public"\n{h3.cell_to_parent(CELL)}\n',
    "none.txt": 'source = "public"\n',
    "watched.txt": f'source = "public"\n{CELL}\n',
    "surveyed.txt": f'source = "survey"\n{CELL}\n',
}
TRACKED: dict[str, Any] = {
    "name": "surat-tracker",
    "upper_bound": 65.0,
    "timezone": "Asia/Kolkata",
    "privacy": {"daily_limit": 5.0},
    "estimator": {"name": "tracker"},
}


DELAY = {"name": "delay", "unit": "s", "lower": -600.0, "upper": 3600.0}


def tracked(tracker: dict[str, Any] | None = None, **changes: Any) -> Policy:
    table = TRACKED | changes | {"privacy": TRACKED["privacy"] | changes.get("privacy", {})}
    table = {key: value for key, value in table.items() if value is not None}
    if tracker is not None:
        table["tracker"] = tracker
    return read_policy(table, {**ESTIMATOR_KEYS, **TRACKER_ESTIMATOR}, FILES.__getitem__)


def test_a_tracker_policy_has_keys_of_its_own() -> None:
    made = tracked()
    assert made.method == TrackerKeys(5 * NANO, price=1.5)
    assert (made.max_hats_per_day, made.min_users, made.epsilon_nano) == (500, 3, 0)
    assert "epsilon" not in json.loads(made.canonical)["privacy"]
    watching = tracked({"watch": "watched.txt"})
    keys = watching.keys_of(TrackerKeys)
    assert (keys.watch, keys.watch_share) == (frozenset({CELL}), 0.5)
    assert json.loads(watching.canonical)["tracker"]["watch"]["cells"] == [CELL]
    assert len({made.policy_id, watching.policy_id, tracked({"share": 0.4}).policy_id}) == 3
    assert tracked({"share": 0.3}).policy_id == made.policy_id


def test_a_timetable_is_a_part_of_the_policy_by_its_constants_and_not_by_its_file() -> None:
    made, other = tracked({"timetable": "gtfs.zip"}), tracked({"timetable": "next.zip"})
    assert made.keys_of(TrackerKeys).timetable == "gtfs.zip"
    assert made.policy_id == other.policy_id != tracked().policy_id
    assert json.loads(made.canonical)["tracker"]["timetable"] == {
        "reference": TIMETABLE_PRIOR.reference,
        "lowest": -20,
        "highest": 25,
        "slope": 0.6,
        "slope_sd": 0.45,
        "variance": 18,
    }


def test_a_tracker_watches_cells_of_every_size() -> None:
    sizes = {"resolutions": [6, 7], "fine_cells": "watched.txt"}
    mixed = tracked({"watch": "watched.txt"}, **sizes)
    assert mixed.keys_of(TrackerKeys).watch == {CELL}
    with pytest.raises(SettingError, match="is not an H3 index of resolution 5 or 6"):
        tracked({"watch": "watched.txt"}, resolutions=[5, 6], fine_cells="six.txt")


def test_what_queries_over_days_cost_is_left_out_of_a_trackers_limit() -> None:
    query = {"name": "q", "kind": "over_speed_limit", "days": 1, "speed_limit": 50.0, "epsilon": 0.01}
    made = tracked(query=[query], privacy={"max_hats_per_day": 100})
    assert made.keys_of(TrackerKeys).daily_limit == 4 * NANO
    assert sum(each.amount for each in reservations(made, "2022-01-01").values()) == made.daily_limit_nano


@pytest.mark.parametrize(
    ("key", "changes", "tracker", "mend"),
    [
        ("privacy.epsilon", {"privacy": {"epsilon": 1.0}}, None, "remove it"),
        ("privacy.daily_limit", {"privacy": {"daily_limit": 0.0}}, None, "above 0"),
        ("privacy.daily_limit", {"privacy": {"daily_limit": 20.0}}, None, "acknowledge_weak_privacy"),
        ("privacy.unit", {"privacy": {"unit": "user", "total_limit": 50.0}}, None, "user_day"),
        ("privacy.relation", {"privacy": {"relation": "add_remove"}}, None, "use one of"),
        ("privacy.local_epsilon", {"privacy": {"local_epsilon": 1.0}}, None, "remove it"),
        (
            "tracker",
            {"estimator": {"name": "baseline"}, "privacy": {"epsilon": 1.0, "max_hats_per_day": 5}},
            {},
            "tracker",
        ),
        ("tracker.shore", {}, {"shore": 0.3}, "did you mean share"),
        ("tracker.share", {}, {"share": 1.5}, "0 to 1"),
        ("tracker.objective", {}, {"objective": "roads"}, "cells"),
        ("tracker.price", {}, {"price": 0.0}, "above 0"),
        ("tracker.watch_share", {}, {"watch_share": 0.5}, "watch"),
        ("tracker.watch", {}, {"watch": "surveyed.txt"}, "public"),
        ("tracker.watch", {}, {"watch": "none.txt"}, "lists no cell"),
        ("tracker.timetable", {"value": DELAY, "upper_bound": None}, {"timetable": "gtfs.zip"}, "of speeds"),
    ],
)
def test_a_tracker_policy_that_cannot_work_is_refused(
    key: str, changes: dict[str, Any], tracker: dict[str, Any] | None, mend: str
) -> None:
    with pytest.raises(SettingError) as refused:
        tracked(tracker, **changes)
    assert str(refused.value).startswith(f"policy.{key}")
    assert mend in str(refused.value)


DATE = "2022-01-02"


def test_a_bus_can_lose_the_daily_limit_whatever_it_does() -> None:
    assert day_loss(TRACKER).bound == day_loss(TRACKER, DATE).bound == 5 * NANO
    found = figures(TRACKER, 1, "no ledger")
    assert (found["day"]["bound"], found["day"]["epsilon_hats"]) == (5.0, 0.0)
    texts = " ".join(f"{each.heading} {each.text}" for each in explanation(TRACKER, 1, "no ledger"))
    assert "Once it has paid 5 on one day" in texts
    assert "500" not in texts


def test_figures_that_a_tracker_does_not_have_are_left_out() -> None:
    found = figures(TRACKER, 1, "no ledger")
    assert "hat" not in found
    assert "hats" not in found["day"]
    plain = figures(SPEED, 1, "no ledger")
    assert plain["hat"]["epsilon"] == SPEED.epsilon
    assert plain["day"]["hats"] == SPEED.most_hats


def test_the_days_of_a_tracker_compose_and_one_day_is_pure() -> None:
    over, single = figures(TRACKER, 31, "no ledger")["over_days"], figures(TRACKER, 1, "no ledger")["day"]
    assert over["bound"] == 31 * 5
    assert 60 < over["epsilon_delta"]["epsilon"] < 31 * 5
    assert 4.99 < single["epsilon_delta"]["epsilon"] <= 5
    text = " ".join(each.text for each in explanation(TRACKER, 31, "no ledger"))
    assert "31 x 5 = 155" in text


def test_what_a_tracker_reserves_and_another_policys_charges_share_the_day() -> None:
    day, total = DayLedger(), Total()
    day.reserve_if_room(TRACKER, reservations(TRACKER, DATE), total)
    assert day.policies[TRACKER.name].queries[TRACKER_QUERIES].places == 1
    assert not day.charge_if_room(SPEED, "87608b0d2ffffff/09:00", NANO, total), "5 of a limit of 5 are reserved"
    other = DayLedger()
    assert other.charge_if_room(SPEED, "87608b0d2ffffff/09:00", NANO, total)
    other.reserve_if_room(TRACKER, reservations(TRACKER, DATE), total)
    assert other.policies[TRACKER.name].queries[TRACKER_QUERIES].places == 0


def test_a_day_that_only_the_tracker_has_booked_is_not_reported_as_nearly_spent() -> None:
    def summary(**queries: Reserved) -> DaySummary:
        spent = 5 * NANO
        return DaySummary(0, 0, spent, shared=False, limit=spent, sequence=1, levels={}, total=Total(), queries=queries)

    month = Reserved(1, NANO)
    assert reserved_up_front(summary(month=month, tracker=Reserved(1, 4 * NANO))) == 4 * NANO
    assert reserved_up_front(summary(tracker=Reserved(0, 5 * NANO))) == 0, "without room, which has to be seen"
    assert reserved_up_front(summary(month=month)) == 0
    assert reserved_up_front(summary(continual=Reserved(20, NANO))) == 20 * NANO
