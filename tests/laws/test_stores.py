"""Laws of a partition's store: Redis gives a fold back as it was.    (ledgers: test_ledgers.py)"""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.stream.fold.checkpoint import StoredPartition, restore, take_changes, totals
from hatcast.stream.fold.reading_fold import Fold
from hatcast.stream.policy.policy import Policy
from tests.integration.readings import HOUR_MS, LATER_MS, NOON_MS, Sample, folds
from tests.replayed import policy_of
from tests.services import RedisServer
from tests.support import examples

slow = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

# Enough of one partition for two chunks of users in a HAT.
AT_HOME = [sample.vehicle for n in range(1_600) if (sample := Sample(f"v{n}", 0)).partition == 0]
samples = st.lists(
    st.builds(
        Sample,
        st.sampled_from(AT_HOME),
        st.integers(NOON_MS, NOON_MS + 3 * HOUR_MS),
        st.integers(0, 1),
        st.floats(0, 200),
    ),
    max_size=120,
)
EVENTS = ("checkpoint", "restart", "stale", "twice")
batches = st.lists(st.tuples(samples, st.sampled_from(EVENTS)), min_size=1, max_size=8)


WEEK = {"kind": "tree", "horizon_days": 7, "max_slots": 2, "min_separation": 2, "max_cells": 1}
LIMITS: list[dict[str, Any]] = [{}, {"continual": WEEK, "estimator": None, "privacy": {"epsilon": 1.0}}]


@slow
@given(batches=batches, limit=st.sampled_from(LIMITS))
async def test_a_partition_is_read_back_as_it_was_folded_whatever_checkpoints_are_refused(
    redis_server: RedisServer, batches: list[tuple[list[Sample], str]], limit: dict[str, Any]
) -> None:
    name = f"t-laws-{uuid.uuid4().hex[:8]}"
    policy = policy_of(name=name, lateness="48h", drop_zero=False, **limit)
    await _compare(redis_server.url, policy, batches)
    redis_server.delete(f"{{{name}*")


async def _compare(url: str, policy: Policy, batches: list[tuple[list[Sample], str]]) -> None:
    whole, fold = folds(policy)[0], folds(policy)[0]
    async with Redis.from_url(url) as redis:
        store = PartitionStore(redis, policy.name, 1)
        base, _ = await store.open(0, 0)
        for batch, event in batches:
            apply(whole, batch)
            apply(fold, batch)
            following = base + max(len(batch), 1)
            changes = take_changes(fold)
            if event == "stale":
                before = await store.read(0)
                assert not await store.checkpoint(0, base + 1, following + 1, changes)
                assert await store.read(0) == before
            assert await store.checkpoint(0, base, following, changes)
            if event == "twice":  # a client that had no answer sends it again
                before = await store.read(0)
                assert not await store.checkpoint(0, base, following, changes)
                assert await store.read(0) == before
            base = following
            if event == "restart":
                fold = folds(policy)[0]
                offset, stored = await store.open(0, 0)
                assert offset == base
                restore(fold, stored)
            assert state(await read(policy, store.read)) == state(whole)
        await _delete_all(store, whole)


async def read(policy: Policy, reader: Callable[[int], Awaitable[StoredPartition]]) -> Fold:
    fold = folds(policy)[0]
    restore(fold, await reader(0))
    return fold


async def _delete_all(store: PartitionStore, whole: Fold) -> None:
    """Final HATs are loaded whole and can be deleted; before their clock they can neither."""
    hats = [key.partition("/") for key in totals(whole.slots.values())]
    clock = whole.watermark or 0
    early = [FinalHat(slot, cell, clock + 1) for cell, _, slot in hats]
    if early:
        assert await store.final_hats.load(early) is None
        await store.final_hats.delete(early)
    final = [FinalHat(slot, cell, clock) for cell, _, slot in hats]
    loaded = await store.final_hats.load(final)
    assert loaded is not None
    assert all(loaded)
    await store.final_hats.delete(final)
    assert (await store.read(0)).hats == {}
    assert await store.open_slots() == {}


def apply(fold: Fold, batch: Sequence[Sample]) -> None:
    """Fold samples; without any, a tick."""
    times = [each.time_ms for each in batch] or [NOON_MS]
    fold.apply(LATER_MS, times, [each.value for each in batch] or [b""])


def state(fold: Fold) -> object:
    return (
        fold.watermark,
        {name: n for name, n in fold.outcomes.items() if n},
        totals(fold.slots.values()),
        {date: [fold.limit.pack([user]) for user in day.users.values()] for date, day in fold.periods.items()},
        {
            key: {cell: {u: known.seen for u, known in hat.users.items()} for cell, hat in slot.hats.items()}
            for key, slot in fold.slots.items()
            if slot.hats
        },
    )


async def test_the_users_of_a_horizon_that_the_next_policy_cuts_short_are_deleted(redis_server: RedisServer) -> None:
    name = f"t-laws-{uuid.uuid4().hex[:8]}"
    policy = policy_of(name=name, lateness="48h", **LIMITS[1])
    fold = folds(policy)[0]
    apply(fold, [Sample(AT_HOME[0], NOON_MS, 0, 30.0)])
    [horizon] = fold.periods

    left = []
    async with Redis.from_url(redis_server.url) as redis:
        store = PartitionStore(redis, policy.name, 1)
        await store.open(0, 0)
        assert await store.checkpoint(0, 0, 1, take_changes(fold))
        for users_from in ("2022-01-04", horizon):  # of a day after the horizon's first, and of the horizon
            await store.final_hats.sweep("2022-01-04", users_from)
            fields: Any = await redis.hkeys(f"{{{name}:0}}:state")  # bytes, but the types allow for text
            counted = [field for field in fields if field.startswith(b"day:")]
            left.append(len(await redis.keys(f"{{{name}:0}}:d:*")) + len(counted))
    assert left == [2, 0]
    redis_server.delete(f"{{{name}*")


async def test_a_partition_is_written_by_its_last_opener_alone(redis_server: RedisServer) -> None:
    name = f"t-laws-{uuid.uuid4().hex[:8]}"
    fold = folds(policy_of(name=name))[0]
    apply(fold, [Sample(AT_HOME[0], NOON_MS, 0, 30.0)])
    changes = take_changes(fold)

    async with Redis.from_url(redis_server.url) as redis:
        stores = [PartitionStore(redis, name, 1) for _ in range(2)]
        for store in stores:
            await store.open(0, 0)
        assert [await store.checkpoint(0, 0, 1, changes) for store in stores] == [False, True]
    redis_server.delete(f"{{{name}*")
