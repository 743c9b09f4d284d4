"""While a Redis Cluster moves a slot, nothing looks absent: what a worker asks is answered as before, or not at all."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
from redis.asyncio import RedisCluster

from hatcast.agents.redis.clients import AsyncCluster, cluster_problem
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.redis.stored_values import SlotMoving
from hatcast.stream.fold.checkpoint import take_changes
from tests.integration.readings import LATER_MS, NOON_MS, Sample, folds
from tests.replayed import policy_of
from tests.services.redis_cluster import RedisClusterServer, SlotMove, local_cluster

NAME, SLOT = "t-migration", "2022-01-02/12:00"
Act = Callable[[], Awaitable[object]]


@pytest.fixture
def cluster() -> Iterator[RedisClusterServer]:
    with local_cluster() as made:
        yield made


class Stage:
    """A partition with two HATs, one of them retained, and a journal; and all that a worker asks of it."""

    def __init__(self, redis: RedisCluster) -> None:
        self.redis = redis
        self.store = PartitionStore(redis, NAME, 1)
        self.kept = RetainedStore(redis, NAME, 1)
        self.fold = folds(policy_of(name=NAME, lateness="48h"))[0]
        self.offset = 0
        self.hats: list[FinalHat] = []

    async def fill(self) -> None:
        await self.store.open(0, 0)
        ours = [
            each for n in range(400) for place in (1, 2) if (each := Sample(f"v{n}", NOON_MS, place)).partition == 0
        ]
        self.fold.apply(LATER_MS, [NOON_MS] * len(ours), [each.value for each in ours])
        changes = take_changes(self.fold)
        assert await self.store.checkpoint(0, 0, 1, changes)
        self.hats = [FinalHat(SLOT, cell, 0) for cell in sorted(changes.hats[SLOT])]
        self.offset = 1
        await self.store.final_hats.delete(self.hats[:1], keep=True)
        self.vehicle = ours[0].vehicle

    async def checkpoint(self, place: int) -> object:
        """Fold a reading in a cell, and write it."""
        more = Sample(self.vehicle, NOON_MS + 600_000 * place, place)
        self.fold.apply(LATER_MS, [NOON_MS], [more.value])
        changes = take_changes(self.fold, journal=True)
        written = await self.store.checkpoint(0, self.offset, self.offset + 1, changes)
        self.offset += written
        return written

    def reads(self) -> Mapping[str, Act]:
        cells = [hat.cell for hat in self.hats]

        async def loaded() -> object:
            return await self.store.final_hats.load(self.hats)

        return {
            "read": lambda: self.store.read(0),
            "load": loaded,
            "open_slots": self.store.open_slots,
            "cells": lambda: self.store.cells(SLOT),
            "outcomes": self.store.outcomes,
            "watermarks": self.store.watermarks,
            "retained slots": self.kept.slots,
            "retained cells": lambda: self.kept.cells([SLOT]),
            "retained": lambda: self.kept.load([SLOT], 0, cells[:1]),
        }


@asynccontextmanager
async def staged(cluster: RedisClusterServer) -> AsyncIterator[Stage]:
    redis = AsyncCluster.from_url(cluster.url)
    await redis.initialize()
    redis.RedisClusterRequestTTL = 4  # so few attempts: a command that meets the move need not wait for its end here
    try:
        stage = Stage(redis)
        await stage.fill()
        yield stage
    finally:
        await redis.aclose()


async def ask(act: Act) -> object:
    """Return what is answered, or the error that names the slot."""
    try:
        return await act()
    except SlotMoving as error:
        return error


@pytest.mark.parametrize("last", ["state", "journal"])
async def test_whichever_keys_have_moved_each_read_gives_all_or_an_error_that_names_the_slot(
    cluster: RedisClusterServer, last: str
) -> None:
    waited = set()
    async with staged(cluster) as stage:
        assert await stage.checkpoint(3)
        reads = stage.reads()
        whole = {name: await read() for name, read in reads.items()}
        move = SlotMove(cluster, PartitionKeys(NAME, 0).state)
        for key in [*sorted(move.unmoved(), key=lambda key: key.endswith(f":{last}")), None]:
            for name, read in reads.items():
                found = await ask(read)
                if isinstance(found, SlotMoving):
                    assert f"moves slot {move.slot} " in str(found)
                    assert f"moves slot {move.slot} " in (cluster_problem(stage.redis) or "")
                    waited.add(name)
                else:
                    assert found == whole[name], f"{name} before {key} moved"
            if key is not None:
                move.move(key)
        move.end()
        assert {name: await read() for name, read in reads.items()} == whole
    assert waited >= {"load", "retained cells", "retained"}


@pytest.mark.parametrize("first", ["state", "journal", "chunk"])
async def test_a_checkpoint_and_a_deletion_amid_a_move_are_written_whole_after_it_or_not_at_all(
    cluster: RedisClusterServer, first: str
) -> None:
    async with staged(cluster) as stage:
        assert await stage.checkpoint(3)
        keys = PartitionKeys(NAME, 0)
        before = await stage.store.read(0)
        moved = {"state": keys.state, "journal": keys.journal, "chunk": keys.chunk(SLOT, stage.hats[1].cell, 0)}[first]
        move = SlotMove(cluster, keys.state)
        move.move(moved)
        assert isinstance(await ask(lambda: stage.checkpoint(4)), SlotMoving)
        assert isinstance(await ask(lambda: stage.store.final_hats.sweep("2022-01-02", "2022-01-02")), SlotMoving)
        if first != "journal":  # which a deletion does not need
            assert isinstance(await ask(lambda: stage.store.final_hats.delete(stage.hats[1:], keep=True)), SlotMoving)
        move.end()
        assert await stage.store.read(0) == before, "nothing was written"
        await stage.store.final_hats.delete(stage.hats[1:], keep=True)
        assert set(await stage.kept.cells([SLOT])) == {hat.cell for hat in stage.hats}


def test_a_key_that_both_nodes_have_since_one_ended_amid_a_move_keeps_its_value(cluster: RedisClusterServer) -> None:
    source = cluster.node_of("key")
    target = next(node for node in cluster.nodes if node is not source)
    node: Any  # its `execute_command` has no types
    with closing(cluster.client()) as client, closing(source.client()) as node:
        client.set("key", "old")
        move = SlotMove(cluster, "key")
        port = target.url.rpartition(":")[2].partition("/")[0]
        node.execute_command("MIGRATE", "127.0.0.1", port, "key", 0, 5000, "COPY")
        client.set("key", "new")
        move.end()
        assert client.get("key") == b"new"
    assert cluster.node_of("key") is target
