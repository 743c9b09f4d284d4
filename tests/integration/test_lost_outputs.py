"""Workers and recoveries of the ledger where `hats.means` has lost records, or partitions."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
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
from tests.faults.faulty_worker import REACHED, meet
from tests.integration.crashing_worker import die_after
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.health import LISTEN, is_ready, scraped
from tests.integration.readings import HOUR_MS, NOON_MS, ticks, traffic
from tests.services import KafkaServer, Record, RedisServer
from tests.services.redis_server import copy_of, restore

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
        opened.wait(lambda: has_adopted_all(opened), "adopted positions", worker)
        assert worker.terminate() == 0
        yield opened


def has_adopted_all(pipeline: Pipeline) -> bool:
    """Whether Redis has all records of `hats.means`, by its positions."""
    means = pipeline.settings.topics.means
    with closing(pipeline.redis_server.client()) as redis:
        adopted = adopted_of(redis, DomainKeys(pipeline.name))
    ends = {f"{means}/{p}".encode(): b"%d" % end for p, (_, end) in enumerate(topic_range(pipeline.settings, means))}
    return all(adopted.get(each, b"").rpartition(b":")[2] == end for each, end in ends.items())


def send_third_hour(pipeline: Pipeline) -> None:
    third = NOON_MS + 2 * HOUR_MS
    pipeline.kafka.produce(pipeline.name, [each.record() for each in traffic(3) if each.time_ms >= third])
    pipeline.kafka.produce(pipeline.name, ticks(third + HOUR_MS + 600_000))


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


def test_a_topic_that_is_restored_with_its_records_after_a_refusal_is_read(pipeline: Pipeline) -> None:
    means, before = pipeline.settings.topics.means, pipeline.published()
    backup = [
        Record(each.value, each.key, each.partition, each.timestamp_ms, tuple((k, v or b"") for k, v in each.headers))
        for each in pipeline.kafka.read(means)
    ]
    make_again(pipeline)
    assert pipeline.hatcast("worker").code == 1
    pipeline.kafka.produce(means, backup)
    worker = pipeline.worker()
    pipeline.wait(lambda: is_ready(worker) and pipeline.is_settled(), "a ready worker", worker)
    assert pipeline.published() == before


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


@pytest.mark.parametrize("how", ["at a takeover", "at a recovery", "republish"])
def test_what_was_sent_and_not_marked_is_sent_again_where_its_topic_was_lost(pipeline: Pipeline, how: str) -> None:
    before = pipeline.published()
    dying = pipeline.worker(wrap=partial(die_after, "acked"))
    send_third_hour(pipeline)
    pipeline.wait(lambda: dying.code is not None, "the end of a worker")
    pipeline.bury(dying)
    sent = {name: values for name, values in pipeline.published().items() if name not in before}
    assert sent
    pipeline.kafka.delete_topics([pipeline.settings.topics.means])
    if how != "at a takeover":
        with closing(pipeline.redis_server.client()) as redis:
            redis.delete(DomainKeys(pipeline.name).row(rows.RECOVERY))  # as after a restart
    if how == "republish":
        ensure_topics(pipeline.settings)
        done = pipeline.hatcast("republish", "2022-01-02")
        assert done.code == 0, done.err
        assert pipeline.published() == before
    for _ in range(2):  # the second worker finds no sign any more
        worker = pipeline.worker()
        pipeline.wait(lambda: pipeline.published().keys() >= sent.keys() and pipeline.is_settled(), "releases", worker)
        again = pipeline.published()
        assert {name: again[name] for name in sent} == sent
        assert worker.terminate() == 0
        with closing(pipeline.redis_server.client()) as redis:
            redis.delete(DomainKeys(pipeline.name).row(rows.RECOVERY))


def test_keys_set_back_in_place_and_a_topic_that_is_made_again_draw_nothing_twice(pipeline: Pipeline) -> None:
    """The copy has the token of the recovery, so the next worker only takes over."""
    copy = copy_of(pipeline.redis_server)
    worker = pipeline.worker()
    send_third_hour(pipeline)
    pipeline.wait(lambda: len(pipeline.published()) == RELEASES // 2 * 3 and pipeline.is_settled(), "releases", worker)
    assert worker.terminate() == 0
    pipeline.kafka.delete_topics([pipeline.settings.topics.means])
    restore(pipeline.redis_server, copy)
    ensure_topics(pipeline.settings)
    for _ in range(2):
        refused = pipeline.hatcast("worker")
        assert refused.code == 1
        assert "was deleted and created again, and 3 releases of policy" in refused.err.splitlines()[-1]
    assert pipeline.published() == {}


def test_what_is_sent_after_a_topic_was_cut_off_is_found_though_it_is_before_what_was_read(pipeline: Pipeline) -> None:
    keys, before = DomainKeys(pipeline.name), pipeline.published()
    with closing(pipeline.redis_server.client()) as redis:  # as if the log had gone on beyond its end
        beyond = {
            field: position.rpartition(b":")[0] + b":%d" % (int(position.rpartition(b":")[2]) + 2)
            for field, position in adopted_of(redis, keys).items()
        }
        redis.hset(keys.row(rows.ADOPTED), mapping=beyond)
    worker = pipeline.worker()
    pipeline.wait(lambda: has_adopted_all(pipeline) and is_ready(worker), "positions at the end", worker)
    copy = copy_of(pipeline.redis_server)
    send_third_hour(pipeline)
    pipeline.wait(lambda: len(pipeline.published()) == RELEASES // 2 * 3 and pipeline.is_settled(), "releases", worker)
    assert worker.terminate() == 0
    published = pipeline.published()
    restore(pipeline.redis_server, copy)
    worker = pipeline.worker()
    pipeline.wait(lambda: has_adopted_all(pipeline) and pipeline.is_settled() and is_ready(worker), "no change", worker)
    assert published.keys() > before.keys()
    assert pipeline.published() == published


def test_a_worker_outlives_an_output_topic_with_fewer_partitions_and_publishes_once_it_has_them_all(
    pipeline: Pipeline,
) -> None:
    means = pipeline.settings.topics.means
    partitions = len(topic_range(pipeline.settings, means))
    worker = pipeline.worker()
    pipeline.wait(lambda: is_ready(worker), "a ready worker", worker)
    pipeline.kafka.delete_topics([means])
    pipeline.kafka.create_topic(means, 1, {"cleanup.policy": "compact"})
    send_third_hour(pipeline)
    pipeline.wait(lambda: "a topic or partition does not exist" in worker.logged(), "a send that fails", worker)
    with closing(KafkaAdminClient(bootstrap_servers=pipeline.kafka.bootstrap_servers)) as admin:
        admin.create_partitions({means: NewPartitions(partitions)})
    pipeline.wait(lambda: len(pipeline.published()) == RELEASES // 2 and pipeline.is_settled(), "its releases", worker)


def test_a_recovery_whose_topic_is_made_again_after_the_fence_gives_way_to_another(pipeline: Pipeline) -> None:
    """Else it would wait for its ends for ever. The new topic has fewer partitions at first."""
    before, means = pipeline.published(), pipeline.settings.topics.means
    partitions = len(topic_range(pipeline.settings, means))
    with closing(pipeline.redis_server.client()) as redis:
        redis.delete(DomainKeys(pipeline.name).row(rows.RECOVERY))
    worker = pipeline.worker(wrap=partial(meet, "fenced", "stop", 0))  # the ends of all partitions are stored
    pipeline.wait(lambda: REACHED in worker.logged(), "a recovery that has fenced all producers")
    pipeline.kafka.delete_topics([means])
    pipeline.kafka.create_topic(means, 1, {"cleanup.policy": "compact"})
    worker.resume()
    send_third_hour(pipeline)
    pipeline.wait(lambda: "a topic or partition does not exist" in worker.logged(), "a send that fails", worker)
    assert worker.logged().count("recovering the ledger") == 2
    with closing(KafkaAdminClient(bootstrap_servers=pipeline.kafka.bootstrap_servers)) as admin:
        admin.create_partitions({means: NewPartitions(partitions)})
    pipeline.wait(lambda: len(pipeline.published()) == RELEASES // 2 and pipeline.is_settled(), "releases", worker)
    assert not before.keys() & pipeline.published().keys()
