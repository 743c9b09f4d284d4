"""`hatcast tail`: what a record that is published says on a line."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hatcast.agents.api.frames import Releases
from hatcast.agents.cli.budget_tables import BudgetTable
from hatcast.agents.cli.tail import chosen_topics, heading
from hatcast.agents.config.settings import parse_settings
from hatcast.agents.demo.defaults import demo_policy
from hatcast.agents.tables.terminal import (
    print_fitted,
    read_shown,
    record_line,
    releases_table,
    table,
)
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.ledger.proposals import numbered
from hatcast.stream.policy.policy import Policy
from hatcast.stream.queries import RetainedDay
from hatcast.stream.records import QUERY, RELEASE
from hatcast.stream.records.shown import SHOWN
from hatcast.stream.release.hats import HatChunks, release_of
from hatcast.stream.release.queries import QueryPeriod, query_periods_of, query_release_of
from tests.contracts.continual_goldens import running_sums
from tests.replayed import policy_of
from tests.support import Scripted

GOLDENS = Path(__file__).parents[2] / "schemas" / "golden" / "0.1.0"
CELL = "87608b0d2ffffff"
SPEED = {"name": "speed", "kind": "mean_speed", "days": 3, "from": "2022-01-01", "epsilon": 0.1, "min_n": 4}
FAST = {"name": "fast", "kind": "over_speed_limit", "days": 1, "scale": 1.0, "speed_limit": 50.0}


def asked_of(query: Mapping[str, Any]) -> tuple[Policy, Calendar, QueryPeriod]:
    policy = policy_of(query=(query,))
    calendar = Calendar(policy)
    return policy, calendar, next(query_periods_of(policy, calendar, "2022-01-03", "09:00"))


def day(*speeds: int) -> RetainedDay:
    """A user a speed (km/h), each with two readings."""
    maxima = np.array([speed * 1000 for speed in speeds], np.int64)
    return RetainedDay(np.full(len(speeds), 2, np.int64), 2 * maxima, maxima)


def said(query: Mapping[str, Any], days: Mapping[str, RetainedDay]) -> str:
    """The line of what is published of a query; the bytes are also what the contract says."""
    _, calendar, asked = asked_of(query)
    made = query_release_of(asked, calendar, CELL, days, Scripted([40]))
    value = numbered(made.record(0), 7)
    assert QUERY.decode(value).query == query["name"]
    return " ".join(record_line(read_shown(value)).plain.split())


DAYS = {f"2022-01-0{n}": day(20, 30, 40) for n in (1, 2, 3)}


@pytest.mark.parametrize(
    ("named", "tracker", "plain"),
    [
        ((), ["estimates"], ["means", "queries"]),
        (("releases",), ["means", "queries"], ["means", "queries"]),
        (("estimates", "queries"), ["queries", "estimates"], ["queries", "estimates"]),
    ],
)
def test_a_tracker_is_read_by_its_estimates_unless_topics_are_named(
    named: tuple[str, ...], tracker: list[str], plain: list[str]
) -> None:
    given: Any = dict.fromkeys(("releases", "means", "queries", "estimates", "running"), False) | dict.fromkeys(
        named, True
    )
    of_tracker = parse_settings({"policy": demo_policy(None)}, Path(), {}).policy
    assert [chosen_topics(given, each) for each in (of_tracker, policy_of())] == [tracker, plain]


def test_an_answer_names_its_query_and_its_dates() -> None:
    # Scale (65 km/h / 9 user-days) / 0.1 = 72 km/h: the interval is cut to what speeds can be.
    assert said(SPEED, DAYS) == (
        "test 2022-01-01 to 2022-01-03 09:00-10:00 87608b0d2ffffff speed 30.040 km/h 0.000 to 65.000 released"
    )
    assert said(FAST, {"2022-01-03": day(20, 51, 60)}) == (
        "test 2022-01-03 09:00-10:00 87608b0d2ffffff fast 2.040 vehicles/day 0.000 to 5.039"
        " faster than 50.0 km/h released"
    )


@pytest.mark.parametrize(
    ("days", "changes", "line"),
    [
        ({"2022-01-01": day(20)}, {"missing_days": "leave_out"}, "suppressed (too_few_user_days)"),
        ({"2022-01-01": day(20)}, {}, "suppressed (missing_days)"),
    ],
)
def test_a_query_without_an_answer_says_why(
    days: Mapping[str, RetainedDay], changes: dict[str, object], line: str
) -> None:
    assert said(SPEED | changes, days).endswith(f"87608b0d2ffffff speed {line}")


def test_an_answer_over_fewer_days_says_so() -> None:
    two = {date: DAYS[date] for date in ("2022-01-01", "2022-01-03")}
    assert said(SPEED | {"missing_days": "leave_out"}, two).endswith("released from 2 of 3 days")


def test_a_query_that_the_budget_has_no_room_for_says_so() -> None:
    _, calendar, asked = asked_of(SPEED)
    made = query_release_of(asked, calendar, CELL, DAYS, Scripted([0])).exhausted()
    line = record_line(read_shown(numbered(made.record(0), 1))).plain
    assert line.endswith("87608b0d2ffffff  speed  budget_exhausted")


def test_a_mean_is_a_line_as_before() -> None:
    policy = policy_of()
    made = release_of(policy, Calendar(policy), "2022-01-03/09:00", CELL, HatChunks([]), Scripted())
    value = numbered(made.record(0), 1)
    assert RELEASE.decode(value).status == "suppressed"
    assert record_line(read_shown(value)).plain == "test  2022-01-03 09:00-10:00  87608b0d2ffffff  suppressed"
    assert record_line(read_shown(b"{}")).plain == "a record that is not a release"


def test_each_groups_own_mean_is_shown_behind_the_blend_and_below_it_in_a_table() -> None:
    group = '{{"mean":{},"raw":{},"interval95":[{},{}],"users":{}}}'.format
    central, local = group("33.870", "33.870", "33.220", "34.520", 1300), group("35.40", "35.40", "29.0", "41.7", 12)
    value = (
        f'{{"release_id":"p/2022-01-02T09:00/{CELL}","status":"released","cell":"{CELL}","date":"2022-01-02",'
        '"slot":"09:00","end":"2022-01-02T10:00:00+05:30","mean":33.911,"unit":"km/h","interval95":[33.2,34.5],'
        f'"groups":{{"central":{central},"local":{local}}}}}'
    )
    line = record_line(read_shown(value.encode())).plain
    assert line.endswith("  released  central 33.870 (1,300 users)  local 35.40 (12 users)")
    table = releases_table([SHOWN.decode(value)])
    assert [list(column.cells) for column in table.columns[3:]] == [
        ["released", "central, 1,300 users", "local, 12 users"],
        ["33.9 km/h", "33.9 km/h", "35.4 km/h"],
        ["33.2 to 34.5", "33.2 to 34.5", "29.0 to 41.7"],
    ]
    assert table.caption is None


@pytest.mark.parametrize(
    ("case", "line"),
    [
        ("week_estimates", "2022-01-02 until 10:00 87608b0d2ffffff 7d 18.12 km/h 15.17 to 21.06 mean of 70 slots"),
        ("today", "2022-01-02 until 10:00 87608b0d2ffffff today 18.12 km/h 15.17 to 21.06 mean of 1 slot"),
        ("day_empty", "2022-01-02 until 10:00 87608b0d2ffffff 24h no slot with a number"),
    ],
)
def test_a_running_mean_has_its_name_and_its_number_of_slots(case: str, line: str) -> None:
    golden = json.loads((GOLDENS / "running" / f"{case}.json").read_text())
    shown = record_line(read_shown(json.dumps(golden["value"]).encode())).plain
    assert " ".join(shown.split()) == f"surat-speed {line}"


@pytest.mark.parametrize(
    ("name", "word"), [(f"09:00/{CELL}", "released"), ("settlement/00077", "settlement"), ("pulse/00077", "pulse")]
)
def test_a_query_of_several_hats_is_not_taken_for_the_release_of_its_hour(name: str, word: str) -> None:
    value = (
        f'{{"release_id":"p/2022-01-02T{name}","status":"released","cell":"{CELL}",'
        '"date":"2022-01-02","slot":"09:00","end":"2022-01-02T10:00:00+05:30","mean":30.554,"unit":"km/h",'
        '"interval95":[26.579,34.529],"query":{"number":77}}'
    )
    assert record_line(read_shown(value.encode())).plain.split()[-1] == word
    table = releases_table([SHOWN.decode(value)])
    assert list(table.columns[3].cells) == [word]


def test_a_settlement_has_the_same_hours_in_the_table_the_repr_and_tail() -> None:
    golden = json.loads((GOLDENS / "release" / "tracker_settlement.json").read_text())["value"]
    hours = {"date": "2022-01-02", "end": "2022-01-02T21:00:00+05:30"}
    value = json.dumps(golden | hours | {"release_id": "p/2022-01-02Tsettlement/00077"}).encode()
    assert "09:00-21:00" in record_line(read_shown(value)).plain
    table = releases_table([SHOWN.decode(value)], "each is of a query")
    assert list(table.columns[1].cells) == ["09:00-21:00"]
    assert table.caption == "each is of a query"
    assert "2022-01-02  09:00-21:00  " in repr(Releases([value]))


def test_no_status_is_broken_at_80_columns() -> None:
    rows: list[dict[str, Any]] = [
        {"status": "budget_exhausted"},
        {"status": "released", "mean": 42.5, "interval95": (41.5, 43.5)},
        {
            "end": "2022-01-02T21:00:00",
            "status": "released",
            "release_id": "p/2022-01-02Tsettlement/1",
        },
    ]
    for shown in (rows[:2], rows):
        place = {"date": "2022-01-02", "slot": "09:00", "end": "2022-01-02T10:00:00", "cell": CELL, "unit": "km/h"}
        releases = [SHOWN.decode(json.dumps(place | row)) for row in shown]
        console = Console(file=io.StringIO(), width=80)
        print_fitted(console, releases_table(releases))
        assert "budget_exhausted" in console.file.getvalue()  # type: ignore[attr-defined]


def test_in_a_pipe_a_table_is_as_wide_as_its_cells() -> None:
    wide = table("", "", ["place", *(f"number {n}" for n in range(12))], [("a" * 30, *["1,234,567.8 km/h"] * 12)])
    console = Console(file=io.StringIO(), width=80)
    print_fitted(console, wide)
    print_fitted(console, BudgetTable([]))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert written.count("1,234,567.8 km/h") == 12
    assert "…" not in written
    assert console.width == 80


def test_of_many_rows_the_newest_are_printed_with_where_the_others_are() -> None:
    place = {"end": "2022-01-02T10:00:00", "cell": CELL, "unit": "km/h", "status": "released", "mean": 42.5}
    days = [f"2022-01-{day:02}" for day in range(1, 32)] * 2
    releases = [SHOWN.decode(json.dumps(place | {"date": day, "slot": "09:00"})) for day in sorted(days)]
    console = Console(file=io.StringIO(), width=80)
    print_fitted(console, releases_table(releases))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert written.count(CELL) == 40
    assert "2022-01-11" not in written
    assert "2022-01-31" in written
    assert "the last 40 of 62; a file or JSON has all" in written


def test_a_mean_since_a_horizons_start_is_not_taken_for_the_release_of_its_hour() -> None:
    released = dict(running_sums())["continual_laplace_released"]
    line = record_line(read_shown(numbered(released.record(0), 1))).plain
    assert line.endswith("  mean since 2021-12-27")


@pytest.mark.parametrize(
    ("stage", "line"),
    [
        ("live", "p 2022-01-02 09:00-10:00 87608b0d2ffffff 42.56 km/h 33.08 to 52.04 road 42.43 live"),
        ("predicted", "p 2022-01-02 09:00-10:00 87608b0d2ffffff 42.43 km/h 33.60 to 51.26 of the road predicted"),
    ],
)
def test_an_estimate_shows_the_mean_of_the_hour_and_without_one_the_road(stage: str, line: str) -> None:
    road = '{"value":42.43,"sd":4.51,"interval95":[33.60,51.26]}'
    mean = ',"mean":{"value":42.56,"sd":4.84,"interval95":[33.08,52.04]}' if stage == "live" else ""
    value = (
        f'{{"estimate_id":"p/2022-01-02T09:00/{CELL}","stage":"{stage}","cell":"{CELL}","date":"2022-01-02",'
        f'"slot":"09:00","end":"2022-01-02T10:00:00+05:30","unit":"km/h","road":{road}{mean}}}'
    )
    assert " ".join(record_line(read_shown(value.encode())).plain.split()) == line


def test_estimates_are_below_each_other_whatever_digits_they_have() -> None:
    shown = []
    for value, low, high in (("42.43", "33.60", "51.26"), ("9.5", "-1", "20")):
        road = f'{{"value":{value},"sd":4.5,"interval95":[{low},{high}]}}'
        place = f'"cell":"{CELL}","date":"d","slot":"s","end":"2022-01-02T10:00:00Z"'
        text = f'{{{place},"unit":"km/h","road":{road},"stage":"live"}}'
        shown.append(record_line(read_shown(text.encode())).plain)
    assert [[at for at, sign in enumerate(line) if sign == "."] for line in shown[:1]] == [
        [at for at, sign in enumerate(line) if sign == "."] for line in shown[1:]
    ]
    assert len({line.index("live") for line in shown}) == 1


def test_an_answer_says_what_it_counts_and_of_how_many_days() -> None:
    two = {date: DAYS[date] for date in ("2022-01-01", "2022-01-03")}
    for query, days, rest in (
        (SPEED, DAYS, "30.040 km/h 0.000 to 65.000 released"),
        (SPEED | {"missing_days": "leave_out"}, two, "30.040 km/h 0.000 to 65.000 released from 2 of 3 days"),
        (FAST, {"2022-01-03": day(20, 51, 60)}, "2.040 vehicles/day 0.000 to 5.039 faster than 50.0 km/h released"),
        (SPEED, {"2022-01-01": day(20)}, "suppressed (missing_days)"),
    ):
        assert " ".join(said(query, days).split()).endswith(f"{query['name']} {rest}")


def test_before_its_lines_tail_says_which_speed_and_which_numbers_they_are() -> None:
    policy = policy_of()
    assert heading(policy, ["estimates"]) == (
        f"{policy.name}, speed while moving: the mean of all readings of the hour and its 95 % interval,"
        " the road beside it"
    )
