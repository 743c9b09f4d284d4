"""`hatcast batch` on files of which it accepts nothing: one line on standard error with the likely cause."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.batching import CONFIG, batch, config
from tests.folding import DAY, HOUR, NOON, record

__all__ = ["config"]  # the fixture

CASES: list[tuple[str, str, dict[str, Any], str]] = [
    ("places", "", {"lat": 200.0}, "bad_place: their places are not latitudes and longitudes in degrees"),
    (
        "unit",
        "reject_above = 70.0",
        {"speed": 90.0},
        "bad_value: their speeds are negative, or above policy.reject_above (70 km/h): check the unit",
    ),
    (
        "times",
        "",
        {"time": NOON + DAY, "arrival": NOON},
        (
            "bad_time: their times are later than their arrivals, or not times: check the time zone, and that times"
            " have an offset such as +05:30"
        ),
    ),
    (
        "future",
        "",
        {"time": NOON + 100_000 * DAY},
        (
            "arrived_in_future: they are dated in the future of this machine's clock: check the recording's time zone,"
            " and the clock"
        ),
    ),
    (
        "dates",
        'replaces = "old"\nfrom = "2022-02-01"',
        {},
        "outside_dates: they are from before policy.from (2022-02-01)",
    ),
    (
        "time zone",
        "hours = [18, 24]",
        {},
        "outside_hours: in UTC their hours are not in policy.hours [18, 24): is policy.timezone that of the recording?",
    ),
    ("stopped", "", {"speed": 0.0}, "zero: their speeds are 0, which policy.drop_zero rejects"),
]


def written(folder: Path, keys: str) -> Path:
    """The tests' policy with other keys."""
    path = folder / "other.toml"
    key = keys.partition(" =")[0]
    lines = [line for line in CONFIG.splitlines() if not key or line.partition(" =")[0] != key]
    path.write_text("\n".join(lines).replace("[policy]\n", f"[policy]\n{keys}\n", 1))
    return path


def lines_of(change: dict[str, Any]) -> bytes:
    return b"\n".join(record(vehicle=f"bus-{bus}", **change) for bus in range(3))


@pytest.mark.parametrize(("keys", "change", "cause"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
@pytest.mark.parametrize("ledger", [False, True])
def test_files_without_an_accepted_record_get_a_line_with_the_cause(
    keys: str, change: dict[str, Any], cause: str, tmp_path: Path, *, ledger: bool
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(lines_of(change))
    options = ("--ledger", tmp_path / "ledger") if ledger and "replaces" not in keys else ()  # the old one never ran
    done = batch(path, "--format", "jsonl", "--config", written(tmp_path, keys), *options)
    assert done.stderr == f"hint: none of 3 records accepted; 3 are {cause}\n"
    assert done.exit_code == 0


def test_an_empty_file_gets_a_line(tmp_path: Path, config: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"")
    done = batch(path, "--format", "jsonl", "--config", config, "--json")
    assert done.stderr == "hint: the files have no records: are they the right ones, and complete?\n"
    assert done.stdout == '{"outcomes":{}}\n'


def test_a_file_that_is_half_in_another_format_gets_a_line(tmp_path: Path, config: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join([record(), *[b'{"bus": 1}'] * 2]))
    done = batch(path, "--format", "jsonl", "--config", config)
    assert done.stderr.startswith("hint: 1 of 3 records accepted; 2 are undecodable: ")


def test_undecodable_rows_of_named_columns_get_their_problem(tmp_path: Path, config: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("vehicle,time,lat,lon,speed_kmh\n" + "7,21.03.2017 10:00,52.5,13.4,38\n" * 3)
    done = batch(path, "--format", "csv", "--config", config)
    assert done.stderr == (
        "hint: none of 3 records accepted; 3 are undecodable: time is not a time of this format: name it with"
        " `--time-format`, such as '%d.%m.%Y %H:%M:%S'\n"
    )


def test_a_pipe_of_undecodable_records_gets_a_line_and_is_not_opened_again(config: Path) -> None:
    reads, writes = os.pipe()
    with os.fdopen(reads), os.fdopen(writes, "w") as pipe:
        pipe.write("vehicle,time,lat,lon,speed_kmh\n" + "7,21.03.2017 10:00,52.5,13.4,38\n" * 3)
        pipe.close()
        done = batch(f"/dev/fd/{reads}", "--format", "csv", "--config", config)
    assert done.stderr.startswith("hint: none of 3 records accepted; 3 are undecodable: ")
    assert done.exit_code == 0


def test_buses_that_stand_most_of_the_time_get_no_line(tmp_path: Path, config: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join([record(), *(record(speed=0.0, time=NOON + at) for at in range(1_000, 5_000, 1_000))]))
    assert batch(path, "--format", "jsonl", "--config", config).stderr == ""


def test_a_night_outside_of_the_hours_gets_no_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join([record(), *(record(time=NOON + 8 * HOUR + at) for at in range(0, 9_000, 1_000))]))
    assert batch(path, "--format", "jsonl", "--config", written(tmp_path, "hours = [9, 18]")).stderr == ""


def test_private_counts_give_no_line(tmp_path: Path) -> None:
    cells = tmp_path / "cells.txt"
    cells.write_text('source = "public"\n87608b0d2ffffff\n')
    text = CONFIG.replace("min_users = 3", 'relation = "add_remove"').replace("hours = [0, 24]", 'cells = "cells.txt"')
    path = tmp_path / "hatcast.toml"
    path.write_text(text.replace('"baseline"', '"capped_ratio"\narray_length = 5'))
    log = tmp_path / "log.jsonl"
    log.write_bytes(record(lat=50.0))
    arguments = (log, "--format", "jsonl", "--config", path)
    assert "outside_cells: their cells are not in the file of policy.cells" in batch(*arguments).stderr
    assert batch(*arguments, "--ledger", tmp_path / "ledger", "--json").stderr == ""
