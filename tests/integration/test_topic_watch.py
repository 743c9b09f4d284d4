"""Topics whose settings change, or that are deleted, under a worker that runs."""

import pytest

from hatcast.agents.worker import readiness
from tests.exposed import figures
from tests.integration.harness import Pipeline, WorkerProcess
from tests.integration.health import LISTEN, is_ready, missing, scraped

pytestmark = pytest.mark.pipeline(LISTEN)


def often() -> None:
    """Compare every second, not every three minutes."""
    readiness.COMPARE_S = 1.0  # type: ignore[misc]
    readiness.LOOK_S = 1.0  # type: ignore[misc]


def ready_worker(pipeline: Pipeline) -> WorkerProcess:
    worker = pipeline.worker(wrap=often)
    pipeline.wait(lambda: is_ready(worker), "a ready worker", worker)
    return worker


def wait_for_topics(pipeline: Pipeline, worker: WorkerProcess, text: str) -> None:
    pipeline.wait(lambda: text in missing(worker).get("topics", ""), text, worker, seconds=60)


def test_settings_that_change_while_a_worker_runs_are_named_until_they_are_set_back(pipeline: Pipeline) -> None:
    topics = pipeline.settings.topics
    worker = ready_worker(pipeline)
    for topic, setting, wrong, right in (
        (topics.telemetry, "message.timestamp.type", "LogAppendTime", "CreateTime"),
        (topics.telemetry, "retention.ms", "3600000", "-1"),
        (topics.means, "cleanup.policy", "delete", "compact"),
        (topics.registry, "cleanup.policy", "compact,delete", "compact"),
    ):
        pipeline.kafka.alter_topic(topic, {setting: wrong})
        wait_for_topics(pipeline, worker, f"topic {topic}: {setting} is {wrong}, expected ")
        assert figures(scraped(worker), "hatcast_ready")["topics",] == 0
        pipeline.kafka.alter_topic(topic, {setting: right})
        pipeline.wait(lambda: is_ready(worker), "a ready worker", worker, seconds=60)
    logged = worker.logged()
    assert logged.count("topic breaks a promise") == 4
    assert logged.count("topics are as expected again") == 4
    assert f"--entity-name {topics.means} --add-config cleanup.policy=compact" in logged


@pytest.mark.parametrize("role", ["budget", "registry"])
def test_a_topic_that_is_deleted_while_a_worker_runs_is_named_and_so_is_one_made_again(
    pipeline: Pipeline, role: str
) -> None:
    topic = getattr(pipeline.settings.topics, role)
    worker = ready_worker(pipeline)
    pipeline.wait(lambda: figures(scraped(worker), "hatcast_ready")["topics",] == 1, "a first look", worker)
    pipeline.kafka.delete_topics([topic])
    wait_for_topics(pipeline, worker, f"missing: topic {topic}")
    pipeline.kafka.create_topic(topic, 1, {"cleanup.policy": "compact"})
    wait_for_topics(pipeline, worker, f"topic {topic} was deleted and created again")
