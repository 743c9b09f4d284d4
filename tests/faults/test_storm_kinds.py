"""Short storms of further kinds: no releases, several values, running sums, derived speeds, compacted telemetry."""

from pathlib import Path

import pytest

from tests.faults import chaos
from tests.faults.chaos import Fault
from tests.faults.compaction import COMPACTING
from tests.faults.test_storm import storm
from tests.services import KafkaServer, RedisServer, local_kafka


@pytest.mark.timeout(300)
def test_the_state_is_that_of_the_log_whatever_breaks(
    breakable_kafka: KafkaServer, breakable_redis: RedisServer, tmp_path: Path
) -> None:
    faults: list[Fault] = [chaos.kill, chaos.zombie, chaos.redis_rollback, chaos.redis_restart, chaos.cut, chaos.cut]
    report = storm("held", faults, breakable_kafka, breakable_redis, tmp_path)
    assert {"worker killed", "zombie", "Redis rolled back", "Redis restarted"} <= report.faults.keys()


@pytest.mark.timeout(480)
@pytest.mark.parametrize("kind", ["values", "running", "derived"])
def test_several_values_running_sums_and_derived_speeds_are_the_logs_whatever_breaks(
    kind: str, breakable_kafka: KafkaServer, breakable_redis: RedisServer, tmp_path: Path
) -> None:
    faults: list[Fault] = [chaos.stop_between_commit_and_send, chaos.kill, chaos.redis_restart, chaos.redis_rollback]
    report = storm(kind, faults, breakable_kafka, breakable_redis, tmp_path)
    assert report.releases > 100
    assert {"worker killed", "Redis restarted", "Redis rolled back"} <= report.faults.keys()


@pytest.mark.timeout(480)
def test_telemetry_that_was_compacted_is_not_passed_off_as_complete_whatever_breaks(
    breakable_redis: RedisServer, tmp_path: Path
) -> None:
    with local_kafka("256m", COMPACTING) as kafka:
        report = storm("compacted", 4, kafka, breakable_redis, tmp_path)
    assert report.releases > 200
    assert {"telemetry compacted", "compacted telemetry folded"} <= report.faults.keys()
