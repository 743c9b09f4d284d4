"""`hatcast batch`: dumps by partition, looks that do not show, releases once; one clear line for what cannot be."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h3.api.basic_str as h3
import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings

import hatcast.agents.batch.fold
import hatcast.agents.cli.batch
from hatcast.agents.batch.fold import Job, fold_recording
from hatcast.agents.batch.retention import RetainChunks, RetainNothing, RetainTotals, Retention
from hatcast.agents.cli.batch import command
from hatcast.agents.kafka.dump import Head, Line
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.readings.formats import Recorded, jsonl
from hatcast.stream.readings.partitioner import by_murmur2
from tests.folding import HOUR, MINUTE, NOON, NOW, PSEUDONYMS, record
from tests.laws import fold_oracle
from tests.laws.fold_logs import NIGHTS, Case, a_log, cases
from tests.replayed import policy_of

CONFIG = """
[policy]
name = "test"
upper_bound = 65.0
timezone = "UTC"
hours = [0, 24]
[policy.privacy]
epsilon = 1.0
max_hats_per_day = 40
daily_limit = 105.0
min_users = 3
[policy.estimator]
name = "baseline"
"""
DUMPED = ("--format", "kafka", "--json")
USERS = [f"bus-{number}" for number in range(12)]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "hatcast.toml"
    path.write_text(CONFIG)
    return path


def batch(*arguments: object) -> Result:
    """The command in this process; a refusal is raised."""
    return CliRunner(catch_exceptions=False).invoke(command, [str(argument) for argument in arguments])


def refusal(*arguments: object) -> str:
    with pytest.raises(HatcastError) as refused:
        batch(*arguments)
    line = str(refused.value)
    assert "\n" not in line
    return line


def recording_of(path: Path, *instants: int) -> Path:
    """Every user, at each instant."""
    path.write_bytes(b"\n".join(record(vehicle=user, time=instant) for instant in instants for user in USERS))
    return path


def dump_of(path: Path, logs: Sequence[Sequence[tuple[int, bytes | None]]], starts: Sequence[int] = ()) -> Path:
    """The lines of `hatcast dump`, partitions taking turns, each from its start offset (0) on."""
    starts = starts or [0] * len(logs)
    lines = [
        (at, partition, Line("telemetry", partition, starts[partition] + 10 * at, ts, b"key", value))
        for partition, log in enumerate(logs)
        for at, (ts, value) in enumerate(log)
    ]
    whole = [Head("telemetry", len(logs), [*starts]), *(line for _, _, line in sorted(lines, key=lambda it: it[:2]))]
    path.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in whole))
    return path


def telemetry(partitions: int, *instants: int) -> list[list[tuple[int, bytes | None]]]:
    """Every user in its own partition, at each instant."""
    logs: list[list[tuple[int, bytes | None]]] = [[] for _ in range(partitions)]
    for instant in instants:
        for user in USERS:
            logs[by_murmur2(user.encode(), partitions)].append((instant, record(vehicle=user, time=instant)))
    return logs


def releases(done: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


# Folding


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_dump_is_folded_by_partition_as_the_spec_says(
    tmp_path: Path, config: Path, pack: Callable[[bytes], bytes]
) -> None:
    config.write_text(CONFIG.replace("UTC", "Europe/Helsinki").replace("hats_per_day = 40", "hats_per_day = 2"))
    night = NIGHTS["Europe/Helsinki"]
    whole = [a_log(random.Random(seed), night - 2 * HOUR, 300) for seed in range(3)]
    logs = [[(ts, value) for ts, value in log if ts <= NOW] for log in whole]  # the others: see the next test
    policy = policy_of(
        timezone="Europe/Helsinki", privacy={"epsilon": 1.0, "max_hats_per_day": 2, "daily_limit": 105.0}
    )
    outcomes: Counter[str] = Counter()
    hats: dict[str, list[int]] = {}
    for partition, log in enumerate(logs):
        rules = Case(policy, partition, 3, "murmur2", 0, []).rules()
        found = fold_oracle.fold(rules, 10**14, log)
        outcomes += found.outcomes
        add(hats, found)
    path = dump_of(tmp_path / "dump", logs)
    path.write_bytes(pack(path.read_bytes()))
    done = batch(path, "--format", "kafka", "--config", config, "--contributions", "--json")
    assert json.loads(done.stdout) == {"outcomes": outcomes, "hats": hats}
    assert {"wrong_partition", "tick", "late", "over_cap", "undecodable"} <= outcomes.keys()


@pytest.mark.parametrize("value", [record(), b"", b"{"])
def test_a_dump_is_folded_up_to_the_first_record_ahead_of_the_clock_as_a_worker_does(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch, value: bytes
) -> None:
    logs = telemetry(2, NOON, NOON + MINUTE)
    whole = json.loads(batch(dump_of(tmp_path / "1", logs), *DUMPED, "--config", config).stdout)
    logs[1] = [*logs[1], (10**14, value), *logs[1]]
    path = dump_of(tmp_path / "2", logs, [0, 7])
    done = batch(path, *DUMPED, "--config", config)
    assert json.loads(done.stdout) == whole
    place = 7 + 10 * (len(logs[1]) // 2)
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"telemetry partition 1 is folded up to offset {place} only: the record there is dated 5138-"
    )
    assert "NTP" in line
    monkeypatch.setattr(hatcast.agents.cli.batch, "now_ms", lambda: 10**14)
    later = batch(path, *DUMPED, "--config", config)
    assert later.stderr == ""
    assert sum(json.loads(later.stdout)["outcomes"].values()) == sum(map(len, logs))


def add(hats: dict[str, list[int]], state: fold_oracle.State) -> None:
    for (date, slot, cell, _), (count, total, greatest, _) in state.contributions.items():
        hat = hats.setdefault(f"{h3.int_to_str(cell)}/{date}/{slot}", [0, 0, 0, 0])
        hat[:] = hat[0] + 1, hat[1] + count, hat[2] + total, max(hat[3], greatest)


def job(case: Case, keeper: Retention) -> Job:
    return Job(case.policy, FoldUsers(PSEUDONYMS), case.now, keeper, lambda _: None)


def records_of(case: Case) -> list[tuple[int, Recorded]]:
    return [(arrival, Recorded(value, jsonl.decode(value), arrival)) for arrival, value in case.log if value]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_what_is_forgotten_on_the_way_does_not_show(case: Case) -> None:
    alone = replace(case, partition=0, partitions=1, log=[(ts, value) for ts, value in case.log if value])
    expected = fold_oracle.fold(alone.rules(), case.now, alone.log)
    hats: dict[str, list[int]] = {}
    add(hats, expected)
    totals, nothing, chunks = RetainTotals(), RetainNothing(), RetainChunks()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hatcast.agents.batch.fold, "_RECORDS", 4)
        patched.setattr(hatcast.agents.batch.fold, "_RETAIN_RECORDS", 8)
        for keeper in (totals, nothing, chunks):
            assert fold_recording(records_of(alone), job(alone, keeper)).outcomes == dict(expected.outcomes)
    assert {key: list(figures) for key, figures in totals.hats.items()} == hats
    assert sorted(f"{hat.cell}/{hat.slot}" for hat in chunks.hats()) == sorted(hats)


def test_crc32_is_told_by_the_configuration(tmp_path: Path, config: Path) -> None:
    config.write_text('[topics]\ntelemetry_partitioner = "crc32"\n' + CONFIG)
    path = dump_of(tmp_path / "dump", telemetry(3, NOON))
    done = batch(path, "--format", "kafka", "--config", config, "--json")
    assert json.loads(done.stdout)["outcomes"]["wrong_partition"] > 0


def test_people_are_shown_a_table(tmp_path: Path, config: Path) -> None:
    path = recording_of(tmp_path / "log.jsonl", NOON, NOON + 1000)
    done = batch(path, "--format", "jsonl", "--config", config)
    assert "accepted" in done.stdout
    assert "24 records, 24 of them accepted" in done.stdout
    assert done.stderr == ""
    shown = batch(path, "--format", "jsonl", "--config", config, "--contributions")
    assert "2022-01-02/12:00" in shown.stdout
    assert shown.stderr == "reads raw data, not private\n"


# Dumps that are none


def lines_of(path: Path) -> list[bytes]:
    return dump_of(path, telemetry(2, NOON)).read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (lambda lines: [], "is empty"),
        (lambda lines: lines[1:], "line 1 is not a line of a dump"),
        (lambda lines: [*lines, b"{\n"], "line 14 is not a line of a dump"),
        (lambda lines: [lines[0].replace(b"[0,0]", b"[0]"), *lines[1:]], "line 1 does not have one start offset"),
        (lambda lines: [*lines, lines[1]], "line 14 has offset 0, which does not increase"),
        (
            lambda lines: [lines[0].replace(b"[0,0]", b"[5,5]"), *lines[1:]],
            "line 2 has offset 0, which does not increase",
        ),
        (lambda lines: [*lines, lines[1].replace(b'"partition":0', b'"partition":2')], "line 14 is of a topic or"),
        (lambda lines: [*lines, lines[1].replace(b'"telemetry"', b'"other"')], "line 14 is of a topic or"),
        (lambda lines: [*lines, lines[0].replace(b"telemetry", b"other")], "line 14 is the header of another dump"),
        (lambda lines: [record()], "line 1 is not a line of a dump"),
    ],
)
def test_what_is_no_dump_is_refused_by_its_line(tmp_path: Path, config: Path, broken: Any, problem: str) -> None:
    path = tmp_path / "dump"
    path.write_bytes(b"".join(broken(lines_of(path))))
    assert problem in refusal(path, "--format", "kafka", "--config", config, "--json")


def test_a_dump_in_parts_is_one_dump(tmp_path: Path, config: Path) -> None:
    lines = lines_of(tmp_path / "whole")
    (tmp_path / "1").write_bytes(b"".join(lines[:6]))
    (tmp_path / "2").write_bytes(b"".join([lines[0], *lines[6:]]))
    whole, parts = [tmp_path / "whole"], [tmp_path / "1", tmp_path / "2"]
    results = [batch(*files, "--format", "kafka", "--config", config, "--json").stdout for files in (whole, parts)]
    assert results[0] == results[1]


# Releases


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
    whole = [Head("hats.means", 1, [0]), *(Line("hats.means", 0, at, 0, b"", each) for at, each in enumerate(means))]
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


def test_contributions_and_a_ledger_at_once_are_wrong_usage(tmp_path: Path, config: Path) -> None:
    done = batch("x", "--format", "jsonl", "--config", config, "--contributions", "--ledger", tmp_path / "l")
    assert (done.exit_code, "choose one" in done.stderr) == (2, True)


@pytest.mark.parametrize("arguments", [(), ("x",), ("x", "--format", "parquet")])
def test_without_a_file_or_a_known_format_the_usage_is_told(arguments: tuple[str, ...]) -> None:
    assert batch(*arguments).exit_code == 2


def test_a_missing_file_a_wrong_format_and_a_cut_off_gzip_are_one_line_each(tmp_path: Path, config: Path) -> None:
    assert "is missing" in refusal(tmp_path / "absent", "--format", "jsonl", "--config", config)
    path = recording_of(tmp_path / "log.jsonl", NOON)
    assert "no column" in refusal(path, "--format", "capmetro", "--config", config)
    path.write_bytes(gzip.compress(path.read_bytes())[:-9])
    assert "cut off" in refusal(path, "--format", "jsonl", "--config", config)


def test_a_configuration_that_is_missing_is_one_line(tmp_path: Path) -> None:
    assert "no such file" in refusal("x", "--format", "jsonl", "--config", tmp_path / "absent.toml")
