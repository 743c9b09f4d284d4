"""`hatcast batch --ledger` with a tracker policy: queries and settlements once, and runs that continue each other."""

import csv
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hatcast.agents.cli.batch import command
from hatcast.agents.timetable.tables import BadTimetable
from hatcast.stream.fold.calendar import Slot
from hatcast.stream.records.shown import SHOWN, ShownNormal
from hatcast.stream.release import tracker
from tests.services.data import DATA
from tests.timetables import write_speeds

CONFIG = """
[policy]
name = "austin"
upper_bound = 65.0
timezone = "America/Chicago"
hours = [0, 24]
[policy.privacy]
daily_limit = 5.0
[policy.estimator]
name = "tracker"
"""
TIMED = """
[policy.tracker]
timetable = "gtfs.zip"
"""
DAYS = [DATA / "capmetro" / f"2016-11-{day}.csv.gz" for day in (24, 25)]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The beginnings of two days: their first 8,000 records."""
    folder = tmp_path_factory.mktemp("days")
    made = []
    for day in DAYS:
        with gzip.open(day, "rt") as lines:
            head, *rest = lines.readlines()
        path = folder / day.name.removesuffix(".gz")
        path.write_text(head + "".join(rest[:8_000]))
        made.append(path)
    return made


def printed(folder: Path, files: list[Path], *options: str) -> str:
    config = folder / "hatcast.toml"
    config.write_text(CONFIG + TIMED * (folder / "gtfs.zip").exists())
    arguments = [*files, "--format", "capmetro", "--config", config, "--ledger", folder / "ledger", *options]
    done = CliRunner(catch_exceptions=False, env={"COLUMNS": "200"}).invoke(command, [str(each) for each in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def run(folder: Path, files: list[Path], *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed(folder, files, "--json", *options).splitlines()]


def test_a_second_run_prints_the_same_records_and_the_next_day_continues(tmp_path: Path, parts: list[Path]) -> None:
    first = run(tmp_path, parts[:1])
    assert {each["status"] for each in first} >= {"released", "deferred", "suppressed"}
    assert any("Tsettlement" in each["release_id"] for each in first)
    assert run(tmp_path, parts[:1]) == first
    both = run(tmp_path, parts)
    assert [each for each in both if each["date"] == first[-1]["date"]] == [
        each for each in first if each["date"] == first[-1]["date"]
    ]
    numbers = [each["query"]["number"] for each in both if "query" in each if each["date"] == both[-1]["date"]]
    assert numbers == list(range(1, len(numbers) + 1))


def test_the_table_has_the_last_estimate_of_each_hat_with_readings_and_single_queries_only_if_asked(
    tmp_path: Path, parts: list[Path]
) -> None:
    run(tmp_path, parts[:1])
    both = [SHOWN.decode(json.dumps(each)) for each in run(tmp_path, parts, "--estimates") if "estimate_id" in each]
    last_of = {(each.date, each.hours, each.cell): each for each in both}
    last = {hat: each.mean for hat, each in last_of.items()}
    expected = {
        (*hat, "{:.1f} km/h {:.1f} to {:.1f}".format(mean.value, *mean.interval95))
        for hat, mean in last.items()
        if isinstance(mean, ShownNormal)
    }
    lines = [line.split() for line in printed(tmp_path, parts).splitlines() if " km/h " in line]
    found = {(*line[:3], " ".join(line[3:8])) for line in lines}
    assert found == set(sorted(expected)[-40:])  # the newest; the file has all
    assert len({date for date, *_ in expected}) == 2
    assert len(expected) > 500
    printed(tmp_path, parts, "-o", str(tmp_path / "means.csv"))
    with (tmp_path / "means.csv").open() as file:
        written = {(row["date"], row["hour"], row["hexagon"]): row for row in csv.DictReader(file)}
    assert {hat: Decimal(row["value"]) for hat, row in written.items()} == {
        hat: mean.value for hat, mean in last.items() if isinstance(mean, ShownNormal)
    }
    queries = printed(tmp_path, parts, "--releases")
    assert "settlement" in queries
    assert "Estimates" not in queries


def test_a_run_that_ends_in_a_settlement_is_continued(
    tmp_path: Path, parts: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(self: tracker.PolicyTracker) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(tracker.PolicyTracker, "end_day", stop)
        with pytest.raises(AssertionError):
            run(tmp_path, parts[:1])
    whole = run(tmp_path, parts[:1])
    assert run(tmp_path, parts[:1]) == whole
    assert len({each["release_id"] for each in whole}) == len(whole)


def designs(records: list[dict[str, Any]], date: str) -> dict[str, Any]:
    """What follows from counts, policy and timetable, of a date."""
    noisy = ("seq", "released_at", "mean", "raw", "interval95")
    found = {}
    for record in records:
        if record["date"] == date:
            query = {key: value for key, value in record.get("query", {}).items() if key != "sum"}
            rest = {key: value for key, value in record.items() if key not in noisy}
            found[record["release_id"]] = rounded(rest | {"query": query})
    return found


def rounded(value: Any) -> Any:
    """Without the last digits: each ledger has its own pseudonyms, so users are added up in another order."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def scheduled(records: list[dict[str, Any]], date: str) -> dict[str, Any]:
    return {each["cell"]: each.get("scheduled") for each in records if each["date"] == date and "counts" in each}


def test_a_date_that_was_begun_keeps_its_timetable_and_another_file_holds_from_the_next_date(
    tmp_path: Path, parts: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("plain", "whole", "stopped")]
    for folder in folders:
        folder.mkdir()
    plain, whole, stopped = folders
    cells = sorted({each["cell"] for each in run(plain, parts)})
    first, second = dict.fromkeys(cells[::2], 18.0), dict.fromkeys(cells, 36.0)
    write_speeds(whole / "gtfs.zip", first)
    expected = run(whole, parts[:1])
    date = expected[0]["date"]
    assert scheduled(expected, date) == {cell: first.get(cell) for cell in scheduled(expected, date)}

    write_speeds(stopped / "gtfs.zip", first)
    close, closed = tracker.PolicyTracker.close_slot, list[str]()

    def stop(self: tracker.PolicyTracker, slot: Slot, *rest: Any) -> Any:
        if len(closed) == 2:
            raise KeyboardInterrupt
        closed.append(slot.name)
        return close(self, slot, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(tracker.PolicyTracker, "close_slot", stop)
        with pytest.raises(AssertionError):
            run(stopped, parts[:1])
    assert len(closed) == 2
    write_speeds(stopped / "gtfs.zip", second)
    both = run(stopped, parts)
    assert designs(both, date) == designs(expected, date)
    of_next = scheduled(both, both[-1]["date"])
    assert of_next == dict.fromkeys(of_next, 36.0)
    assert run(stopped, parts) == both


def test_a_timetable_that_cannot_be_read_is_one_clear_line_before_anything_is_folded(
    tmp_path: Path, parts: list[Path]
) -> None:
    (tmp_path / "gtfs.zip").write_text("no zip file")
    with pytest.raises(BadTimetable, match=r"gtfs\.zip is not a whole zip file; fetch it again"):
        printed(tmp_path, parts[:1])
    assert not (tmp_path / "ledger").exists()
