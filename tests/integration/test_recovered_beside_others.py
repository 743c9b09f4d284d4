"""Recovery beside others: policies of one telemetry topic with topics of their own, and cities that share theirs."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hatcast.agents.kafka.topics import ensure_topics
from tests.integration.harness import Pipeline, WorkerProcess, open_pipeline
from tests.integration.readings import HOUR_MS, NOON_MS, ticks, traffic
from tests.integration.test_two_cities import two_cities
from tests.services import KafkaServer, RedisServer

DATE = "2022-01-02"
HATS = 6  # two hours, three cells
LIMIT = {"policy": {"privacy": {"epsilon": 1.0, "daily_limit": 18.0, "max_hats_per_day": 20}}}


def send(kafka: KafkaServer, telemetry: str, hours: int = 2) -> None:
    kafka.produce(telemetry, [s.record() for s in traffic(hours)] + ticks(NOON_MS + hours * HOUR_MS + 300_000))


def empty(redis_server: RedisServer, *names: str) -> None:
    """What FLUSHALL does, to the keys of these domains and policies."""
    for name in names:
        redis_server.delete(f"{{{name}*")


def budget(pipeline: Pipeline, topic: str | None = None) -> dict[str, dict[str, Any]]:
    """Policy -> the newest record of `hats.budget`."""
    found: dict[str, dict[str, Any]] = {}
    for received in pipeline.kafka.read(topic or pipeline.settings.topics.budget, committed=False):
        record = json.loads(received.value or b"")
        if found.get(record["policy"], {"seq": -1})["seq"] <= record["seq"]:
            found[record["policy"]] = record
    return found


@contextmanager
def second_policy(first: Pipeline, folder: Path) -> Iterator[Pipeline]:
    """Another policy of the same telemetry, with output topics of its own."""
    with open_pipeline(first.kafka, first.redis_server, folder / "second", "beside", LIMIT) as other:
        table = other.table | {"topics": other.table["topics"] | {"telemetry": first.name}}
        other.config = other.write(table)
        yield other


def run(pipeline: Pipeline, config: Path | None = None) -> WorkerProcess:
    return pipeline.worker(config=config)


def records(pipeline: Pipeline, topic: str) -> dict[str, set[bytes]]:
    """release_id -> the values that it has ever had on a topic."""
    found: dict[str, set[bytes]] = {}
    for received in pipeline.kafka.read(topic, committed=False):
        found.setdefault((received.key or b"").decode(), set()).add(received.value or b"")
    return found


def test_whoever_recovers_the_ledger_reads_the_topics_of_every_policy(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    """A day has room for 18: each policy releases 6 HATs, then Redis is lost, and one of them releases 6 more."""
    with (
        open_pipeline(kafka, redis_server, tmp_path / "first", "beside", LIMIT) as one,
        second_policy(one, tmp_path) as two,
    ):
        ensure_topics(one.settings)
        send(kafka, one.name)
        workers = [run(one), run(two, two.config)]
        one.wait(lambda: len(records(one, one.settings.topics.means)) == HATS, "releases of one", *workers)
        one.wait(lambda: len(records(two, two.settings.topics.means)) == HATS, "releases of the other", *workers)
        for worker in workers:
            assert worker.terminate() == 0
        one.bury()
        two.bury()
        empty(redis_server, one.name, two.settings.policy.name)
        # Only one of them comes back, and it releases two more hours: there is room for 6 more, not for 12.
        kafka.produce(one.name, [s.record() for s in traffic(4)][72:] + ticks(NOON_MS + 4 * HOUR_MS + 300_000))
        last = run(one)
        one.wait(lambda: len(records(one, one.settings.topics.means)) == 2 * HATS, "releases of the other hours", last)
        assert all(len(values) == 1 for values in records(one, one.settings.topics.means).values())
        found = budget(one)[one.settings.policy.name]
        statuses = [
            json.loads(v)["status"] for values in records(one, one.settings.topics.means).values() for v in values
        ]
        assert (found["epsilon_user_day"], found["limit"]) == (18.0, 18.0)
        assert statuses.count("released") == 12
        assert statuses.count("budget_exhausted") == 0
        with closing(redis_server.client()) as redis:
            spent = redis.hget(f"{{{one.name}}}:ledger:{DATE}", f"cost:{two.settings.policy.name}")
        assert int(spent or 0) == HATS * 10**9, "what the policy that is away has spent"


def test_a_city_that_lost_its_redis_is_not_charged_with_what_another_one_published(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with two_cities(kafka, redis_server, tmp_path) as cities:
        for city in cities:
            ensure_topics(city.settings)
            send(kafka, city.name)
        workers = [city.worker() for city in cities]
        for city in cities:
            city.wait(city.is_settled, "releases", *workers)
        one, other = cities
        for worker in workers:
            assert worker.terminate() == 0
        one.bury()
        other.bury()
        before = budget(one)
        empty(redis_server, one.name)
        last = one.worker()
        one.wait(lambda: one.is_caught_up() and one.is_settled(), "settled ledger", last)
        assert budget(one)[one.name]["epsilon_user_day"] == before[one.name]["epsilon_user_day"] == float(HATS)
        with closing(redis_server.client()) as redis:
            fields = redis.hkeys(f"{{{one.name}}}:ledger:{DATE}")
        assert not [field for field in fields if other.name.encode() in field]
        assert all(len(set(values)) == 1 for values in one.published(committed=False).values())
