"""`hatcast republish`: an output topic that was deleted and made again gets the stored bytes of open dates."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from hatcast.agents.kafka.client import aiokafka_options
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.recovery.ledger_recovery import LedgerRecovery
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.worker.republishing import republish
from hatcast.stream.ledger import rows
from tests.integration.harness import Pipeline
from tests.integration.hidden import EPSILON, open_hidden, stamp_by
from tests.integration.readings import HOUR_MS, NOON_MS, traffic
from tests.integration.readings import ticks as heartbeats
from tests.integration.test_release import DATE
from tests.integration.test_worker_refusals import assert_refused
from tests.services import KafkaServer, RedisServer
from tests.services.kafka_server import PARTITIONS


def charged(pipeline: Pipeline) -> Any:
    """The ledger of the date in Redis."""

    async def read() -> Any:
        async with Redis.from_url(pipeline.settings.redis.url) as redis:
            return await redis.hgetall(DomainKeys(pipeline.settings.topics.telemetry).row(rows.ledger(DATE)))

    return asyncio.run(read())


def test_a_topic_that_was_lost_gets_the_same_bytes_of_open_dates_from_their_owner_alone(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = pipeline.settings.topics
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    pipeline.kafka.produce(topics.telemetry, [each.record() for each in traffic(hours=2)])
    pipeline.kafka.produce(topics.telemetry, heartbeats(NOON_MS + 4 * HOUR_MS))
    pipeline.wait(lambda: len(pipeline.published()) == 6 and pipeline.is_settled(), "releases", worker)
    assert_refused(pipeline.hatcast("republish", DATE), "(1 in group hatcast-", "stop all of them, republish")

    assert worker.terminate() == 0
    before, day = pipeline.published(), charged(pipeline)
    pipeline.kafka.delete_topics([topics.means, topics.budget])
    refused = pipeline.hatcast("republish", "2022-01-01")
    assert "an output topic has lost records" in refused.err
    nothing = f"hatcast: nothing of 2022-01-01 was published. Stored are the releases of {DATE}"
    assert (refused.code, refused.err.splitlines()[-1]) == (1, nothing)
    done = pipeline.hatcast("republish", DATE)
    assert (done.code, done.out, done.err) == (0, f"republished 6 releases of {DATE}\n", "")
    assert pipeline.published() == before, "one value of each release, with its id"
    assert charged(pipeline) == day, "nothing is charged again"
    assert pipeline.budget_records()[f"{pipeline.name}/{DATE}"]["releases"] == 6

    confirm, disturbances = LedgerRecovery.confirm, ["the partition is to be taken over", "another policy recovers"]

    async def disturbed(self: LedgerRecovery, sending: Iterable[int] = ()) -> None:
        disturbance = disturbances.pop() if disturbances else ""
        if disturbance == "another policy recovers":
            other = TransactionalProducers(topics.telemetry, "other", aiokafka_options(pipeline.settings))
            await other.fence({pipeline.settings.policy.name: PARTITIONS})
        elif disturbance:
            self.guard.disown(sending)
        await confirm(self, sending)

    monkeypatch.setattr(LedgerRecovery, "confirm", disturbed)
    assert asyncio.run(republish(pipeline.settings, PARTITIONS, DATE)) == (6, ""), "it is taken over again, and sent"
    assert not disturbances
    after = pipeline.published()
    assert after == {name: max(2, len(after[name])) * values for name, values in before.items()}, "equal ids and bytes"

    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    pipeline.kafka.produce(topics.telemetry, heartbeats(NOON_MS + 48 * HOUR_MS))
    pipeline.wait(lambda: "days sealed" in worker.logged(), "seal", worker)
    assert worker.terminate() == 0
    assert pipeline.published() == after, "a worker goes on with what was republished"
    assert_refused(
        pipeline.hatcast("republish", DATE), f"{DATE} is sealed", "gone with the topic", "No releases are stored"
    )


def test_slots_and_answers_under_add_remove_are_sent_again_with_their_bytes_and_the_times_of_their_slots(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    query = {"name": "over", "kind": "over_speed_limit", "days": 1, "epsilon": EPSILON / 10, "speed_limit": 5.0}
    with open_hidden(kafka, redis_server, tmp_path, "again-hidden", {"policy": {"query": [query]}}) as pipeline:
        topics = pipeline.settings.topics
        stamp_by(kafka, pipeline, "CreateTime")  # else each slot from 2022 until now is released
        pipeline.kafka.produce(topics.telemetry, [each.record() for each in traffic(hours=2)])
        pipeline.kafka.produce(topics.telemetry, heartbeats(NOON_MS + 4 * HOUR_MS))
        stamp_by(kafka, pipeline, "LogAppendTime")
        worker = pipeline.worker()
        pipeline.wait(lambda: len(pipeline.answers()) > 0 and pipeline.is_settled(), "answers", worker)
        assert worker.terminate() == 0
        before = logs(pipeline)
        means, answers = before[topics.means], before[topics.queries]
        of_date = [name for name, *_ in [*means, *answers] if f"/{DATE}T" in name]
        assert len(answers) > 0

        pipeline.kafka.delete_topics([topics.means, topics.queries, topics.budget])
        done = pipeline.hatcast("republish", DATE)
        assert (done.code, done.out) == (0, f"republished {len(of_date)} releases of {DATE}\n"), done.err
        after = logs(pipeline)
        assert after[topics.means] == [each for each in means if each[0] in of_date]
        assert after[topics.queries] == [each for each in answers if each[0] in of_date]


def logs(pipeline: Pipeline) -> dict[str, list[tuple[str, bytes, int]]]:
    """Key, bytes and time of each record of means and answers, in the order of keys."""
    topics = pipeline.settings.topics
    return {
        topic: sorted(
            ((received.key or b"").decode(), received.value or b"", received.timestamp_ms)
            for received in pipeline.kafka.read(topic, committed=True)
        )
        for topic in (topics.means, topics.queries)
    }
