"""A failure at every named step of a release, and of an answer to a query: one value, one charge, exact state.

Kills at the steps are in tests/invariants/test_invariants.py and tests/integration/test_queries.py.
"""

from pathlib import Path

from hatcast.agents.kafka.topics import ensure_topics
from tests.faults.check import violations
from tests.faults.failing_worker import FAILURES, STEPS, fail_at_every_step, told
from tests.faults.observe import fold_again, is_settled, look, promise_of
from tests.integration.harness import open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, ticks, traffic
from tests.services import KafkaServer, RedisServer

# A step that is done and then fails is not asked for again before the next hour, and fails so twice: that takes two
# hours. Once the third is settled, all lines are in the log; the fourth stays open.
HOURS = 4
QUERY = {"name": "daily", "kind": "mean_speed", "days": 1, "epsilon": 0.5, "min_n": 2}  # closes with every slot
CHANGES = {"policy": {"query": [QUERY]}}


def test_an_error_before_and_after_every_step_leaves_one_value_one_charge_and_exact_state(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with open_pipeline(kafka, redis_server, tmp_path, "steps", CHANGES) as pipeline:
        ensure_topics(pipeline.settings)
        samples = traffic(HOURS, vehicles=40, places=5)
        worker = pipeline.worker(wrap=fail_at_every_step)
        end_ms = NOON_MS
        for hour in range(HOURS):
            # Each hour is sent by itself: all at once would close two of them together, and leave none to spare.
            readings = [sample.record() for sample in samples if sample.time_ms // HOUR_MS == NOON_MS // HOUR_MS + hour]
            end_ms = NOON_MS + (hour + 1) * HOUR_MS - 60_000
            kafka.produce(pipeline.name, [*readings, *ticks(end_ms)])
            pipeline.wait(lambda: is_settled(pipeline.settings), "settled state", worker)
        for step in STEPS:
            for moment, server in FAILURES:
                assert told(step, moment, server) in worker.logged()
        log, promise = fold_again(pipeline, end_ms), promise_of(pipeline.settings, exact=False)
        assert violations(look(pipeline), log, promise) == []
