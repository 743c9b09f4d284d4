"""`hatcast plan sums`: kinds compared by their own noise, participation in data, free running means."""

import json
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hatcast.agents.config.settings import load_settings
from hatcast.agents.config.template import TemplateAnswers, render_template
from hatcast.lab.plan.continual import Criterion
from hatcast.lab.plan.continual.kinds import PlannedSums, compare
from hatcast.lab.plan.continual.users import (
    Participation,
    UsersBySlot,
    equal_users,
    kept_by,
    memory_of,
    presence_of,
    run_of,
)
from hatcast.lab.plan.counts import Row
from hatcast.stream.continual import KINDS
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.continual_keys import ContinualKind
from hatcast.stream.policy.method import NoiseKind
from hatcast.stream.policy.policy import ContinualKeys
from hatcast.stream.release.continual import setting_of
from tests.invoked import run

pytestmark = pytest.mark.usefixtures("elsewhere")

TWO_DAYS: list[Row] = [
    ("2022-01-03", 0, "a", "bus 1", 4),
    ("2022-01-03", 1, "a", "bus 1", 2),
    ("2022-01-03", 1, "b", "bus 1", 2),
    ("2022-01-03", 1, "b", "bus 2", 1),
    ("2022-01-04", 0, "a", "bus 1", 1),
    ("2022-01-04", 2, "c", "bus 1", 1),
]


plan = partial(run, "plan", "sums")


def planned(*arguments: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan(*arguments, "--json").stdout)
    return found


def timetable(path: Path, days: int = 2, users: int = 5) -> Path:
    """Every bus is in each of 3 cells in each of 3 hours of each day."""
    lines = [
        f"2016-11-{24 + day},{7 + hour},cell {cell},bus {bus},{1 + bus % 3}"
        for day in range(days)
        for hour in range(3)
        for cell in range(3)
        for bus in range(users)
    ]
    path.write_text("\n".join(["date,hour,cell,vehicle,readings", *lines]) + "\n")
    return path


# Kinds


def test_per_slot_noise_is_best_for_users_of_every_hour_and_its_factor_is_that_of_theory() -> None:
    found = planned("--slots", 168, "--max-slots", 24)
    assert found["best"]["kind"] == "gaussian"
    assert found["best"]["per_slot"]
    assert found["kinds"]["gaussian"]["factor"] == pytest.approx(0.903, abs=0.0005)
    assert found["kinds"]["toeplitz"]["factor"] == pytest.approx(3.186, abs=0.0005)
    text = " ".join(plan("--slots", 168, "--max-slots", 24).stdout.split())
    assert "Noise of each slot alone is best here" in text


def test_correlated_noise_is_best_for_running_sums_of_users_of_one_slot() -> None:
    found = planned("--slots", 720, "--max-slots", 1, "--by", "sum-max")
    assert found["best"]["kind"] in ("toeplitz", "blt")
    assert not found["best"]["per_slot"]
    kinds = found["kinds"]
    alone = kinds["gaussian"]["sum"]["max"] / 720**0.5  # of one slot
    assert kinds["toeplitz"]["sum"]["max"] == pytest.approx(3.160 * alone, rel=2e-3)
    assert kinds["blt"]["sum"]["max"] == pytest.approx(kinds["toeplitz"]["sum"]["max"], rel=2e-3)
    text = plan("--slots", 720, "--max-slots", 1, "--by", "sum-max").stdout
    assert f"Best kind: {found['best']['kind']}" in text


def test_pure_epsilon_leaves_gaussian_noise_out() -> None:
    found = planned("--slots", 168, "--max-slots", 1, "--delta", 0, "--upper-bound", 1, "--by", "sum-max")
    assert {each["noise"] for each in found["kinds"].values()} == {"laplace"}
    assert "gaussian" not in found["kinds"]
    assert found["best"]["kind"] == "kary"
    assert found["kinds"]["kary"]["sum"]["max"] == pytest.approx(12.0, abs=0.1)


@pytest.mark.parametrize("criterion", Criterion)
def test_each_kind_has_the_noise_and_branching_of_its_least_error(criterion: Criterion) -> None:
    stream = PlannedSums(24, 24, Participation(3, 2, 4), 1.0, 1e-6, 65.0)
    found = compare(stream, equal_users(24, 10), criterion)
    assert [each.kind for each in found] == [*ContinualKind][: len(found)]
    pure = {
        each.kind: each
        for each in compare(PlannedSums(24, 24, stream.participation, 1.0, 0, 65.0), equal_users(24, 10), criterion)
    }
    for each in found:
        if each.kind in pure:
            assert each.errors.by(criterion) <= pure[each.kind].errors.by(criterion)


def test_errors_scale_with_range_users_and_epsilon_as_they_must() -> None:
    once = planned("--slots", 24, "--max-slots", 2)["kinds"]["laplace"]
    twice = planned("--slots", 24, "--max-slots", 2, "--upper-bound", 130)["kinds"]["laplace"]
    users = planned("--slots", 24, "--max-slots", 2, "--users-per-slot", 20)["kinds"]["laplace"]
    epsilon = planned("--slots", 24, "--max-slots", 2, "--epsilon", 2)["kinds"]["laplace"]
    assert twice["mean"]["rms"] == pytest.approx(2 * once["mean"]["rms"], rel=1e-4)
    assert users["mean"]["rms"] == pytest.approx(once["mean"]["rms"] / 2, rel=1e-4)
    assert users["sum"] == once["sum"]
    assert epsilon["mean"]["rms"] == pytest.approx(once["mean"]["rms"] / 2, rel=1e-4)


@pytest.mark.parametrize(("max_slots", "separation"), [(1, 1), (5, 1), (4, 3), (24, 1)])
def test_equal_users_withhold_as_many_values_as_the_mechanism_does(max_slots: int, separation: int) -> None:
    stream = PlannedSums(24, 24, Participation(max_slots, separation, 1), 1.0, 0, 65.0)
    mechanism = KINDS[ContinualKind.WITHHOLD_RELEASE](stream.setting(NoiseKind.LAPLACE))
    computed = run_of(mechanism, equal_users(24, 3))
    rows = [(0, index, user) for index in range(24) for user in users_of(index, max_slots, separation)]
    entered = UsersBySlot(computed.values, computed.values > 0, np.array(rows))
    advanced = run_of(mechanism, entered)
    assert computed.values.tolist() == advanced.values.tolist()
    assert computed.deviations == pytest.approx(advanced.deviations)
    assert memory_of(mechanism, equal_users(24, 3)) == pytest.approx(advanced.memory, rel=0.5)


def users_of(index: int, max_slots: int, separation: int) -> list[int]:
    """Three users in each slot; each stays for all its slots, and then others come."""
    round_, place = divmod(index, separation)
    return [100 * (round_ // max_slots) + 10 * place + number for number in range(3)]


def test_several_cells_share_delta() -> None:
    one, many = (planned("--slots", 24, "--max-slots", 2, "--max-cells", cells)["kinds"] for cells in (1, 100))
    assert many["gaussian"]["sum"]["max"] > 1.1 * one["gaussian"]["sum"]["max"]
    assert many["laplace"] == one["laplace"]


# Free running means


def test_the_same_cost_of_a_day_pays_for_releases_of_the_hats_that_a_day_may_have() -> None:
    found = planned("--slots", 168, "--max-slots", 24, "--max-cells", 20)
    assert found["free"]["daily_cost"] == 20
    assert found["free"]["releases"]["epsilon"] == pytest.approx(1 / 24, rel=1e-4)
    assert found["free"]["releases"]["mean"] == found["kinds"]["laplace"]["mean"]
    weekly = planned("--slots", 168, "--max-slots", 7, "--min-separation", 24)
    assert weekly["free"]["releases"]["epsilon"] == 1
    assert weekly["free"]["is_best"]
    assert "less than each kind above" in plan("--slots", 168, "--max-slots", 7, "--min-separation", 24).stdout.replace(
        "\n", " "
    )


def test_a_tracker_is_compared_where_counts_are_given(tmp_path: Path) -> None:
    path = timetable(tmp_path / "counts.csv")
    found = planned("--counts", path)
    assert found["settings"]["source"] == "counts.csv"
    assert found["settings"]["slots"] == 48
    assert (found["settings"]["max_slots"], found["settings"]["max_cells"]) == (6, 3)
    assert found["participation"]["cut"] == 0
    tracker = found["free"]["tracker"]["mean_at_most"]
    assert 0 < tracker["rms"] < tracker["max"] < 65
    assert found["free"]["is_best"]
    text = " ".join(plan("--counts", path).stdout.split())
    assert "for a tracker with daily_limit = 3" in text
    assert "0.0% of all (user, cell, slot) are over_participation" in text


# Participation


def test_given_days_are_repeated_and_their_participation_counted() -> None:
    presence = presence_of(TWO_DAYS, days=3, day_slots=3)
    assert [entry for entry in presence.entries if entry[2] == "bus 2"] == [(1, "b", "bus 2"), (7, "b", "bus 2")]
    assert presence.slots == {5: 1, 2: 2, 1: 1}
    assert presence.cells == {3: 1, 1: 1}


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        (Participation(9, 1, 9), {"a": [0, 1, 3], "b": [1, 1], "c": [5]}),
        (Participation(2, 1, 9), {"a": [0, 1], "b": [1, 1], "c": [5]}),
        (Participation(9, 2, 9), {"a": [0, 3], "b": [1, 1], "c": [5]}),
        (Participation(9, 1, 2), {"a": [0, 1, 3], "b": [1, 1]}),
        (Participation(9, 1, 1), {"a": [0, 1, 3], "b": [1]}),
    ],
)
def test_what_exceeds_the_declared_participation_is_cut_first_come_first_kept(
    limits: Participation, kept: dict[str, list[int]]
) -> None:
    found = kept_by(presence_of(TWO_DAYS, days=2, day_slots=3), limits, 6)
    rows = [[index for index in range(6) for _ in range(row[index])] for row in found.users.tolist()]
    assert sorted(rows) == sorted(kept.values())
    assert found.cut == pytest.approx(1 - sum(map(len, kept.values())) / 6)


def test_cut_users_are_missing_from_the_means(tmp_path: Path) -> None:
    path = timetable(tmp_path / "counts.csv", days=1)
    whole, cut = planned("--counts", path), planned("--counts", path, "--max-slots", 2)
    assert cut["participation"]["cut"] == pytest.approx(1 / 3, rel=1e-4)
    assert cut["kinds"]["laplace"]["sum"]["max"] < whole["kinds"]["laplace"]["sum"]["max"]


# Output


def test_table_fits_a_terminal_and_the_plot_names_each_kind(tmp_path: Path) -> None:
    out = tmp_path / "out.svg"
    table = plan("--slots", 48, "--max-slots", 3, "--plot", out).stdout
    assert all(len(line.rstrip()) <= 80 for line in table.splitlines())
    assert "…" not in table
    for kind in planned("--slots", 48, "--max-slots", 3)["kinds"]:
        assert kind in table
        assert f">{kind}" in out.read_text()


def test_keys_are_written_into_a_configuration_whose_comments_stay(tmp_path: Path) -> None:
    config = tmp_path / "city.toml"
    config.write_text(render_template(TemplateAnswers(timezone="America/Chicago")))
    with pytest.raises(HatcastError, match="--write: the horizon has 168 slots"):
        plan("--slots", 168, "--max-slots", 3, "--write", config)
    before = config.read_text()
    done = plan("--config", config, "--horizon-days", 7, "--max-slots", 3, "--max-cells", 4, "--write", config)
    assert "wrote kind " in done.stderr
    policy = load_settings(config).policy
    keys = policy.keys_of(ContinualKeys)
    assert (keys.max_slots, keys.max_cells) == (3, 4)
    assert policy.epsilon == 1
    assert "estimator" not in tomllib.loads(config.read_text())["policy"]
    assert config.read_text().count("#") > before.count("#") / 2
    again = planned("--config", config)
    assert again["settings"]["slots"] == keys.slots
    assert again["best"]["kind"] == keys.kind
    assert again["best"]["keys"] == tomllib.loads(config.read_text())["policy"]["continual"]


@pytest.mark.parametrize("criterion", Criterion)
def test_a_written_policy_runs_the_setting_that_was_compared(tmp_path: Path, criterion: Criterion) -> None:
    config = tmp_path / "hatcast.toml"
    config.write_text(render_template(TemplateAnswers(timezone="America/Chicago")))
    options = ("--horizon-days", 5, "--max-slots", 4, "--min-separation", 5, "--max-cells", 3, "--by", criterion)
    found = planned("--config", config, *options, "--write", config)
    setting = setting_of(load_settings(config).policy)
    stream = PlannedSums(setting.slots, setting.slots // 5, Participation(4, 5, 3), 1.0, 1e-6, 65.0)
    compared = {each.kind: each.setting for each in compare(stream, equal_users(setting.slots, 10), criterion)}
    assert setting == compared[found["best"]["kind"]]


# Wrong usage


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--counts", "a", "--users-per-slot", 3], "name one of --counts and --users-per-slot"),
        (["--counts", "a", "--data", "b", "--format", "jsonl"], "name one of --data and --counts"),
        (["--min-users", 3], "--min-users needs --data or --counts"),
        (["--epsilon", "nan"], "Invalid value for '--epsilon'"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(arguments: list[object], line: str) -> None:
    done = plan(*arguments)
    assert done.exit_code == 2
    assert line in done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "slots: the length of the horizon is missing"),
        (["--slots", 24], "max_slots: the most slots that a user enters in a cell is missing"),
        (["--slots", 24, "--max-slots", 9, "--min-separation", 4], "do not fit into 24; give at most 6"),
        (["--slots", 100, "--horizon-days", 7, "--max-slots", 2], "slots: 7 days of 24 slots have 168, not 100"),
    ],
)
def test_a_missing_or_wrong_parameter_is_one_line(arguments: list[object], line: str) -> None:
    with pytest.raises(HatcastError) as refused:
        plan(*arguments)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_data_without_enough_users_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(HatcastError, match="the data have no HAT with 50 users under this participation"):
        plan("--counts", timetable(tmp_path / "counts.csv"), "--min-users", 50)
