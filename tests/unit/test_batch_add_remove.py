"""`hatcast batch --ledger` under `add_remove`: every listed cell of every slot, whoever was there."""

from pathlib import Path

import h3.api.basic_str as h3
import pytest
from click.testing import Result

from tests.batching import CONFIG, batch, dump_of, recording_of, refusal, releases, telemetry
from tests.folding import HOUR, MINUTE, NOON

PLACES = [(21.2, 72.8), (21.6, 72.8), (21.4, 72.8)]
CELLS = sorted(h3.latlng_to_cell(*place, 7) for place in PLACES)
HIDDEN = """
[policy]
name = "test"
upper_bound = 65.0
timezone = "UTC"
hours = [12, 15]
cells = "cells.txt"
[policy.privacy]
relation = "add_remove"
epsilon = 1e7
acknowledge_weak_privacy = true
max_hats_per_day = 9
daily_limit = 1e9
[policy.estimator]
name = "capped_ratio"
array_length = 2
"""


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    (tmp_path / "cells.txt").write_text('source = "public"\n' + "\n".join(CELLS))
    path = tmp_path / "hidden.toml"
    path.write_text(HIDDEN)
    return path


def slots_of(done: Result) -> list[str]:
    found = [(each["date"], each["slot"], each["cell"]) for each in releases(done)]
    assert found == sorted(found)
    slots = sorted({(date, slot) for date, slot, _ in found})
    assert found == [(*slot, cell) for slot in slots for cell in CELLS]
    return [f"{date}T{slot}" for date, slot in slots]


def test_under_add_remove_every_listed_cell_of_every_slot_between_is_released_and_charged(
    tmp_path: Path, hidden: Path
) -> None:
    path, ledger = recording_of(tmp_path / "log.jsonl", NOON, NOON + 2 * HOUR), tmp_path / "ledger"
    arguments = (path, "--format", "jsonl", "--config", hidden, "--ledger", ledger)
    done = batch(*arguments, "--json")
    assert slots_of(done) == ["2022-01-02T12:00", "2022-01-02T13:00", "2022-01-02T14:00"]
    statuses = [each["status"] for each in releases(done)]
    assert statuses.count("released") == 2
    assert statuses.count("suppressed") == 7
    assert {each["mean"] for each in releases(done) if "mean" in each} == {30.0}
    assert batch(*arguments, "--json").stdout == done.stdout
    shown = batch(*arguments).stdout
    assert "accepted" not in shown, "how many records were counted is private"
    assert " 9 " in shown, "nine HATs are charged"


def test_under_add_remove_no_line_counts_the_hats_that_changed(tmp_path: Path, hidden: Path) -> None:
    """Under `replace` the line is of public counts; here one bus could be the reading that makes a HAT count."""
    some, more = (recording_of(tmp_path / f"{n}.jsonl", NOON, *others) for n, others in ((1, ()), (2, (NOON + HOUR,))))
    arguments = (
        "--format",
        "jsonl",
        "--config",
        hidden,
        "--ledger",
        tmp_path / "ledger",
        "--days",
        "2022-01-02,2022-01-02",
    )
    first = batch(some, *arguments, "--json")
    again = batch(more, *arguments, "--json")
    assert again.stdout == first.stdout
    assert "earlier run" not in again.stderr


def test_under_add_remove_listed_cells_of_every_size_are_released_whoever_was_there(
    tmp_path: Path, hidden: Path
) -> None:
    """The buses are all in one fine cell, where each reading counts once: its coarse cell is suppressed as if empty."""
    here = h3.latlng_to_cell(*PLACES[0], 8)
    fine = sorted([here, h3.latlng_to_cell(*PLACES[1], 8)])
    (tmp_path / "fine.txt").write_text('source = "public"\n' + "\n".join(fine))
    sizes = 'resolutions = [7, 8]\nfine_cells = "fine.txt"\ncells ='
    hidden.write_text(hidden.read_text().replace("cells =", sizes))
    path, ledger = recording_of(tmp_path / "log.jsonl", NOON), tmp_path / "ledger"
    found = releases(batch(path, "--format", "jsonl", "--config", hidden, "--ledger", ledger, "--json"))
    assert [each["cell"] for each in found] == sorted([*CELLS, *fine])
    assert {each["cell"] for each in found if each["status"] == "released"} == {here}
    assert {each["cell"] for each in found if each.get("remainder")} == {h3.latlng_to_cell(*at, 7) for at in PLACES[:2]}


def test_under_add_remove_the_days_may_be_named_so_that_no_record_decides(tmp_path: Path, hidden: Path) -> None:
    path = recording_of(tmp_path / "log.jsonl", NOON + HOUR)
    arguments = (path, "--format", "jsonl", "--config", hidden, "--json", "--ledger", tmp_path / "ledger", "--days")
    day = ["12:00", "13:00", "14:00"]
    found = slots_of(batch(*arguments, "2022-01-02,2022-01-03"))
    assert found == [f"2022-01-0{date}T{slot}" for date in (2, 3) for slot in day]
    assert slots_of(batch(*arguments, "2022-01-01,2022-01-01")) == [f"2022-01-01T{slot}" for slot in day]


def test_under_add_remove_a_dump_is_released_as_far_as_all_clocks_are(tmp_path: Path, hidden: Path) -> None:
    logs = [[*log, (NOON + 2 * HOUR + 5 * MINUTE, None)] for log in telemetry(3, NOON)]
    arguments = ("--format", "kafka", "--config", hidden, "--json", "--ledger")
    assert slots_of(batch(dump_of(tmp_path / "dump", logs), *arguments, tmp_path / "1")) == [
        "2022-01-02T12:00",
        "2022-01-02T13:00",
    ]
    silent = dump_of(tmp_path / "silent", [*logs[:2], []])
    assert releases(batch(silent, *arguments, tmp_path / "2")) == []


def test_under_add_remove_a_slot_that_the_budget_has_no_room_for_is_exhausted_as_a_whole(
    tmp_path: Path, hidden: Path
) -> None:
    # All days together may cost five HATs: the first slot has three, and the second would be cut in two.
    limits = 'unit = "user"\ntotal_limit = 5e6\nmax_hats_per_day = 9\n'
    hidden.write_text(HIDDEN.replace("max_hats_per_day = 9\n", limits).replace("epsilon = 1e7", "epsilon = 1e6"))
    path = recording_of(tmp_path / "log.jsonl", NOON, NOON + 2 * HOUR)
    arguments = (path, "--format", "jsonl", "--config", hidden, "--json", "--ledger", tmp_path / "ledger")
    done = batch(*arguments)
    assert len(slots_of(done)) == 3
    statuses = [each["status"] for each in releases(done)]
    assert sorted(statuses[:3]) == ["released", "suppressed", "suppressed"]
    assert statuses[3:] == ["budget_exhausted"] * 6
    assert batch(*arguments).stdout == done.stdout


def test_under_add_remove_a_recording_of_nothing_releases_nothing_and_one_of_decades_asks(
    tmp_path: Path, hidden: Path
) -> None:
    arguments = ("--format", "jsonl", "--config", hidden, "--json", "--ledger", tmp_path / "ledger")
    (tmp_path / "empty").write_text("")
    assert batch(tmp_path / "empty", *arguments).stdout == ""
    broken = recording_of(tmp_path / "log.jsonl", 1000, NOON)
    assert "more than 366 days apart" in refusal(broken, *arguments)


@pytest.mark.parametrize("days", ["2022-01-02", "2022-01-03,2022-01-02", "a,b", "2022-01-02,2022-02-30"])
def test_days_that_are_none_are_wrong_usage(tmp_path: Path, hidden: Path, days: str) -> None:
    done = batch("x", "--format", "jsonl", "--config", hidden, "--ledger", tmp_path / "l", "--days", days)
    assert (done.exit_code, "write two dates" in done.stderr) == (2, True)


def test_days_are_for_releases_under_add_remove_alone(tmp_path: Path, hidden: Path) -> None:
    config = tmp_path / "hatcast.toml"
    config.write_text(CONFIG)
    for arguments in (("--config", config, "--ledger", tmp_path / "l"), ("--config", hidden)):
        done = batch("x", "--format", "jsonl", *arguments, "--days", "2022-01-02,2022-01-02")
        assert (done.exit_code, "--days is for --ledger" in done.stderr) == (2, True)
