"""Redis goes back on one of the two states, telemetry's or that of reports: no release is made of a part of either."""

import json
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import h3.api.basic_str as h3

from hatcast.stream.hybrid import DeviceReport, encode_report
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, PLACES, Sample, ticks
from tests.services import KafkaServer, Record, RedisServer

CELL = h3.latlng_to_cell(*PLACES[0], 7)
OVER, END = NOON_MS + HOUR_MS, NOON_MS + 2 * HOUR_MS
CHANGES = {
    "policy": {
        "privacy": {"epsilon": 1e6, "local_epsilon": 1.0, "daily_limit": 1e8, "acknowledge_weak_privacy": True},
        "estimator": {"name": "pwh"},
    }
}


def reports(pipeline: Pipeline, numbers: range) -> list[Record]:
    """Of devices, 40 km/h each."""
    policy_id = pipeline.settings.policy.policy_id
    made = [
        DeviceReport(f"{number:032x}", policy_id, CELL, "2022-01-02", "12:00", Decimal(40), 1.0) for number in numbers
    ]
    return [Record(encode_report(each), each.id.encode(), None, OVER + 1000) for each in made]


def test_a_state_that_went_back_alone_is_folded_again_before_anything_is_released(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "half", CHANGES) as pipeline:
        topics, worker = pipeline.settings.topics, pipeline.worker()
        pipeline.wait_for_partitions(worker)

        def send(numbers: range) -> None:
            kafka.produce(topics.telemetry, [Sample(f"v{n}", NOON_MS + n, 0, 20.0).record() for n in numbers])
            kafka.produce(topics.reports, reports(pipeline, numbers))
            pipeline.wait(pipeline.is_caught_up, "fold", worker)

        send(range(30))
        for state, numbers in (("", range(30, 40)), ("/reports", range(40, 50))):
            go_back = going_back(pipeline, f"{{{pipeline.name}{state}:*")
            send(numbers)
            go_back()
        # Whoever looked at the clocks of telemetry alone would release now.
        for topic in (topics.telemetry, topics.reports):
            kafka.produce(topic, ticks(END))
        pipeline.wait(lambda: pipeline.is_settled() and bool(pipeline.published()), "release", worker)
        ((record,),) = pipeline.published(committed=False).values()
        found, status = json.loads(record), pipeline.status()
        assert (found["status"], found["users"]) == ("released", {"central": 50, "local": 50})
        assert 19.9 < found["raw"] < 20.1  # pwh gives nearly all weight to the central mean
        assert (status["outcomes"]["accepted"], status["reports"]["outcomes"]["accepted"]) == (50, 50)


def going_back(pipeline: Pipeline, pattern: str) -> Callable[[], None]:
    """Lets some keys be again what they are now."""
    with closing(pipeline.redis_server.client()) as redis:
        kept = {key: redis.dump(key) or b"" for key in redis.scan_iter(pattern, count=1000)}
    assert kept

    def go_back() -> None:
        with closing(pipeline.redis_server.client()) as redis, redis.pipeline(transaction=True) as pipe:
            for key in redis.scan_iter(pattern, count=1000):
                pipe.delete(key)
            for key, value in kept.items():
                pipe.restore(key, 0, value, replace=True)  # the worker may have made it again
            pipe.execute()

    return go_back
