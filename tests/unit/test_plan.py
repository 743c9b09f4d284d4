"""`hatcast plan`: expected errors from counts alone, and the keys that it writes."""

import json
import tomllib
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from hatcast.agents.config.settings import load_settings
from hatcast.agents.config.template import TemplateAnswers, render_template
from hatcast.lab import processes
from hatcast.lab.days import RecordedDay, RecordedSlot
from hatcast.lab.plan import tracker as tracker_plans
from hatcast.lab.plan.counts import CountedDays, counts_of_days, counts_of_rows, rows_of_file
from hatcast.lab.plan.forecast import MEAN_DEVIATION, Forecast, constant_errors
from hatcast.lab.plan.write import with_table_keys, without_other_keys
from hatcast.stream.errors import HatcastError, RecordingError
from hatcast.stream.policy.tracker_keys import TIMETABLE_PRIOR, Objective, TrackerKeys
from hatcast.stream.tracker import model
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.tracker.tracker import HatUsers, Tracker
from hatcast.stream.units import NANO
from tests.displaying import CELLS
from tests.invoked import run
from tests.surroundings import write_timetable

pytestmark = pytest.mark.usefixtures("elsewhere")

HOUR_MS = 3_600_000
KEYS = TrackerKeys(5 * NANO, price=1.5)


def counts(cells: int = 4, hours: int = 4, buses: int = 6) -> CountedDays:
    """One day on which every bus is in every cell and hour."""
    rows = [
        ("2016-11-24", 7 + hour, f"cell {cell}", f"bus {bus}", 1 + (bus + cell) % 3)
        for hour in range(hours)
        for cell in range(cells)
        for bus in range(buses)
    ]
    return counts_of_rows(rows, 3)


def timetable(path: Path, days: int = 2) -> Path:
    lines = [
        f"2016-11-{24 + day},{7 + hour},cell {cell},bus {bus},{1 + bus % 3}"
        for day in range(days)
        for hour in range(3)
        for cell in range(3)
        for bus in range(5)
    ]
    path.write_text("\n".join(["date,hour,cell,vehicle,readings", *lines]) + "\n")
    return path


plan = partial(run, "plan", "tracker")


# The recursion


def test_errors_are_those_of_the_trackers_own_variances() -> None:
    given = counts()
    tracker = Tracker(KEYS, Prior.of(65.0))
    live, end = [], []
    for day in range(2):
        tracker.begin_day()
        for slot in given.days[0]:
            first = len(tracker.schedule.day.hats)
            hats = [
                HatUsers(f"{hat.cell}", hat.buses.astype(np.uint64), hat.readings, 20_000 * hat.readings)
                for hat in slot.hats
            ]
            for query in tracker.close_slot((24 * day + slot.hour) * HOUR_MS, slot.hour, hats):
                assert query.total > 0
            numbers = range(first, len(tracker.schedule.day.hats))
            live += [each.mean.variance**0.5 for each in tracker.estimates(numbers)[0]]
        assert all(query.total > 0 for query in tracker.settle())
        end += [each.mean.variance**0.5 for each in tracker.estimates(range(len(tracker.schedule.day.hats)))[0]]
    found = Forecast(KEYS, Prior.of(65.0), given).days(2, {1})
    assert [each.live for each in found] == pytest.approx(MEAN_DEVIATION * np.array(live).reshape(2, -1).mean(axis=1))
    assert [each.end for each in found] == pytest.approx(MEAN_DEVIATION * np.array(end).reshape(2, -1).mean(axis=1))
    assert all(each.road_live < each.live and each.road_end < each.end for each in found)


def test_repeated_observations_are_close_to_designed_ones() -> None:
    designed = Forecast(KEYS, Prior.of(65.0), counts()).days(8, range(8))
    repeated = Forecast(KEYS, Prior.of(65.0), counts()).days(8, {1, 2, 3})
    assert designed[:4] == repeated[:4]
    for one, other in zip(designed[4:], repeated[4:], strict=True):
        assert 0.97 * one.live < other.live < 1.05 * one.live
    assert designed[7].live < designed[0].live


def test_days_can_be_forecast_in_parts() -> None:
    parts = Forecast(KEYS, Prior.of(65.0), counts())
    assert [*parts.days(2, ()), *parts.days(3, {4})] == Forecast(KEYS, Prior.of(65.0), counts()).days(5, {4})


def test_a_constant_has_the_error_of_the_prior() -> None:
    given = counts(buses=3)
    found = constant_errors(Prior.of(65.0), given)
    assert found.city < found.half_bound < MEAN_DEVIATION * (144 + 2 + 32 + 2 + 74 + 119 + 20) ** 0.5
    assert (found.timetable, found.best) == (None, found.city)
    wider = constant_errors(Prior.of(130.0), given)
    assert (wider.half_bound, wider.city) == pytest.approx((2 * found.half_bound, 2 * found.city))


def test_a_timetable_leaves_less_to_find_out() -> None:
    given = counts()
    scheduled = Timetable.of({name: 250 + 20 * number for number, name in enumerate(given.names)})
    known = constant_errors(Prior.of(65.0), given, scheduled)
    assert known.best == known.timetable
    assert (known.half_bound, known.city) == astuple(constant_errors(Prior.of(65.0), given))[:2]
    (without,), (with_it,) = (Forecast(KEYS, Prior.of(65.0), given, each).days(1, ()) for each in (None, scheduled))
    assert with_it.live < without.live
    assert with_it.end < without.end
    other_city = Timetable.of({"cell of another city": 250})
    assert Forecast(KEYS, Prior.of(65.0), given, other_city).days(1, ()) == [without]


def test_the_timetables_own_error_does_not_follow_the_prior_of_the_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    given = counts()
    scheduled = Timetable.of({name: 100 + 60 * number for number, name in enumerate(given.names)})
    found = constant_errors(Prior.of(65.0), given, scheduled)
    monkeypatch.setattr(model, "TIMETABLE_PRIOR", replace(TIMETABLE_PRIOR, slope_sd=0.9))
    assert constant_errors(Prior.of(65.0), given, scheduled) == found


def test_a_plan_expects_smaller_errors_where_most_values_are_known_to_be_in_a_part_of_the_range() -> None:
    given = counts()
    guessed, narrow = (Prior.of(64.0, value="load", usual=usual) for usual in (None, (24.0, 24.0 + 16 / 1.3)))
    assert constant_errors(narrow, given).city == pytest.approx(constant_errors(guessed, given).city / 4)
    (wide,), (known,) = (Forecast(KEYS, each, given).days(1, ()) for each in (guessed, narrow))
    assert known.live < wide.live / 2
    assert known.end < wide.end / 2


def test_a_larger_total_expects_smaller_errors_and_the_best_keys_are_taken() -> None:
    plans = tracker_plans.plan(counts(), Prior.of(65.0), [2.0, 20.0], Objective.BUSES, lambda _: None)
    small, large = plans.plans
    assert (small.total, large.total) == (2, 20)
    assert large.first.end < small.first.end
    assert small.after[30].live < small.first.live
    assert large.keys.objective is Objective.BUSES
    assert large.keys.daily_limit == 20 * NANO
    assert plans.is_worth_having(0.89 * plans.constant)
    assert not plans.is_worth_having(0.91 * plans.constant)
    assert plans.skill(plans.constant / 2) == 0.75


# Counts


def test_no_speed_is_read() -> None:
    def day(sums: list[int]) -> RecordedDay:
        hat = HatUsers("a", np.array([7, 9], np.uint64), np.array([2, 3]), np.array(sums))
        return RecordedDay("2016-11-24", (RecordedSlot("2016-11-24/07:00", 0, 7, (hat,)),))

    slow, fast = (counts_of_days([day(sums)]).days[0][0] for sums in ([0, 0], [130_000, 195_000]))
    assert slow.hour == fast.hour == 7
    assert [(each.cell, each.buses.tolist(), each.readings.tolist()) for each in slow.hats] == [
        (each.cell, each.buses.tolist(), each.readings.tolist()) for each in fast.hats
    ]


def test_rows_are_counted_by_day_slot_cell_and_vehicle() -> None:
    rows = [("b", 8, "x", "two", 1), ("a", 9, "x", "one", 2), ("a", 9, "x", "two", 1), ("a", 9, "x", "one", 3)]
    found = counts_of_rows([*rows, ("a", 8, "y", "one", 1)], 1)
    assert (found.cells, found.hats) == (2, 3)
    assert [[slot.hour for slot in day] for day in found.days] == [[8, 9], [8]]
    assert found.days[0][1].hats[0].readings.tolist() == [5, 1]
    assert counts_of_rows(rows, 2).hats == 1
    assert counts_of_rows(rows, 3).days == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "date,hour,cell\n",
        "date,hour,cell,vehicle,readings\n2016-11-24,24,a,b,1\n",
        "date,hour,cell,vehicle,readings\n2016-11-24,7,a,b,0\n",
        "date,hour,cell,vehicle,readings\n2016-11-24,7,a,b\n",
    ],
)
def test_a_file_that_has_no_counts_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(text)
    with pytest.raises(RecordingError) as rejected:
        rows_of_file(path)
    assert "\n" not in str(rejected.value)


# The command


def test_json_table_and_plot_have_every_total(tmp_path: Path) -> None:
    path, out = timetable(tmp_path / "counts.csv"), tmp_path / "out.svg"
    done = plan("--counts", path, "--daily-limit", "2,10", "--json", "--plot", out)
    found = json.loads(done.stdout)
    assert found.keys() == {"settings", "plans", "constant"}
    assert [*found["plans"]] == ["2", "10"]
    for each in found["plans"].values():
        assert each.keys() == {"keys", "first", "7", "30"}
        assert each["keys"].keys() == {"share", "objective", "price"}
        assert each["30"].keys() == {"live", "end", "road_live", "road_end", "skill", "worth_having"}
    assert found["settings"]["days"] == 2
    text = "".join(ET.parse(out).getroot().itertext())
    assert "a constant" in text
    assert "live, after 30 days" in text
    table = plan("--counts", path, "--daily-limit", "2,10").stdout
    assert "keys of [policy.tracker]" in " ".join(table.split())
    assert " 2 days, " in table
    one = plan("--counts", timetable(tmp_path / "one.csv", 1), "--daily-limit", "2").stdout
    assert " 1 day, " in one
    assert all(len(line.rstrip()) <= 80 for line in table.splitlines())
    assert "…" not in table


TRACKERS = ("epsilon", "max_hats_per_day")


def test_keys_are_written_into_a_configuration_whose_comments_stay(tmp_path: Path) -> None:
    config = tmp_path / "city.toml"
    config.write_text(render_template(TemplateAnswers(timezone="America/Chicago")) + 'array_length = "median"\n')
    before = config.read_text()
    done = plan("--counts", timetable(tmp_path / "counts.csv"), "--daily-limit", 5, "--write", config)
    assert "wrote the plan for a total of 5" in done.stderr
    policy = tomllib.loads(config.read_text())["policy"]
    assert policy["estimator"] == {"name": "tracker"}
    assert policy["privacy"]["daily_limit"] == 5
    assert policy["tracker"].keys() == {"share", "objective", "price"}
    kept = {key: value for key, value in tomllib.loads(before)["policy"]["privacy"].items() if key not in TRACKERS}
    assert policy["privacy"] == kept | {"daily_limit": 5}
    dropped = [line for line in before.splitlines() if line.startswith(("epsilon", "max_hats_per_day"))]
    assert config.read_text().count("#") == before.count("#") - "".join(dropped).count("#")
    assert isinstance(load_settings(config).policy.method, TrackerKeys)


def test_a_timetable_is_planned_with_and_written(tmp_path: Path) -> None:
    cell = CELLS[0]
    path = tmp_path / "counts.csv"
    rows = [f"2016-11-24,{hour},{cell},bus {bus},3" for hour in (7, 8) for bus in range(5)]
    path.write_text("\n".join(["date,hour,cell,vehicle,readings", *rows, ""]))
    config = tmp_path / "hatcast.toml"
    config.write_text(render_template(TemplateAnswers(timezone="Asia/Kolkata")))
    gtfs = write_timetable(tmp_path / "gtfs.zip")
    done = plan("--counts", path, "--daily-limit", 5, "--timetable", gtfs, "--write", config, "--json")
    found = json.loads(done.stdout)
    assert found["constant"]["timetable"] < found["constant"]["city"]
    assert found["settings"]["scheduled_cells"] > 20
    assert tomllib.loads(config.read_text())["policy"]["tracker"]["timetable"] == str(gtfs)
    again = plan("--counts", path, "--daily-limit", 5, "--config", config, "--json")
    assert json.loads(again.stdout)["plans"] == found["plans"]
    table = plan("--counts", path, "--daily-limit", 5, "--timetable", gtfs).stdout
    assert "and the timetable around that mean one of" in " ".join(table.split())
    with pytest.raises(HatcastError, match="does not exist"):
        plan("--counts", path, "--timetable", tmp_path / "none.zip")


def test_without_an_option_the_policy_is_that_of_the_file_that_batch_reads(tmp_path: Path) -> None:
    path = timetable(tmp_path / "counts.csv")
    bare = plan("--counts", path, "--daily-limit", 5, "--json")
    assert "policy: a general one, without hatcast.toml and --config" in bare.stderr
    (tmp_path / "hatcast.toml").write_text(
        '[policy]\nname = "own"\nupper_bound = 90.0\ntimezone = "UTC"\n[policy.privacy]\ndaily_limit = 5.0\n'
        '[policy.estimator]\nname = "tracker"\n'
    )
    found = plan("--counts", path, "--daily-limit", 5, "--json")
    assert "policy: that of hatcast.toml" in found.stderr
    bounds = [json.loads(each.stdout)["settings"]["upper_bound"] for each in (bare, found)]
    assert bounds == [65, 90]


def test_of_a_value_without_a_usual_range_a_plan_says_that_its_errors_are_too_large(tmp_path: Path) -> None:
    path, live = timetable(tmp_path / "counts.csv"), []
    for usual in ("", "usual = [0, 40]\n"):
        (tmp_path / "hatcast.toml").write_text(
            '[policy]\nname = "dust"\ntimezone = "UTC"\n[policy.value]\nname = "pm25"\nunit = "ug/m3"\nlower = 0\n'
            f"upper = 500\n{usual}[policy.privacy]\ndaily_limit = 5.0\n"
        )
        found = plan("--counts", path, "--daily-limit", 5, "--json")
        assert ("nothing is known of pm25 but its range" in found.stderr) is not bool(usual)
        live.append(json.loads(found.stdout)["plans"]["5"]["first"]["live"])
    assert live[1] < live[0] / 5


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--counts", "a", "--data", "b", "--format", "jsonl"],
        ["--counts", "a", "b"],
        ["--counts", "a", "--format", "jsonl"],
        ["--counts", "a", "--write", "b", "--write-limit", 3],
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(arguments: list[object]) -> None:
    assert plan(*arguments).exit_code == 2


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    path = timetable(tmp_path / "counts.csv")
    with pytest.raises(HatcastError, match=r"--write: .*absent\.toml: no such file"):
        plan("--counts", path, "--write", tmp_path / "absent.toml")
    with pytest.raises(HatcastError, match="--daily-limit"):
        plan("--counts", path, "--daily-limit", "none")
    with pytest.raises(HatcastError, match="has no HAT with 50 users"):
        plan("--counts", path, "--min-users", 50)
    path.write_text("date,hour,cell,vehicle,readings\n")
    with pytest.raises(HatcastError, match="has no HAT with 3 users"):
        plan("--counts", path)


# Editing a configuration


def test_editing_replaces_adds_and_keeps_comments_in_their_columns() -> None:
    text = '[a]\nx = 1           # one\ny = "#"  # two\n\n[b]\nz = 3\n'
    edited = with_table_keys(text, "a", {"x": 22, "y": "new", "w": 0.5})
    assert edited == '[a]\nx = 22          # one\ny = "new" # two\nw = 0.5\n\n[b]\nz = 3\n'
    assert with_table_keys(text, "c.d", {"k": 1}) == text + "\n[c.d]\nk = 1\n"
    assert without_other_keys(text, "a", "y") == '[a]\ny = "#"  # two\n\n[b]\nz = 3\n'
    assert without_other_keys(text, "absent", "y") == text


@pytest.mark.parametrize("text", ["a = {x = 1}  # one\n", "a.x = 1  # one\n", "[b]\n[a]\n[b.c]\n"])
def test_a_table_can_be_written_in_other_ways(text: str) -> None:
    edited = with_table_keys(text, "a", {"x": 2, "y": "new"})
    assert tomllib.loads(edited) == tomllib.loads(text) | {"a": {"x": 2, "y": "new"}}
    assert edited.count("# one") == text.count("# one")


@pytest.mark.parametrize("text", ["a = 1\n", "[[a]]\n", "[a\n"])
def test_what_cannot_be_edited_is_rejected(text: str) -> None:
    with pytest.raises(HatcastError):
        with_table_keys(text, "a", {"x": 2})


def test_a_plan_of_several_totals_is_the_same_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    given = counts(cells=2, hours=2)
    apart = tracker_plans.plan(given, Prior.of(65.0), [2.0, 5.0], Objective.CELLS, lambda _: None)
    monkeypatch.setattr(processes, "processors", lambda: 1)
    assert tracker_plans.plan(given, Prior.of(65.0), [2.0, 5.0], Objective.CELLS, lambda _: None) == apart
