"""`hatcast batch --ledger` with running sums: each slot once, runs that continue each other, and horizons that end."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hatcast.stream.ledger.sums import store_sum_state
from hatcast.stream.mechanisms import NoisyVector
from hatcast.stream.release import continual
from tests.batching import USERS, batch, releases
from tests.folding import DAY, HOUR, NOON, record
from tests.unit.test_batch_queries import Killed

CONFIG = """
[policy]
name = "week"
upper_bound = 65.0
timezone = "UTC"
hours = [0, 24]
[policy.privacy]
epsilon = 10.0
min_users = 12
[policy.continual]
kind = "laplace"
horizon_days = 7
max_slots = 14
max_cells = 2
"""
OTHER = """
[policy]
name = "other"
upper_bound = 65.0
timezone = "UTC"
hours = [0, 24]
[policy.privacy]
epsilon = 1.0
max_hats_per_day = 1
daily_limit = 1.0
min_users = 1
[policy.estimator]
name = "baseline"
"""
SUNDAY, MONDAY = NOON, NOON + DAY
HOURS = (MONDAY, MONDAY + HOUR, MONDAY + 3 * HOUR, MONDAY + DAY)


class Silent:
    """No noise, so that two ledgers have the same bytes."""

    def laplace_many(self, values: NDArray[np.int64], distance: int, epsilon: float) -> NoisyVector:
        return NoisyVector(values, distance / epsilon)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return written(tmp_path, "week", CONFIG)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatcast.stream.mechanisms.system.SystemNoise", Silent)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def rides(path: Path, *at: int, users: Sequence[str] = USERS, speed: float = 30.0) -> Path:
    path.write_bytes(b"\n".join(record(vehicle=user, time=instant, speed=speed) for instant in at for user in users))
    return path


def run(config: Path, *files: Path, ledger: str = "ledger") -> list[dict[str, Any]]:
    ledger_path = config.parent / ledger
    done = batch(*files, "--format", "jsonl", "--config", config, "--ledger", ledger_path, "--json")
    assert done.stderr == ""
    return releases(done)


def timeless(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in each.items() if key != "released_at"} for each in records]


def sums(records: Iterable[dict[str, Any]]) -> list[tuple[str, int | None, float | None]]:
    """Status, number of values and running sum of each record."""
    return [
        (each["status"], each["running"].get("count"), each["running"].get("sum", {}).get("value")) for each in records
    ]


@pytest.mark.usefixtures("silent")
def test_runs_continue_the_sums_of_a_horizon_as_one_run_makes_them_and_print_no_second_value(
    tmp_path: Path, config: Path
) -> None:
    whole = run(config, rides(tmp_path / "whole", *HOURS), ledger="whole-ledger")
    assert sums(whole) == [("released", 12 * n, 360.0 * n) for n in (1, 2, 3, 4)]
    assert {each["mean"] for each in whole} == {30.0}
    assert [each["running"]["index"] for each in whole] == [12, 13, 15, 36]
    parts = [run(config, rides(tmp_path / f"part{at}", at)) for at in HOURS]
    assert timeless([record for part in parts for record in part]) == timeless(whole)
    assert run(config, *(tmp_path / f"part{at}" for at in HOURS)) == [record for part in parts for record in part]


def test_a_run_that_was_killed_leaves_record_and_state_together(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second slot is in the file as a whole or not at all: the third goes on from there."""
    stored = 0

    def killed(*arguments: Any) -> None:
        nonlocal stored
        store_sum_state(*arguments)
        stored += 1
        if stored == 2:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("hatcast.stream.ledger.commits.store_sum_state", killed)
        patched.setattr("hatcast.stream.mechanisms.system.SystemNoise", Silent)
        with pytest.raises(Killed):
            run(config, rides(tmp_path / "file", *HOURS))
    monkeypatch.setattr("hatcast.stream.mechanisms.system.SystemNoise", Silent)
    assert sums(run(config, tmp_path / "file")) == [("released", 12 * n, 360.0 * n) for n in (1, 2, 3, 4)]


@pytest.mark.usefixtures("silent")
def test_a_slot_that_comes_after_a_later_one_of_its_cell_is_incomplete_and_changes_no_sum(
    tmp_path: Path, config: Path
) -> None:
    run(config, rides(tmp_path / "later", MONDAY + HOUR))
    (late,) = run(config, rides(tmp_path / "earlier", MONDAY))
    assert sums([late]) == [("incomplete", None, None)]
    assert sums(run(config, rides(tmp_path / "next", MONDAY + 2 * HOUR))) == [("released", 24, 720.0)]


@pytest.mark.usefixtures("silent")
def test_a_horizon_begins_anew_after_the_last_one_and_few_values_are_suppressed(tmp_path: Path, config: Path) -> None:
    few = rides(tmp_path / "few", MONDAY, users=USERS[:7])
    records = run(config, rides(tmp_path / "sunday", SUNDAY), few, rides(tmp_path / "many", MONDAY + HOUR))
    assert sums(records) == [("released", 12, 360.0), ("suppressed", 7, None), ("released", 19, 570.0)]
    assert [each["running"]["horizon"] for each in records] == ["2021-12-27", "2022-01-03", "2022-01-03"]
    assert [each["running"]["last_date"] for each in records] == ["2022-01-02", "2022-01-09", "2022-01-09"]


def test_dates_before_the_first_horizon_and_after_the_last_are_left_out(tmp_path: Path) -> None:
    monday = datetime.fromtimestamp(MONDAY / 1000, UTC).date().isoformat()
    config = written(tmp_path, "stopped", f'{CONFIG}at_end = "stop"\nfrom = "{monday}"\n')
    for at, expected in ((SUNDAY, []), (MONDAY, [monday]), (MONDAY + 7 * DAY, [])):
        ride = rides(tmp_path / f"at{at}", at)
        done = batch(ride, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger", "--json")
        assert ([each["date"] for each in releases(done)], done.exit_code) == (expected, 0)
        assert ("12 are outside_dates" in done.stderr) == (not expected)


def test_a_horizon_without_room_is_exhausted_to_its_end_also_on_days_with_room(tmp_path: Path, config: Path) -> None:
    other = written(tmp_path, "other", OTHER)
    (charged,) = run(other, rides(tmp_path / "file", MONDAY))
    assert charged["status"] == "released"
    records = run(config, rides(tmp_path / "days", MONDAY, MONDAY + DAY, MONDAY + 7 * DAY))
    assert [each["status"] for each in records] == ["budget_exhausted", "budget_exhausted", "released"]
    assert "sum" not in records[0]["running"]


@pytest.mark.usefixtures("silent")
def test_a_state_that_cannot_be_read_ends_its_horizon(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(config, rides(tmp_path / "first", MONDAY))
    with monkeypatch.context() as patched:
        patched.setattr(continual, "_VERSION", 2)  # as if a newer version had written it
        (lost,) = run(config, rides(tmp_path / "second", MONDAY + HOUR))
    assert lost["status"] == "incomplete"
    records = run(config, rides(tmp_path / "third", MONDAY + 2 * HOUR, MONDAY + 7 * DAY))
    assert [each["status"] for each in records] == ["incomplete", "released"]


def test_the_table_says_since_when_its_means_are(tmp_path: Path, config: Path) -> None:
    file = rides(tmp_path / "file", MONDAY)
    done = batch(file, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger")
    assert "private means by place, since 2022-01-03" in done.stdout


def test_running_means_of_running_sums_are_refused(tmp_path: Path, config: Path) -> None:
    day = rides(tmp_path / "day.jsonl", *HOURS)
    refused = batch(day, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "l", "--json", "--running")
    assert refused.exit_code == 2
    assert "the releases of [policy.continual] are running means already" in refused.stderr
