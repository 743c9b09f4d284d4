"""A tracker policy against real Kafka and Redis: each query is drawn once, and a day is settled once."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.release.tracker import TrackerReleaser
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, Stores, open_stores, store_closed, traffic
from tests.integration.test_release import (
    ALL,
    CrashError,
    CrashingPublishers,
    crash_after,
    releasing,
    stored_records,
)
from tests.services import KafkaServer, RedisServer

NEXT_DAY_MS = NOON_MS + 13 * HOUR_MS  # past the close of the day of NOON_MS
TABLE: dict[str, Any] = {
    "policy": {
        "privacy": {"epsilon": None, "max_hats_per_day": None, "daily_limit": 5.0, "min_users": 3},
        "estimator": {"name": "tracker"},
    }
}
STEPS = {"loaded": "load_hats", "drawn": "draw_queries", "settlement drawn": "draw_settlement", "stored": "store_state"}
DELETED = {"deleted": "delete_date"}


@pytest.fixture
def pipeline(kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path) -> Iterator[Pipeline]:
    with open_pipeline(kafka, redis_server, tmp_path, "tracker", TABLE) as opened:
        ensure_topics(opened.settings)
        yield opened


def samples() -> list[Sample]:
    return traffic(hours=3, vehicles=14, places=4)


async def finish(pipeline: Pipeline, stores: Stores) -> None:
    async with releasing(pipeline, stores) as releaser:
        await releaser.round(asyncio.Event())
        assert await releaser.hats.due_releases(ALL) == []
        assert await stores.partitions.open_slots() == {}


def designs(records: dict[bytes, bytes]) -> dict[str, tuple[object, ...]]:
    """What follows from counts: all but released numbers, times and order."""
    found = {}
    for record in map(json.loads, records.values()):
        query = {key: value for key, value in record.get("query", {}).items() if key != "sum"}
        found[record["release_id"]] = (record["status"], record.get("counts"), query, record["epsilon"])
    return found


def test_a_tracker_queries_hats_and_settles_the_day(pipeline: Pipeline) -> None:
    async def run() -> dict[bytes, bytes]:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, samples(), NEXT_DAY_MS)
            await finish(pipeline, stores)
            return await stored_records(pipeline, stores)

    kept = asyncio.run(run())
    assert_published_once(pipeline, kept)
    records = [json.loads(record) for record in kept.values()]
    assert len([each for each in records if "Tsettlement" not in each["release_id"]]) == 12
    assert any("Tsettlement" in each["release_id"] for each in records)
    assert any("query" in each for each in records if "Tsettlement" not in each["release_id"])


def assert_published_once(pipeline: Pipeline, kept: dict[bytes, bytes]) -> None:
    published = pipeline.published(committed=False)
    assert {release_id: set(values) for release_id, values in published.items()} == {
        release_id.decode(): {record} for release_id, record in kept.items()
    }
    (budget,) = pipeline.budget_records().values()
    assert (budget["releases"], budget["epsilon_user_day"], budget["day_bound"]) == (0, 5.0, 5.0)
    assert budget["queries"] == [{"query": "tracker", "epsilon": 5.0, "places": 1}]
    assert 0 < budget["spent"]["mean"] <= budget["spent"]["largest"] <= 5.0
    numbers = sorted(json.loads(record)["query"]["number"] for record in kept.values() if b'"query"' in record)
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(
    "step",
    ["loaded", "drawn", "committed", "sent", "acked", "marked", "settlement drawn", "stored", "deleted"],
)
def test_after_a_crash_at_any_step_the_queries_are_those_of_a_run_without_one(step: str, pipeline: Pipeline) -> None:
    async def crash_then_finish() -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, samples(), NEXT_DAY_MS)
            publishers = CrashingPublishers if step == "sent" else TransactionalProducers
            with pytest.raises(CrashError):
                async with releasing(pipeline, stores, publishers=publishers) as releaser:
                    assert isinstance(releaser.hats, TrackerReleaser)
                    if step in STEPS | DELETED:
                        end_at(releaser.hats, (STEPS | DELETED)[step])
                    else:
                        crash_after(releaser.hats, step)
                    await releaser.round(asyncio.Event())
            after_crash = await stored_records(pipeline, stores)
            await finish(pipeline, stores)
            kept = await stored_records(pipeline, stores)
            return after_crash, kept

    after_crash, kept = asyncio.run(crash_then_finish())
    assert after_crash.items() <= kept.items(), "a record that was committed has changed"
    assert_published_once(pipeline, kept)
    assert all(status != "deferred" or not query for status, _, query, _ in designs(kept).values())
    assert any("settlement" in name for name in designs(kept))


def end_at(releaser: TrackerReleaser, name: str) -> None:
    wrapped = getattr(releaser, name)

    async def crashing(*arguments: Any) -> None:
        await wrapped(*arguments)
        raise CrashError

    setattr(releaser, name, crashing)
