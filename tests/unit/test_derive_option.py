"""`--derive-speed`: on every command that reads what has speeds, with hints where it is missing."""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from hatcast.agents.cli import hatcast
from hatcast.agents.config.settings import parse_settings
from hatcast.agents.sources.filter import Filter
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import FORMATS, FormatChoice, jsonl
from hatcast.stream.readings.vehicles import by_murmur2
from hatcast.stream.replay.heartbeats import Router
from tests.batching import CONFIG, batch, config

__all__ = ["config"]
NOON = 1_641_124_800_000  # 2022-01-02T12:00Z
WITH_OPTION = [
    *(
        "batch",
        "survey",
        "evaluate means",
        "plan tracker",
        "cluster offline",
        "demo",
        "init",
        "feed replay",
        "feed mqtt",
        "feed gtfs-rt",
    ),
    *("feed siri", "feed amqp"),
]


def position(seconds: int, vehicle: str = "bus", **more: object) -> dict[str, Any]:
    metres = seconds * 10 / 3.6  # at 10 km/h
    lat = 60.2 + metres / 111_194.93
    return {"vehicle": vehicle, "time": NOON + seconds * 1000, "lat": lat, "lon": 24.9} | more


def recording(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path = folder / "positions.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def subcommand(name: str) -> click.Command:
    found: click.Command = hatcast
    for word in name.split():
        assert isinstance(found, click.Group)
        child = found.get_command(click.Context(found), word)
        assert child is not None
        found = child
    return found


def options(name: str) -> set[str]:
    return {option for parameter in subcommand(name).params for option in parameter.opts}


@pytest.mark.parametrize("name", WITH_OPTION)
def test_every_command_that_reads_recordings_or_feeds_derives_speeds(name: str) -> None:
    assert {"--derive-speed", "--derive-speed-always"} <= options(name)


def test_a_device_has_no_such_option() -> None:
    assert "--derive-speed" not in options("device")


def test_batch_derives_speeds_and_drops_the_first_position(tmp_path: Path, config: Path) -> None:
    path = recording(tmp_path, [position(at, bus) for at in (0, 30, 60) for bus in "abc"])
    arguments = (path, "--format", "jsonl", "--config", config, "--contributions", "--json", "--derive-speed")
    found = json.loads(batch(*arguments).stdout)
    assert found["outcomes"] == {"accepted": 6, "undecodable": 3}
    [(users, readings, total, greatest)] = found["hats"].values()
    assert (users, readings) == (3, 6)
    assert (total, greatest) == (pytest.approx(60_000, abs=6), pytest.approx(10_000, abs=1))


def test_reported_speeds_of_0_are_ignored_if_all_are_derived(tmp_path: Path, config: Path) -> None:
    path = recording(tmp_path, [position(at, speed=0) for at in (0, 30, 60)])
    arguments = (path, "--format", "jsonl", "--config", config, "--json")
    assert json.loads(batch(*arguments, "--derive-speed").stdout)["outcomes"] == {"zero": 3}
    always = json.loads(batch(*arguments, "--derive-speed-always").stdout)
    assert always["outcomes"] == {"accepted": 2, "undecodable": 1}


def test_a_recording_without_speeds_names_the_option(tmp_path: Path, config: Path) -> None:
    path = recording(tmp_path, [position(at) for at in (0, 30, 60)])
    hint = batch(path, "--format", "jsonl", "--config", config).stderr
    assert "3 are undecodable: they lack only their speed: `--derive-speed` (in Python `derive_speed`)" in hint


def test_positions_too_far_apart_are_named_as_such(tmp_path: Path, config: Path) -> None:
    path = recording(tmp_path, [position(at) for at in (0, 300, 600)])
    hint = batch(path, "--format", "jsonl", "--config", config, "--derive-speed").stderr
    assert "3 are undecodable: no speed follows from their positions" in hint


def test_garbage_is_not_taken_for_missing_speeds(tmp_path: Path, config: Path) -> None:
    path = recording(tmp_path, [{"vehicle": "bus", "time": "soon"} for _ in range(3)])
    hint = batch(path, "--format", "jsonl", "--config", config).stderr
    assert "3 are undecodable: has no lat" in hint


def test_a_csv_file_without_the_column_names_the_option(tmp_path: Path, config: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("vehicle_id,timestamp,latitude,longitude\n7,2017-03-21T00:00:31-05:00,30.1,-97.7\n")
    with pytest.raises(HatcastError, match=r"no column speed.*--derive-speed"):
        batch(path, "--format", "capmetro", "--config", config)


def test_csv_of_any_columns_needs_none_of_speeds(tmp_path: Path, config: Path) -> None:
    path = tmp_path / "day.csv"
    rows = [position(at, bus) for at in (0, 30, 60) for bus in "abc"]
    path.write_text("bus,ts,lat,lon\n" + "".join(f"{','.join(map(str, row.values()))}\n" for row in rows))
    arguments = (path, "--format", "csv", "--config", config, "--json")
    found = json.loads(batch(*arguments, "--derive-speed").stdout)
    assert found["outcomes"] == {"accepted": 6, "undecodable": 3}
    with pytest.raises(
        HatcastError, match=r"do not plainly show value.*derive the speeds from positions with `--derive-speed`"
    ):
        batch(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["batch", "file", "--format", "kafka", "--derive-speed"],
        ["evaluate", "means", "--counts", "file", "--derive-speed"],
        ["init", "--yes", "--timezone", "UTC", "--derive-speed"],
    ],
)
def test_the_option_without_a_recording_is_wrong_usage(arguments: list[str], tmp_path: Path) -> None:
    with CliRunner().isolated_filesystem(tmp_path):
        done = CliRunner().invoke(hatcast, arguments)
    assert done.exit_code == 2
    assert "--derive-speed" in done.output


def policy(**changes: Any) -> Policy:
    table = tomllib.loads(CONFIG)["policy"] | changes
    return parse_settings(
        {"policy": {key: value for key, value in table.items() if value is not None}}, Path(), {}
    ).policy


def test_a_policy_of_another_value_cannot_derive_speeds() -> None:
    delay = policy(value={"name": "delay", "unit": "s", "lower": -600, "upper": 3600}, upper_bound=None)
    with pytest.raises(SettingError, match="releases another value"):
        policy_format(FormatChoice("jsonl", derive="missing"), delay)


@pytest.mark.parametrize(
    ("reject_above", "upper_bound", "fastest"), [(120.0, 65.0, 120.0), ("none", 65.0, 150.0), ("none", 300.0, 300.0)]
)
def test_a_jump_is_what_the_policy_rejects(reject_above: float | str, upper_bound: float, fastest: float) -> None:
    given = policy(reject_above=reject_above, upper_bound=upper_bound)
    derivation = policy_format(FormatChoice("jsonl", derive="missing"), given).derivation
    assert derivation is not None
    assert (derivation.fastest, derivation.timezone) == (fastest, given.timezone)


def bridge_filter(choice: FormatChoice) -> Filter:
    return Filter(policy_format(choice, policy()), Router(8, by_murmur2), 120_000, polled=True, clock=lambda: NOON)


def test_a_bridge_sends_derived_speeds_and_counts_positions_without_one() -> None:
    there = bridge_filter(FormatChoice("jsonl", derive="missing"))
    bodies = [json.dumps(position(at)).encode() for at in (0, 0, 30)]
    sent = [message for body in bodies for message in there.messages(body)]
    assert [(reading.speed, reading.unit) for each in sent if (reading := jsonl.decode(each.value))] == [(10.0, "km/h")]
    assert (there.readings, there.without_speed, there.repeated, there.undecodable) == (1, 1, 1, 0)


def test_a_bridge_of_a_feed_without_speeds_names_the_option_in_its_log() -> None:
    there = Filter(FORMATS["jsonl"], Router(8, by_murmur2), 120_000, clock=lambda: NOON)
    with capture_logs() as logged:
        assert list(there.messages(json.dumps(position(0)).encode())) == []
    assert [("--derive-speed" in line["hint"], line["records"]) for line in logged] == [(True, 1)]


def test_a_first_file_for_positions_expects_what_feeds_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hatcast.agents.cli.init._planned", lambda *_: {"objective": "cells"})
    target, day = tmp_path / "hatcast.toml", tmp_path / "day.csv"
    day.write_text("vehicle_id,timestamp,latitude,longitude\n7,2017-03-21T00:00:31-05:00,30.1,-97.7\n")
    given = ["--format", "capmetro", "--recording", str(day), "--derive-speed"]
    done = CliRunner().invoke(hatcast, ["init", "--yes", "--timezone", "UTC", "--config", str(target), *given])
    assert done.exit_code == 0, done.output
    assert tomllib.loads(target.read_text())["topics"].get("telemetry_format", "jsonl") == "jsonl"
    assert f"hatcast batch {day} --format capmetro --derive-speed --ledger hatcast.ledger" in done.output
