"""The short form of `scripts/faults`: a storm of chosen faults in random order."""

import random
import sys
from pathlib import Path

import pytest

from tests.faults import chaos, intruders, requests, topic_settings
from tests.faults.chaos import Fault
from tests.faults.report import Report
from tests.faults.run import KINDS, Plan, run
from tests.services import KafkaServer, RedisServer

READINGS = 20_000
SEEDS = 2**32
# One of them is drawn for each run; `scripts/faults` meets all of them, as does the night.
FAULTS: list[Fault] = [
    chaos.redis_flush,
    chaos.redis_failback,
    intruders.other_configuration,
    topic_settings.grow_outputs,
    chaos.kafka_restart,
    chaos.cut,
    requests.request,
]


def storm(
    kind: str, faults: list[Fault] | int, kafka: KafkaServer, redis: RedisServer, folder: Path, readings: int = READINGS
) -> Report:
    """A run with a seed of its own, which pytest shows where it fails."""
    seed = random.SystemRandom().randrange(SEEDS)
    sys.stdout.write(f"storm of kind {kind}: seed {seed}\n")
    if not isinstance(faults, int):
        random.Random(seed).shuffle(faults)
    report = run(Plan(KINDS[kind], seed, readings, faults), kafka, redis, folder)
    sys.stdout.write(f"{dict(report.faults)}\n")
    assert report.violations == [], f"seed {seed}: {report.violations}"
    assert report.readings >= readings
    return report


@pytest.mark.timeout(480)
def test_releases_have_one_value_and_one_charge_and_are_the_logs_whatever_breaks(
    breakable_kafka: KafkaServer, breakable_redis: RedisServer, tmp_path: Path
) -> None:
    always = [chaos.stop_between_commit_and_send, chaos.kill, chaos.redis_rollback]
    faults: list[Fault] = [*always, random.SystemRandom().choice(FAULTS)]
    report = storm("released", faults, breakable_kafka, breakable_redis, tmp_path)
    assert report.releases > 200
    assert report.answers > 500
    assert {"worker killed", "Redis rolled back"} <= report.faults.keys()
    only_copied = chaos.redis_failback in faults  # the first one makes the copy that a second one would follow
    assert sum(report.faults.values()) >= len(faults) - only_copied
