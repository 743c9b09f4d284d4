"""The numbers of docs/choosing.md are hatcast's own."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hatcast.agents.cli.budget_explained import figures
from hatcast.agents.cli.budget_horizon import certainty, factor
from hatcast.agents.config.template import TemplateAnswers, parse_template, render_template
from hatcast.stream.budget import day_loss
from hatcast.stream.estimators import ESTIMATOR_KEYS, ESTIMATORS, Parameters, Users
from hatcast.stream.mechanisms.grid import quantile95
from hatcast.stream.policy.policy import Policy, read_policy
from hatcast.stream.units import NANO
from tests.support import Scripted

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "choosing.md").read_text()
CONTINUAL = (DOCS / "continual.md").read_text()
HATS = (10, 20, 40, 89)
BUSES = (10, 20, 50, 200)


def policy_of(epsilon: float, hats: int = 89, estimator: str = "array_averaging") -> Policy:
    answers = TemplateAnswers(timezone="UTC", estimator=estimator, epsilon=epsilon, max_hats_per_day=hats)
    return parse_template(render_template(answers), Path(), {}).policy


def rows_of(text: str, head: str) -> dict[float, list[str]]:
    """The rows of the table whose head begins so, by their first column."""
    found = re.search(rf"^\| {re.escape(head)}.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert found is not None, head
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in found[1].splitlines()]
    return {float(row[0]): row[1:] for row in rows}


@cache
def tables() -> list[dict[float, list[str]]]:
    """The rows of each table whose first column is epsilon, by it."""
    found = []
    for table in re.findall(r"^\| epsilon \|.*\n\|[-|]+\n((?:\|.*\n)+)", TEXT, re.MULTILINE):
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
        found.append({float(row[0]): row[1:] for row in rows})
    return found


def noise95(epsilon: float, buses: int) -> float:
    """km/h, of as many buses with 30 readings each."""
    policy = policy_of(epsilon)
    users = Users(np.full(buses, 30), np.full(buses, 30 * 30_000))
    estimate = ESTIMATORS[policy.estimator].estimate(users, Parameters.of(policy), Scripted([0]))
    assert estimate is not None
    assert estimate.scale is not None
    return quantile95(estimate.scale) * float(policy.grid)


def test_how_sure_one_can_become_by_a_total_is_what_explain_says() -> None:
    assert {total: row[0] for total, row in rows_of(TEXT, "total | at most so sure").items()} == {
        total: certainty(total) for total in (1.0, 2.0, 5.0, 10.0)
    }


def test_the_errors_of_the_first_days_are_those_that_evaluate_has_measured() -> None:
    measured = rows_of((DOCS / "estimators.md").read_text(), "limit | tracker, live")
    for total, row in rows_of(TEXT, "total | first days, live").items():
        live, end = measured[total][0], measured[total][2]
        assert row[:2] == [live.split(" / ")[0], end.split(" / ")[0]], total
    array_averaging = measured[10.0][4].split(" / ")[0]
    assert f"ARRAY-AVERAGING at a total of 10 has {array_averaging}" in TEXT
    _, _, busy_live = measured[5.0][2].split(" / ")
    assert f"HATs of 10 buses or more have {busy_live} at a total of 5" in TEXT


def test_the_errors_with_a_timetable_are_those_that_evaluate_has_measured() -> None:
    measured = rows_of((DOCS / "estimators.md").read_text(), "limit | tracker with a timetable, live")
    rows = rows_of(TEXT, "total | 31 days")
    assert rows.keys() == measured.keys()
    for total, (month, live, end, *_) in rows.items():
        assert month == f"{31 * total:g}"
        assert [live, end] == [measured[total][column].split(" / ")[0] for column in (0, 2)]


def test_init_proposes_the_total_that_the_page_says() -> None:
    assert f"`hatcast init` proposes {TemplateAnswers(timezone='UTC').limit:g}." in TEXT


def test_there_are_three_tables_with_all_their_rows() -> None:
    assert [len(table) for table in tables()] == [6, 4, 3]


def test_how_sure_one_can_become_is_what_explain_says() -> None:
    assert tables()[0] == {epsilon: [factor(epsilon), certainty(epsilon)] for epsilon in tables()[0]}


def test_how_far_noise_moves_a_mean_is_what_releases_say() -> None:
    assert tables()[1] == {epsilon: [f"{noise95(epsilon, buses):.1f}" for buses in BUSES] for epsilon in tables()[1]}


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_what_a_day_can_lose_is_what_budgets_say(epsilon: float) -> None:
    said = []
    for hats in HATS:
        policy = policy_of(epsilon, hats)
        loss = day_loss(policy)
        said.append(f"{loss.bound / NANO:g} / {loss.epsilon_at_delta(1, policy.delta):.1f}")
    assert tables()[2][epsilon] == said


def test_what_a_day_comes_to_by_estimator_is_what_explain_says() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|$", TEXT, re.MULTILINE)
    assert [name for name, *_ in rows] == ["array_averaging", "levy", "quantile"]
    for name, *said in rows:
        policies = policy_of(0.5, 40, name), policy_of(1.0, 89, name)
        found = [figures(each, 1, "not read")["day"]["epsilon_delta"]["epsilon"] for each in policies]
        assert [f"{each:.2f}" for each in found] == said


def test_the_rule_of_thumb_is_computed_right() -> None:
    assert "D = 10 and K = 40, epsilon is 0.25" in TEXT
    assert f"off by up to {noise95(0.25, 200):.1f} km/h, one of 50 by {noise95(0.25, 50):.1f}" in TEXT
    assert day_loss(policy_of(0.25, 40)).bound == 10 * NANO


def test_the_example_of_a_horizon_costs_what_the_page_says() -> None:
    week = {"kind": "laplace", "horizon_days": 7, "max_slots": 14, "max_cells": 20}
    table = {"name": "week", "upper_bound": 65.0, "timezone": "UTC", "continual": week, "privacy": {"epsilon": 0.25}}
    loss = day_loss(read_policy(table, ESTIMATOR_KEYS, str))
    assert f"`max_cells = 20` a bus loses at most {loss.bound / NANO:g} in a horizon" in CONTINUAL
    assert (
        f"6 horizons, which is {loss.over_days(31, None) / NANO:g}; the tracker at a total of 5 can cost 155"
        in CONTINUAL
    )
