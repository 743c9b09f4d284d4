"""A policy follows another on real services: no day is of both, and what cannot follow is refused in one line."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from hatcast.agents.kafka.client import aiokafka_options
from hatcast.agents.kafka.producers import TransactionalProducers
from hatcast.agents.kafka.registry import Registry
from hatcast.agents.kafka.topics import ensure_topics
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.redis.identity import claim_policy, policy_errors
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.agents.redis.policy_state import PolicyTransitionStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.release.kind import ReleaseContext
from hatcast.agents.release.loop import ReleaseLoop
from hatcast.agents.worker.policy_transition import PolicyTransition
from hatcast.stream.errors import HatcastError
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.transitions import NextPolicy
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.units import DAY_MS
from tests.integration.harness import Pipeline, open_pipeline
from tests.integration.hidden import open_hidden, release_ids
from tests.integration.readings import HOUR_MS, NOON_MS, Sample, Stores, open_stores, store_closed, ticks, traffic
from tests.integration.recovering import recovery_of
from tests.integration.tables import merged
from tests.integration.test_release import releasing
from tests.integration.test_worker_refusals import assert_refused
from tests.services import KafkaServer, Record, RedisServer
from tests.services.kafka_server import PARTITIONS

TODAY, TOMORROW = "2022-01-02", "2022-01-03"
LIMIT = 8.0


def beside(pipeline: Pipeline, role: str, **changes: Any) -> Pipeline:
    """Another policy on the same topics."""
    folder = pipeline.folder / role
    folder.mkdir()
    policy = {"policy": {"name": f"{pipeline.name}-{role}", **changes}}
    table = merged(pipeline.table, policy)
    return Pipeline(pipeline.name, folder, pipeline.kafka, pipeline.redis_server, table, processes=pipeline.processes)


def following(pipeline: Pipeline, role: str = "new", date: str = TOMORROW, **changes: Any) -> Pipeline:
    return beside(pipeline, role, replaces=pipeline.settings.policy.name, **{"from": date}, **changes)


pytestmark = pytest.mark.pipeline({"policy": {"privacy": {"daily_limit": LIMIT}}})


def a_day(days: int, first_hour: int, hours: int) -> list[Record]:
    """Three HATs an hour, from so many hours after noon on, so many days later."""
    shift = days * DAY_MS + first_hour * HOUR_MS
    return [Sample(s.vehicle, s.time_ms + shift, s.place, s.speed).record() for s in traffic(hours)]


def test_across_the_date_every_hat_of_a_day_is_of_one_policy_and_all_share_the_days_limit(pipeline: Pipeline) -> None:
    new, third = following(pipeline), beside(pipeline, "third")
    telemetry = pipeline.settings.topics.telemetry
    old_worker = pipeline.worker()
    pipeline.wait_for_partitions(old_worker)
    pipeline.kafka.produce(telemetry, a_day(0, 0, 1))
    pipeline.wait(pipeline.is_caught_up, "first hour", old_worker)
    workers = [each.worker() for each in (new, third)]
    new.wait_for_partitions(workers[0])
    # Both run across midnight; readings of the next day come before the last ones of this.
    pipeline.kafka.produce(telemetry, [*a_day(0, 1, 1), *a_day(1, 0, 2), *a_day(0, 0, 1), *ticks(NOON_MS + 2 * DAY_MS)])
    assert old_worker.wait() == 0
    assert "replaced" in old_worker.logged()
    for each in (new, third):
        pipeline.wait(each.is_settled, "releases", *workers)
    again = pipeline.worker()  # by whoever starts what has ended
    assert again.wait() == 0
    assert "partition started" not in again.logged()

    records = [json.loads(values[0]) for values in pipeline.published().values()]
    assert all(len(set(values)) == 1 for values in pipeline.published(committed=False).values())
    hats = Counter((record["date"], record["release_id"].partition("/")[0]) for record in records)
    names = [each.settings.policy.name for each in (pipeline, new, third)]
    assert hats == {(TODAY, names[0]): 6, (TODAY, names[2]): 6, (TOMORROW, names[1]): 6, (TOMORROW, names[2]): 6}
    released = Counter(record["date"] for record in records if record["status"] == "released")
    assert released == {TODAY: LIMIT, TOMORROW: LIMIT}
    for date in (TODAY, TOMORROW):  # a record tells what was spent by then: of all policies' the last one holds
        budgets = [budget for budget in pipeline.budget_records().values() if budget["date"] == date]
        newest = max(budgets, key=lambda budget: budget["seq"])
        assert (newest["epsilon_user_day"], newest["day_bound"]) == (LIMIT, LIMIT)
    assert_nothing_left(pipeline)
    assert pipeline.status()["replaced_by"] == {"policy": names[1], "from": TOMORROW}


def assert_nothing_left(pipeline: Pipeline) -> None:
    """The policy that ended holds no contribution any more, also not of the days of its successor."""
    with closing(pipeline.redis_server.client()) as redis:
        kept = {key.rpartition(b"}:")[2] for key in redis.scan_iter(f"{{{pipeline.settings.policy.name}:[0-9]*")}
    assert kept <= {b"state", b"outcomes"}, kept


@asynccontextmanager
async def opened(
    pipeline: Pipeline, kind: type[PolicyTransition] = PolicyTransition
) -> AsyncIterator[tuple[PolicyTransition, ReleaseLoop, Stores]]:
    """What a worker has of its policy, without the group."""
    settings = pipeline.settings
    client = aiokafka_options(settings)
    async with AsyncExitStack() as held:
        stores = await held.enter_async_context(open_stores(pipeline, claim=False))
        producer = AIOKafkaProducer(acks="all", **client)
        await producer.start()
        held.push_async_callback(producer.stop)
        producers = TransactionalProducers(settings.topics.telemetry, settings.policy.name, client)
        held.push_async_callback(producers.stop)
        recovery = recovery_of(pipeline, stores.redis, producers)
        store, registry = HatStore(stores.partitions), Registry(settings)
        context = ReleaseContext(settings, store, stores.ledger, recovery, producers, registry, SystemNoise())
        retained = RetainedStore(stores.redis, settings.policy.name, PARTITIONS)
        releaser = ReleaseLoop(context, retained, lambda: frozenset(range(PARTITIONS)))
        yield kind(settings, stores.redis, stores.ledger, recovery, producer), releaser, stores


class Silent(PolicyTransition):
    """The mutant: it tells Redis only whom it follows."""

    async def _announce(self) -> None:
        return


async def settle(pipeline: Pipeline, kind: type[PolicyTransition] = PolicyTransition) -> None:
    """A worker's start, as far as it may be refused."""
    async with opened(pipeline, kind) as (succession, _, stores):
        keys, policy = DomainKeys(pipeline.settings.topics.telemetry), pipeline.settings.policy
        for _, error in await policy_errors(stores.redis, keys, policy, PARTITIONS):
            raise error
        await succession.take_over()
        await claim_policy(stores.redis, keys, policy, PARTITIONS)


def move_clock(pipeline: Pipeline, clock_ms: int) -> None:
    """That of one partition: the greatest tells what has begun."""
    with closing(pipeline.redis_server.client()) as redis:
        redis.hset(PartitionKeys(pipeline.settings.policy.name, 3).state, "clock", str(clock_ms))


@pytest.mark.parametrize("known", [True, False])
async def test_a_redis_that_has_lost_the_succession_finds_it_on_the_topic_before_anything_is_released(
    pipeline: Pipeline, *, known: bool
) -> None:
    new = following(pipeline)
    samples = [*traffic(1), *(Sample(s.vehicle, s.time_ms + DAY_MS, s.place, s.speed) for s in traffic(1))]

    ensure_topics(pipeline.settings)
    await settle(pipeline)
    move_clock(pipeline, NOON_MS)
    await settle(new, PolicyTransition if known else Silent)
    pipeline.forget()
    async with opened(pipeline) as (_, releaser, stores):
        await store_closed(stores, pipeline.settings.policy, samples, NOON_MS + 2 * DAY_MS)
        await releaser.round(asyncio.Event())
    days = {json.loads(values[0])["date"] for values in pipeline.published().values()}
    assert days == ({TODAY} if known else {TODAY, TOMORROW})


def refused(pipeline: Pipeline) -> str:
    """Why a worker does not start."""
    with pytest.raises(HatcastError) as found:
        asyncio.run(settle(pipeline))
    assert "\n" not in str(found.value)
    return str(found.value)


def test_what_cannot_follow_is_refused_and_leaves_nothing_behind(pipeline: Pipeline) -> None:
    ensure_topics(pipeline.settings)
    old = pipeline.settings.policy.name
    asyncio.run(settle(pipeline))
    move_clock(pipeline, NOON_MS)
    refusals: dict[str, tuple[dict[str, Any], str]] = {
        "unknown": ({"replaces": "nobody", "from": TOMORROW}, "no policy 'nobody' was ever started on telemetry"),
        "begun": (
            {"from": TODAY},
            f"policy.from {TODAY} has begun: {old!r} has reached 2022-01-02T12:00:00+00:00; set",
        ),
        "past": ({"from": "2021-12-31"}, "set policy.from to a date that has not begun"),
        "zone": ({"from": TOMORROW, "timezone": "Asia/Kolkata"}, "policy.timezone 'Asia/Kolkata': the other"),
    }
    for role, (changes, reason) in refusals.items():
        one = beside(pipeline, role, **{"replaces": old, **changes})
        assert reason in refused(one)
        assert_nothing_kept(one)
    # A worker tells it in one line.
    assert_refused(pipeline.hatcast("worker", config=pipeline.folder / "begun" / "hatcast.toml"), "has begun")

    first = following(pipeline, "first")
    asyncio.run(settle(first))
    rival = following(pipeline, "rival", "2022-01-05")
    name = first.settings.policy.name
    assert f"{old!r} is replaced by {name!r} from {TOMORROW} on: set policy.replaces to {name!r}" in refused(rival)
    assert_nothing_kept(rival)
    early = beside(pipeline, "early", replaces=name, **{"from": TOMORROW})
    assert f"{name!r} itself begins on {TOMORROW}: use a later date" in refused(early)
    moved = replace(first, table=merged(first.table, {"policy": {"from": "2022-01-04"}}))
    assert "was started with another policy.from: a policy does not change" in refused(moved)


async def test_a_policy_starts_again_when_its_date_has_begun_long_ago(pipeline: Pipeline) -> None:
    ensure_topics(pipeline.settings)
    await settle(pipeline)
    move_clock(pipeline, NOON_MS)
    first = following(pipeline)
    await settle(first)
    move_clock(pipeline, NOON_MS + 5 * DAY_MS)
    await settle(first)
    pipeline.forget()  # and Redis is lost: it stands on the topic
    await settle(first)


def assert_nothing_kept(pipeline: Pipeline) -> None:
    """A start that was refused does not bind the next one."""
    name, domain = pipeline.settings.policy.name, pipeline.settings.topics.telemetry
    with closing(pipeline.redis_server.client()) as redis:
        assert list(redis.scan_iter(f"{{{name}*")) == []
        assert not redis.exists(DomainKeys(domain).policy(name))
        assert not any(name in str(successor) for successor in redis.hvals(DomainKeys(domain).row(rows.NEXT_POLICIES)))


def test_a_policy_of_another_telemetry_cannot_be_followed_nor_its_name_be_used(
    pipeline: Pipeline, kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    asyncio.run(settle(pipeline))
    name = pipeline.settings.policy.name
    with open_pipeline(kafka, redis_server, tmp_path / "other", "other") as other:
        ensure_topics(other.settings)
        reason = refused(beside(other, "follower", replaces=name, **{"from": TOMORROW}))
        assert f"{name!r} is a policy of telemetry {name!r}, not of {other.name!r}" in reason
        same = replace(other, table=merged(other.table, {"policy": {"name": name}}))
        assert f"{name!r} belongs to telemetry topic {name!r} on this Redis" in refused(same)


async def test_under_add_remove_too_no_slot_of_the_successors_days_is_released(
    kafka: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    async def release(pipeline: Pipeline) -> None:
        async with open_stores(pipeline) as stores:
            await store_closed(stores, pipeline.settings.policy, traffic(), NOON_MS + 2 * DAY_MS)
            successor = NextPolicy(TOMORROW, "new")
            await PolicyTransitionStore(stores.redis, pipeline.name).claim(pipeline.name, successor)
            async with releasing(pipeline, stores) as releaser:
                assert not await releaser.is_done(TOMORROW)
                await releaser.round(asyncio.Event())
                assert await releaser.is_done(TOMORROW)

    with open_hidden(kafka, redis_server, tmp_path, "hidden-follow", {"policy": {"hours": [12, 14]}}) as pipeline:
        await release(pipeline)
        slots = [f"{TODAY}T{slot}" for slot in ("12:00", "13:00")]
        assert sorted(pipeline.published(committed=False)) == sorted(release_ids(pipeline, *slots))
