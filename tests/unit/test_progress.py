"""Long work moves: plans by candidate and day, evaluations by day, a tracker by HAT and query of a settlement."""

import sys
import warnings
from functools import partial
from pathlib import Path

import pytest

import hatcast
from hatcast.lab import processes
from hatcast.lab.plan.tracker import HORIZONS, STEPS, plan
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.tracker.prior import Prior
from tests.batching import CONFIG, recording_of
from tests.folding import HOUR, NOON
from tests.unit.test_cli_manners import Output, Terminal, output_of
from tests.unit.test_plan import counts

TRACKER = """
[policy]
name = "test"
upper_bound = 65.0
timezone = "UTC"
hours = [0, 24]
[policy.privacy]
daily_limit = 5.0
"""


def stepped(times: int) -> int:
    for _ in range(times):
        processes.step()
    return times


@pytest.mark.parametrize("tasks", [[3], [3, 0, 4]])
def test_steps_of_every_process_are_reported_and_none_after_the_end(tasks: list[int]) -> None:
    told: list[int] = []
    assert sorted(
        result for _, result in processes.in_processes([partial(stepped, task) for task in tasks], told.append)
    ) == sorted(tasks)
    assert sum(told) == sum(tasks)
    processes.step()
    assert sum(told) == sum(tasks)


@pytest.mark.parametrize("totals", [[2.0], [2.0, 20.0]])
def test_a_plan_moves_by_candidate_and_day(totals: list[float]) -> None:
    told: list[int] = []
    plan(counts(), Prior.of(65.0), totals, Objective.BUSES, told.append)
    assert len(totals) * max(HORIZONS) < sum(told) <= len(totals) * STEPS, "less where two candidates are the same"


@pytest.fixture
def tracked(tmp_path: Path) -> list[str]:
    (tmp_path / "hatcast.toml").write_text(TRACKER)
    file = recording_of(tmp_path / "rides.jsonl", *(NOON + hour * HOUR for hour in range(-3, 4)))
    return [str(file), "--config", str(tmp_path / "hatcast.toml"), "--ledger", str(tmp_path / "day.ledger")]


def test_a_tracker_shows_the_hats_of_a_day_and_the_queries_of_its_settlement(
    tracked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = Terminal()
    output_of(["batch", *tracked, "-o", str(tmp_path / "out.csv")], Output(), monkeypatch, errors)
    assert "releasing 2022-01-02" in errors.getvalue()
    assert "100%" in errors.getvalue()
    assert "settling 2022-01-02" in errors.getvalue()


def test_an_evaluation_moves_by_day(tracked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    errors = Terminal()
    given = ["--daily-limit", "5", "--estimators", "tracker,baseline", "--config", tracked[2]]
    output_of(["evaluate", "days", "--data", tracked[0], "--format", "jsonl", *given], Output(), monkeypatch, errors)
    assert "replaying days of each design and limit" in errors.getvalue()
    assert "100%" in errors.getvalue()


@pytest.mark.parametrize("stream", [Terminal, Output])
def test_python_shows_the_bars_of_the_command_on_terminals_only(
    stream: type[Output], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hatcast.toml").write_text(CONFIG)
    file = recording_of(tmp_path / "rides.jsonl", NOON, NOON + 2 * HOUR)
    errors = stream()
    with monkeypatch.context() as patched, warnings.catch_warnings():
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            patched.delenv(name, raising=False)
        patched.setenv("TERM", "xterm-256color")
        patched.setattr(sys, "stderr", errors)
        hatcast.batch(file, tmp_path / "hatcast.toml", ledger=tmp_path / "ledger")
    shown = errors.getvalue()
    assert [word in shown for word in ("folding", "releasing")] == [stream is Terminal] * 2
