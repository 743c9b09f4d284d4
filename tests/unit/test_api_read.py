"""`hatcast.read` and `hatcast.estimates`: every file that has published records gives them, each once.
`hatcast.batch` of a dump of telemetry, and of reports of devices: the records of the command.
"""

import base64
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

import hatcast
from hatcast.agents.api.policy import plain_policy
from hatcast.agents.batch.ledger_file import open_ledger
from hatcast.stream.errors import HatcastError
from tests.api_data import readings, written
from tests.batching import CONFIG, batch
from tests.unit.test_api_policy import policy
from tests.unit.test_batch_reports import END, OVER, a_report, buses, config, devices, run

GOLDENS = Path(__file__).parents[2] / "schemas" / "golden" / "0.1.0"


@pytest.fixture
def released(tmp_path: Path) -> hatcast.BatchReleases:
    return hatcast.batch(pl.DataFrame(readings()), policy(), ledger=tmp_path / "day.ledger")


def golden(kind: str, name: str) -> bytes:
    return json.dumps(json.loads((GOLDENS / kind / f"{name}.json").read_bytes())["value"]).encode()


def lines(values: tuple[bytes, ...]) -> bytes:
    return b"".join(value + b"\n" for value in values)


def dumped(values: tuple[bytes, ...]) -> bytes:
    head: dict[str, Any] = {"topic": "hats.means", "partitions": 1, "start_offsets": [0]}
    records = [
        head | {"partition": 0, "offset": at, "ts": 1, "key": None, "value": base64.b64encode(value).decode()}
        for at, value in enumerate(values)
    ]
    return b"".join(json.dumps(each).encode() + b"\n" for each in [head, *records])


def as_export(folder: Path, released: hatcast.Releases) -> Path:
    (folder / "releases").mkdir(parents=True)
    pq.write_table(released.to_arrow(), folder / "releases" / "2022-01-02.parquet")
    return folder


FILES: dict[str, Callable[[Path, hatcast.Releases], object]] = {
    "releases.jsonl": lambda path, released: path.write_bytes(lines(released.values)),
    "twice.jsonl": lambda path, released: path.write_bytes(lines(released.values * 2)),
    "releases.jsonl.gz": lambda path, released: path.write_bytes(gzip.compress(lines(released.values))),
    "releases.parquet": lambda path, released: released.write(path),
    "means.dump": lambda path, released: path.write_bytes(dumped(released.values)),
    "export": as_export,
    "day.ledger": lambda _, released: None,
}


@pytest.mark.parametrize("name", FILES)
def test_the_releases_of_a_file_are_those_that_were_written(
    tmp_path: Path, released: hatcast.BatchReleases, name: str
) -> None:
    FILES[name](tmp_path / name, released)
    found = hatcast.read(tmp_path / name)
    assert sorted(found.values) == sorted(released.values)
    assert len(hatcast.read(tmp_path / name, policy="another")) == 0
    assert len(hatcast.read(tmp_path / name, policy="test")) == 4


def test_records_of_several_kinds_in_a_file_are_read_by_kind(tmp_path: Path) -> None:
    path = tmp_path / "tail.jsonl"
    values = (golden("release", "replace_released"), golden("query", "replace_released"), golden("estimate", "live"))
    path.write_bytes(lines(values))
    assert hatcast.read(path).values == values[:1]
    assert hatcast.read(path, "answers").values == values[1:2]
    assert hatcast.read(path, "estimates").values == values[2:]
    assert len(hatcast.read(path, "budget")) == 0
    [estimate] = hatcast.read(path, "estimates")
    assert estimate.stage == "live"


def test_the_last_estimate_of_an_id_is_read(tmp_path: Path) -> None:
    path = tmp_path / "estimates.jsonl"
    live = golden("estimate", "live")
    settled = json.dumps(json.loads(live) | {"stage": "settled"}).encode()
    path.write_bytes(lines((live, settled)))
    assert [each.stage for each in hatcast.read(path, "estimates")] == ["settled"]


def test_estimates_are_those_that_the_command_prints(tmp_path: Path, released: hatcast.BatchReleases) -> None:
    config, path = tmp_path / "hatcast.toml", tmp_path / "releases.jsonl"
    config.write_text(CONFIG)
    path.write_bytes(lines(released.values))
    arguments = ("--format", "jsonl", "--config", config, "--ledger", tmp_path / "day.ledger", "--json", "--estimates")
    printed = batch(written(tmp_path / "r.jsonl", readings()), *arguments).stdout_bytes.splitlines()
    expected = [line for line in printed if b"estimate_id" in line]
    assert len(expected) == 4
    for source in (released, path, tmp_path / "day.ledger"):
        assert [*hatcast.estimates(source, policy()).values] == expected
        assert [*hatcast.estimates(source, config).values] == expected
    assert len(hatcast.estimates(released, policy(upper_bound=60.0))) == 0  # another policy's


def test_running_means_are_those_that_the_command_prints(tmp_path: Path, released: hatcast.BatchReleases) -> None:
    config, dump = tmp_path / "hatcast.toml", tmp_path / "means.dump"
    config.write_text(f'{CONFIG}\n[[policy.running]]\nname = "so-far"\nwindow = "today"\n')
    dump.write_bytes(dumped(released.values))
    printed = batch(dump, "--format", "kafka", "--config", config, "--running").stdout_bytes.splitlines()
    running = policy(running=[{"name": "so-far", "window": "today"}])
    for source, of in ((released, running), (released, config), (tmp_path / "day.ledger", running)):
        made = hatcast.running_means(source, of)
        assert [*made.values] == printed
        assert {each.name for each in made} == {"so-far"}
    after = batch(
        written(tmp_path / "r.jsonl", readings()),
        *("--format", "jsonl", "--config", config, "--ledger", tmp_path / "day.ledger", "--json", "--running"),
    )
    assert after.stdout_bytes.splitlines()[-len(printed) :] == printed
    with pytest.raises(hatcast.HatcastError, match="has no running means"):
        hatcast.running_means(released, policy())
    config.write_text(CONFIG)
    refused = batch(dump, "--format", "kafka", "--config", config, "--running")
    assert (refused.exit_code, "write [[policy.running]]" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "is missing; check the path"),
        (b'{"vehicle": "a"}\n', "has no published records; name the file of releases, not that of readings"),
        (b"PAR1", "is not a complete Parquet file; it may be cut off: make it again"),
        (b"SQLite format 3\0", "is not a ledger of hatcast"),
        (b"\x1f\x8bx", "is cut off: its compressed stream has no end; fetch it again"),
    ],
)
def test_a_file_without_records_is_one_line(tmp_path: Path, content: bytes | None, line: str) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(HatcastError) as refused:
        hatcast.read(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_other_mistakes_are_one_line(tmp_path: Path, released: hatcast.BatchReleases) -> None:
    pq.write_table(released.to_arrow().drop_columns(["record"]), tmp_path / "bare.parquet")
    for source, line in ((tmp_path, "is a folder without releases/*.parquet"), (tmp_path / "bare.parquet", "'record'")):
        with pytest.raises(HatcastError, match=line.replace("*", r"\*")):
            hatcast.read(source)
    with pytest.raises(HatcastError, match="kind: 'release' is not a kind of records; did you mean releases"):
        hatcast.read(tmp_path / "day.ledger", "release")  # type: ignore[call-overload]  # a mistake
    (tmp_path / "empty.jsonl").write_bytes(b"")
    assert len(hatcast.read(tmp_path / "empty.jsonl")) == 0
    assert repr(hatcast.read(tmp_path / "empty.jsonl")).startswith("Releases: 0 rows")


def test_to_read_a_ledger_that_this_process_writes_leaves_it_locked_for_others(
    released: hatcast.BatchReleases, tmp_path: Path
) -> None:
    # POSIX locks are the process's: closing any other handle of the file releases them.
    path = tmp_path / "day.ledger"
    lock = "import sqlite3, sys; sqlite3.connect(sys.argv[1], 0).execute('BEGIN EXCLUSIVE')"
    with open_ledger(path, plain_policy(policy())):
        with pytest.raises(HatcastError, match="is in use by another"):
            hatcast.read(path)
        other = subprocess.run([sys.executable, "-c", lock, path], capture_output=True, text=True, check=False)
        assert "database is locked" in other.stderr
    assert hatcast.read(path).values == released.values


def test_a_csv_file_of_releases_leads_to_the_files_that_are_read(
    released: hatcast.BatchReleases, tmp_path: Path
) -> None:
    path = tmp_path / "releases.csv"
    released.to_polars().write_csv(path)
    with pytest.raises(HatcastError, match=r"CSV is not read here; name the same records in a \.jsonl or \.parquet"):
        hatcast.read(path)


__all__ = ["config"]  # the fixture


def test_dumps_of_telemetry_and_of_reports_give_the_records_of_the_command(tmp_path: Path, config: Path) -> None:
    reports = devices(tmp_path, [*((OVER, a_report(config, number)) for number in range(3)), (END, b"")])
    printed = run(tmp_path, config, reports, "--ledger", tmp_path / "ledger").stdout_bytes
    for given in (config, hatcast.Policy.from_file(config), hatcast.load_settings(config)):
        found = hatcast.batch(buses(tmp_path), given, format="kafka", reports=reports, ledger=tmp_path / "ledger")
        assert b"".join(value + b"\n" for value in found.values) == printed
        assert found.outcomes is not None
        assert found.outcomes["reports.accepted"] == 3


def test_a_policy_of_devices_needs_their_reports(tmp_path: Path, config: Path) -> None:
    with pytest.raises(HatcastError) as refused:
        hatcast.batch(buses(tmp_path), config, format="kafka", ledger=tmp_path / "ledger")
    assert str(refused.value) == (
        "the policy's releases need the reports of devices: give the output of `hatcast dump reports` as `reports`"
    )
    with pytest.raises(HatcastError, match="is a dump of telemetry: reports are the output"):
        hatcast.batch(buses(tmp_path), config, format="kafka", reports=buses(tmp_path), ledger=tmp_path / "ledger")
