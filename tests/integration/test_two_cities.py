"""Two cities on one Kafka and one Redis, with the same output topics: each reader sees the records of its own city."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hatcast.agents.kafka import cloud_events
from hatcast.agents.kafka.tail import follow
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.subscribers import Hub
from hatcast.agents.map.topic_reader import Reader
from hatcast.agents.map.topics import find_topics
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, ticks, traffic
from tests.services import KafkaServer, RedisServer

DAY_MS = 86_400_000


@contextmanager
def two_cities(kafka: KafkaServer, redis_server: RedisServer, folder: Path) -> Iterator[tuple[Pipeline, Pipeline]]:
    with open_pipeline(kafka, redis_server, folder / "one", "city") as one:
        topics = one.settings.topics
        shared = {"means": topics.means, "queries": topics.queries, "budget": topics.budget}
        with open_pipeline(kafka, redis_server, folder / "other", "city", {"topics": shared}) as other:
            yield one, other


def release_ids(values: list[bytes]) -> set[str]:
    return {json.loads(value)["release_id"] for value in values}


def tailed(pipeline: Pipeline) -> set[str]:
    """The releases that `hatcast tail` shows."""
    topics = [pipeline.settings.topics.means]
    return release_ids(list(follow(pipeline.settings, topics, lambda: False, from_beginning=True, seconds=3.0)))


def mapped(pipeline: Pipeline) -> set[str]:
    """The policies that the live map shows."""

    async def read() -> set[str]:
        topics = find_topics(pipeline.settings)
        feed = Feed(DAY_MS, Hub(), topics.start(), pipeline.name)
        stopping = asyncio.Event()
        reading = asyncio.create_task(Reader(pipeline.settings, feed, topics).run(stopping))
        while not feed.caught_up:
            assert not reading.done()
            await asyncio.sleep(0.05)
        stopping.set()
        await reading
        return {name for history in feed.histories.values() for name in history.names()}

    return asyncio.run(read())


def test_two_cities_with_the_same_output_topics_release_side_by_side_and_are_read_apart(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two_cities(kafka, redis_server, tmp_path) as cities:
        for city in cities:
            ensure_topics(city.settings)
            kafka.produce(city.name, [s.record() for s in traffic(2)] + ticks(NOON_MS + 2 * HOUR_MS + 300_000))
        workers = [city.worker() for city in cities]
        for city in cities:
            city.wait(city.is_settled, "releases", *workers)
        one, other = cities
        both = set(one.published())
        assert {name.partition("/")[0] for name in both} == {one.name, other.name}
        for city in cities:
            own = {name for name in both if name.startswith(f"{city.name}/")}
            assert len(own) == 6
            assert tailed(city) == own
            assert mapped(city) == {city.name}
        # The mutant that reads whatever stands on the topic: this test would see it.
        monkeypatch.setattr(cloud_events, "_SOURCE", "ce_none")
        assert tailed(one) & {name for name in both if name.startswith(f"{other.name}/")}
        assert mapped(one) == {one.name, other.name}
