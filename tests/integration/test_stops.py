"""A worker ends within its time at SIGTERM, with exit code 0, whatever it waits for, and nothing is lost."""

import asyncio
import importlib
import sys
from collections.abc import Callable, Coroutine
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from hatcast.agents.worker import stopping
from hatcast.agents.worker.ingest import Ingest
from tests.faults.proxy import Proxy, proxy_of_kafka, proxy_of_redis
from tests.integration.harness import Pipeline
from tests.integration.readings import NOON_MS, ticks, traffic
from tests.services import KafkaServer, RedisServer
from tests.services.kafka_server import PARTITIONS

ENDED: Final = "stopped before it joined its group"
LATE: Final = "did not stop in order"
SECONDS: Final = 10.0
HYBRID: Final = {
    "worker": {"checkpoint_interval": "60s"},  # so that the last checkpoints have something to write
    "policy": {
        "privacy": {"epsilon": 1e6, "local_epsilon": 1.0, "daily_limit": 1e8, "acknowledge_weak_privacy": True},
        "estimator": {"name": "pwh"},
    },
}


def hold(where: str, go: Path) -> None:
    """Let a step of this process wait for a file, and say that it does. `where`: module:name, a coroutine function."""
    module, _, path = where.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    step = getattr(owner, name)

    async def held(*arguments: Any) -> Any:
        sys.stderr.write("held\n")
        sys.stderr.flush()
        while not go.exists():
            await asyncio.sleep(0.02)
        return await step(*arguments)

    setattr(owner, name, held)


def assert_goes_on(pipeline: Pipeline) -> None:
    """The next worker folds everything."""
    worker = pipeline.worker()
    pipeline.wait_for_partitions(worker)
    pipeline.wait(pipeline.is_caught_up, "all of it folded", worker)
    assert worker.terminate() == 0
    assert worker.logged().count("worker stopped") == 1
    assert LATE not in worker.logged()


@pytest.mark.parametrize("absent", ["kafka", "redis"])
def test_a_worker_that_waits_for_a_service_that_is_away_ends_at_once(
    pipeline: Pipeline, kafka: KafkaServer, redis_server: RedisServer, absent: str
) -> None:
    with proxy_of_kafka(kafka) as (broker, servers), proxy_of_redis(redis_server) as (redis, url):
        away = {"kafka": broker, "redis": redis}[absent]
        away.refuse()
        worker = pipeline.worker(
            config=pipeline.changed({"kafka": {"bootstrap_servers": servers}, "redis": {"url": url}})
        )
        pipeline.wait(lambda: away.dialled > 1, "second try", worker)
        assert worker.terminate(SECONDS) == 0
    assert worker.logged().count(ENDED) == 1
    assert_untouched(pipeline)


def assert_untouched(pipeline: Pipeline) -> None:
    with closing(pipeline.redis_server.client()) as redis:
        assert list(redis.scan_iter(f"{{{pipeline.name}*")) == []


@pytest.mark.pipeline(topics=True)
@pytest.mark.parametrize(
    ("step", "stalled"),
    [
        ("worker:connect_redis_async", "redis"),
        ("registration:Registration.registry_errors", "kafka"),
        ("registration:Registration.register", "kafka"),
    ],
)
def test_a_worker_whose_services_stop_answering_while_it_starts_ends_at_once_and_the_next_one_goes_on(
    pipeline: Pipeline, kafka: KafkaServer, redis_server: RedisServer, step: str, stalled: str
) -> None:
    pipeline.kafka.produce(pipeline.name, [each.record() for each in traffic(1)])
    go = pipeline.folder / "go"
    with proxy_of_kafka(kafka) as (broker, servers), proxy_of_redis(redis_server) as (redis, url):
        silent: Proxy = {"kafka": broker, "redis": redis}[stalled]
        config = pipeline.changed({"kafka": {"bootstrap_servers": servers}, "redis": {"url": url}})
        worker = pipeline.worker(wrap=partial(hold, f"hatcast.agents.worker.{step}", go), config=config)
        pipeline.wait(lambda: "held" in worker.logged(), "start", worker)
        silent.stall()
        before = silent.dialled
        go.touch()
        pipeline.wait(lambda: silent.dialled > before, "connection without an answer", worker)
        assert worker.terminate(SECONDS) == 0
    assert worker.logged().count(ENDED) == 1
    assert_untouched(pipeline)
    assert_goes_on(pipeline)


def wait_for_each_other() -> None:
    """Let the last checkpoints of either fold wait until those of the other have begun."""
    begun: list[Ingest] = []
    both = asyncio.Event()
    revoke: Callable[[Ingest, frozenset[int]], Coroutine[Any, Any, None]] = Ingest.on_revoked

    async def together(self: Ingest, partitions: frozenset[int]) -> None:
        begun.append(self)
        if len(begun) > 1:
            both.set()
        await both.wait()
        await revoke(self, partitions)

    setattr(Ingest, Ingest.on_revoked.__name__, together)


@pytest.mark.pipeline(HYBRID)
def test_the_folds_of_a_hybrid_worker_write_their_last_checkpoints_side_by_side(pipeline: Pipeline) -> None:
    worker = pipeline.worker(wrap=wait_for_each_other)
    pipeline.wait(lambda: worker.logged().count("partition started") == 2 * PARTITIONS, "all partitions", worker)
    pipeline.kafka.produce(pipeline.name, [each.record() for each in traffic(1)])
    pipeline.kafka.produce(pipeline.settings.topics.reports, ticks(NOON_MS))
    assert worker.terminate() == 0
    assert worker.logged().count("partitions revoked") == 2
    assert "before their last checkpoint" not in worker.logged()
    assert_goes_on(pipeline)


def never_give_up() -> None:
    """Let the last checkpoints never end, nor a stop last longer than a second."""
    stopping.STOP_SECONDS = 1.0  # type: ignore[misc]

    async def forever(*_: object) -> None:
        await asyncio.Event().wait()

    setattr(Ingest, Ingest.on_revoked.__name__, forever)


def test_a_stop_that_takes_longer_than_its_time_ends_and_nothing_is_lost(pipeline: Pipeline) -> None:
    worker = pipeline.worker(wrap=never_give_up)
    pipeline.wait_for_partitions(worker)
    pipeline.kafka.produce(pipeline.name, [each.record() for each in traffic(1)])
    assert worker.terminate(SECONDS) == 0
    assert worker.logged().count(LATE) == 1
    assert "worker stopped" not in worker.logged()
    assert_goes_on(pipeline)
