"""`hatcast doctor` as a process: what it finds, and what it says to change."""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition

from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.connection import connect_redis_async
from hatcast.agents.redis.identity import claim_policy, claim_user_key
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from tests.integration.harness import Finished, Pipeline
from tests.services import Record, local_redis
from tests.services.kafka_server import PARTITIONS


def claim(pipeline: Pipeline, user_key: bytes | None = None, partitions: int = PARTITIONS) -> None:
    """What the first start of a worker keeps."""

    async def run() -> None:
        redis = await connect_redis_async(pipeline.settings)
        domain = DomainKeys(pipeline.settings.topics.telemetry)
        await claim_policy(redis, domain, pipeline.settings.policy, partitions)
        await claim_user_key(redis, domain, user_key)
        await redis.aclose()

    asyncio.run(run())


def checks(done: Finished) -> dict[str, Any]:
    """Name -> check, from --json; several of one name are joined."""
    found: dict[str, Any] = {}
    for check in done.json["checks"]:
        found.setdefault(check["name"], check)
    assert done.json["problems"] == sum(check["state"] == "problem" for check in done.json["checks"])
    assert done.err == ""
    return found


def states(found: dict[str, Any], state: str) -> set[str]:
    return {name for name, check in found.items() if check["state"] == state}


def test_before_the_first_start_nothing_is_wrong_and_nothing_is_made(pipeline: Pipeline) -> None:
    done = pipeline.hatcast("doctor", "--json")
    found = checks(done)
    assert done.code == 0
    topics = pipeline.settings.topics
    outputs = (topics.means, topics.queries, topics.budget, topics.estimates, topics.running, topics.dead_letters)
    names = (topics.telemetry, *outputs, topics.registry)
    assert states(found, "warning") == {f"topic {name}" for name in names}
    assert not any(topic.startswith(pipeline.name) for topic in pipeline.kafka.topics())


def test_after_a_good_start_all_is_well(pipeline: Pipeline) -> None:
    ensure_topics(pipeline.settings)
    claim(pipeline)
    done = pipeline.hatcast("doctor", "--json")
    found = checks(done)
    assert done.code == 0
    assert states(found, "ok") == set(found)
    assert found["stored partitions"]["found"] == "4"
    assert found["user key"]["found"].startswith("made by hatcast, fingerprint ")
    table = pipeline.hatcast("doctor")
    assert table.code == 0
    assert all(name.split()[0] in table.out for name in found)


def test_a_topic_that_breaks_a_promise_is_a_problem_with_the_command_that_mends_it(pipeline: Pipeline) -> None:
    topics = pipeline.settings.topics
    pipeline.kafka.create_topic(
        topics.telemetry, config={"message.timestamp.type": "LogAppendTime", "retention.ms": "1"}
    )
    pipeline.kafka.create_topic(topics.means, 3, {"cleanup.policy": "compact"})
    done = pipeline.hatcast("doctor")
    assert done.code == 1
    command = f"kafka-configs.sh --bootstrap-server {pipeline.kafka.bootstrap_servers} --alter --entity-type topics"
    assert f"{command} --entity-name {topics.telemetry} --add-config message.timestamp.type=CreateTime\n" in done.out
    assert f"{command} --entity-name {topics.telemetry} --add-config retention.ms=-1\n" in done.out
    assert "set another topic under [topics]" in done.out


def test_a_redis_that_forgets_is_a_problem_unless_it_is_accepted_as_by_a_worker(pipeline: Pipeline) -> None:
    with local_redis("--appendonly", "no", "--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru") as server:
        config = pipeline.changed({"redis": {"url": server.url}})
        refused = pipeline.hatcast("worker", config=config)
        done = pipeline.hatcast("doctor", "--json", config=config)
        accepted = pipeline.hatcast("doctor", "--json", "--accept-volatile-state", config=config)
    found = checks(done)
    assert (refused.code, done.code, accepted.code) == (1, 1, 0)
    assert states(found, "problem") == {"redis persistence", "redis eviction"}
    assert states(checks(accepted), "warning") >= {"redis persistence", "redis eviction"}
    assert "appendonly yes" in found["redis persistence"]["mend"]
    assert "maxmemory-policy noeviction" in found["redis eviction"]["mend"]
    assert "--accept-volatile-state" in found["redis eviction"]["mend"]
    assert found["redis memory"]["state"] == "ok"


def test_the_versions_of_kafka_and_redis_are_shown(pipeline: Pipeline) -> None:
    found = checks(pipeline.hatcast("doctor", "--json"))
    with closing(pipeline.redis_server.client()) as redis:
        server: Any = redis.info("server")
    version = server.get("valkey_version") or server["redis_version"]
    assert found["redis"]["found"].endswith(f" {version}")
    assert re.fullmatch(r".*:\d+", found["kafka"]["found"])


def test_a_replica_is_a_problem(pipeline: Pipeline) -> None:
    with local_redis("--replicaof", "127.0.0.1", "1") as replica:
        done = pipeline.hatcast("doctor", "--json", config=pipeline.changed({"redis": {"url": replica.url}}))
    assert done.code == 1
    assert checks(done)["redis role"]["state"] == "problem"


def test_another_partition_count_policy_or_user_key_than_at_the_first_start_is_a_problem(pipeline: Pipeline) -> None:
    ensure_topics(pipeline.settings)
    claim(pipeline, user_key=bytes(32), partitions=2)
    key_file = pipeline.folder / "user.key"
    key_file.write_text("01" * 32)
    other = pipeline.changed({"policy": {"upper_bound": 70.0}, "worker": {"user_key_file": str(key_file)}})
    done = pipeline.hatcast("doctor", "--json", config=other)
    found = checks(done)
    assert done.code == 1
    assert states(found, "problem") == {"stored policy", "stored partitions", "user key"}
    assert found["stored partitions"]["found"] == "telemetry has 4 partitions now"
    assert "was started with 2 telemetry partitions" in found["stored partitions"]["mend"]
    assert "01" * 8 not in done.out
    without = checks(pipeline.hatcast("doctor", "--json"))
    assert without["user key"]["state"] == "problem"
    assert "HATCAST_USER_KEY" in without["user key"]["mend"]
    key_file.write_text("00" * 32)
    right = checks(pipeline.hatcast("doctor", "--json", config=other))
    assert right["user key"]["state"] == "ok"


def other_name(pipeline: Pipeline) -> None:
    with closing(pipeline.redis_server.client()) as redis:
        redis.hset(DomainKeys("").owner(pipeline.settings.policy.name), "domain", f"{pipeline.name}-elsewhere")


def other_zone(pipeline: Pipeline) -> None:
    with closing(pipeline.redis_server.client()) as redis:
        redis.hset(DomainKeys(pipeline.settings.topics.telemetry).zone, "timezone", "Asia/Kolkata")


def beyond_the_end(pipeline: Pipeline) -> None:
    with closing(pipeline.redis_server.client()) as redis:
        redis.hset(PartitionKeys(pipeline.name, 3).state, "offset", 1000)


def deleted_unread(pipeline: Pipeline) -> None:
    topic = pipeline.settings.topics.telemetry
    with closing(pipeline.redis_server.client()) as redis:
        redis.hset(PartitionKeys(pipeline.name, 3).state, "offset", 1)
    pipeline.kafka.produce(topic, [Record(b"", partition=3)] * 9)
    with closing(KafkaAdminClient(bootstrap_servers=pipeline.kafka.bootstrap_servers)) as admin:
        admin.delete_records({TopicPartition(topic, 3): 5})


def given_key(pipeline: Pipeline) -> None:
    with closing(pipeline.redis_server.client()) as redis:
        redis.delete(DomainKeys(pipeline.settings.topics.telemetry).user_key)
    claim(pipeline, user_key=bytes(32))


BROKEN: dict[str, tuple[Callable[[Pipeline], None], Callable[[Pipeline], dict[str, Any]]]] = {
    "the policy has changed": (lambda _: None, lambda _: {"policy": {"upper_bound": 70.0}}),
    "another telemetry has the name": (other_name, lambda _: {}),
    "another time zone": (other_zone, lambda _: {}),
    "the user key is missing": (given_key, lambda _: {}),
    "offsets beyond the end": (beyond_the_end, lambda _: {}),
    "records deleted unread": (deleted_unread, lambda _: {}),
    "a replaced policy that nobody started": (
        lambda _: None,
        lambda pipeline: {"policy": {"name": f"{pipeline.name}-2", "replaces": "nobody", "from": "2098-01-01"}},
    ),
    "output topics changed": (lambda _: None, lambda pipeline: {"topics": {"means": f"{pipeline.name}.other"}}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_whatever_a_worker_rejects_at_its_start_doctor_rejects_with_the_same_words(
    pipeline: Pipeline, case: str
) -> None:
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    assert worker.terminate() == 0
    breaks, changes = BROKEN[case]
    breaks(pipeline)
    config = pipeline.changed(changes(pipeline))
    examined = pipeline.hatcast("doctor", "--json", config=config)
    refused = pipeline.hatcast("worker", config=config)
    assert (refused.code, examined.code) == (1, 1), examined.out
    last = refused.err.splitlines()[-1].removeprefix("hatcast: ")
    assert last in [check["mend"] for check in examined.json["checks"] if check["state"] == "problem"]


def test_doctor_never_shows_the_user_key(pipeline: Pipeline) -> None:
    claim(pipeline)
    with closing(pipeline.redis_server.client()) as redis:
        key = redis.hget(DomainKeys(pipeline.settings.topics.telemetry).user_key, "key")
    assert isinstance(key, bytes)
    done = pipeline.hatcast("doctor")
    assert key.hex()[:16] not in done.out


def test_services_that_cannot_be_reached_are_named_and_the_rest_is_checked(pipeline: Pipeline) -> None:
    no_kafka = pipeline.changed({"kafka": {"bootstrap_servers": "127.0.0.1:1"}}, "a.toml")
    no_redis = pipeline.changed({"redis": {"url": "redis://:hidden@127.0.0.1:1"}}, "b.toml")
    swapped = pipeline.changed({"kafka": {"bootstrap_servers": pipeline.redis_server.url[8:-2]}}, "c.toml")
    with ThreadPoolExecutor(3) as all_three:
        a, b, c = all_three.map(
            lambda config: pipeline.hatcast("doctor", "--json", config=config), [no_kafka, no_redis, swapped]
        )
    assert (a.code, b.code, c.code) == (1, 1, 1)
    assert "Kafka at 127.0.0.1:1 cannot be reached (connection refused" in checks(a)["kafka"]["mend"]
    assert checks(a)["redis"]["state"] == "ok"
    assert "Redis at 127.0.0.1:1 cannot be reached (connection refused" in checks(b)["redis"]["mend"]
    assert checks(b)["kafka"]["state"] == "ok"
    assert "hidden" not in b.out
    assert "accepts connections but does not answer as Kafka" in checks(c)["kafka"]["mend"]


def test_a_broken_configuration_is_the_one_problem(pipeline: Pipeline) -> None:
    broken = pipeline.folder / "broken.toml"
    broken.write_text("[policy")
    done = pipeline.hatcast("doctor", "--json", config=broken)
    assert done.code == 1
    found = checks(done)
    assert set(found) == {"configuration"}
    assert "is not TOML" in found["configuration"]["mend"]
