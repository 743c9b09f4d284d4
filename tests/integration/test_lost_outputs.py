"""Workers and recoveries of the ledger where `hats.means` has lost records, or partitions."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
import redis as redis_py
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewPartitions

from hatcast.agents.kafka.topics import ensure_topics, topic_range
from hatcast.agents.redis.keys import DomainKeys
from hatcast.stream.ledger import rows
from tests.exposed import figures
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.health import LISTEN, is_ready, scraped
from tests.integration.readings import HOUR_MS, NOON_MS, ticks, traffic
from tests.services import KafkaServer, RedisServer

RELEASES = 6  # of two hours


@pytest.fixture
def pipeline(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pipeline]:
    """All of two hours is published, and no worker runs."""
    with open_pipeline(kafka, redis_server, tmp_path, "lost", LISTEN) as opened:
        ensure_topics(opened.settings)
        worker = opened.worker()
        kafka.produce(opened.name, [each.record() for each in traffic()])
        kafka.produce(opened.name, ticks(NOON_MS + 2 * HOUR_MS + 600_000))
        opened.wait(lambda: len(opened.published()) == RELEASES and opened.is_settled(), "releases", worker)
        assert worker.terminate() == 0
        worker = opened.worker()  # the next owner reads what was published
        adopted = DomainKeys(opened.name).row(rows.ADOPTED)
        with closing(redis_server.client()) as redis:
            opened.wait(lambda: bool(redis.hlen(adopted)), "adopted positions", worker)
        assert worker.terminate() == 0
        yield opened


def delete_records(pipeline: Pipeline) -> None:
    """What retention does to a topic that is not only compacted, at once; then the setting is right again."""
    means = pipeline.settings.topics.means
    ends = {TopicPartition(means, p): end for p, (_, end) in enumerate(topic_range(pipeline.settings, means))}
    with closing(KafkaAdminClient(bootstrap_servers=pipeline.kafka.bootstrap_servers)) as admin:
        for policy in ("delete", "compact"):
            pipeline.kafka.alter_topic(means, {"cleanup.policy": policy})
            if policy == "delete":
                admin.delete_records(ends)
    pipeline.forget()


def make_again(pipeline: Pipeline) -> None:
    """The topic is made again; Redis has lost all but how far it had read the old one."""
    means, keys = pipeline.settings.topics.means, DomainKeys(pipeline.name)
    pipeline.kafka.delete_topics([means])
    with closing(pipeline.redis_server.client()) as redis:
        adopted = adopted_of(redis, keys)
        pipeline.forget()
        redis.hset(keys.row(rows.ADOPTED), mapping=adopted)


def cut_off(pipeline: Pipeline) -> None:
    """The log ends before what was read of it; Redis has lost all the rest."""
    keys = DomainKeys(pipeline.name)
    with closing(pipeline.redis_server.client()) as redis:
        adopted = adopted_of(redis, keys)
        delete_records(pipeline)
        redis.hset(
            keys.row(rows.ADOPTED),
            mapping={field: end.rpartition(b":")[0] + b":99999" for field, end in adopted.items()},
        )


def adopted_of(redis: redis_py.Redis, keys: DomainKeys) -> dict[Any, bytes]:
    """How far each output partition was read: bytes, since the client decodes nothing."""
    return cast("dict[Any, bytes]", redis.hgetall(keys.row(rows.ADOPTED)))


@pytest.mark.parametrize(
    ("lose", "reason"),
    [
        (delete_records, "begins at offset "),
        (make_again, "was deleted and created again"),
        (cut_off, "though it was read up to 99999"),
    ],
)
def test_releases_that_a_topic_has_shown_to_have_lost_are_not_drawn_again(
    pipeline: Pipeline, lose: Callable[[Pipeline], None], reason: str
) -> None:
    lose(pipeline)
    for _ in range(2):  # a second start finds the same
        refused = pipeline.hatcast("worker")
        assert refused.code == 1
        last = refused.err.splitlines()[-1]
        assert last.startswith(f"hatcast: topic {pipeline.settings.topics.means} ")
        assert reason in last
        assert (
            f"6 releases of policy {pipeline.name!r} on 2022-01-02 that {pipeline.settings.topics.budget} count" in last
        )
        assert pipeline.published() == {}


def test_releases_that_are_lacking_without_a_sign_of_loss_are_logged_and_counted(pipeline: Pipeline) -> None:
    """As after a crash in which the transactions of other release partitions had not been sent yet."""
    pipeline.kafka.delete_topics([pipeline.settings.topics.means])
    pipeline.forget()
    worker = pipeline.worker()
    pipeline.wait(lambda: len(pipeline.published()) == RELEASES and is_ready(worker), "releases", worker)
    assert "hats.budget counts more releases than were recovered" in worker.logged()
    assert figures(scraped(worker), "hatcast_releases_lacking_total") == {(): RELEASES}


def test_topics_that_lost_what_redis_has_are_no_reason_to_refuse(pipeline: Pipeline) -> None:
    before = pipeline.published()
    pipeline.kafka.delete_topics([pipeline.settings.topics.means])
    with closing(pipeline.redis_server.client()) as redis:
        redis.delete(DomainKeys(pipeline.name).row(rows.RECOVERY))  # as after a restart: the ledger has to be recovered
    worker = pipeline.worker()
    pipeline.wait(lambda: is_ready(worker), "a ready worker", worker)
    assert "ledger recovered" in worker.logged()
    assert all(name not in pipeline.published() for name in before)


def test_a_worker_outlives_an_output_topic_with_fewer_partitions_and_publishes_once_it_has_them_all(
    pipeline: Pipeline,
) -> None:
    means, third = pipeline.settings.topics.means, NOON_MS + 2 * HOUR_MS
    partitions = len(topic_range(pipeline.settings, means))
    worker = pipeline.worker()
    pipeline.wait(lambda: is_ready(worker), "a ready worker", worker)
    pipeline.kafka.delete_topics([means])
    pipeline.kafka.create_topic(means, 1, {"cleanup.policy": "compact"})
    pipeline.kafka.produce(pipeline.name, [each.record() for each in traffic(3) if each.time_ms >= third])
    pipeline.kafka.produce(pipeline.name, ticks(third + HOUR_MS + 600_000))
    pipeline.wait(lambda: "a topic or partition does not exist" in worker.logged(), "a send that fails", worker)
    with closing(KafkaAdminClient(bootstrap_servers=pipeline.kafka.bootstrap_servers)) as admin:
        admin.create_partitions({means: NewPartitions(partitions)})
    pipeline.wait(lambda: len(pipeline.published()) == RELEASES // 2 and pipeline.is_settled(), "its releases", worker)
