"""How `hatcast batch` folds: dumps by partition up to records ahead of the clock; bad dumps by their line."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h3.api.basic_str as h3
import pytest
from hypothesis import HealthCheck, given, settings

import hatcast.agents.batch.fold
import hatcast.agents.batch.run
from hatcast.agents.batch.fold import FoldJob, fold_recording
from hatcast.agents.batch.retention import RetainChunks, RetainNothing, RetainTotals, Retention
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.readings.formats import Recorded, jsonl
from tests.batching import CONFIG, DUMPED, batch, config, dump_of, refusal, telemetry
from tests.folding import HOUR, MINUTE, NOON, NOW, PSEUDONYMS, record
from tests.laws import fold_oracle
from tests.laws.fold_logs import NIGHTS, Case, a_log, cases
from tests.replayed import policy_of
from tests.support import examples

__all__ = ["config"]  # the fixture


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
    monkeypatch.setattr(hatcast.agents.batch.run, "now_ms", lambda: 10**14)
    later = batch(path, *DUMPED, "--config", config)
    assert later.stderr == ""
    assert sum(json.loads(later.stdout)["outcomes"].values()) == sum(map(len, logs))


def add(hats: dict[str, list[int]], state: fold_oracle.State) -> None:
    for (date, slot, cell, _), (count, total, greatest, _) in state.contributions.items():
        hat = hats.setdefault(f"{h3.int_to_str(cell)}/{date}/{slot}", [0, 0, 0, 0])
        hat[:] = hat[0] + 1, hat[1] + count, hat[2] + total, max(hat[3], greatest)


def job(case: Case, keeper: Retention) -> FoldJob:
    return FoldJob(case.policy, FoldUsers(PSEUDONYMS), case.now, keeper, lambda _: None)


def records_of(case: Case) -> list[tuple[int, Recorded]]:
    return [(arrival, Recorded(value, jsonl.decode(value), arrival)) for arrival, value in case.log if value]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
