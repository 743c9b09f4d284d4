"""A worker on a Redis that is set up in other ways than ours: what it refuses, and what it needs."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from agents.durability import Persistence, ensure_durable, read_durability
from agents.settings import Settings
from stream.errors import Refusal
from tests.integration.harness import Pipeline, open_pipeline
from tests.services import KafkaServer, RedisServer, ServiceAbsent, local_redis
from tests.services.absent import absent


@contextmanager
def own_redis(*options: str) -> Iterator[RedisServer]:
    """A Redis with these options."""
    try:
        with local_redis(*options) as server:
            yield server
    except ServiceAbsent as reason:
        absent(str(reason))


@contextmanager
def pipeline_on(kafka: KafkaServer, server: RedisServer, folder: Path) -> Iterator[Pipeline]:
    """A pipeline on that Redis."""
    with open_pipeline(kafka, server, folder, "own") as pipeline:
        yield pipeline


def test_a_redis_that_may_lose_state_is_refused_unless_that_is_accepted(kafka: KafkaServer, tmp_path: Path) -> None:
    forgetful = own_redis("--appendonly", "no", "--maxmemory-policy", "allkeys-lru")
    with forgetful as server, pipeline_on(kafka, server, tmp_path) as pipeline:
        refused = pipeline.hatcast("worker")
        assert (refused.code, refused.out) == (1, "")
        where = server.url.removeprefix("redis://").removesuffix("/0")
        assert refused.err == (
            f"hatcast: Redis at {where} may lose state: it has no persistence: set `appendonly yes`; its"
            " maxmemory-policy is allkeys-lru: set `maxmemory-policy noeviction`; or start with"
            " --accept-volatile-state if it may be lost\n"
        )
        worker = pipeline.start("worker", "--accept-volatile-state")
        pipeline.wait_for_partitions(worker)
        assert "Redis may lose state, as accepted" in worker.logged()


def test_what_redis_keeps_is_read_from_its_settings_as_far_as_they_may_be_asked_for(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    with own_redis() as server, closing(server.client()) as redis, pipeline_on(kafka, server, tmp_path) as pipeline:
        ensure_durable(pipeline.settings)
        assert read_durability(redis).persistence is Persistence.APPEND_ONLY
        redis.config_set("appendonly", "no")
        redis.config_set("save", "3600 1")
        assert read_durability(redis).persistence is Persistence.SNAPSHOTS
        ensure_durable(pipeline.settings)
        redis.config_set("maxmemory-policy", "volatile-ttl")
        with pytest.raises(Refusal, match="lose state: its maxmemory-policy is volatile-ttl: set"):
            ensure_durable(pipeline.settings)
        redis.config_set("maxmemory-policy", "noeviction")
        redis.config_set("save", "")
        with pytest.raises(Refusal, match="lose state: it has no persistence: set"):
            ensure_durable(pipeline.settings)
        redis.acl_setuser("bus", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-config"])
        with capture_logs() as logs:
            ensure_durable(as_user(pipeline.settings, "bus", "any"))
        assert [entry["event"] for entry in logs] == ["a setting of Redis cannot be checked"]
        assert "CONFIG GET, which would tell of snapshots, is not allowed" in logs[0]["setting"]


def as_user(settings: Settings, name: str, password: str) -> Settings:
    """The settings of a worker that logs in under another name."""
    return replace(settings, redis=msgspec.structs.replace(settings.redis, username=name), redis_password=password)
