"""A server that is away for a while: waited for and made good. `scripts/faults --outage 15` is the long form."""

from pathlib import Path

import pytest

from tests.faults.outage import ride_out
from tests.services import KafkaServer, RedisServer

SECONDS = 15.0
READINGS = 15_000
DIALS_A_SECOND = {"Kafka": 2, "Redis": 10}  # of Redis each of the partitions asks for its state by itself


@pytest.mark.timeout(240)
def test_some_time_without_kafka_or_without_redis_is_waited_for_and_made_good(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    for away in ride_out(kafka, redis_server, tmp_path, SECONDS, READINGS):
        assert away.violations == [], away.server
        # A lost broker is noticed after some seconds, of the 15 that it is away.
        assert away.unready > len(away.resident) // 3, "it was ready for most of the outage"
        assert away.grown < 64 << 20, "its memory grew"
        assert away.lines < SECONDS, "it told the same again and again"
        assert away.dialled < DIALS_A_SECOND[away.server] * SECONDS, "it hammered the server"
