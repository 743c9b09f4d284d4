"""What a horizon of running sums costs a bus: reservations, limits, losses over days."""

from io import StringIO
from typing import Any

import msgspec
import pytest
from rich.console import Console

from hatcast.agents.cli.budget_explained import explanation, figures
from hatcast.agents.cli.budget_tables import BudgetTable, today_line
from hatcast.agents.cluster.release import check_relation
from hatcast.agents.demo.introduction import introduction
from hatcast.agents.kafka.registry_checks import policies_without_room
from hatcast.stream.budget import day_loss
from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger.day import DayLedger, Total, reservations
from hatcast.stream.policy.policy import Policy, read_policy
from hatcast.stream.units import NANO
from tests.unit.demo_states import state
from tests.unit.test_continual_policy import READ, policy
from tests.unit.test_registry_checks import OWN, changed, facts_of

DATES = ("2022-01-03", "2022-01-09")  # first and last of a horizon of the policy


def test_a_horizon_is_reserved_in_full_on_each_of_its_dates_before_anything_is_released() -> None:
    made = policy()
    for date in DATES:
        [(name, reserved)] = reservations(made, date).items()
        assert (name, reserved.amount, reserved.places, reserved.is_required) == ("continual", 20 * NANO, 20, True)
    day, total = DayLedger(), Total()
    day.reserve_if_room(made, reservations(made, DATES[0]), total)
    assert (day.cost, day.limit) == (20 * NANO, 20 * NANO)


def test_a_date_outside_of_all_horizons_reserves_nothing_and_its_readings_do_not_count() -> None:
    made = policy({"from": "2022-01-03", "at_end": "stop"})
    calendar = Calendar(made)
    outside = {
        date: [calendar.slots_of(date)[9].outside, "continual" in reservations(made, date)]
        for date in ("2022-01-02", *DATES, "2022-01-10")
    }
    assert outside == {
        "2022-01-02": ["outside_dates", False],
        DATES[0]: [None, True],
        DATES[1]: [None, True],
        "2022-01-10": ["outside_dates", False],
    }
    renewed = Calendar(policy({"from": "2022-01-03"}))
    assert [renewed.slots_of(date)[9].outside for date in ("2022-01-02", "2022-01-10")] == ["outside_dates", None]


def test_several_policies_of_one_topic_share_the_day_that_a_horizon_is_charged_to() -> None:
    made = policy(privacy={"daily_limit": 21.5})
    table: dict[str, Any] = {
        "name": "hourly",
        "upper_bound": 65.0,
        "timezone": "Asia/Kolkata",
        "privacy": {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 40.0},
        "estimator": {"name": "levy"},
    }
    hourly: Policy = read_policy(table, ESTIMATOR_KEYS, READ)
    day, total = DayLedger(), Total()
    day.reserve_if_room(made, reservations(made, DATES[0]), total)
    charged = [day.charge_if_room(hourly, f"cell/{hour:02}:00", hourly.epsilon_nano, total) for hour in range(9, 12)]
    assert charged == [True, False, False]  # the horizon's 20, and one HAT: the smaller limit is 21.5
    assert day.cost == 21 * NANO
    late, total = DayLedger(), Total()
    for hour in range(9, 12):
        assert late.charge_if_room(hourly, f"cell/{hour:02}:00", hourly.epsilon_nano, total)
    late.reserve_if_room(made, reservations(made, DATES[0]), total)
    assert late.policies[made.name].queries["continual"].places == 0  # no room: nothing of this date is released


def test_the_loss_over_days_counts_horizons_and_not_days() -> None:
    loss = day_loss(policy())
    assert [loss.over_days(days, None) // NANO for days in (1, 2, 8, 9, 31)] == [20, 40, 40, 60, 120]
    assert day_loss(policy({"horizon_days": 1, "max_slots": 12})).over_days(31, None) == 31 * 20 * NANO
    stopped = day_loss(policy({"from": "2022-01-03", "at_end": "stop"}))
    assert stopped.over_days(366, None) == 20 * NANO
    assert day_loss(policy({"from": "2022-01-03"}), "2022-01-02").bound == 0


def test_cells_compose_as_epsilon_and_delta_only_if_their_noise_leaves_a_delta() -> None:
    pure, gaussian = day_loss(policy({"kind": "tree"}, privacy={"epsilon": 0.1})), day_loss(policy())
    assert gaussian.epsilon_at_delta(1, 1e-6) == 20
    assert gaussian.epsilon_at_delta(8, 1e-6) == 40
    assert pure.epsilon_at_delta(1, 1e-6) == pytest.approx(1.85, abs=0.2)  # below 20 x 0.1
    assert pure.epsilon_at_delta(1, 1e-6) < pure.epsilon_at_delta(2, 1e-6) == pure.epsilon_at_delta(8, 1e-6)


def words(made: Policy, days: int = 31) -> str:
    return " ".join(f"{each.heading} {each.text}" for each in explanation(made, days, "no ledger"))


def test_the_explanation_is_of_a_horizon_and_has_no_cost_of_a_hat() -> None:
    found = figures(policy(), 31, "no ledger")
    assert "hat" not in found
    assert "hats" not in found["day"]
    assert found["horizon"] == {
        "days": 7,
        "max_slots": 14,
        "min_separation": 1,
        "cells": 20,
        "epsilon_cell": 1.0,
        "epsilon_user_horizon": 20.0,
        "delta_cell": 5e-8,
        "delta": 1e-6,
    }
    assert found["over_days"] == {
        "bound": 120.0,
        "epsilon_delta": {"epsilon": 120.0, "delta": pytest.approx(6e-6)},
        "delta": pytest.approx(6e-6),
    }
    text = words(policy())
    assert "31 days touch at most 6 horizons" in text
    assert "6 x 20 = 120" in text
    assert "factor of about 10^9, which excludes nothing" in text
    assert "at most 88.08 % sure of anything" in words(policy({"kind": "tree"}, privacy={"epsilon": 0.1}))
    assert "all that this policy ever releases" in words(policy({"from": "2022-01-03", "at_end": "stop"}))


def budget(made: Policy, date: str, **spent: Any) -> dict[str, Any]:
    """A record of `hats.budget`."""
    reserved = {"query": "continual", "epsilon": 1.0, "places": 20} | spent.pop("reserved", {})
    return {
        "policy": made.name,
        "policy_id": made.policy_id,
        "date": date,
        "seq": 1,
        "releases": 0,
        "epsilon_sum": 0.0,
        "epsilon_user_day": 20.0,
        "limit": 22.0,
        "day_bound": 20.0,
        "epsilon_delta": {"epsilon": 20.0, "delta": 1e-6},
        "queries": [reserved],
    } | spent


def test_days_of_one_horizon_are_counted_once() -> None:
    made = policy()
    days = [budget(made, f"2022-01-{day:02}") for day in (8, 9, 10)] + [
        budget(made, "2022-01-11", epsilon_user_day=21.5)
    ]
    assert figures(made, 31, days)["ledger"]["spent"] == 20 + 20 + 1.5  # two horizons, and another policy's 1.5
    assert "has lost at most 41.5" in " ".join(each.text for each in explanation(made, 31, days))


def test_the_line_of_today_names_what_is_booked_or_when_the_horizon_ends() -> None:
    made = policy({"from": "2022-01-03", "at_end": "stop"})
    booked = [budget(made, "2022-01-04")]
    line = today_line(made, booked, "2022-01-04", None)
    assert "20 of 22 booked for the running sums, which is what their whole horizon costs a bus" in line
    no_room = [budget(made, "2022-01-04", reserved={"places": 0})]
    assert "no room for the running sums" in today_line(made, no_room, "2022-01-04", None)
    assert "begins on 2022-01-03" in today_line(made, [], "2022-01-02", None)
    assert "has ended 7 days after 2022-01-03" in today_line(made, [], "2022-01-10", None)
    console = Console(file=StringIO(), width=100)
    console.print(BudgetTable(booked))
    assert "booked" in console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


def test_policies_that_have_no_room_beside_a_horizon_are_found() -> None:
    sums = changed(OWN, {"policy": "week", "canonical": msgspec.Raw(policy().canonical)})
    roomy = changed(sums, {"canonical": msgspec.Raw(policy(privacy={"daily_limit": 200.0}).canonical)})
    hourly = changed(OWN, {"canonical": msgspec.Raw(b'{"privacy":{"epsilon":1.0,"daily_limit":89.0}}')})
    assert policies_without_room(facts_of(hourly), hourly) == []
    assert policies_without_room(facts_of(hourly), sums) == [OWN.policy]
    assert policies_without_room(facts_of(sums), hourly) == ["week"]
    assert policies_without_room(facts_of(hourly), roomy) == []
    assert policies_without_room(facts_of(), sums) == []


def test_clusters_of_a_day_are_refused() -> None:
    with pytest.raises(SettingError, match=r"policy\.continual: has horizons"):
        check_relation(policy())


def test_the_demo_introduces_a_running_mean_and_what_its_horizon_costs() -> None:
    keys = {"kind": "tree", "horizon_days": 7, "max_slots": 14, "max_cells": 20}
    shown = state(continual=keys, privacy={"epsilon": 0.5}, estimator=None)
    assert shown.began is not None
    rows = dict(introduction(shown, shown.began))
    assert "since its horizon of 7 days began" in rows["what"]
    assert "0.5 for each of at most 20 hexagons" in rows["budget"]
    assert "since the horizon began" in rows["21.3 ± 1.6"]
