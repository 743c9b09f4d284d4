"""Two cities on one Kafka and one Redis, with the same output topics: each reader sees the records of its own city."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hatcast.agents.cli.tail import follow
from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import load_settings
from hatcast.agents.kafka import cloud_events
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.map.events import Hub
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.history import names_of
from hatcast.agents.map.topic_reader import Reader, find_topics
from tests.integration.harness import SECONDS, Pipeline, WorkerProcess, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, ticks, traffic
from tests.integration.test_drain import grow
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


def tailed(pipeline: Pipeline, least: int) -> set[str]:
    """The releases that `hatcast tail` shows in the second after it has so many: another city's would be among them."""
    values, full_s = list[bytes](), list[float]()
    topics, is_over = [pipeline.settings.topics.means], lambda: bool(full_s) and time.monotonic() > full_s[0] + 1
    for value in follow(pipeline.settings, topics, is_over, from_beginning=True, seconds=SECONDS):
        values.append(value)
        if len(release_ids(values)) == least:
            full_s.append(time.monotonic())
    return release_ids(values)


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
        return {*names_of(*feed.histories.values())}

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
            assert tailed(city, len(own)) == own
            assert mapped(city) == {city.name}
        # The mutant that reads whatever stands on the topic: this test would see it.
        monkeypatch.setattr(cloud_events, "_SOURCE", "ce_none")
        assert tailed(one, len(both)) & {name for name in both if name.startswith(f"{other.name}/")}
        assert mapped(one) == {one.name, other.name}


def one_value_each(pipeline: Pipeline) -> dict[str, bytes]:
    """release_id -> the one value of each release on `hats.means`, of both cities."""
    published = pipeline.published()
    assert {len(set(values)) for values in published.values()} == {1}
    return {name: values[0] for name, values in published.items()}


def send_hour(city: Pipeline, number: int) -> None:
    """An hour of traffic, and what closes it."""
    later = [replace(each, time_ms=each.time_ms + number * HOUR_MS) for each in traffic(1)]
    city.kafka.produce(city.name, [each.record() for each in later])
    city.kafka.produce(city.name, ticks(NOON_MS + (number + 1) * HOUR_MS + 300_000))


def grow_by_the_runbook(city: Pipeline, worker: WorkerProcess) -> WorkerProcess:
    """Steps of docs/runbook.md, More partitions of telemetry, to workers of the next policy, which begins tomorrow."""
    grow(city)
    assert worker.wait() == 1
    assert city.hatcast("worker", "--drain").code == 0
    topics = city.settings.topics
    grow(city, topics.means, topics.queries, topics.estimates, topics.running)
    tomorrow = datetime.fromtimestamp((now_ms() + DAY_MS) / 1000, UTC).date().isoformat()
    following = {"name": f"{city.name}-next", "replaces": city.name, "from": tomorrow}
    city.config = city.changed({"policy": following}, "next.toml")
    city.settings = load_settings(city.config, {})
    doctor = city.hatcast("doctor")
    assert doctor.code == 0, doctor.out
    worker = city.worker()
    city.wait_for_partitions(worker)
    return worker


def test_one_of_two_cities_grows_by_the_runbook_and_the_other_goes_on(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with two_cities(kafka, redis_server, tmp_path) as (one, other):
        for city in (one, other):
            ensure_topics(city.settings)
        growing, worker = one.worker(), other.worker()
        for city, running in ((one, growing), (other, worker)):
            city.wait_for_partitions(running)
            city.kafka.produce(city.name, [each.record() for each in traffic(1)])
            city.wait(city.is_caught_up, "a folded log", running)
        following = grow_by_the_runbook(one, growing)

        # The other one runs on, and starts again on topics that have more partitions than its telemetry.
        send_hour(other, 1)
        other.wait(other.is_settled, "releases on grown topics", worker)
        assert worker.terminate() == 0
        worker = other.worker()
        send_hour(other, 2)
        other.wait_for_partitions(worker)
        other.wait(other.is_settled, "releases after a restart", worker)
        before = one_value_each(one)
        assert {name.partition("/")[0] for name in before} == {one.name, other.name}

        # Redis loses all of both: each recovers from topics with partitions that have no position yet.
        for city in (one, other):
            city.forget()
        send_hour(other, 3)
        other.wait(lambda: len(one_value_each(other)) == len(before) + 3, "a further hour", following, worker)
        assert before.items() <= one_value_each(other).items()
        assert [following.terminate(), worker.terminate()] == [0, 0]
