"""What a policy by itself can cost one user's day, and the report's own table beside it."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.accounting import KnownCharges, composed_epsilon
from hatcast.stream.budget import LEAST_USER_DAYS, REPORT, ReportSettings, day_loss, report_table
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import Kind
from hatcast.stream.queries import KINDS
from hatcast.stream.release.spending import day_epsilon, usual_fineness
from hatcast.stream.units import NANO
from tests.replayed import policy_of
from tests.unit import test_budget, test_spending

MEAN_SPEED = {"name": "speed", "kind": "mean_speed", "days": 31, "from": "2022-01-01", "scale": 1.0, "min_n": 468}
OVER_LIMIT = {
    "name": "fast",
    "kind": "over_speed_limit",
    "days": 31,
    "from": "2022-02-01",
    "scale": 1.0,
    "speed_limit": 50.0,
}


def policy(*queries: dict[str, object], most_hats: int = 89, limit: float = 105.0, **privacy: object) -> Policy:
    return policy_of(
        privacy={"epsilon": 1.0, "max_hats_per_day": most_hats, "daily_limit": limit, **privacy}, query=queries
    )


def test_the_reports_table_has_the_reports_figures_and_the_whole_day_costs_the_means_more() -> None:
    found = report_table(REPORT)
    assert (found.query_1, found.query_2) == (Fraction(89 * 65, 468), Fraction(89, 31))
    figures = found.query_1, found.query_2, found.cumulative, found.total
    assert [f"{float(each):.3f}" for each in figures] == ["12.361", "2.871", "15.232", "104.232"]


def test_one_hat_of_the_reports_queries_costs_what_it_says() -> None:
    one = report_table(ReportSettings(most_hats=1, user_days=LEAST_USER_DAYS))
    assert (one.query_1, one.query_2, one.total) == (
        Fraction(65, 314),
        Fraction(1, 31),
        1 + Fraction(65, 314) + Fraction(1, 31),
    )


@given(
    st.integers(1, 200),
    st.integers(1, 10_000),
    st.integers(1, 366),
    st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(2), Fraction(65)]),
)
def test_a_policy_with_the_reports_queries_is_charged_what_its_table_says_and_never_less(
    most_hats: int, user_days: int, days: int, scale: Fraction
) -> None:
    settings = ReportSettings(most_hats, Fraction(65), user_days, days, scale, Fraction(1))
    found = report_table(settings)
    asked = {"days": days, "scale": float(scale)}
    made = policy(
        MEAN_SPEED | asked | {"min_n": user_days},
        OVER_LIMIT | asked,
        most_hats=most_hats,
        limit=1e6,
        acknowledge_weak_privacy=True,
    )
    charged = Fraction(day_loss(made).hats + day_loss(made).reserved, NANO)
    assert found.total <= charged < found.total + Fraction(2 * most_hats, NANO)
    speed, over = KINDS[Kind.MEAN_SPEED], KINDS[Kind.OVER_SPEED_LIMIT]
    assert found.query_1 == most_hats * speed.sensitivity(user_days, days, made) / (1000 * scale)
    assert found.query_2 == most_hats * over.sensitivity(user_days, days, made) / (1000 * scale)


def test_a_day_costs_every_hat_and_every_query_in_all_hats() -> None:
    loss = day_loss(policy(MEAN_SPEED, OVER_LIMIT))
    assert (loss.hats, loss.reserved) == (89 * NANO, 89 * (138_888_889 + 32_258_065))
    assert loss.bound == loss.hats + loss.reserved
    assert loss.per_hat == NANO + 138_888_889 + 32_258_065


def test_a_day_never_costs_more_than_its_limit() -> None:
    assert day_loss(policy(MEAN_SPEED, limit=95.0)).bound == 95 * NANO


def test_a_date_is_charged_for_the_queries_that_have_begun() -> None:
    asked = policy(MEAN_SPEED, OVER_LIMIT)
    assert [*day_loss(asked, "2021-12-31").queries] == []
    assert [*day_loss(asked, "2022-01-31").queries] == ["speed"]
    assert [*day_loss(asked, "2022-02-01").queries] == ["speed", "fast"]


def test_days_add_up_until_all_days_together_have_spent_their_limit() -> None:
    loss = day_loss(policy(most_hats=5))
    assert [loss.over_days(days, None) for days in (1, 30)] == [5 * NANO, 150 * NANO]
    assert [loss.over_days(days, 12 * NANO) for days in (2, 3)] == [10 * NANO, 12 * NANO]


@pytest.mark.parametrize("days", [1, 2, 31])
def test_the_finer_figure_is_below_the_plain_one_and_leaves_out_no_query(days: int) -> None:
    alone, asked = day_loss(policy()), day_loss(policy(MEAN_SPEED))
    finer = asked.epsilon_at_delta(days, 1e-6)
    assert alone.epsilon_at_delta(days, 1e-6) < finer < days * asked.bound / NANO
    if days > 1:  # one answer reads many days of a user: over them it may lose all that they add up to
        assert asked.split is not None
        means = composed_epsilon({NANO: days * 89}, 1e-6, KnownCharges(NANO, days * 89, asked.split))
        assert finer == pytest.approx(means + days * asked.reserved / NANO)


@pytest.mark.parametrize("name", test_spending.UNDER_REPLACE)
def test_a_day_composes_as_the_ledger_composes_it_for_noise_of_256_steps(name: str) -> None:
    made = test_spending.policy_of(privacy=test_spending.PRIVACY, estimator={"name": name})
    found = day_loss(made).epsilon_at_delta(1, made.delta)
    assert found == pytest.approx(day_epsilon(made, test_spending.a_day(40, {8: 40}, cap=40)), abs=2e-6)
    assert found < 40


def test_only_as_many_means_compose_as_the_limit_has_room_for() -> None:
    ample, tight = (day_loss(policy(most_hats=40, limit=limit)) for limit in (40.0, 25.0))
    assert tight.epsilon_at_delta(1, 1e-6) == day_loss(policy(most_hats=25, limit=25.0)).epsilon_at_delta(1, 1e-6)
    assert tight.epsilon_at_delta(1, 1e-6) < min(25, ample.epsilon_at_delta(1, 1e-6))


@pytest.mark.parametrize(("grid", "least"), [(0.001, 8), (0.01, 5), (0.1, 1), (1.0, 0)])
def test_on_a_coarse_grid_less_is_expected_of_the_noise(grid: float, least: int) -> None:
    assert usual_fineness(policy_of(grid=grid)) == least


@pytest.mark.parametrize("cells", ["all", "cells.txt"])
def test_the_ledger_bounds_a_day_by_what_the_promise_does_also_where_few_cells_are_listed(cells: str) -> None:
    made = test_budget.policy(test_budget.SPEED, test_budget.FAST, cells=cells)
    assert (made.most_hats < made.max_hats_per_day) == (cells != "all")
    for releases in (0, made.most_hats, 1000):
        told = test_budget.record(made, test_budget.TODAY, releases)
        assert told["day_bound"] == pytest.approx(day_loss(made, test_budget.TODAY).bound / NANO)
