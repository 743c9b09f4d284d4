"""What a storm tells of workers that must not join and of topics that must be named, and that it tells it."""

import random
from pathlib import Path

import pytest

from hatcast.agents.kafka.topics import ensure_topics
from tests.faults.actors import NOT_THERE, Worker, WrongSetting, is_refused
from tests.faults.intruders import other_format, other_time_zone_data
from tests.faults.stage import Stage, open_stage
from tests.faults.topic_settings import named_still, topic_setting
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.health import LISTEN, is_ready
from tests.integration.readings import traffic
from tests.services import KafkaServer, RedisServer

WRONG = WrongSetting("telemetry", "cleanup.policy", "compact", "delete")
LINE = "hatcast: topics.telemetry_format is 'hfp', and the policy was started with 'jsonl'"


@pytest.mark.parametrize(
    ("code", "log", "refused"),
    [
        (1, LINE, [True]),
        (1, f"{NOT_THERE[0]}127.0.0.1:9092 does not answer", [True]),
        (None, LINE, [False]),
        (0, LINE, [False]),
        (1, "hatcast: topics.means is 'elsewhere'", [False]),
        (1, f"worker started\n{LINE}", [False]),
        (1, f"Traceback\n{LINE.removeprefix('hatcast: ')}", [False]),
        (1, f"hatcast: {WRONG}'delete'; kafka-configs.sh", [True]),
    ],
)
def test_a_worker_is_refused_if_it_ends_before_it_joins_and_says_why(
    code: int | None, log: str, refused: list[bool]
) -> None:
    assert [is_refused(code, log, "telemetry_format is 'hfp'", str(WRONG))] == refused


def started(pipeline: Pipeline, stage: Stage) -> Worker:
    """A worker that has folded something of an open date."""
    ensure_topics(pipeline.settings)
    pipeline.kafka.produce(pipeline.name, [sample.record() for sample in traffic()])
    worker = stage.start_worker()
    pipeline.wait(lambda: is_ready(worker.process) and pipeline.is_caught_up(), "a folded hour", worker.process)
    return worker


@pytest.mark.timeout(240)
def test_workers_that_contradict_are_refused_and_one_that_is_not_and_a_topic_that_nobody_names_are_told(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with (
        open_pipeline(kafka, redis_server, tmp_path, "stage", LISTEN) as pipeline,
        open_stage(pipeline, random.Random(1), Stage.go_on) as stage,
    ):
        worker = started(pipeline, stage)
        other_format(stage)
        other_time_zone_data(stage)
        topic_setting(stage)
        stage.wait_for_ends()
        pipeline.wait(lambda: not named_still(stage), "topics that are right again", worker.process)
        assert [*stage.unexpected_ends(), *stage.broken] == []
        assert stage.tally == {
            "worker with another format": 1,
            "worker with other time zone data": 1,
            "setting of a topic changed": 1,
        }

        topic_setting(stage, patience_s=0)  # nobody can have named it yet
        assert [told.partition(":")[0] for told in stage.broken] == ["named"]
        stage.intruders[0].process.close()
        stage.intruders = [type(stage.intruders[0])(worker.process, "it goes on")]
        assert worker.process.terminate() == 0
        assert [told.partition(":")[0] for told in stage.unexpected_ends()] == ["refused"]
