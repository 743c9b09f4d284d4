"""What a worker, a feed and batch refuse: exit 1, one line on standard error that says what to change, no traceback.

Topics that break a promise: also tests/integration/test_topics.py; what a replay refuses of its target: test_feed.py.
"""

import asyncio
import gzip
import socket
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from kafka import KafkaAdminClient
from kafka.admin import NewPartitions
from redis.asyncio import Redis

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.identity import claim_policy, claim_user_key
from hatcast.agents.redis.keys import DomainKeys
from tests.integration.harness import Finished, Pipeline
from tests.services import KafkaServer
from tests.services.data import recording
from tests.services.kafka_server import PARTITIONS


def assert_refused(done: Finished, *words: str) -> None:
    assert (done.code, done.out) == (1, ""), done.err
    assert done.err.count("\n") == 1, done.err
    assert done.err.startswith("hatcast: ")
    for word in words:
        assert word in done.err


def claimed(pipeline: Pipeline, partitions: int = PARTITIONS, user_key: bytes | None = None) -> None:
    """What a first worker leaves in Redis."""

    async def claim() -> None:
        async with Redis.from_url(pipeline.settings.redis.url) as redis:
            domain = DomainKeys(pipeline.settings.topics.telemetry)
            await claim_policy(redis, domain, pipeline.settings.policy, partitions)
            await claim_user_key(redis, domain, user_key)

    asyncio.run(claim())


def nobody_listens() -> int:
    """A port of this machine that refuses connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def test_a_broker_that_nobody_can_reach_is_named_after_some_tries(pipeline: Pipeline) -> None:
    where = f"127.0.0.1:{nobody_listens()}"
    config = pipeline.changed({"kafka": {"bootstrap_servers": where}})
    began = time.monotonic()
    assert_refused(pipeline.hatcast("worker", config=config), f"Kafka at {where} cannot be reached", "tried for")
    assert time.monotonic() - began > 5, "one try is not back-off"


def test_a_redis_that_nobody_can_reach_is_named_after_some_tries(pipeline: Pipeline) -> None:
    port = nobody_listens()
    config = pipeline.changed({"redis": {"url": f"redis://:secret@127.0.0.1:{port}/0"}})
    done = pipeline.hatcast("worker", config=config)
    assert_refused(done, f"Redis at 127.0.0.1:{port} cannot be reached", "tried for")
    assert "secret" not in done.err


def test_a_changed_policy_is_refused_and_the_keys_that_differ_are_named(pipeline: Pipeline) -> None:
    claimed(pipeline)
    config = pipeline.changed({"policy": {"lateness": "6m", "privacy": {"epsilon": 0.5}}})
    done = pipeline.hatcast("worker", config=config)
    assert_refused(done, "another policy.lateness, policy.privacy.epsilon:", "new policy.name")


def test_another_partition_count_is_refused_with_the_way_out(pipeline: Pipeline) -> None:
    claimed(pipeline, partitions=2)
    assert_refused(pipeline.hatcast("worker"), "2 telemetry partitions", "has 4", "worker --drain", "docs/runbook.md")


def test_a_topic_that_grows_while_workers_run_ends_each_with_the_way_out(pipeline: Pipeline) -> None:
    workers = [pipeline.worker() for _ in range(2)]
    for worker in workers:
        pipeline.wait_for_partitions(worker)
    with closing(KafkaAdminClient(bootstrap_servers=pipeline.kafka.bootstrap_servers)) as admin:
        admin.create_partitions({pipeline.settings.topics.telemetry: NewPartitions(total_count=PARTITIONS + 1)})
    for worker in workers:
        assert worker.wait() == 1
        last = worker.logged().splitlines()[-1]
        assert last.startswith(
            f"hatcast: policy {pipeline.name!r} was started with 4 telemetry partitions, the topic now has 5"
        )


def test_a_session_timeout_that_the_brokers_refuse_is_named(pipeline: Pipeline) -> None:
    done = pipeline.hatcast("worker", config=pipeline.changed({"worker": {"session_timeout": "1s"}}))
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith(
        "hatcast: worker.session_timeout: 1 s is one that Kafka's brokers refuse"
    )


def test_a_group_with_members_that_are_no_workers_is_named(pipeline: Pipeline) -> None:
    ensure_topics(pipeline.settings)
    group = f"hatcast-{pipeline.settings.policy.name}"
    other = Consumer({"bootstrap.servers": pipeline.kafka.bootstrap_servers, "group.id": group})
    with closing(other):
        other.subscribe([pipeline.settings.topics.telemetry])
        pipeline.wait(lambda: other.poll(0.1) is None and bool(other.assignment()), "assignment")
        done = pipeline.hatcast("worker")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith(f"hatcast: consumer group {group} has members that are not workers")


@pytest.mark.parametrize("first", [None, bytes(32)], ids=["made in Redis", "given"])
def test_another_user_key_is_refused(pipeline: Pipeline, first: bytes | None) -> None:
    claimed(pipeline, user_key=first)
    (pipeline.folder / "key").write_text("11" * 32)
    config = pipeline.changed({"worker": {"user_key_file": "key"}})
    assert_refused(pipeline.hatcast("worker", config=config), "another user key", "user_key_file")


def test_a_missing_user_key_is_refused_where_one_was_given_before(pipeline: Pipeline) -> None:
    claimed(pipeline, user_key=bytes(32))
    assert_refused(pipeline.hatcast("worker"), "a user key of your own", "give it again")


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"message.timestamp.type": "LogAppendTime"}, "message.timestamp.type is LogAppendTime, expected CreateTime"),
        ({"retention.ms": "3600000"}, "retention.ms is 3600000"),
        ({"cleanup.policy": "compact"}, "cleanup.policy is compact"),
    ],
)
def test_a_topic_that_breaks_a_promise_is_refused_with_the_command_that_mends_it(
    pipeline: Pipeline, kafka: KafkaServer, config: dict[str, str], word: str
) -> None:
    kafka.create_topic(pipeline.settings.topics.telemetry, 4, {"message.timestamp.after.max.ms": "120000", **config})
    assert_refused(pipeline.hatcast("worker"), word, "kafka-configs.sh", pipeline.name)


def test_a_topic_that_is_another_one_than_was_folded_is_refused(pipeline: Pipeline) -> None:
    claimed(pipeline)
    ensure_topics(pipeline.settings)
    with pipeline.redis_server.client() as redis:
        redis.hset(f"{{{pipeline.name}:3}}:state", "offset", 1000)
    worker = pipeline.worker()
    assert worker.wait() == 1
    last = worker.logged().splitlines()[-1]
    assert last.startswith("hatcast: telemetry partition 3: the stored offset 1000 is beyond the topic's end 0")
    assert "Traceback" not in worker.logged()


@pytest.mark.parametrize("command", [("batch",), ("feed", "replay")])
def test_a_recording_of_another_format_is_refused(pipeline: Pipeline, command: tuple[str, ...]) -> None:
    path = recording("golden/edge.jsonl")
    done = pipeline.hatcast(*command, path, "--format", "capmetro", "--json")
    assert_refused(done, str(path))


@pytest.mark.parametrize("command", [("batch",), ("feed", "replay")])
def test_a_gzip_file_that_was_cut_off_is_refused_before_anything_is_sent(
    pipeline: Pipeline, command: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(recording("golden/edge.jsonl").read_bytes())[:20_000])
    assert_refused(pipeline.hatcast(*command, path, "--format", "jsonl", "--json"), str(path), "cut off")
    assert pipeline.settings.topics.telemetry not in pipeline.kafka.topics()


@pytest.mark.parametrize("command", [("batch",), ("feed", "replay")])
def test_a_missing_recording_is_refused(pipeline: Pipeline, command: tuple[str, ...], tmp_path: Path) -> None:
    assert_refused(pipeline.hatcast(*command, tmp_path / "none", "--format", "jsonl"), "none: is missing")


@pytest.mark.parametrize(
    "arguments",
    [("worker", "--no-such-option"), ("batch", "x", "--format", "nothing"), ("feed", "replay"), ("no-such-command",)],
)
def test_wrong_usage_is_exit_2_and_says_how_to_get_help(pipeline: Pipeline, arguments: tuple[str, ...]) -> None:
    done = pipeline.hatcast(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.rstrip().endswith("--help")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err


def test_a_file_that_is_no_toml_or_that_is_not_there_is_refused_by_every_command(pipeline: Pipeline) -> None:
    broken = pipeline.folder / "broken.toml"
    broken.write_text("[policy\nname = 1")
    for command in (("worker",), ("status", "--json"), ("budget", "show")):
        assert_refused(pipeline.hatcast(*command, config=broken), "is not TOML", "line 1")
        assert_refused(
            pipeline.hatcast(*command, config=pipeline.folder / "none.toml"), "no such file", "name another file"
        )


def test_status_and_contributions_of_a_policy_that_nobody_started_are_refused(pipeline: Pipeline) -> None:
    assert_refused(pipeline.hatcast("status", "--json"), "no worker has started policy")
    done = pipeline.hatcast("contributions", "--json")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[0] == "reads raw data, not private"
    assert done.err.count("\n") == 2
