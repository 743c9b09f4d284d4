"""`hatcast evaluate days --daily-limit`: whole days of recordings, replayed through the code of releases."""

import io
import json
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from hatcast.lab.days import RecordedDay, RecordedSlot, open_days, policy_of_recordings, with_users
from hatcast.lab.evaluate.contenders import parse_contender
from hatcast.lab.evaluate.days import Comparison, Result, report_of
from hatcast.lab.evaluate.days_replay import (
    DaysReplay,
    PublishedRuns,
    Score,
    TrackerDesign,
    Truth,
    constant_scores,
    epsilon_of_hat,
    scores_of,
)
from hatcast.lab.evaluate.skill import PUBLIC, Skill, skill_of
from hatcast.stream.errors import HatcastError
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.readings.formats import FORMATS
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.tracker.tracker import HatUsers
from hatcast.stream.units import NANO
from tests.displaying import CELLS
from tests.invoked import run
from tests.services.data import DATA, recording
from tests.support import Scripted

pytestmark = pytest.mark.usefixtures("elsewhere")

DAY = DATA / "capmetro" / "2017-03-21.csv.gz"
HOUR_MS = 3_600_000
COLUMNS = ("mae", "by_users", "ge10", "coverage", "half_width")
POLICY = policy_of_recordings(None, "capmetro")


evaluate = partial(run, "evaluate", "days")


@cache
def found() -> dict[str, Any]:
    """The JSON of one day at two limits, in two runs."""
    done = evaluate("--daily-limit", "2,20", "--data", DAY, "--format", "capmetro", "--runs", 2, "--json")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def hat(cell: str, means: list[float], counts: list[int] | None = None) -> HatUsers:
    """A HAT of users 1, 2, ..; means in km/h."""
    readings = np.array(counts or [1] * len(means), np.int64)
    sums = np.rint(np.array(means) * readings * 1000).astype(np.int64)
    return HatUsers(cell, np.arange(1, len(means) + 1, dtype=np.uint64), readings, sums)


def days_of(*hats: HatUsers) -> list[RecordedDay]:
    """One day with a slot for each HAT."""
    slots = [RecordedSlot(f"2017-03-21/{i:02}:00", i * HOUR_MS, i, (each,)) for i, each in enumerate(hats)]
    return [RecordedDay("2017-03-21", tuple(slots))]


# What it prints


def test_json_has_the_scores_of_each_design_at_each_limit_and_of_constants() -> None:
    assert found().keys() == {"settings", "tracker", "array_averaging", "constant"}
    for name in ("tracker", "array_averaging"):
        assert [*found()[name]] == ["2", "20"]
        for result in found()[name].values():
            assert result.keys() == {"live", "end", "released", "skill"}
            assert result["skill"]["worst"] == result["skill"]["mean"] < 1  # of one date
            assert result["skill"]["baselines"].keys() == {"half_bound", "last"}
            for scores in (result["live"], result["end"]):
                if scores is not None:
                    assert [*scores] == [*COLUMNS, "se"]
                    assert scores["se"].keys() == set(COLUMNS)
                    assert all(scores[column] > 0 for column in COLUMNS)
    assert found()["constant"].keys() == {"half_bound", "city", "cell"}
    assert found()["constant"]["city"]["half_width"] is None
    assert found()["settings"]["min_users"] == 3
    assert found()["settings"]["hats"] == 542


def test_only_an_estimator_has_releases_of_its_own_which_are_farther_off_than_its_estimates() -> None:
    for result in found()["array_averaging"].values():
        assert result["released"]["share"] < 1
        assert result["released"]["mae"] > max(result["live"]["mae"], result["end"]["mae"]) + 1
    assert all(result["released"] is None for result in found()["tracker"].values())


def test_errors_fall_with_the_limit_and_with_the_days_end() -> None:
    tracker = found()["tracker"]
    assert tracker["20"]["end"]["mae"] < tracker["2"]["end"]["mae"] - 0.5
    assert all(result["end"]["mae"] < result["live"]["mae"] for result in tracker.values())
    assert found()["array_averaging"]["2"]["released"]["mae"] > found()["constant"]["city"]["mae"] + 1


def test_the_table_ends_in_a_sentence_about_the_best_constant() -> None:
    done = evaluate("--daily-limit", 20, "--data", DAY, "--format", "capmetro", "--runs", 1, "--estimators", "tracker")
    text = " ".join(done.stdout.split())
    assert text.endswith("has an error of 7.14 km/h; tracker is better at 20.")
    assert "2017-03-21: 542 HATs with 3 users or more" in text
    assert "nothing that it prints is private" in done.stderr
    assert all(len(line.rstrip()) <= 80 for line in done.stdout.splitlines())


def test_a_table_with_releases_of_estimators_is_not_cut_off_at_80_columns() -> None:
    scores = {column: Score(23.456, 0.1) for column in COLUMNS} | {"coverage": Score(0.98765, 0.1)}
    result = Result(scores, scores, Skill(-0.123, -10.5, 0.1, dict.fromkeys(PUBLIC, 23.45)), scores, 0.5)
    constants = {name: {"mae": Score(6.0, None)} for name in ("half_bound", "city", "cell")}
    comparison = Comparison(["2017-03-21"], 542, {"opt_array_averaging": {0.125: result}}, constants)
    file = io.StringIO()
    Console(file=file, width=80).print(*report_of(comparison, "A title", {}).shown)
    assert all(len(line.rstrip()) <= 80 for line in file.getvalue().splitlines())
    assert "-10.50" in file.getvalue()
    rows = [line for line in file.getvalue().splitlines() if "23.46" in line]
    assert len(rows) == 3
    assert all(row.split()[-5:] == ["23.46", "23.46", "23.46", "98.8%", "23.46"] for row in rows)


def test_several_files_are_days_of_one_stream() -> None:
    other = DATA / "capmetro" / "2016-11-24.csv.gz"
    rows = ("--daily-limit", 10, "--format", "capmetro", "--runs", 1, "--estimators", "baseline", "--json")
    together = json.loads(evaluate("--data", other, DAY, *rows).stdout)
    assert together["settings"]["dates"] == ["2016-11-24", "2017-03-21"]
    assert together["settings"]["hats"] == 542 + 866
    assert "se" not in together["baseline"]["10"]["live"]


# What it computes


def test_scores_are_means_over_hats_and_runs() -> None:
    truth = Truth.of(days_of(hat("a", [10, 20]), hat("b", [30] * 10, [3] * 10)))
    assert truth.means.tolist() == [15, 30]
    means = np.array([[16.0, 30.0], [15.0, 26.0]])
    scores = scores_of(PublishedRuns(means, means - 2, means + 2), truth)
    assert scores["mae"].value == pytest.approx((0.5 + 2) / 2)
    assert scores["mae"].standard_error == pytest.approx(0.75)
    assert scores["by_users"].value == pytest.approx((2 / 12 + 40 / 12) / 2)
    assert scores["ge10"].value == 2
    assert (scores["coverage"].value, scores["half_width"].value) == (0.75, 2)


def test_hats_without_an_interval_are_left_out_of_coverage() -> None:
    truth = Truth.of(days_of(hat("a", [10]), hat("b", [20])))
    means = np.array([[11.0, 40.0]])
    published = PublishedRuns(means, np.array([[9.0, np.nan]]), np.array([[12.0, np.nan]]))
    assert scores_of(published, truth)["coverage"].value == 1
    assert published.released == 0.5
    nothing = PublishedRuns(means, np.full((1, 2), np.nan), np.full((1, 2), np.nan))
    assert scores_of(nothing, truth).keys() == {"mae", "by_users"}


def test_constants_are_half_the_bound_the_citys_mean_and_each_cells() -> None:
    truth = Truth.of(days_of(hat("a", [10]), hat("a", [20]), hat("b", [30])))
    scores = {name: each["mae"].value for name, each in constant_scores(truth, 65).items()}
    assert scores == pytest.approx({"half_bound": (22.5 + 12.5 + 2.5) / 3, "city": 20 / 3, "cell": 10 / 3})


def test_a_hat_without_room_counts_as_the_mean_of_what_was_released_before() -> None:
    hats = [hat(cell, [mean]) for cell, mean in zip(CELLS, (10.0, 20.0, 40.0, 60.0), strict=False)]
    days = days_of(*hats)
    capped = [RecordedDay(days[0].date, (days[0].slots[1], days[0].slots[2]))]
    replay = DaysReplay(days, POLICY.upper_bound, Grid(POLICY.grid), 1, Scripted([0, 0]), Prior.of(65.0))
    published, _, _ = replay.smoothed(parse_contender("baseline"), capped, 1.0)
    assert published.means.tolist() == [[32.5, 20, 40, 30]]
    assert np.isnan(published.low).tolist() == [[True, False, False, True]]


def test_each_of_k_hats_costs_its_part_of_the_limit_rounded_down() -> None:
    assert epsilon_of_hat(10, 10) == 1
    assert epsilon_of_hat(1, 3) * 3 <= 1
    keys = TrackerDesign(0.3, Objective.CELLS).keys
    assert keys(5, 65.0).daily_limit == 5 * NANO
    assert keys(5, 130.0).price == pytest.approx(2 * keys(5, 65.0).price)


def test_without_noise_and_with_a_large_budget_a_tracker_finds_the_means() -> None:
    days = days_of(*(hat("a", [20 + i] * 200) for i in range(6)))
    keys = TrackerDesign(1.0, Objective.CELLS).keys(1000, 65.0)
    replay = DaysReplay(days, POLICY.upper_bound, Grid(POLICY.grid), 1, Scripted([0] * 100), Prior.of(65.0))
    _, published = replay.tracker(keys)
    assert np.abs(published.means - Truth.of(days).means).max() < 1


def test_a_tracker_of_a_value_begins_at_0_or_in_the_middle_of_the_usual_range_as_that_of_a_worker_does() -> None:
    days = days_of(hat("a", [20.0] * 3))
    unasked = replace(TrackerDesign(1.0, Objective.CELLS).keys(1, 65.0), price=1e9)
    for usual, above_lower in ((None, 15.0), ((0.0, 10.0), 20.0)):
        prior = Prior.of(65.0, value="delay", lower=-15.0, usual=usual)
        replay = DaysReplay(days, POLICY.upper_bound, Grid(POLICY.grid), 1, Scripted([]), prior)
        assert replay.tracker(unasked)[0].means.tolist() == [[above_lower]]


def test_a_cap_leaves_the_first_hats_of_each_bus() -> None:
    with open_days([DAY], FORMATS["capmetro"]) as recordings:
        whole, capped = (recordings.days(replace(POLICY, max_hats_per_day=cap), lambda _: None) for cap in (500, 2))
    entered: dict[int, int] = {}
    for slot in capped[0].slots:
        for each in slot.hats:
            for user in each.pseudonyms.tolist():
                entered[user] = entered.get(user, 0) + 1
    assert max(entered.values()) == 2
    assert {slot.key[:10] for slot in whole[0].slots} == {"2017-03-21"}
    assert all(len(each.counts) >= 3 for day in with_users(whole, 3) for slot in day.slots for each in slot.hats)
    assert with_users(whole, 10**6) == []


# Skill


def published(*means: float) -> PublishedRuns:
    values = np.array([means], np.float64)
    return PublishedRuns(values, values - 1, values + 1)


def test_skill_is_against_the_best_public_baseline_of_a_date() -> None:
    days = days_of(hat("a", [40]), hat("a", [20]), hat("b", [30]), hat("a", [24]))
    skill = skill_of(published(36, 22, 32, 23), published(0, 0, 0, 0), days, 65.0, None)
    # U/2: 32.5 each. The last value: U/2, 36, 36 (the mean of what was known before), 22.
    assert skill.baselines == pytest.approx(
        {"half_bound": (7.5 + 12.5 + 2.5 + 8.5) / 4, "last": (7.5 + 16 + 6 + 2) / 4}
    )
    squares = {"half_bound": 7.5**2 + 12.5**2 + 2.5**2 + 8.5**2, "last": 7.5**2 + 16**2 + 6**2 + 2**2}
    assert skill.mean == skill.worst == pytest.approx(1 - (16 + 4 + 4 + 1) / min(squares.values()))


def test_each_sequence_of_noise_is_compared_with_what_is_best_in_it() -> None:
    days = days_of(hat("a", [40]), hat("a", [40]))
    means = np.array([[40.0, 39.0], [0.0, 36.0]])  # in the second one the first value is a bad guess
    skill = skill_of(PublishedRuns(means, means, means), PublishedRuns(means, means, means), days, 65.0, None)
    first = 1 - 1 / 7.5**2  # the last value is off by 7.5 and 0
    second = 1 - (40**2 + 4**2) / (7.5**2 + 7.5**2)  # U/2 twice; the last value is off by 7.5 and 40
    assert skill.mean == skill.worst == pytest.approx((first + second) / 2)
    assert skill.standard_error == pytest.approx(abs(first - second) / 2)


def test_a_later_date_begins_with_what_was_published_at_the_end_of_the_date_before() -> None:
    (first,), (second,) = days_of(hat("a", [40])), days_of(hat("a", [20]))
    days = [first, replace(second, date="2017-03-22")]
    skill = skill_of(published(33, 20), published(21, 20), days, 65.0, None)
    assert skill.baselines["last"] == pytest.approx((7.5 + 1) / 2)
    assert (skill.mean, skill.worst) == pytest.approx((((1 - (7 / 7.5) ** 2) + 1) / 2, 1 - (7 / 7.5) ** 2))


def test_a_timetable_is_a_baseline_around_the_level_that_was_published() -> None:
    days = days_of(hat("a", [40]), hat("b", [20]), hat("c", [30]))
    scheduled = Timetable.of({"a": 350, "b": 150})  # +8 and -8 km/h
    skill = skill_of(published(38, 24, 30), published(0, 0, 0), days, 65.0, scheduled)
    # U/2 + 8; then 38 - 8 = 30, less 8; then the mean of 30 and 24 + 8, as c has no scheduled speed.
    assert skill.baselines["timetable"] == pytest.approx((0.5 + 2 + 1) / 3)


def test_a_timetable_of_the_city_is_of_use_on_its_first_day(tmp_path: Path) -> None:
    rows = ("--daily-limit", 2, "--data", DAY, "--format", "capmetro", "--runs", 2, "--estimators", "tracker", "--json")
    gtfs = recording("capmetro/gtfs_2016-08-21_2017-01-21.zip")
    known = json.loads(evaluate(*rows, "--timetable", gtfs).stdout)
    assert known["tracker"]["2"]["live"]["mae"] < found()["tracker"]["2"]["live"]["mae"] - 0.4
    assert known["tracker"]["2"]["skill"]["baselines"].keys() == {"half_bound", "last", "timetable"}
    assert known["settings"]["scheduled_cells"] == 148


# What it rejects


@pytest.mark.parametrize(
    "arguments",
    [
        ["--daily-limit", 5],
        ["--data", DAY, "--format", "capmetro"],
        ["--daily-limit", 5, "--data", DAY, "--format", "capmetro", "--runs", 10_000],
        ["--daily-limit", 5, "--data", DAY, "--format", "capmetro", "--json", "-o", "out.csv"],
    ],
)
def test_missing_options_and_two_outputs_are_wrong_usage(arguments: list[object]) -> None:
    assert evaluate(*arguments).exit_code == 2


@pytest.mark.parametrize("name", ["nowhere", "capped_ratio", "tracker:3", "levy:wraparound:printed"])
def test_designs_that_cannot_be_replayed_are_rejected(name: str) -> None:
    with pytest.raises(HatcastError, match="--estimators") as rejected:
        evaluate("--daily-limit", 5, "--data", DAY, "--format", "capmetro", "--estimators", f"tracker,{name}")
    assert "\n" not in str(rejected.value)


@pytest.mark.parametrize("limits", ["", "0", "x", "1;2", "nan"])
def test_limits_that_are_none_are_rejected(limits: str) -> None:
    with pytest.raises(HatcastError, match="--daily-limit"):
        evaluate("--daily-limit", limits, "--data", DAY, "--format", "capmetro")


def test_a_policy_that_hides_presence_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "cells.txt").write_text('source = "public"\n8748e3a34ffffff\n')
    config = tmp_path / "hatcast.toml"
    config.write_text(
        '[policy]\nname = "p"\nupper_bound = 65.0\ntimezone = "America/Chicago"\ncells = "cells.txt"\n'
        '[policy.privacy]\nepsilon = 1.0\nmax_hats_per_day = 10\ndaily_limit = 10.0\nrelation = "add_remove"\n'
        '[policy.estimator]\nname = "capped_ratio"\narray_length = 20\n'
    )
    with pytest.raises(HatcastError, match=r"policy\.privacy\.relation"):
        evaluate("--daily-limit", 5, "--data", DAY, "--format", "capmetro", "--config", config)


def test_a_recording_without_enough_users_is_rejected() -> None:
    with pytest.raises(HatcastError, match="has no HAT with 100000 users"):
        evaluate("--daily-limit", 5, "--data", DAY, "--data", DAY, "--format", "capmetro", "--min-users", 100_000)
