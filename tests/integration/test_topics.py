"""Topics on a real broker: made where they are missing, checked where they are there."""

import logging
import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from aiokafka.errors import MessageSizeTooLargeError
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings, load_settings
from hatcast.agents.kafka.client import aiokafka_options
from hatcast.agents.kafka.producers import OutputMessage, TransactionalProducers
from hatcast.agents.kafka.topic_rules import WORKER_BATCH_BYTES
from hatcast.agents.kafka.topics import (
    check_replay_target,
    check_topics,
    ensure_telemetry,
    ensure_topics,
    list_offsets,
    telemetry_partitions,
    topic_range,
)
from hatcast.agents.recovery.outputs import LogRange, OutputReader
from hatcast.stream.errors import HatcastError
from hatcast.stream.ledger.adoption import OutputPartition, Position
from hatcast.stream.policy.policy import Relation
from tests.integration.harness import Pipeline
from tests.integration.readings import NOON_MS, ticks, traffic
from tests.services import KafkaServer, Record, RedisServer
from tests.services.kafka_records import SILENT
from tests.services.kafka_server import PARTITIONS

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
pytestmark = pytest.mark.pipeline({"topics": {"telemetry_retention": "72h"}})


def described(kafka: KafkaServer, topic: str) -> dict[str, str]:
    """The settings that were given to this topic itself, as Kafka has them."""
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        found = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="modified")
    return {key: entry["value"] for key, entry in found["topic"][topic].items() if key != "min.insync.replicas"}


def alter(kafka: KafkaServer, topic: str, **configs: str) -> None:
    kafka.alter_topic(topic, {key.replace("_", "."): value for key, value in configs.items()})


def changed(pipeline: Pipeline, **tables: object) -> Settings:
    return load_settings(pipeline.changed(tables), {})


def test_missing_topics_are_made_as_the_contract_says(pipeline: Pipeline, kafka: KafkaServer) -> None:
    assert ensure_topics(pipeline.settings) == PARTITIONS
    topics = pipeline.settings.topics
    assert described(kafka, topics.telemetry) == {
        "message.timestamp.type": "CreateTime",
        "cleanup.policy": "delete",
        "retention.ms": str(3 * DAY_MS),
        "retention.bytes": "-1",
        "message.timestamp.after.max.ms": "120000",
        "compression.type": "producer",
        "max.message.bytes": "1048588",
    }
    for name in (topics.means, topics.queries, topics.budget, topics.estimates, topics.running, topics.registry):
        assert described(kafka, name) == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "max.message.bytes": "1048588",
        }
    assert described(kafka, topics.dead_letters) == {
        "cleanup.policy": "delete",
        "retention.ms": str(DAY_MS),
        "max.message.bytes": "1048588",
    }
    report = check_topics(pipeline.settings)
    assert dict(report.partitions) == {
        topics.telemetry: PARTITIONS,
        topics.means: PARTITIONS,
        topics.queries: PARTITIONS,
        topics.budget: 1,
        topics.estimates: PARTITIONS,
        topics.running: PARTITIONS,
        topics.dead_letters: 1,
        topics.registry: 1,
    }
    assert not report.findings
    assert not report.missing


def test_making_topics_twice_changes_nothing(pipeline: Pipeline, kafka: KafkaServer) -> None:
    ensure_topics(pipeline.settings)
    before = described(kafka, pipeline.settings.topics.telemetry)
    assert ensure_topics(pipeline.settings) == PARTITIONS
    assert described(kafka, pipeline.settings.topics.telemetry) == before


def test_two_workers_that_make_topics_at_once_both_go_on(pipeline: Pipeline) -> None:
    with ThreadPoolExecutor(4) as workers:
        made = [workers.submit(ensure_topics, pipeline.settings) for _ in range(4)]
    assert [each.result() for each in made] == [PARTITIONS] * 4


def test_under_add_remove_telemetry_is_stamped_by_the_broker(pipeline: Pipeline, kafka: KafkaServer) -> None:
    # The relation alone decides; what else its policy needs: tests/unit/test_topic_rules.py.
    settings = replace(pipeline.settings, policy=replace(pipeline.settings.policy, relation=Relation.ADD_REMOVE))
    ensure_topics(settings)
    assert described(kafka, settings.topics.telemetry)["message.timestamp.type"] == "LogAppendTime"
    with pytest.raises(HatcastError, match=r"message\.timestamp\.type is LogAppendTime, expected CreateTime"):
        ensure_topics(pipeline.settings)


def test_recordings_are_kept_for_ever(pipeline: Pipeline, kafka: KafkaServer) -> None:
    settings = changed(pipeline, topics={"telemetry_retention": "none"})
    ensure_topics(settings)
    assert described(kafka, settings.topics.telemetry)["retention.ms"] == "-1"


def test_a_retention_below_72_hours_is_not_made(pipeline: Pipeline, kafka: KafkaServer) -> None:
    with pytest.raises(HatcastError, match=r"topics\.telemetry_retention: '71h' is too short"):
        changed(pipeline, topics={"telemetry_retention": "71h"})
    assert pipeline.settings.topics.telemetry not in kafka.topics()


def test_output_topics_have_as_many_partitions_as_telemetry_has(pipeline: Pipeline, kafka: KafkaServer) -> None:
    topics = pipeline.settings.topics
    good = {"message.timestamp.after.max.ms": "120000"}
    kafka.create_topic(topics.telemetry, 3, good)
    assert ensure_topics(pipeline.settings) == 3
    assert telemetry_partitions(pipeline.settings) == 3
    assert check_topics(pipeline.settings).partitions[topics.means] == 3


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("message.timestamp.type", "LogAppendTime", "expected CreateTime"),
        ("retention.ms", str(3 * DAY_MS - 1), "expected at least 259200000"),
        ("message.timestamp.after.max.ms", "120001", "expected 120000"),
        ("cleanup.policy", "compact", "expected delete"),
    ],
)
def test_telemetry_that_breaks_a_promise_is_refused_with_the_command_that_mends_it(
    pipeline: Pipeline, kafka: KafkaServer, setting: str, value: str, wanted: str
) -> None:
    topic = pipeline.settings.topics.telemetry
    kafka.create_topic(topic, config={"message.timestamp.after.max.ms": "120000", setting: value})
    with pytest.raises(HatcastError) as refused:
        ensure_topics(pipeline.settings)
    line = str(refused.value)
    assert line.startswith(f"topic {topic}: {setting} is {value}, {wanted}")
    assert f"--entity-name {topic} --add-config {setting}=" in line
    assert "\n" not in line


@pytest.mark.parametrize("cleanup", ["delete", "compact,delete"])
def test_releases_that_would_be_deleted_are_refused(pipeline: Pipeline, kafka: KafkaServer, cleanup: str) -> None:
    kafka.create_topic(pipeline.settings.topics.means, config={"cleanup.policy": cleanup})
    with pytest.raises(HatcastError, match=r"cleanup\.policy is .*delete.*, expected compact"):
        ensure_topics(pipeline.settings)


def test_another_number_of_output_partitions_is_refused(pipeline: Pipeline, kafka: KafkaServer) -> None:
    kafka.create_topic(pipeline.settings.topics.means, 2, {"cleanup.policy": "compact"})
    with pytest.raises(HatcastError, match="partitions is 2, expected 4"):
        ensure_topics(pipeline.settings)


@pytest.mark.parametrize("role", ["means", "queries", "budget"])
async def test_an_output_topic_that_would_not_take_a_full_batch_is_refused_and_so_does_its_broker(
    role: str, pipeline: Pipeline, kafka: KafkaServer
) -> None:
    topic = getattr(pipeline.settings.topics, role)
    ensure_topics(pipeline.settings)
    for limit, taken in ((WORKER_BATCH_BYTES, True), (WORKER_BATCH_BYTES // 2, False)):
        alter(kafka, topic, max_message_bytes=str(limit))
        assert await takes_full_batches(pipeline.settings, topic) is taken
        if taken:
            ensure_topics(pipeline.settings)
        else:
            with pytest.raises(
                HatcastError, match=rf"max\.message\.bytes is {limit}, expected at least .* --add-config max"
            ):
                ensure_topics(pipeline.settings)


def test_a_budget_topic_that_has_grown_is_read_back_and_written_as_before(
    pipeline: Pipeline, kafka: KafkaServer, redis_server: RedisServer
) -> None:
    budget = pipeline.settings.topics.budget
    kafka.create_topic(budget, 3, {"cleanup.policy": "compact"})
    ensure_topics(pipeline.settings)
    samples = traffic()
    worker = pipeline.worker()
    kafka.produce(pipeline.name, [*(each.record() for each in samples), *ticks(NOON_MS + 3 * HOUR_MS)])
    pipeline.wait(lambda: pipeline.is_settled() and len(pipeline.published()) == 6, "releases", worker)
    assert {each.partition for each in kafka.read(budget)} == {0}
    assert worker.terminate() == 0
    spent = pipeline.budget_records()
    pipeline.forget()
    again = pipeline.worker()
    pipeline.wait(pipeline.is_settled, "settled state", again)
    assert {len(set(values)) for values in pipeline.published().values()} == {1}
    kept = pipeline.budget_records()
    assert {key: record["epsilon_sum"] for key, record in kept.items()} == {
        key: record["epsilon_sum"] for key, record in spent.items()
    }
    assert pipeline.hatcast("budget", "show").code == 0


async def takes_full_batches(settings: Settings, topic: str) -> bool:
    """Whether a transaction of so many records that batches are full goes through; they cannot be compressed."""
    producers = TransactionalProducers(settings.topics.telemetry, settings.policy.name, aiokafka_options(settings))
    messages = [OutputMessage(topic, 0, b"%d" % number, os.urandom(700)) for number in range(200)]
    try:
        await producers.start_missing(frozenset({0}))
        await producers.publish(0, messages)
    except MessageSizeTooLargeError:
        return False
    finally:
        await producers.stop()
    return True


def test_a_feed_into_a_topic_that_would_not_take_its_batches_is_refused_with_the_command_that_mends_it(
    pipeline: Pipeline, kafka: KafkaServer
) -> None:
    topic = pipeline.settings.topics.telemetry
    ensure_topics(pipeline.settings)
    alter(kafka, topic, max_message_bytes="999999")
    assert ensure_topics(pipeline.settings) == PARTITIONS  # others may feed it in smaller batches
    line = r"max\.message\.bytes is 999999, .*--add-config max\.message\.bytes=1048588$"
    with pytest.raises(HatcastError, match=line):
        ensure_telemetry(pipeline.settings)
    with pytest.raises(HatcastError, match=line):
        check_replay_target(pipeline.settings, now_ms())


def test_several_broken_topics_are_counted_in_the_one_line(pipeline: Pipeline, kafka: KafkaServer) -> None:
    for topic in (pipeline.settings.topics.telemetry, pipeline.settings.topics.means):
        kafka.create_topic(topic)
    with pytest.raises(HatcastError, match=r"\(and 1 more: hatcast doctor lists them\)$"):
        ensure_topics(pipeline.settings)


def test_what_breaks_no_promise_is_only_warned_of(
    pipeline: Pipeline, kafka: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    topic = pipeline.settings.topics.telemetry
    ensure_topics(pipeline.settings)
    alter(kafka, topic, retention_bytes="1000000000", message_timestamp_after_max_ms="60000")
    alter(kafka, pipeline.settings.topics.means, compression_type="zstd")
    alter(kafka, pipeline.settings.topics.dead_letters, retention_ms="-1")
    with caplog.at_level(logging.WARNING):
        assert ensure_topics(pipeline.settings) == PARTITIONS
    ours = [record.getMessage() for record in caplog.records if record.name == "hatcast.agents.kafka.topics"]
    warned = {line.split(" is ")[0].rpartition(" ")[2] for line in ours}
    assert warned == {"retention.bytes", "message.timestamp.after.max.ms", "compression.type", "retention.ms"}


def test_looking_at_topics_makes_none(pipeline: Pipeline, kafka: KafkaServer) -> None:
    report = check_topics(pipeline.settings)
    assert len(report.missing) == 8
    assert not any(topic.startswith(pipeline.name) for topic in kafka.topics())


def test_a_replay_may_go_where_its_records_are_kept(pipeline: Pipeline) -> None:
    assert check_replay_target(pipeline.settings, now_ms() - 71 * HOUR_MS).partitions == PARTITIONS
    for_ever = changed(pipeline, topics={"telemetry": f"{pipeline.name}.ever", "telemetry_retention": "none"})
    assert check_replay_target(for_ever, 0).retention_ms is None


def test_a_replay_that_a_new_topic_would_delete_makes_no_topic(pipeline: Pipeline, kafka: KafkaServer) -> None:
    with pytest.raises(HatcastError, match=r'older than 72h .* start at 2022-01-01T12:00:00Z: .*retention = "none"'):
        check_replay_target(pipeline.settings, 1_641_038_400_000)
    assert pipeline.settings.topics.telemetry not in kafka.topics()


def test_a_replay_that_the_topic_would_delete_is_refused_with_the_command_that_mends_it(pipeline: Pipeline) -> None:
    topic = ensure_telemetry(pipeline.settings)
    assert topic.retention_ms == 3 * DAY_MS
    with pytest.raises(HatcastError, match=r"deletes records older than 72h .*--add-config retention\.ms=-1$"):
        check_replay_target(pipeline.settings, now_ms() - 73 * HOUR_MS)


def test_a_replay_into_a_topic_with_log_append_time_is_refused(pipeline: Pipeline, kafka: KafkaServer) -> None:
    kafka.create_topic(pipeline.settings.topics.telemetry, config={"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(HatcastError, match="LogAppendTime, so a recording would lose its timestamps"):
        check_replay_target(pipeline.settings, now_ms())


def test_a_replay_that_the_topic_would_not_take_is_refused(pipeline: Pipeline, kafka: KafkaServer) -> None:
    kafka.create_topic(pipeline.settings.topics.telemetry, config={"message.timestamp.before.max.ms": str(HOUR_MS)})
    with pytest.raises(HatcastError, match="rejects records older than 1h"):
        check_replay_target(pipeline.settings, now_ms() - 2 * HOUR_MS)


def test_the_range_of_a_topic_ends_after_its_last_committed_record(pipeline: Pipeline, kafka: KafkaServer) -> None:
    ensure_topics(pipeline.settings)
    kafka.produce(pipeline.settings.topics.telemetry, [Record(b"v", b"k", partition=3) for _ in range(5)])
    assert topic_range(pipeline.settings, pipeline.settings.topics.telemetry) == [
        (0, 5 if partition == 3 else 0) for partition in range(PARTITIONS)
    ]


MANY = 100  # partitions that a broker leads only some tenths of a second after the metadata say so


@pytest.fixture
def young(kafka: KafkaServer) -> Iterator[tuple[AdminClient, list[OutputPartition]]]:
    """A topic that was just made: an admin client, and partitions whose leader does not know yet that it is one."""
    admin, name = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, **SILENT}), f"young-{uuid.uuid4().hex}"
    creation = admin.create_topics([NewTopic(name, MANY, 1)])[name]
    try:
        while (known := admin.list_topics(timeout=30).topics.get(name)) is None or any(
            each.leader < 0 for each in known.partitions.values()
        ):
            pass
        asked = admin.list_offsets({TopicPartition(name, each): OffsetSpec.latest() for each in range(MANY)})
        late = [OutputPartition(name, each.partition) for each, answer in asked.items() if answer.exception()]
        assert late
        yield admin, late
    finally:
        creation.result()
        kafka.delete_topics([name])


def test_offsets_of_a_topic_that_was_just_made_wait_for_its_leaders(
    young: tuple[AdminClient, list[OutputPartition]],
) -> None:
    admin, late = young
    assert [each.offset for each in list_offsets(admin, late[0].topic, MANY, OffsetSpec.latest())] == [0] * MANY


def test_a_recovery_waits_for_the_leaders_of_a_topic_that_was_just_made(
    pipeline: Pipeline, young: tuple[AdminClient, list[OutputPartition]]
) -> None:
    name = young[1][0].topic
    empty = {OutputPartition(name, each): LogRange(0, Position("", 0)) for each in range(MANY)}
    assert OutputReader(pipeline.settings).ranges({name: ""}) == empty


def test_a_topic_that_is_not_there_is_named(pipeline: Pipeline) -> None:
    with pytest.raises(HatcastError, match="has no topic 'nowhere'"):
        topic_range(pipeline.settings, "nowhere")


def test_a_topic_that_kafka_cannot_make_is_refused(pipeline: Pipeline) -> None:
    settings = changed(pipeline, topics={"means": ".."})
    with pytest.raises(HatcastError, match=r"the topic '\.\.'") as refused:
        ensure_topics(settings)
    assert "\n" not in str(refused.value)
