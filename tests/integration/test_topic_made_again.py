"""A telemetry topic that is deleted and made again is another log, whose records are not for the old one's state."""

from contextlib import closing
from typing import Any

import pytest

from hatcast.agents.config.settings import load_settings
from hatcast.agents.kafka.topic_ids import TopicIdCheck
from tests.integration.harness import Pipeline, WorkerProcess
from tests.integration.readings import HOUR_MS, PLACES, Sample, traffic
from tests.services import Record

OPEN = {"policy": {"lateness": "48h"}}
MADE_AGAIN = "was deleted and created again since policy"
pytestmark = pytest.mark.pipeline(OPEN, topics=True)


def hours(first: int, count: int = 1) -> list[Record]:
    samples = traffic(count, 40, places=len(PLACES))
    return [Sample(s.vehicle, s.time_ms + first * HOUR_MS, s.place, s.speed).record() for s in samples]


def fold_an_hour(pipeline: Pipeline, worker: WorkerProcess) -> None:
    pipeline.kafka.produce(pipeline.name, hours(0))
    pipeline.wait(lambda: pipeline.folded() == 200, "the first hour", worker)


def make_again(pipeline: Pipeline) -> None:
    """Delete telemetry and make it again with the same settings and a longer log, faster than a client looks."""
    configs = {"message.timestamp.after.max.ms": "120000", "retention.ms": "-1"}
    pipeline.kafka.delete_topics([pipeline.name])
    pipeline.kafka.create_topic(pipeline.name, config=configs)
    pipeline.kafka.produce(pipeline.name, hours(1, 3))


def stored(pipeline: Pipeline) -> dict[bytes, Any]:
    """What was folded, and up to where; not who owns it."""
    with closing(pipeline.redis_server.client()) as redis:
        states: Any = {key: redis.hgetall(key) for key in redis.scan_iter(f"{{{pipeline.name}:*:state")}
    wanted = (b"offset", b"clock", b"outcome:")
    return {
        key: {name: value for name, value in state.items() if name.startswith(wanted)} for key, state in states.items()
    }


def test_a_topic_made_again_while_no_worker_runs_is_refused_with_the_way_to_start_afresh(pipeline: Pipeline) -> None:
    worker = pipeline.worker()
    fold_an_hour(pipeline, worker)
    assert worker.terminate() == 0
    before = stored(pipeline)
    make_again(pipeline)
    done = pipeline.hatcast("worker")
    assert (done.code, done.err.count("\n")) == (1, 1), done.err
    assert MADE_AGAIN in done.err
    assert "start under a new policy.name" in done.err
    assert stored(pipeline) == before
    # The way out works: under a new name all of the new log is folded, and nothing else.
    afresh = pipeline.changed({"policy": {"name": f"{pipeline.name}-2"}}, "afresh.toml")
    follower = pipeline.worker(config=afresh)
    pipeline.settings = load_settings(afresh, {})
    pipeline.wait(lambda: pipeline.folded() == 600, "the new log", follower)


def test_a_topic_made_again_while_a_worker_runs_ends_it_and_nothing_of_the_new_log_is_stored(
    pipeline: Pipeline,
) -> None:
    worker = pipeline.worker()
    fold_an_hour(pipeline, worker)
    before = stored(pipeline)
    make_again(pipeline)
    assert worker.wait() == 1
    assert MADE_AGAIN in worker.logged().splitlines()[-1]
    assert stored(pipeline) == before


def confirm_nothing() -> None:
    """The mutant: no worker looks at the topic's id once it runs."""

    async def confirm(self: TopicIdCheck) -> None:
        del self

    TopicIdCheck.confirm = confirm  # type: ignore[method-assign]


def test_the_test_sees_a_worker_that_does_not_compare_the_topics_id(pipeline: Pipeline) -> None:
    worker = pipeline.worker(wrap=confirm_nothing)
    fold_an_hour(pipeline, worker)
    before = stored(pipeline)
    # Stopped meanwhile: a worker that looks before the new log is as long as the old one refuses it for that.
    worker.pause()
    make_again(pipeline)
    worker.resume()
    pipeline.wait(lambda: stored(pipeline) != before, "records of another log in the state", worker)
