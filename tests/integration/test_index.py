"""The index of a partition: what follows from an older one is read again, and what it counts has to be there."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from hatcast.agents.redis.clients import Call, Script
from hatcast.agents.redis.final_hats import FinalHat
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.retained import RetainedStore
from hatcast.agents.redis.stored_values import Damaged
from hatcast.stream.fold.checkpoint import take_changes
from tests.integration.readings import LATER_MS, NOON_MS, Sample, folds
from tests.laws.script_stage import Stage, staged
from tests.services import RedisServer

SLOT = "2022-01-02/12:00"


class Users:
    """Of one cell in partition 0, who enter it group by group."""

    def __init__(self, stage: Stage, offset: int = 1) -> None:
        self._stage = stage
        self._fold = folds(stage.policy)[0]
        self._offset = offset
        self.cell = ""

    async def enter(self, first: int, end: int) -> None:
        """Fold those of these vehicles that are of the partition, and write the chunks."""
        ours = [each for n in range(first, end) if (each := Sample(f"v{n}", NOON_MS, 1)).partition == 0]
        self._fold.apply(LATER_MS, [NOON_MS] * len(ours), [each.value for each in ours])
        changes = take_changes(self._fold)
        assert await self._stage.partition.checkpoint(0, self._offset, self._offset + 1, changes)
        self._offset += 1
        [self.cell] = changes.hats[SLOT]


def between_the_steps(monkeypatch: pytest.MonkeyPatch, do: Callable[[], Awaitable[object]]) -> list[str]:
    """Let something happen before the next script that reads or deletes runs; return the names of those that run."""
    ran: list[str] = []
    run_each = Script.run_each

    async def run(self: Script, calls: Sequence[Call]) -> list[Any]:
        first = not ran
        ran.append(self._hash)
        if first:
            await do()
        return await run_each(self, calls)

    monkeypatch.setattr(Script, "run_each", run)
    return ran


@pytest.mark.parametrize("act", ["load", "delete", "sweep"])
def test_what_follows_from_an_index_that_has_changed_is_read_again(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    async def check() -> None:
        async with staged(redis_server.url) as stage:
            users, keys = Users(stage), PartitionKeys(stage.name, 0)
            await users.enter(0, 700)
            hat = FinalHat(SLOT, users.cell, 0)
            between_the_steps(monkeypatch, lambda: users.enter(700, 2_100))  # two chunks more
            if act == "load":
                assert await stage.partition.final_hats.load([hat]) == await stage.partition.final_hats.load([hat])
                return
            if act == "delete":
                await stage.partition.final_hats.delete([hat])
            else:
                await stage.partition.final_hats.sweep("2022-01-02", "2022-01-02")
            left = [key async for key in stage.redis.scan_iter(f"{keys.prefix}c:{SLOT}/{users.cell}/*")]
            assert left == [], "chunks that the older index did not have"

    asyncio.run(check())


async def test_every_writer_of_a_partition_replaces_the_nonce_of_its_index(redis_server: RedisServer) -> None:
    kept = set()
    for script in ("open", "skip", "checkpoint", "delete", "delete_retained", "sweep"):
        async with staged(redis_server.url) as stage:
            state = PartitionKeys(stage.name, 0).state
            before = await stage.redis.hget(state, "nonce")
            await stage.acts()[script]()
            if await stage.redis.hget(state, "nonce") in (before, None):
                kept.add(script)
    assert kept == set()


async def test_a_key_of_a_partition_that_is_missing_is_damage_and_not_empty(redis_server: RedisServer) -> None:
    async def check(key_of: Callable[[PartitionKeys], str], wanted: list[str]) -> None:
        async with staged(redis_server.url) as stage:
            first, users = Users(stage), Users(stage, 2)
            keys, kept = PartitionKeys(stage.name, 0), RetainedStore(stage.redis, stage.name, 1)
            await first.enter(0, 700)
            await stage.partition.final_hats.delete([FinalHat(SLOT, first.cell, 0)], keep=True)
            await users.enter(0, 700)  # folded again
            await stage.redis.hset(keys.journal, "0", b"a block")
            await stage.redis.hset(keys.state, "journal", "1")
            key = key_of(keys)
            assert await stage.redis.delete(key) == 1
            hat = FinalHat(SLOT, users.cell, 0)
            acts: dict[str, Callable[[], Awaitable[object]]] = {
                "read": lambda: stage.partition.read(0),
                "cells": lambda: stage.partition.cells(SLOT),
                "load": lambda: stage.partition.final_hats.load([hat]),
                "delete": lambda: stage.partition.final_hats.delete([hat], keep=True),
                "checkpoint": lambda: users.enter(700, 800),
                "retained slots": kept.slots,
                "retained cells": lambda: kept.cells([SLOT]),
                "retained": lambda: kept.load([SLOT], 0, [users.cell]),
                "delete retained": lambda: kept.delete([(SLOT, users.cell)]),
            }
            for name in wanted:
                with pytest.raises(Damaged, match=re.escape(key)):
                    await acts[name]()

    of_hats = ["read", "cells", "load", "delete", "checkpoint", "retained"]
    of_retained = ["delete", "retained cells", "retained", "delete retained"]
    await check(lambda keys: keys.journal, ["read", "checkpoint"])
    await check(lambda keys: keys.hats(SLOT), of_hats)
    await check(lambda keys: keys.retained, [*of_retained, "retained slots"])
    await check(lambda keys: keys.retained_hats(SLOT), of_retained)
