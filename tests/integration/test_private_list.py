"""What a private list of cells has cost is booked on all of its days, before anything is released, on real services."""

import asyncio
import json
from pathlib import Path
from typing import Any

import h3
import pytest

from hatcast.agents.cli.budget import read_budget
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.policy_state import SpentStore
from tests.integration.forked import Wrap, plain
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, PLACES, open_stores, ticks, traffic
from tests.integration.test_release import finish
from tests.services import KafkaServer, RedisServer

DAYS = ["2021-12-30", "2021-12-31", "2022-01-01", "2022-01-02"]  # a HAT only on the last one
LISTED = {"epsilon": 0.5, "days": f"{DAYS[0]},{DAYS[-1]}"}
# Four days of the list cost 2.0. Of three HATs at 1.0 one is within the rest, and would be two if one day were booked.
PRIVACY = {"unit": "user", "epsilon": 1.0, "max_hats_per_day": 3, "daily_limit": 9.0, "total_limit": 3.5}


def listing(kafka: KafkaServer, redis_server: RedisServer, folder: Path) -> Any:
    cells = sorted(h3.latlng_to_cell(*place, 7) for place in PLACES)
    file = folder / "kept.txt"
    lines = [
        'source = "private"',
        f"epsilon = {LISTED['epsilon']}",
        f'days = "{LISTED["days"]}"',
        'timezone = "UTC"',
        *cells,
    ]
    file.write_text("\n".join(lines) + "\n")
    changes = {"policy": {"privacy": PRIVACY, "cells": str(file)}}
    return open_pipeline(kafka, redis_server, folder, "private", changes)


def check_days(pipeline: Pipeline) -> None:
    """Each day of the list is on `hats.budget` and in `hatcast budget show` with its cost, once."""
    told = {key.partition("/")[2]: record for key, record in pipeline.budget_records().items()}
    shown = {record["date"]: record for record in asyncio.run(read_budget(pipeline.settings))[0]}
    for records in (told, shown):
        assert sorted(records) == DAYS
        for record in records.values():
            [cells] = [query for query in record["queries"] if query["query"] == "cells"]
            assert (cells["epsilon"], cells["places"]) == (0.5, 1)
            assert record["epsilon_user_day"] == 0.5 + record["releases"]


def check_releases(pipeline: Pipeline) -> None:
    """One HAT had room beside all days of the list."""
    statuses = sorted(json.loads(values[0])["status"] for values in pipeline.published().values())
    assert statuses == ["budget_exhausted", "budget_exhausted", "released"]
    assert pipeline.status()["total"] == 3.0


def release(pipeline: Pipeline, wrap: Wrap = plain) -> None:
    """One worker from its first start to the end of an hour."""
    ensure_topics(pipeline.settings)
    worker = pipeline.worker(wrap=wrap)
    pipeline.wait_for_partitions(worker)
    pipeline.kafka.produce(pipeline.name, [sample.record() for sample in traffic(1)])
    pipeline.kafka.produce(pipeline.name, ticks(NOON_MS + 3 * HOUR_MS))
    pipeline.wait(lambda: len(pipeline.published()) == 3 and pipeline.is_settled(), "three HATs", worker)
    worker.terminate()


def lose(redis_server: RedisServer, pipeline: Pipeline) -> None:
    redis_server.delete(f"{{{pipeline.name}}}*")
    redis_server.delete(f"{{{pipeline.name}:*")


def test_a_private_list_costs_all_of_its_days_before_the_first_release_and_still_does_when_redis_has_lost_it(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with listing(kafka, redis_server, tmp_path) as pipeline:
        ensure_topics(pipeline.settings)
        first = pipeline.worker()
        pipeline.wait_for_partitions(first)
        check_days(pipeline)  # nothing was sent yet
        assert pipeline.status()["total"] == 2.0
        assert "all days of a vehicle together: 2 of 3.5" in pipeline.hatcast("budget", "show").out
        first.terminate()

        release(pipeline)
        check_days(pipeline)
        check_releases(pipeline)
        before = pipeline.published()

        async def recover() -> None:
            async with open_stores(pipeline) as stores:
                await finish(pipeline, stores)

        lose(redis_server, pipeline)
        asyncio.run(recover())  # from the topics alone
        check_days(pipeline)
        assert pipeline.status()["total"] == 3.0

        lose(redis_server, pipeline)
        last = pipeline.worker()
        pipeline.wait(lambda: pipeline.is_settled() and pipeline.status()["total"] == 3.0, "the total again", last)
        check_days(pipeline)
        check_releases(pipeline)
        assert {name: set(values) for name, values in pipeline.published().items()} == {
            name: set(values) for name, values in before.items()
        }


def test_workers_that_are_stopped_between_the_booking_and_hats_budget_announce_it_at_the_next_start(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with listing(kafka, redis_server, tmp_path) as pipeline:
        ensure_topics(pipeline.settings)

        async def book() -> None:
            async with open_stores(pipeline) as stores:
                store = SpentStore(stores.redis, pipeline.name, pipeline.settings.policy)
                assert await store.book() == DAYS
                assert await store.book() == []
                assert not await store.is_announced()

        asyncio.run(book())
        assert pipeline.budget_records() == {}
        worker = pipeline.worker()
        pipeline.wait_for_partitions(worker)
        check_days(pipeline)


def booked_at_the_first_commit() -> None:
    """The mutant: as before, a day is booked with its first commit."""

    async def book(self: SpentStore) -> list[str]:
        del self
        return []

    async def is_announced(self: SpentStore) -> bool:
        del self
        return True

    SpentStore.book, SpentStore.is_announced = book, is_announced  # type: ignore[method-assign]  # it is a mutant


def test_the_check_sees_a_list_that_is_booked_with_a_days_first_commit(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with listing(kafka, redis_server, tmp_path) as pipeline:
        release(pipeline, booked_at_the_first_commit)
        with pytest.raises(AssertionError):
            check_days(pipeline)
        with pytest.raises(AssertionError):
            check_releases(pipeline)
