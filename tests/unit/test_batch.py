"""`hatcast batch`: tables for people, releases once; one clear line for what cannot be.
`hatcast batch --ledger` on a dump that does not begin with its topic: the rule of a worker's first start.
"""

import gzip
import json
from pathlib import Path

import h3.api.basic_str as h3
import msgspec
import pytest

from hatcast.agents.kafka.dump import DumpHead, DumpLine
from tests.batching import CONFIG, USERS, batch, config, dump_of, recording_of, refusal, releases, telemetry
from tests.folding import HOUR, MINUTE, NOON, record

__all__ = ["config"]  # the fixture

# Releases


def test_people_are_shown_a_table(tmp_path: Path, config: Path) -> None:
    path = recording_of(tmp_path / "log.jsonl", NOON, NOON + 1000)
    done = batch(path, "--format", "jsonl", "--config", config)
    assert "accepted" in done.stdout
    assert "24 records, 24 of them accepted" in done.stdout
    assert done.stderr == ""
    shown = batch(path, "--format", "jsonl", "--config", config, "--contributions")
    assert "2022-01-02/12:00" in shown.stdout
    assert shown.stderr == "reads raw data, not private\n"


def test_a_second_run_prints_the_same_bytes(tmp_path: Path, config: Path) -> None:
    path = recording_of(tmp_path / "log.jsonl", NOON, NOON + HOUR)
    arguments = (path, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger", "--json")
    first = batch(*arguments)
    assert [each["status"] for each in releases(first)] == ["released", "released"]
    assert batch(*arguments).stdout == first.stdout


def test_releases_come_by_slot_then_cell_and_the_last_slot_is_final_too(tmp_path: Path, config: Path) -> None:
    path = tmp_path / "log.jsonl"
    places = [(lat, instant) for instant in (NOON + HOUR, NOON) for lat in (21.2, 21.6, 21.4)]
    path.write_bytes(
        b"\n".join(record(vehicle=user, lat=lat, time=at, arrival=NOON + HOUR) for lat, at in places for user in USERS)
    )
    done = batch(path, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger", "--json")
    found = [(each["slot"], each["cell"]) for each in releases(done)]
    assert found == sorted(found)
    assert len(found) == 6


def test_a_hat_released_before_keeps_its_record_when_more_is_known(tmp_path: Path, config: Path) -> None:
    ledger = tmp_path / "ledger"
    some = recording_of(tmp_path / "some.jsonl", NOON)
    all_of_it = recording_of(tmp_path / "all.jsonl", NOON, NOON + 1000, NOON + HOUR)
    arguments = ("--format", "jsonl", "--config", config, "--ledger", ledger, "--json")
    first, then = releases(batch(some, *arguments)), releases(batch(all_of_it, *arguments))
    assert then[0] == first[0]
    assert [each["seq"] for each in then] == [1, 2]


def test_of_a_dump_only_what_every_partitions_clock_has_closed_is_released(tmp_path: Path, config: Path) -> None:
    logs = telemetry(3, NOON, NOON + HOUR)
    arguments = ("--format", "kafka", "--config", config, "--json", "--ledger")
    closing = [[*log, (NOON + 65 * MINUTE, None)] for log in logs]
    dump = dump_of(tmp_path / "dump", closing)
    assert [each["slot"] for each in releases(batch(dump, *arguments, tmp_path / "1"))] == ["12:00"]
    slow = [closing[0], closing[1], [*logs[2], (NOON + 65 * MINUTE - 1, None)]]
    assert releases(batch(dump_of(tmp_path / "slow", slow), *arguments, tmp_path / "2")) == []
    silent = [closing[0], closing[1], []]
    assert releases(batch(dump_of(tmp_path / "silent", silent), *arguments, tmp_path / "3")) == []


def test_the_partitions_of_a_hat_are_released_together(tmp_path: Path, config: Path) -> None:
    config.write_text(CONFIG.replace("min_users = 3", f"min_users = {len(USERS)}"))
    dump = dump_of(tmp_path / "dump", [[*log, (NOON + 2 * HOUR, None)] for log in telemetry(3, NOON)])
    done = batch(dump, "--format", "kafka", "--config", config, "--ledger", tmp_path / "ledger", "--json")
    assert [each["status"] for each in releases(done)] == ["released"]


def test_people_are_shown_releases_and_budget(tmp_path: Path, config: Path) -> None:
    path = recording_of(tmp_path / "log.jsonl", NOON)
    done = batch(path, "--format", "jsonl", "--config", config, "--ledger", tmp_path / "ledger")
    for word in ("released", "km/h", "budget", h3.latlng_to_cell(21.2, 72.8, 7)):
        assert word in done.stdout


def test_without_a_ledger_nothing_is_released(tmp_path: Path, config: Path) -> None:
    done = batch(recording_of(tmp_path / "log.jsonl", NOON), "--format", "jsonl", "--config", config, "--json")
    assert json.loads(done.stdout) == {"outcomes": {"accepted": len(USERS)}}
    assert {path.name for path in tmp_path.iterdir()} == {"hatcast.toml", "log.jsonl"}


def test_a_dump_of_the_means_gives_the_estimates_of_its_releases(tmp_path: Path, config: Path) -> None:
    done = batch(
        recording_of(tmp_path / "log.jsonl", NOON, NOON + 2 * 3_600_000),
        *("--format", "jsonl", "--config", config, "--ledger", tmp_path / "l", "--json", "--estimates"),
    )
    lines = [line.encode() for line in done.stdout.splitlines()]
    estimates = [line for line in lines if b"estimate_id" in line]
    assert estimates
    means = [line for line in lines if line not in estimates]
    dump = tmp_path / "means.jsonl"
    whole = [
        DumpHead("hats.means", 1, [0]),
        *(DumpLine("hats.means", 0, at, 0, b"", each) for at, each in enumerate(means)),
    ]
    dump.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in whole))
    again = batch(dump, "--format", "kafka", "--config", config, "--estimates")
    assert [line.encode() for line in again.stdout.splitlines()] == estimates


# What cannot be


def test_estimates_are_of_a_dump_of_the_means_or_of_a_ledger(tmp_path: Path, config: Path) -> None:
    of_telemetry = dump_of(tmp_path / "dump", telemetry(1, NOON))
    assert "not of hats.means" in refusal(of_telemetry, "--format", "kafka", "--config", config, "--estimates")
    for arguments in (("--format", "jsonl"), ("--format", "jsonl", "--ledger", tmp_path / "l")):
        done = batch("x", *arguments, "--config", config, "--estimates")
        assert (done.exit_code, "--estimates" in done.stderr) == (2, True)


def test_a_ledger_rejects_queries_whose_limit_is_requested_from_workers(tmp_path: Path, config: Path) -> None:
    table = '[[policy.query]]\nname = "fast"\nkind = "over_speed_limit"\ndays = 1\nepsilon = 0.01\non_request = true\n'
    config.write_text(f"{config.read_text()}\n{table}")
    done = batch("x", "--format", "jsonl", "--config", config, "--ledger", tmp_path / "l")
    assert (done.exit_code, "'fast' takes requests, which need workers" in done.stderr) == (2, True)


def test_contributions_and_a_ledger_at_once_are_wrong_usage(tmp_path: Path, config: Path) -> None:
    done = batch("x", "--format", "jsonl", "--config", config, "--contributions", "--ledger", tmp_path / "l")
    assert (done.exit_code, "choose one" in done.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [(), ("x", "--format", "avro")])
def test_without_a_file_or_a_known_format_the_usage_is_told(arguments: tuple[str, ...]) -> None:
    assert batch(*arguments).exit_code == 2


def test_a_missing_file_a_wrong_format_and_a_cut_off_gzip_are_one_line_each(tmp_path: Path, config: Path) -> None:
    assert "is missing" in refusal(tmp_path / "absent", "--format", "jsonl", "--config", config)
    assert refusal("x", "--config", config) == "x: is missing; check the path"
    path = recording_of(tmp_path / "log.jsonl", NOON)
    assert "no column" in refusal(path, "--format", "capmetro", "--config", config)
    path.write_bytes(gzip.compress(path.read_bytes())[:-9])
    assert "cut off" in refusal(path, "--format", "jsonl", "--config", config)


def test_a_configuration_that_is_missing_is_one_line(tmp_path: Path) -> None:
    assert "no such file" in refusal("x", "--format", "jsonl", "--config", tmp_path / "absent.toml")


DAY = 24 * HOUR
OVER = 30 * HOUR


def statuses(path: Path, config: Path, ledger: Path) -> dict[str, set[str]]:
    """Date -> the statuses of its releases."""
    found: dict[str, set[str]] = {}
    for each in releases(batch(path, "--format", "kafka", "--config", config, "--ledger", ledger, "--json")):
        found.setdefault(each["date"], set()).add(each["status"])
    return found


def test_days_that_begin_before_the_first_record_of_a_cut_partition_are_incomplete(
    tmp_path: Path, config: Path
) -> None:
    logs = telemetry(2, NOON, NOON + DAY)
    for log in logs:
        log.append((NOON + DAY + OVER, b""))
    whole = dump_of(tmp_path / "whole", logs)
    assert statuses(whole, config, tmp_path / "1") == {"2022-01-02": {"released"}, "2022-01-03": {"released"}}
    cut = dump_of(tmp_path / "cut", logs, [0, 7])
    assert statuses(cut, config, tmp_path / "2") == {"2022-01-02": {"incomplete"}, "2022-01-03": {"released"}}


def test_a_day_that_begins_within_max_ahead_of_the_first_record_is_incomplete_too(tmp_path: Path, config: Path) -> None:
    midnight = NOON + 12 * HOUR
    for first, status in ((midnight - 2 * MINUTE, "released"), (midnight - 2 * MINUTE + 1, "incomplete")):
        logs = telemetry(1, midnight + HOUR)
        logs[0] = [(first, b""), *logs[0], (midnight + OVER, b"")]
        path, ledger = dump_of(tmp_path / status, logs, [1]), tmp_path / f"{status}.ledger"
        assert statuses(path, config, ledger) == {"2022-01-03": {status}}


def test_a_run_over_the_whole_log_keeps_what_was_called_incomplete_before(tmp_path: Path, config: Path) -> None:
    logs = telemetry(1, NOON)
    logs[0].append((NOON + OVER, b""))
    ledger = tmp_path / "ledger"
    assert statuses(dump_of(tmp_path / "cut", logs, [1]), config, ledger) == {"2022-01-02": {"incomplete"}}
    assert statuses(dump_of(tmp_path / "whole", logs), config, ledger) == {"2022-01-02": {"incomplete"}}
