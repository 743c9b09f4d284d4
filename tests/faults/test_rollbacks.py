"""A Redis that goes back in time and lives on: the same process, answering all the while, holds less than it did.

No restart, no lost connection and no other server gives it away. Each of these once published two values of every HAT.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from hatcast.agents.kafka.topics import ensure_topics
from tests.integration.harness import Pipeline
from tests.integration.readings import EXACT, HOUR_MS, NOON_MS, Sample, assert_exact_means, ticks, traffic
from tests.integration.test_own_redis import pipeline_on
from tests.services import KafkaServer, RedisServer
from tests.services.redis_server import copy_of, follow, local_redis, restore

SAMPLES: Final = traffic(3)

Restore = Callable[[], None]


def key_by_key(server: RedisServer, _: RedisServer) -> Restore:
    """DUMP, and later RESTORE of all keys in one step."""
    copy = copy_of(server)
    return lambda: restore(server, copy)


def replica_of_a_copy(server: RedisServer, other: RedisServer) -> Restore:
    """A replica that was cut off; later the server is made its replica, and a primary again."""
    follow(other, server)

    def restore() -> None:
        follow(server, other)

    return restore


@pytest.fixture
def other() -> Iterator[RedisServer]:
    with local_redis() as server:
        yield server


def send(pipeline: Pipeline, samples: list[Sample], end_ms: int) -> None:
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, [sample.record() for sample in samples])
    pipeline.kafka.produce(pipeline.settings.topics.telemetry, ticks(end_ms))


def hour(number: int) -> list[Sample]:
    return [each for each in SAMPLES if (each.time_ms - NOON_MS) // HOUR_MS == number]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("copying", [key_by_key, replica_of_a_copy])
def test_a_living_redis_that_goes_back_publishes_no_second_value(
    copying: Callable[[RedisServer, RedisServer], Restore],
    workers: int,
    other: RedisServer,
    kafka: KafkaServer,
    tmp_path: Path,
) -> None:
    changes = {"policy": {"privacy": EXACT | {"min_users": 2}}}
    with local_redis() as server, pipeline_on(kafka, server, tmp_path, changes) as pipeline:
        ensure_topics(pipeline.settings)
        running = [pipeline.worker() for _ in range(workers)]
        send(pipeline, hour(0), NOON_MS + HOUR_MS + 30 * 60_000)
        pipeline.wait(lambda: len(pipeline.published()) == 3, "releases of the first hour", *running)
        restore = copying(server, other)
        send(pipeline, hour(1), NOON_MS + 2 * HOUR_MS + 30 * 60_000)
        pipeline.wait(lambda: len(pipeline.published()) == 6, "releases of the second hour", *running)
        restore()
        send(pipeline, hour(2), NOON_MS + 4 * HOUR_MS)
        pipeline.wait(lambda: len(pipeline.published()) == 9 and is_done(pipeline), "all releases", *running)
        assert_one_true_value(pipeline, 9)
        assert sum(each.logged().count('"ledger recovered"') for each in running) >= 2, "at the start, and after that"


def test_the_next_owner_of_release_partitions_finds_what_a_living_redis_lost(
    other: RedisServer, kafka: KafkaServer, tmp_path: Path
) -> None:
    """Whoever wrote last is gone, so that no commit sequence is missed by anybody."""
    with local_redis() as server, pipeline_on(kafka, server, tmp_path, {"policy": {"privacy": EXACT}}) as pipeline:
        ensure_topics(pipeline.settings)
        first = pipeline.worker()
        send(pipeline, hour(0), NOON_MS + HOUR_MS + 30 * 60_000)
        pipeline.wait(lambda: len(pipeline.published()) == 3, "releases of the first hour", first)
        restore = key_by_key(server, other)
        send(pipeline, hour(1), NOON_MS + 2 * HOUR_MS + 30 * 60_000)
        pipeline.wait(lambda: len(pipeline.published()) == 6, "releases of the second hour", first)
        first.kill()
        pipeline.bury()
        restore()
        second = pipeline.worker()
        pipeline.wait(lambda: is_done(pipeline), "settled ledger", second)
        assert_one_true_value(pipeline, 6)
        assert "Redis has lost published releases" in second.logged()


def is_done(pipeline: Pipeline) -> bool:
    return pipeline.is_caught_up() and pipeline.is_settled()


def assert_one_true_value(pipeline: Pipeline, hats: int) -> None:
    """Each HAT has one value and one charge, whichever of them a reader of uncommitted records may have seen."""
    published = pipeline.published(committed=False)
    assert {release_id: len(set(values)) for release_id, values in published.items()} == dict.fromkeys(published, 1)
    assert len(published) == hats
    (budget,) = pipeline.budget_records().values()
    assert budget["releases"] == hats
    assert_exact_means(pipeline, [each for each in SAMPLES if (each.time_ms - NOON_MS) // HOUR_MS < hats // 3])
