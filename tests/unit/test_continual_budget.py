"""What a horizon of running sums costs a bus: reservations, limits, losses over days."""

from typing import Any

import pytest

from hatcast.stream.accounting.ledger import DayLedger, Total
from hatcast.stream.budget.per_user import day_loss
from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.policy.policy import Policy, read_policy
from hatcast.stream.queries import reservations
from hatcast.stream.units import NANO
from tests.unit.test_continual_policy import READ, policy

DATES = ("2022-01-03", "2022-01-09")  # first and last of a horizon of the policy


def test_a_horizon_is_reserved_in_full_on_each_of_its_dates_before_anything_is_released() -> None:
    made = policy()
    for date in DATES:
        [(name, reserved)] = reservations(made, date).items()
        assert (name, reserved.amount, reserved.places, reserved.is_required) == ("continual", 20 * NANO, 20, True)
    day, total = DayLedger(), Total()
    day.reserve(made, reservations(made, DATES[0]), total)
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
    day.reserve(made, reservations(made, DATES[0]), total)
    charged = [day.charge(hourly, f"cell/{hour:02}:00", hourly.epsilon_nano, total) for hour in range(9, 12)]
    assert charged == [True, False, False]  # the horizon's 20, and one HAT: the smaller limit is 21.5
    assert day.cost == 21 * NANO
    late, total = DayLedger(), Total()
    for hour in range(9, 12):
        assert late.charge(hourly, f"cell/{hour:02}:00", hourly.epsilon_nano, total)
    late.reserve(made, reservations(made, DATES[0]), total)
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
