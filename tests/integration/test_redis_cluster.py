"""Workers on a Redis Cluster: partitions and ledger on three nodes, a worker killed, and a master restarted."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hatcast.agents.config.settings import Settings
from hatcast.agents.doctor.checks import CheckState
from hatcast.agents.doctor.preflight import examine
from hatcast.agents.kafka.grants import Role
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.connection import connect_redis_async
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.stream.ledger import rows
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import EXACT, HOUR_MS, NOON_MS, assert_exact_means, ticks, traffic
from tests.integration.redis_user import PASSWORD, acl_line
from tests.services import KafkaServer, RedisServer
from tests.services.kafka_server import PARTITIONS
from tests.services.redis_cluster import RedisClusterServer, local_cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisClusterServer]:
    with local_cluster() as made:
        yield made


def permit(node: RedisServer, settings: Settings) -> None:
    """Make the users of the workers and of the operator."""
    with closing(node.client()) as admin:
        for role, user in ((Role.WORKER, "hatcast"), (Role.OPERATOR, "operator")):
            line = acl_line(settings, role, user, cluster=True)
            admin.execute_command(*line)  # type: ignore[no-untyped-call] # redis-py leaves it open


def token(pipeline: Pipeline) -> str:
    """Of the last recovery, if it was of this life of the server; else ""."""

    async def read() -> str:
        redis = await connect_redis_async(pipeline.settings)
        try:
            return (await RecoveryStore(redis, pipeline.name, pipeline.settings.policy.name).read_state()).token
        finally:
            await redis.aclose()

    return asyncio.run(read())


def test_after_a_kill_9_and_the_restart_of_a_master_every_hat_has_its_one_true_value(
    cluster: RedisClusterServer, kafka: KafkaServer, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    changes = {"policy": {"privacy": EXACT}, "redis": {"username": "hatcast", "password_file": "password"}}
    with open_pipeline(kafka, cluster, tmp_path, "cluster", changes) as pipeline:
        ensure_topics(pipeline.settings)
        for node in cluster.nodes:
            permit(node, pipeline.settings)
        holders = {cluster.node_of(PartitionKeys(pipeline.name, p).state).url for p in range(PARTITIONS)}
        assert len(holders) > 1, "the state is on several nodes"
        samples, telemetry = traffic(4), pipeline.settings.topics.telemetry
        early = [sample for sample in samples if sample.time_ms < NOON_MS + 2 * HOUR_MS]
        one, other = pipeline.worker(), pipeline.worker()
        kafka.produce(telemetry, [sample.record() for sample in early])
        kafka.produce(telemetry, ticks(NOON_MS + 2 * HOUR_MS - 60_000))
        pipeline.wait(lambda: len(pipeline.published()) == 3, "releases of the first hour", one, other)
        before = token(pipeline)
        assert before
        one.kill()
        master = cluster.node_of(DomainKeys(pipeline.name).row(rows.RECOVERY))
        master.kill()
        kafka.produce(telemetry, [sample.record() for sample in samples if sample not in early])
        kafka.produce(telemetry, ticks(NOON_MS + 5 * HOUR_MS))
        master.start()
        permit(master, pipeline.settings)  # it keeps its users in memory
        cluster.wait_until_ready()
        pipeline.wait(lambda: pipeline.is_settled() and len(pipeline.published()) == 12, "all releases", other)
        assert token(pipeline) not in (before, "")
        assert pipeline.outcomes() == {"accepted": len(samples)}
        assert_exact_means(pipeline, samples)
        operator = pipeline.changed({"redis": {"username": "operator"}})
        assert [check for check in examine(operator) if check.state is not CheckState.OK] == []
        with closing(master.client()) as redis:
            assert (
                redis.hlen(DomainKeys(pipeline.name).row(rows.releases("2022-01-02", pipeline.settings.policy.name)))
                == 12
            )
