"""`hatcast batch` in this process, and recordings and dumps for it."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

from hatcast.agents.kafka.dump import DumpHead, DumpLine
from hatcast.stream.readings.vehicles import by_murmur2
from tests import invoked
from tests.folding import record

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


batch = partial(invoked.run, "batch")
refusal = partial(invoked.refusal, "batch")


def recording_of(path: Path, *instants: int) -> Path:
    """Every user, at each instant."""
    path.write_bytes(b"\n".join(record(vehicle=user, time=instant) for instant in instants for user in USERS))
    return path


def dump_of(path: Path, logs: Sequence[Sequence[tuple[int, bytes | None]]], starts: Sequence[int] = ()) -> Path:
    """The lines of `hatcast dump`, partitions taking turns, each from its start offset (0) on."""
    starts = starts or [0] * len(logs)
    lines = [
        (at, partition, DumpLine("telemetry", partition, starts[partition] + 10 * at, ts, b"key", value))
        for partition, log in enumerate(logs)
        for at, (ts, value) in enumerate(log)
    ]
    whole = [
        DumpHead("telemetry", len(logs), [*starts]),
        *(line for _, _, line in sorted(lines, key=lambda it: it[:2])),
    ]
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
