"""Many means at the upper bound: what `quantile` publishes then, and the commands that show their share."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hatcast import math
from hatcast.lab.cli.evaluate import command as evaluate_command
from hatcast.lab.cli.survey import command as survey_command
from tests.folding import HOUR, NOON, record

ROOT = Path(__file__).parents[2]
DRAWS = 600
CONFIG = """
[policy]
name = "test"
upper_bound = 50.0
reject_above = "none"
timezone = "UTC"
hours = [0, 24]
[policy.privacy]
epsilon = 1.0
max_hats_per_day = 40
daily_limit = 40.0
[policy.estimator]
name = "quantile"
"""


def test_with_all_means_at_the_bound_quantile_publishes_two_thirds_of_it_and_its_intervals_do_not_show_it() -> None:
    """Both ends are uniform on [0, U]: the larger one is 2/3 U on average, with a deviation of U sqrt(1/18)."""
    mean, holding = published(60, "fixed")
    assert abs(mean - 100 / 3) < 5.5 * 12 / DRAWS**0.5
    assert abs(holding - 0.09) < 5.5 * (0.09 / DRAWS) ** 0.5, "of docs/estimators.md"
    assert "33.3, and 9 % of its intervals hold 50" in (ROOT / "docs" / "estimators.md").read_text()


def test_with_smoothing_the_means_at_the_bound_are_those_of_the_documentation() -> None:
    page = (ROOT / "docs" / "estimators.md").read_text()
    table = page[page.index("| buses | `fixed` | holds 50 |") :].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    rows = [[float(cell.strip(" %")) for cell in row.strip("|").split("|")] for row in table]
    assert [int(row[0]) for row in rows] == [30, 60, 200, 600]
    for number, _, _, expected, share in rows[1:3]:
        mean, holding = published(int(number), "smoothed")
        assert abs(mean - expected) < 5.5 * 9 / DRAWS**0.5 + 0.05, "an end far from the bound is within [0, U]"
        assert abs(holding - share / 100) < 5.5 * (0.25 / DRAWS) ** 0.5 + 0.005
        assert mean > 45, "without smoothing 33.3, with a deviation of 12"


def published(number: int, quantiles: str) -> tuple[float, float]:
    """Return the mean of what is published of this many buses at the bound, and how many intervals hold the bound."""
    counts, means = [1] * number, [50.0] * number
    draws = [
        math.estimate("quantile", counts, means, upper_bound=50.0, epsilon=1.0, quantiles=quantiles)
        for _ in range(DRAWS)
    ]
    found = [each for each in draws if each is not None]
    assert len(found) == DRAWS
    return float(np.mean([mean for mean, _ in found])), float(np.mean([low <= 50 <= high for _, (low, high) in found]))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Ten users at noon: six above U all the time, one of them in part only, and three below; another hour below U."""
    path, rows = tmp_path / "log.jsonl", []
    for user in range(10):
        for reading in range(3):
            speed = 60.0 if user < 7 and not (user == 6 and reading == 1) else 30.0
            rows.append(record(vehicle=f"bus-{user}", time=NOON + reading * 60_000, speed=speed))
    rows += [record(vehicle=f"bus-{user}", time=NOON + HOUR, speed=20.0) for user in range(2)]
    path.write_bytes(b"\n".join(rows))
    (tmp_path / "hatcast.toml").write_text(CONFIG)
    return path


def run(command: object, recording: Path, *options: str) -> str:
    arguments = [str(recording), "--format", "jsonl", "--config", str(recording.with_name("hatcast.toml")), *options]
    done = CliRunner(catch_exceptions=False).invoke(command, arguments)  # type: ignore[arg-type]  # any of two commands
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_survey_counts_the_users_and_hats_whose_readings_are_all_at_the_bound(recording: Path) -> None:
    found = json.loads(run(survey_command, recording, "--json"))["resolutions"]["7"]
    assert found["means_at_bound"] == 6 / 12
    (row,) = (line for line in run(survey_command, recording).splitlines() if "at the bound" in line and "%" in line)
    assert row.split()[-1] == "50.0%"


def test_evaluate_prints_the_share_of_a_recorded_hat(recording: Path) -> None:
    options = ("--runs", "20", "--estimators", "quantile")
    arguments = [
        "means",
        "--data",
        str(recording),
        "--format",
        "jsonl",
        "--config",
        str(recording.with_name("hatcast.toml")),
    ]
    runner = CliRunner(catch_exceptions=False)
    shown = " ".join(runner.invoke(evaluate_command, [*arguments, *options]).stdout.split())
    assert "60.0% of the users' means are at the upper bound; quantile cannot tell these apart" in shown
    found = json.loads(runner.invoke(evaluate_command, [*arguments, *options, "--json"]).stdout)
    assert found["settings"]["means_at_bound"] == 0.6


def test_survey_counts_hats_users_and_readings_by_slot(recording: Path) -> None:
    found = json.loads(run(survey_command, recording, "--json"))["resolutions"]["7"]["by_slot"]
    assert found == {
        "12:00": {"hats": 1, "users": 10, "readings": 30, "users_of_a_hat": 10.0},
        "13:00": {"hats": 1, "users": 2, "readings": 2, "users_of_a_hat": 2.0},
    }
    rows = [line.split() for line in run(survey_command, recording).splitlines()]
    assert ["12:00", "1", "10", "30", "10.0"] in rows
    assert ["13:00", "1", "2", "2", "2.0"] in rows
