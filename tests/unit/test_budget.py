"""`hatcast budget`: tables that fit and add up, and what it says in words."""

import io
import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from hatcast.agents.cli.budget_explained import explanation, figures
from hatcast.agents.cli.budget_horizon import certainty, factor
from hatcast.agents.cli.budget_tables import BudgetTable, bar_cells, query_table, today_line
from hatcast.stream.estimators import ESTIMATOR_KEYS
from hatcast.stream.hybrid import HYBRID_KEYS
from hatcast.stream.ledger.day import Reserved, Total, user_charges
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.policy.policy import Policy, read_policy
from hatcast.stream.release.budget_records import budget_record
from hatcast.stream.units import NANO
from tests.invoked import run

CELL = "87608b0d2ffffff"
TABLE: dict[str, Any] = {
    "name": "surat-speed",
    "upper_bound": 65.0,
    "timezone": "Asia/Kolkata",
    "privacy": {"epsilon": 1.0, "max_hats_per_day": 89, "daily_limit": 105.0},
    "estimator": {"name": "array_averaging"},
}
SPEED = {"name": "speed", "kind": "mean_speed", "days": 31, "from": "2022-01-01", "scale": 1.0, "min_n": 468}
FAST = {"name": "fast", "kind": "over_speed_limit", "days": 1, "epsilon": 0.01, "speed_limit": 50.0}
TODAY = "2022-01-04"


def policy(*queries: Mapping[str, Any], privacy: Mapping[str, Any] | None = None, **changes: Any) -> Policy:
    table = TABLE | {"privacy": TABLE["privacy"] | (privacy or {}), "query": queries} | changes
    return read_policy(table, {**ESTIMATOR_KEYS, **HYBRID_KEYS}, lambda _: f'source = "public"\n{CELL}')


ASKED = policy(SPEED, FAST)


def record(made: Policy, date: str, releases: int, places: int | None = None, total: Total | None = None) -> Any:
    """A day of so many releases, whose queries were reserved in so many places: all, unless said."""
    queries = {
        query.name: Reserved(made.most_hats if places is None else places, query.epsilon_nano) for query in made.queries
    }
    own = Counter({made.epsilon_nano: min(releases, made.most_hats)})
    met = user_charges(own, None, queries.values())
    spent = sum(level * count for level, count in met.items())
    summary = DaySummary(
        releases=releases,
        epsilon_sum=releases * made.epsilon_nano,
        epsilon_user_day=spent,
        shared=False,
        limit=made.daily_limit_nano,
        sequence=releases,
        levels=met,
        total=total or Total(),
        policy_levels=own,
        queries=queries,
    )
    return json.loads(budget_record(made, date, summary))


def shown(what: RenderableType, width: int = 100, encoding: str = "utf-8") -> list[str]:
    file = io.TextIOWrapper(io.BytesIO(), encoding)
    Console(file=file, width=width, color_system=None).print(what)
    file.seek(0)
    return [line.strip() for line in file.read().splitlines()]


def words(made: Policy, days: int = 30, ledger: Any = "Redis is away") -> str:
    return "\n".join(f"{part.heading}\n{part.sums}\n{part.text}" for part in explanation(made, days, ledger))


budget = partial(run, "budget")
amounts = st.integers(0, 200 * NANO)


@given(amounts, amounts, amounts, st.integers(3, 40))
def test_a_bar_is_as_long_as_its_column_and_hides_no_part_of_it(
    hats: int, queries: int, limit: int, width: int
) -> None:
    cells = bar_cells(hats, queries, limit, width)
    assert sum(cells) == width
    left = max(0, limit - hats - queries) if limit or hats or queries else 1
    for cell, amount in zip(cells, (hats, queries, left), strict=True):
        assert (cell > 0) == (amount > 0)
    whole = max(limit, hats + queries, 1)
    assert all(abs(cell - width * each / whole) < 3 for cell, each in zip(cells, (hats, queries), strict=False))


def test_the_table_has_a_row_a_day_with_releases_queries_and_what_is_left_in_a_bar() -> None:
    days = [record(ASKED, "2022-01-02", 40), record(ASKED, "2022-01-03", 2000), record(ASKED, TODAY, 3, places=0)]
    assert shown(BudgetTable(days))[2:8] == [
        "day         releases  HATs  queries    spent  limit  █ HATs  ▒ queries  · left  at most  tight",
        "───────────────────────────────────────────────────────────────────────────────────────────────",
        "2022-01-02        40    40  13.2511  53.2511    105  █████████▒▒▒▒············  102.251  41.51",
        "2022-01-03     2,000    89  13.2511  102.251    105  ████████████████████▒▒▒▒·  102.251  77.32",
        "2022-01-04         3     3        0        3    105  █························       89      3",
        "",
    ]


def test_without_queries_the_table_has_no_column_of_them() -> None:
    made = policy()
    table = "\n".join(shown(BudgetTable([record(made, "2022-01-02", 40)])))
    assert "queries" not in table
    assert "HATs " not in table.replace("█ HATs ", "")


def tracker_day(date: str, places: int) -> Any:
    """A day of a tracker, with room for its queries in 1 place, or in none because of other policies."""
    reserved = [{"query": "tracker", "epsilon": 5.0, "places": places}]
    booked = {"releases": 0, "epsilon_sum": 0.0, "epsilon_user_day": 5.0, "limit": 5.0, "day_bound": 5.0}
    return record(policy(), date, 0) | booked | {"queries": reserved}


def test_what_a_tracker_reserves_is_not_called_spent() -> None:
    days = [tracker_day("2022-01-03", 0), tracker_day(TODAY, 1)]
    lines = shown(BudgetTable(days), 80)
    row = {line.split()[0]: line.split() for line in lines if line.startswith("2022")}
    assert row["2022-01-03"][1:6] == ["-", "5", "no", "room", "5"]
    assert row[TODAY][1:5] == ["-", "0", "5", "5"]
    text = "\n".join(lines)
    assert "booked" in text
    assert "spent" not in text
    assert max(map(len, lines)) <= 80
    line = today_line(policy(), days, TODAY, None)
    assert line.endswith("5 of 5 booked for the tracker, which is the most that a bus can lose to it; can still cost 0")
    assert "no room for the tracker" in today_line(policy(), days, "2022-01-03", None)


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_tables_fit_and_cut_no_number_off(width: int, encoding: str) -> None:
    made = policy(SPEED | {"name": "a-query-with-a-name-that-is-long"}, privacy={"daily_limit": 123.456})
    days = [record(made, f"2022-01-{day:02}", 123_456 + day) for day in range(1, 29)]
    for table in (BudgetTable(days), query_table(made, days, "2022-01-28")):
        lines = shown(table, width, encoding)
        assert max(map(len, lines)) <= width
        assert "…" not in "".join(lines)
    assert "123,484" in "\n".join(shown(BudgetTable(days), width, encoding))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_at_80_columns_the_table_has_one_line_of_headings_and_the_legend_below(encoding: str) -> None:
    lines = shown(BudgetTable([tracker_day(TODAY, 1)]), 80, encoding)
    headings = next(line for line in lines if "day  " in line)
    assert headings.replace("|", " ").split() == [
        "day",
        "releases",
        "HATs",
        "queries",
        "booked",
        "limit",
        "at",
        "most",
        "tight",
    ]
    assert lines.index(headings) == 2
    marks = "█▒·" if encoding == "utf-8" else "#=."
    assert "{} HATs  {} queries  {} left".format(*marks) in lines


@settings(max_examples=30)
@given(st.integers(0, 300), st.sampled_from([0, 89]), st.integers(80, 120))
def test_what_is_spent_is_what_releases_and_queries_come_to(releases: int, places: int, width: int) -> None:
    made = policy(SPEED, FAST, privacy={"delta": 1e-15})  # too small to compose anything, which takes its time
    day = record(made, TODAY, releases, places)
    row = next(line for line in shown(BudgetTable([day]), width) if line.startswith(TODAY)).split()
    hats, queries, spent = map(float, row[2:5])
    assert hats + queries == pytest.approx(spent, abs=1e-3)
    assert spent == pytest.approx(day["epsilon_user_day"], abs=1e-3)


def test_today_is_told_what_it_cost_and_what_it_can_still_cost() -> None:
    days = [record(ASKED, "2022-01-03", 40), record(ASKED, TODAY, 3)]
    assert today_line(ASKED, days, TODAY, None) == (
        "today, 2022-01-04 (Asia/Kolkata): 16.2511 of 105 spent, can still cost 86"
    )
    tomorrow = today_line(ASKED, days, "2022-01-05", None)
    assert tomorrow.endswith("0 of 105 spent, can still cost 102.251")
    assert today_line(ASKED, [], "2021-12-31", None).endswith("can still cost 89.89")  # the speeds' days begin later


def test_today_can_cost_no_more_than_all_days_have_left() -> None:
    made = policy(privacy={"unit": "user", "total_limit": 100.0})
    day = record(made, TODAY, 40, total=Total(95 * NANO, 100 * NANO))
    assert today_line(made, [day], TODAY, None).endswith("can still cost 5 (all days together have no more left)")


def test_today_is_of_the_policy_whose_day_it_is() -> None:
    follows: dict[str, Any] = {"replaces": "old", "from": "2022-02-01"}
    late = policy(**follows)
    assert "nothing: policy surat-speed begins on 2022-02-01" in today_line(late, [], TODAY, None)
    assert "new replaces it from 2022-01-04 on" in today_line(ASKED, [], TODAY, ("new", TODAY))
    assert "can still cost" in today_line(ASKED, [], TODAY, ("new", "2022-01-05"))


def test_a_query_has_a_row_a_period_with_its_cost_and_its_reserved_days() -> None:
    days = [
        record(ASKED, "2022-01-03", 40),
        record(ASKED, TODAY, 3, places=0),
        record(ASKED, "2022-02-01", 3),
    ]
    rows = [" ".join(line.split()) for line in shown(query_table(ASKED, days, TODAY))[4:]]
    assert rows[:5] == [
        "speed 2022-01-01 to 2022-01-31 0.138889 12.3611 383.194 1 of 31 days, no room on 1",
        "speed 2022-02-01 to 2022-03-03 0.138889 12.3611 383.194 1 of 31 days",
        "fast 2022-01-03 0.01 0.89 0.89 1 of 1 day",
        "fast 2022-01-04 0.01 0.89 0.89 0 of 1 day, no room on 1",
        "fast 2022-02-01 0.01 0.89 0.89 1 of 1 day",
    ]


def test_what_a_private_choice_of_cells_has_cost_is_told_beside_the_queries() -> None:
    listed = f'source = "private"\nepsilon = 2.5\ndays = "2022-01-03,2022-01-06"\ntimezone = "Asia/Kolkata"\n{CELL}'
    made = read_policy(TABLE | {"cells": "kept.txt"}, ESTIMATOR_KEYS, lambda _: listed)
    rows = [" ".join(line.split()) for line in shown(query_table(made, [], TODAY))]
    assert "cells 2022-01-03 to 2022-01-06 - 2.5 10 spent before" in rows
    assert "has cost 2.5 on each day from 2022-01-03 to 2022-01-06" in words(made)


def test_a_query_whose_days_are_to_come_has_not_begun() -> None:
    rows = [" ".join(line.split()) for line in shown(query_table(ASKED, [], "2021-12-31"))]
    assert "speed 2022-01-01 to 2022-01-31 0.138889 12.3611 383.194 not begun yet" in rows


@pytest.mark.parametrize(
    ("epsilon", "times", "sure"),
    [
        (0.1, "1.11", "52.5 %"),
        (1.0, "2.72", "73.11 %"),
        (10.0, "22,026", "99.996 %"),
        (104.232, "about 10^45", "100 %"),
        (1e6, "about 10^434294", "100 %"),
    ],
)
def test_epsilon_is_said_as_a_factor_and_as_how_sure_one_can_become(epsilon: float, times: str, sure: str) -> None:
    assert (factor(epsilon), certainty(epsilon)) == (times, sure)


def test_a_day_whose_factor_excludes_nothing_is_not_called_protected() -> None:
    text = words(ASKED)
    assert explanation(ASKED, 30, [])[0].sums[-1] == ("so one bus's day loses at most", "", "102.251")
    assert "e^1.14889, a factor of 3.15" in text
    assert "e^102.251, a factor of about 10^44. A factor of that size excludes nothing" in text
    assert "one in 10 loses 11.4889" in text
    assert "30 x 102.251 = 3067.53" in text
    assert "strong" not in text


def test_a_day_with_a_small_bound_is() -> None:
    strong = words(policy(privacy={"epsilon": 0.1, "max_hats_per_day": 5}))
    assert "e^0.5, a factor of 1.65: at most 62.25 % sure of anything about the bus's day. That is strong" in strong
    assert "not strong protection" in words(policy(privacy={"max_hats_per_day": 5}))
    hopeless = policy(privacy={"epsilon": 50.0, "acknowledge_weak_privacy": True})
    assert "hides hardly anything" in words(hopeless)


def test_what_is_hidden_is_what_the_relation_hides() -> None:
    text = words(policy())
    assert "Not hidden is that it was there" in text
    assert "above 150 km/h" in text
    assert "past midnight counts as two days" in text
    assert "exactly 0" not in words(policy(drop_zero=False))
    listed = policy(
        cells="public.txt",
        privacy={"relation": "add_remove", "max_hats_per_day": 8},
        estimator={"name": "capped_ratio", "array_length": 40},
    )
    assert "Hidden is whether a bus was there at all" in words(listed)
    assert "whether one bus was there on one day" in words(listed)


def test_a_total_limit_is_what_all_days_can_lose() -> None:
    text = words(policy(privacy={"unit": "user", "total_limit": 1000.0}))
    assert "at most 1000 (total_limit), then nothing more is released. 30 days can lose 1000." in text
    assert "midnight" not in text


def test_what_is_of_the_ledger_and_what_of_the_policy_is_said() -> None:
    assert "is not known here: Redis is away. Of a file: --ledger FILE." in words(ASKED)
    assert "nothing has been released yet" in words(ASKED, ledger=[])
    days = [record(ASKED, "2022-01-02", 89), record(ASKED, "2022-01-03", 40), record(ASKED, TODAY, 3)]
    text = words(ASKED, 2, days)
    assert "Over its newest 2 days, 2022-01-03 to 2022-01-04" in text
    assert "has lost at most 69.5022; on the costliest day, 2022-01-03, 53.2511" in text


def test_the_figures_for_programs_add_up() -> None:
    found = figures(ASKED, 31, [record(ASKED, TODAY, 3)])
    day = found["day"]
    queries = sum(query["epsilon_user_day"] for query in day["queries"])
    assert day["bound"] == pytest.approx(day["epsilon_hats"] + queries)
    assert found["over_days"]["bound"] == pytest.approx(31 * day["bound"])
    assert found["over_days"]["epsilon_delta"]["epsilon"] < found["over_days"]["bound"]
    assert found["ledger"] == {"days": 1, "spent": 16.251111121, "most": 16.251111121}
    assert figures(ASKED, 1, "away")["ledger"] is None


def test_the_reports_table_stands_beside_the_whole_cost_and_needs_no_configuration() -> None:
    done = budget("report")
    assert done.exit_code == 0
    rows = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert rows[4:8] == [
        "query 1, mean speed K U / (N B) = 89 x 65 / (468 x 1) 12.361 12.361",
        "query 2, over a limit K / (D B) = 89 / (31 x 1) 2.871 2.871",
        "means, hour by hour K epsilon = 89 x 1 - 89.000",
        "together 15.232 104.232",
    ]
    text = " ".join(rows)
    assert "its day costs 104.232, not 15.232" in text
    assert "The only N that it prints is the least, 314: as min_n it would charge 18.424 for query 1." in text


def test_the_reports_table_for_programs_adds_up() -> None:
    found = json.loads(budget("report", "--json").stdout)
    report, whole = found["report"], found["in_all"]
    assert report["cumulative"] == pytest.approx(report["query_1"] + report["query_2"])
    assert round(report["cumulative"], 3) == 15.232
    assert whole["cumulative"] == pytest.approx(whole["hats"] + report["cumulative"])
    assert round(whole["cumulative"], 3) == 104.232


@pytest.mark.parametrize(
    "wrong", [("--explain",), ("show", "--days", 3), ("explain", "--days", 0), ("report", "-o", 1)]
)
def test_an_option_of_another_command_is_wrong_usage(wrong: tuple[object, ...]) -> None:
    assert budget(*wrong).exit_code == 2


@pytest.mark.timeout(60)
def test_without_redis_the_explanation_is_the_policys_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HATCAST_REDIS_URL", "redis://127.0.0.1:1/0")
    config = tmp_path / "hatcast.toml"
    config.write_text((Path(__file__).parents[2] / "hatcast.toml").read_text())
    done = budget("explain", "--config", config)
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 100
    text = " ".join(done.stdout.split())
    assert "The most that one bus's day can lose under policy surat-speed" in text
    assert "Redis at 127.0.0.1:1 cannot be reached" in text
    assert json.loads(budget("explain", "--json", "--config", config).stdout)["ledger"] is None


def test_a_composition_that_gains_nothing_is_not_shown() -> None:
    one = {"epsilon": 5.0, "max_hats_per_day": 1, "daily_limit": 5.0}
    text = words(policy(privacy=one))
    assert "30 x 5 = 150, and more on every further day." in text
    assert "omposed" not in text
    assert "A day loses at most 5." in words(policy(privacy=one), 1)
    assert "Composed as (epsilon, delta), a day loses at most " in words(policy())


@pytest.mark.parametrize("name", ["tcm_only", "lm_only", "full_lm", "pwh"])
def test_a_bus_in_both_groups_is_told_to_lose_twice_where_a_mean_has_both(name: str) -> None:
    given: dict[str, Any] = {"epsilon": 1.0, "max_hats_per_day": 4, "daily_limit": 4.0}
    made = policy(privacy=given, estimator={"name": name})
    text = words(made)
    told = "one that sends both counts as two buses, and its day can lose 2 x 4 = 8."
    assert (told in text) == (name in ("full_lm", "pwh"))
