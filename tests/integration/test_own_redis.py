"""A worker on a Redis that is set up in other ways than ours: what it refuses, and what it needs."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from hatcast.agents.config.settings import Settings
from hatcast.agents.doctor.checks import CheckState
from hatcast.agents.doctor.preflight import examine
from hatcast.agents.kafka.grants import Role
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.durability import Persistence, ensure_durable, read_durability
from hatcast.stream.errors import HatcastError
from hatcast.stream.units import DAY_MS
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, ticks, traffic
from tests.integration.redis_user import PASSWORD, acl_line
from tests.services import KafkaServer, RedisServer, local_redis
from tests.services.lifecycle import free_ports
from tests.services.tls import make_certificate


@contextmanager
def pipeline_on(
    kafka: KafkaServer, server: RedisServer, folder: Path, changes: Mapping[str, Any] | None = None
) -> Iterator[Pipeline]:
    """A pipeline on that Redis."""
    with open_pipeline(kafka, server, folder, "own", changes) as pipeline:
        yield pipeline


def test_a_redis_that_may_lose_state_is_refused_unless_that_is_accepted(kafka: KafkaServer, tmp_path: Path) -> None:
    forgetful = local_redis("--appendonly", "no", "--maxmemory-policy", "allkeys-lru")
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
    with local_redis() as server, closing(server.client()) as redis, pipeline_on(kafka, server, tmp_path) as pipeline:
        ensure_durable(pipeline.settings)
        assert read_durability(redis).persistence is Persistence.APPEND_ONLY
        redis.config_set("appendonly", "no")
        redis.config_set("save", "3600 1")
        assert read_durability(redis).persistence is Persistence.SNAPSHOTS
        ensure_durable(pipeline.settings)
        redis.config_set("maxmemory-policy", "volatile-ttl")
        with pytest.raises(HatcastError, match="lose state: its maxmemory-policy is volatile-ttl: set"):
            ensure_durable(pipeline.settings)
        redis.config_set("maxmemory-policy", "noeviction")
        redis.config_set("save", "")
        with pytest.raises(HatcastError, match="lose state: it has no persistence: set"):
            ensure_durable(pipeline.settings)
        redis.acl_setuser("bus", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-config"])
        with capture_logs() as logs:
            ensure_durable(as_user(pipeline.settings, "bus", "any"))
        assert [entry["event"] for entry in logs] == ["a Redis setting cannot be checked"]
        assert "CONFIG GET, which would show snapshots, is not allowed" in logs[0]["setting"]


def as_user(settings: Settings, name: str, password: str) -> Settings:
    """The settings of a worker that logs in under another name."""
    return replace(settings, redis=msgspec.structs.replace(settings.redis, username=name), redis_password=password)


def test_behind_tls_and_with_no_more_rights_than_those_of_its_role_a_worker_folds_releases_and_seals(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    made = make_certificate(tmp_path)
    ca, key, certificate = map(str, (made.ca_file, made.key_file, made.cert_file))
    with free_ports(1) as (port,):
        tls = ["--tls-port", str(port), "--tls-cert-file", certificate, "--tls-key-file", key]
    with local_redis(*tls, "--tls-ca-cert-file", ca) as server, closing(server.client()) as admin:
        (tmp_path / "password").write_text(PASSWORD)
        redis = {
            "url": f"rediss://127.0.0.1:{port}/0",
            "username": "hatcast",
            "password_file": "password",
            "ssl_ca_certs": ca,
            "ssl_certfile": certificate,
            "ssl_keyfile": key,
        }
        with pipeline_on(kafka, server, tmp_path, {"redis": redis}) as pipeline:
            for each in (acl_line(pipeline.settings), acl_line(pipeline.settings, Role.OPERATOR, "operator")):
                admin.execute_command(*each)  # type: ignore[no-untyped-call] # redis-py leaves it open
            ensure_topics(pipeline.settings)
            worker = pipeline.worker()
            samples = traffic()
            kafka.produce(pipeline.settings.topics.telemetry, [sample.record() for sample in samples])
            kafka.produce(pipeline.settings.topics.telemetry, ticks(NOON_MS + 3 * HOUR_MS))
            pipeline.wait(lambda: len(pipeline.published()) == 6 and pipeline.is_settled(), "releases", worker)
            assert pipeline.outcomes() == {"accepted": len(samples)}
            kafka.produce(pipeline.settings.topics.telemetry, ticks(NOON_MS + 2 * DAY_MS))
            pipeline.wait(lambda: '"days sealed"' in worker.logged(), "sealed day", worker)
            operator = pipeline.changed({"redis": {"username": "operator"}})
            assert [check for check in examine(operator) if check.state is CheckState.PROBLEM] == []
            assert worker.terminate() == 0
            # Nothing else was tried: redis-py tells newer servers its version, and goes on without.
            assert {entry["object"] for entry in admin.acl_log()} <= {"client|setinfo"}
