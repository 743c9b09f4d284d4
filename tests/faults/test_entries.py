"""The short form of 10^5 ledger entries lost and rebuilt, which the long runs do."""

from pathlib import Path

from tests.faults.entries import rebuilt
from tests.integration.harness import open_pipeline
from tests.services import KafkaServer, RedisServer


def test_a_ledger_of_many_days_is_rebuilt_from_the_topics_as_it_was(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "entries") as pipeline:
        assert rebuilt(pipeline, number=6_500, per_day=3_000).entries == 6_500
