"""Damaged contributions, users, keys and states in Redis are refused, and nothing is released from them."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replaced
from redis.asyncio import Redis

from hatcast.agents.redis.estimates import SnapshotStore
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.redis.identity import check_user_key, claim_user_key
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.redis.stored_values import Damaged, Reopened
from hatcast.stream.checksums import with_checksum
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.checkpoint import StoredPartition, restore, take_changes
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.recovery import Attempt
from hatcast.stream.ledger.sums import StoredStates
from hatcast.stream.records.fields import Status
from tests.integration.readings import LATER_MS, NOON_MS, Sample, folds
from tests.laws.redis_scripts import DAY, NANO
from tests.laws.script_stage import Stage, empty_snapshot, published, running_sum, staged
from tests.services import RedisServer

SLOT = "2022-01-02/12:00"
Damage = Callable[[Redis, PartitionKeys, str, str], Awaitable[object]]


async def _cut(redis: Redis, keys: PartitionKeys, one: str, other: str) -> None:
    chunk = keys.chunk(SLOT, one, 0)
    await redis.set(chunk, (await redis.get(chunk) or b"")[:-1])


async def _swap(redis: Redis, keys: PartitionKeys, one: str, other: str) -> None:
    await redis.set(keys.chunk(SLOT, one, 0), await redis.get(keys.chunk(SLOT, other, 0)) or b"")


async def _lose(redis: Redis, keys: PartitionKeys, one: str, other: str) -> None:
    await redis.delete(keys.chunk(SLOT, one, 0))


async def _shrink(redis: Redis, keys: PartitionKeys, one: str, other: str) -> None:
    await redis.hset(keys.hats(SLOT), one, "1")


async def _emptied(redis: Redis, keys: PartitionKeys, one: str, other: str) -> None:
    await redis.hset(keys.hats(SLOT), one, "0")


async def _huge(redis: Redis, keys: PartitionKeys, one: str, other: str) -> None:
    await redis.hset(keys.hats(SLOT), one, "9" * 18)


async def _large(redis: Redis, keys: PartitionKeys, one: str, other: str) -> None:
    await redis.hset(keys.hats(SLOT), one, str(1 << 27))  # a possible number of users, in two million chunks


async def _other_version(redis: Redis, keys: PartitionKeys, one: str, other: str) -> None:
    chunk = keys.chunk(SLOT, one, 0)
    stored: Any = await redis.get(chunk)  # bytes, but the types allow for text
    await redis.set(chunk, with_checksum(chunk, b"\x09" + stored[1:-4]))


async def _other_type(redis: Redis, keys: PartitionKeys, one: str, other: str) -> None:
    await redis.delete(keys.chunk(SLOT, one, 0))
    await redis.rpush(keys.chunk(SLOT, one, 0), "x")


async def _begin(stage: Stage) -> list[str]:
    """Store users of two chunks in each of two cells; return the cells."""
    fold = folds(stage.policy)[0]
    ours = [each for n in range(700) for place in (1, 2) if (each := Sample(f"v{n}", NOON_MS, place)).partition == 0]
    fold.apply(LATER_MS, [NOON_MS] * len(ours), [each.value for each in ours])
    changes = take_changes(fold)
    assert await stage.partition.checkpoint(0, 1, 2, changes)
    return sorted(changes.hats[SLOT])


async def _restored(stage: Stage, stored: StoredPartition) -> StoredPartition:
    """Load a state into a fold, as a worker does; return the state that was loaded."""
    return (await stage.partition.read_until(0, stored, lambda read: restore(folds(stage.policy)[0], read)))[0]


async def test_a_state_is_read_again_if_a_hat_was_deleted_or_redis_lost_it_meanwhile(
    redis_server: RedisServer,
) -> None:
    async with staged(redis_server.url) as stage:
        one, other = (await _begin(stage))[:2]
        before = await stage.partition.read(0)
        assert await _restored(stage, before) is before
        await stage.partition.final_hats.delete([FinalHat(SLOT, one, 0)])
        torn = replace(before, hats={**before.hats, (SLOT, one): []})  # its users were read, then it was deleted
        found = await _restored(stage, torn)
        assert found == await stage.partition.read(0)
        assert {(SLOT, one), (SLOT, other)} & found.hats.keys() == {(SLOT, other)}
        for key in [each async for each in stage.redis.scan_iter(f"{PartitionKeys(stage.name, 0).prefix}*")]:
            await stage.redis.delete(key)
        with pytest.raises(Reopened):
            await _restored(stage, torn)


@pytest.mark.parametrize("damage", [_cut, _swap, _lose, _shrink, _emptied, _huge, _large, _other_version, _other_type])
async def test_a_damaged_hat_is_neither_released_nor_folded_on(redis_server: RedisServer, damage: Damage) -> None:
    async with staged(redis_server.url) as stage:
        one, other = (await _begin(stage))[:2]
        hats = [FinalHat(SLOT, cell, 0) for cell in (one, other)]
        assert await stage.partition.final_hats.load(hats)
        await damage(stage.redis, PartitionKeys(stage.name, 0), one, other)
        with pytest.raises(Damaged, match="restore all of Redis from a copy, or empty it"):
            await stage.partition.final_hats.load(hats)
        with pytest.raises((HatcastError, Damaged), match="restore all of Redis from a copy, or empty it"):
            await _restored(stage, await stage.partition.read(0))


async def test_a_chunk_with_a_flipped_bit_is_not_retained_for_queries_over_days(redis_server: RedisServer) -> None:
    async with staged(redis_server.url) as stage:
        one, _ = (await _begin(stage))[:2]
        keys = PartitionKeys(stage.name, 0)
        chunk = keys.chunk(SLOT, one, 0)
        stored: Any = await stage.redis.get(chunk)  # bytes, but the types allow for text
        await stage.redis.set(chunk, stored[:-5] + bytes([stored[-5] ^ 1]) + stored[-4:])
        with pytest.raises(Damaged, match="restore all of Redis from a copy, or empty it"):
            await stage.partition.final_hats.delete([FinalHat(SLOT, one, 0)], keep=True)
        assert await stage.redis.exists(chunk) == 1
        assert await stage.redis.hget(keys.retained_hats(SLOT), one) is None
        await stage.redis.set(chunk, stored)
        await stage.partition.final_hats.delete([FinalHat(SLOT, one, 0)], keep=True)
        assert await stage.redis.hget(keys.retained_hats(SLOT), one)


@pytest.mark.parametrize("users", ["200000000", "9" * 15])
async def test_a_damaged_number_of_users_costs_a_deletion_no_more_than_the_chunks_that_there_are(
    redis_server: RedisServer, users: str
) -> None:
    async with staged(redis_server.url) as stage:
        one, other = (await _begin(stage))[:2]
        keys = PartitionKeys(stage.name, 0)
        for cell in (one, other):
            await stage.redis.hset(keys.hats(SLOT), cell, users)
        await stage.redis.hset(keys.state, "day:2022-01-02", users)
        for keep in (False, True):
            with pytest.raises(Damaged, match="hats:2022-01-02/12:00"):
                await stage.partition.final_hats.delete([FinalHat(SLOT, one, 0)], keep=keep)
        assert await stage.redis.exists(keys.chunk(SLOT, one, 0), keys.chunk(SLOT, one, 1)) == 2
        await stage.partition.final_hats.sweep("2022-01-02", "2022-01-02")
        assert [key async for key in stage.redis.scan_iter(f"{keys.prefix}[cd]:*")] == []


async def test_a_day_that_lost_users_is_refused_since_their_caps_would_be_forgotten(redis_server: RedisServer) -> None:
    async with staged(redis_server.url) as stage:
        await _begin(stage)
        keys = PartitionKeys(stage.name, 0)
        await stage.redis.delete(keys.day_chunk("2022-01-02", 1))
        with pytest.raises(HatcastError, match="telemetry partition 0: its state in Redis cannot be read"):
            await _restored(stage, await stage.partition.read(0))


async def test_a_number_or_time_that_cannot_be_is_damaged_instead_of_counted_up_to_or_looked_up_in_a_calendar(
    redis_server: RedisServer,
) -> None:
    async with staged(redis_server.url) as stage:
        await _begin(stage)
        state, progress = PartitionKeys(stage.name, 0).state, DomainKeys(stage.name).row(rows.progress(stage.name))
        await stage.redis.hset(state, "journal", "9" * 12)
        with pytest.raises(Damaged, match="journal"):
            await stage.partition.read(0)
        await stage.redis.hset(state, "clock", "9" * 15)
        with pytest.raises(Damaged, match="state"):
            await stage.partition.watermarks()
        for field in ("first", "committed:0"):
            await stage.redis.hset(progress, field, "9" * 15)
            with pytest.raises(Damaged, match="progress"):
                await stage.ledger.progress.read()
            await stage.redis.hdel(progress, field)


@pytest.mark.parametrize("users", ["0", "-3"])
async def test_a_hat_of_no_users_is_not_deleted_from_the_index_since_its_chunks_would_stay(
    redis_server: RedisServer, users: str
) -> None:
    async with staged(redis_server.url) as stage:
        one, _ = (await _begin(stage))[:2]
        keys = PartitionKeys(stage.name, 0)
        await stage.redis.hset(keys.hats(SLOT), one, users)
        for keep in (False, True):
            with pytest.raises(Damaged, match="hats:2022-01-02/12:00"):
                await stage.partition.final_hats.delete([FinalHat(SLOT, one, 0)], keep=keep)
        assert await stage.redis.hget(keys.hats(SLOT), one) == users.encode()
        assert await stage.redis.exists(keys.chunk(SLOT, one, 0), keys.chunk(SLOT, one, 1)) == 2


def _damaged(stored: bytes) -> Iterator[bytes]:
    """Yield a value with a bit of each byte flipped, cut off at each byte, and with a byte more."""
    for at in range(len(stored)):
        yield stored[:at] + bytes([stored[at] ^ 1 << at % 8]) + stored[at + 1 :]
        yield stored[:at]
    yield stored + b"\0"


async def test_damaged_retained_contributions_are_neither_counted_nor_answered_from(redis_server: RedisServer) -> None:
    async with staged(redis_server.url) as stage:
        one, other = (await _begin(stage))[:2]
        await stage.partition.final_hats.delete([FinalHat(SLOT, cell, 0) for cell in (one, other)], keep=True)
        kept, key = RetainedStore(stage.redis, stage.name, 1), PartitionKeys(stage.name, 0).retained_hats(SLOT)
        whole = await kept.load([SLOT], 0, [one, other])
        assert whole is not None
        assert set(whole.parts) == {(one, SLOT), (other, SLOT)}
        stored: Any = await stage.redis.hgetall(key)  # bytes, but the types allow for text
        ours, theirs = stored[one.encode()], stored[other.encode()]
        damages = [*_damaged(ours)]  # of hundreds of users
        for damaged in (*damages[:20], *damages[20::97], b"", theirs):
            await stage.redis.hset(key, one, damaged)
            with pytest.raises(Damaged, match="k:2022-01-02/12:00"):
                await kept.cells([SLOT])
            with pytest.raises(Damaged, match="k:2022-01-02/12:00"):
                await kept.load([SLOT], 0, [one])


async def test_a_damaged_state_of_a_running_sum_is_not_drawn_from(redis_server: RedisServer) -> None:
    async with staged(redis_server.url) as stage:
        horizons, key = stage.ledger.horizons, DomainKeys(stage.name).row(rows.states(stage.name, DAY))
        stored: Any = await stage.redis.hget(key, "a")  # bytes, but the types allow for text
        assert await horizons.read(DAY, ["a", "b"]) == StoredStates(None, [b"first", None])
        for damaged in _damaged(stored):
            await stage.redis.hset(key, "a", damaged)
            assert await horizons.read(DAY, ["a", "b"]) == StoredStates(None, [None, None], damaged=True)
        await stage.redis.hdel(key, "a")
        await stage.redis.hset(key, "b", stored)
        assert (await horizons.read(DAY, ["a", "b"])).damaged, "the state of another cell"
        await stage.redis.hset(DomainKeys(stage.name).row(rows.horizons(stage.name)), f"closed:{DAY}", "x")
        with pytest.raises(Damaged, match="horizons:"):
            await horizons.read(DAY, ["a"])


async def test_a_state_before_an_unsent_release_that_was_cut_to_nothing_is_not_taken_for_none(
    redis_server: RedisServer,
) -> None:
    async with staged(redis_server.url) as stage:
        horizons, keys = stage.ledger.horizons, DomainKeys(stage.name)
        await horizons.settle(DAY, ["a"])
        release = running_sum(stage.name, "7:00", b"first", b"second")
        await stage.commit([release])
        assert await horizons.read(DAY, ["a"]) == StoredStates(None, [b"second"])
        await stage.redis.hset(keys.row(rows.states_before(stage.name, DAY)), "a", f"{release.release_id}\n")
        records = keys.row(rows.releases(DAY, stage.name))
        record: Any = await stage.redis.hget(records, release.release_id)  # bytes, but the types allow for text
        here = replaced(published(stage.name, "7:00", NANO, record), horizon=DAY, is_drawn=True)
        await stage.recovery.unsent.discard(Attempt("a", ours=True, is_fenced=True), here)
        assert not await stage.redis.hexists(records, release.release_id)
        assert (await horizons.read(DAY, ["a"])).closed == Status.INCOMPLETE


async def test_a_damaged_state_of_a_tracker_is_refused(redis_server: RedisServer) -> None:
    async with staged(redis_server.url) as stage:
        tracker, key = stage.ledger.tracker, DomainKeys(stage.name).row(rows.tracker(stage.name))
        await tracker.store(DAY, b"state", stage.token)
        assert await tracker.read() == b"state"
        stored: Any = await stage.redis.hget(key, "state")  # bytes, but the types allow for text
        damages = [*_damaged(stored)]
        pairs: list[tuple[str, Any]] = [
            *(("state", each) for each in damages),
            ("date", "2022-01-01"),
            ("date", ""),
        ]
        for field, damaged in pairs:
            before: Any = await stage.redis.hget(key, field)
            await stage.redis.hset(key, field, damaged)
            with pytest.raises(Damaged, match="tracker:"):
                await tracker.read()
            await stage.redis.hset(key, field, before)
        await stage.redis.hdel(key, "date")
        with pytest.raises(Damaged, match="tracker:"):
            await tracker.read()


async def test_a_damaged_snapshot_is_not_there(redis_server: RedisServer) -> None:
    async with Redis.from_url(redis_server.url) as redis:
        store, keys = SnapshotStore(redis, "t-damaged", "p"), DomainKeys("t-damaged")
        snapshot = empty_snapshot("id")
        await store.write(snapshot, {DAY: b"inputs"})
        assert await store.read("id") == snapshot
        assert await store.read_dates(snapshot) == {DAY: b"inputs"}
        stored: Any = await redis.get(keys.estimates("p"))  # bytes, but the types allow for text
        for damaged in _damaged(stored):
            await redis.set(keys.estimates("p"), damaged)
            assert await store.read("id") is None
        inputs: Any = await redis.hget(keys.running("p"), DAY)
        for damaged in _damaged(inputs):
            await redis.hset(keys.running("p"), DAY, damaged)
            assert await store.read_dates(snapshot) == {}
        await redis.delete(keys.estimates("p"), keys.running("p"))


async def test_a_damaged_user_key_is_refused_since_each_vehicle_would_count_as_two(redis_server: RedisServer) -> None:
    async with Redis.from_url(redis_server.url) as redis:
        keys = DomainKeys("t-damaged-key")
        await redis.delete(keys.user_key)
        await claim_user_key(redis, keys, None)
        await redis.hset(keys.user_key, "key", bytes(32))
        with pytest.raises(Damaged, match="user-key"):
            await check_user_key(redis, keys, None)
        with pytest.raises(Damaged, match="user-key"):
            await claim_user_key(redis, keys, None)
        await redis.delete(keys.user_key)


class LoadedFromAnOlderCopy(PartitionStore):
    """Redis is empty while the state is read, and has again what it had before the read ends: two faults in a load."""

    async def read(self, partition: int) -> StoredPartition:
        keys = [key async for key in self._redis.scan_iter(f"{PartitionKeys(self.name, partition).prefix}*")]
        self.copies = {key: await self._redis.dump(key) or b"" for key in keys}
        await self._redis.delete(*keys)
        return await super().read(partition)

    async def _read_rows(self, *read: Any) -> StoredPartition:
        stored = await super()._read_rows(*read)
        for key, copy in self.copies.items():
            await self._redis.restore(key, 0, copy, replace=True)
        return stored


async def test_nothing_is_folded_on_a_state_that_was_read_from_an_older_copy_than_was_opened(
    redis_server: RedisServer,
) -> None:
    async with staged(redis_server.url) as stage:
        await _begin(stage)
        whole = await stage.partition.read(0)
        assert whole.hats
        loading = LoadedFromAnOlderCopy(stage.redis, stage.partition.name, stage.partition.partitions)
        with pytest.raises(Reopened, match="changed hands, or went back in time"):
            await loading.open(0, 1)
        again = PartitionStore(stage.redis, stage.partition.name, stage.partition.partitions)
        assert await again.open(0, 1) == (2, whole)
        with pytest.raises(Reopened):
            await stage.partition.read(0)  # another worker has opened it since
