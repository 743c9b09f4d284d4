"""Running sums in Redis, whatever happens to it: what was sent of a cell follows from one run, each draw once.

A worker draws, commits, sends and marks, and may end after each; Redis may restart, or go back to any copy of itself.
A sum is the list of its draws, and so is the state after it.
"""

import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

from redis.asyncio import Redis

from hatcast.agents.redis.ledger_store import LedgerStore
from hatcast.agents.redis.recovery import RecoveryStore
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import Position, Published
from hatcast.stream.ledger.proposals import Proposal, StateChange
from hatcast.stream.ledger.recovery import RecoveryCheck
from tests.integration.recovering import OUTPUT, adopt, guard_of
from tests.laws.redis_scripts import DAY
from tests.replayed import policy_of
from tests.services import RedisServer

CELLS = "ab"
EVENTS = ("work",) * 6 + ("restart",) * 2 + ("copy", "go back")


@dataclass
class World:
    """A Redis, its copies, and what is on the topic."""

    redis: Redis
    name: str
    chance: random.Random
    topic: list[bytes] = field(default_factory=list)
    copies: list[dict[bytes, bytes]] = field(default_factory=lambda: [{}])
    draws: "count[int]" = field(default_factory=count)

    @property
    def recovery(self) -> RecoveryStore:
        return RecoveryStore(self.redis, self.name, self.name)

    @property
    def ledger(self) -> LedgerStore:
        return LedgerStore(self.redis, self.name, policy_of(name=self.name))

    def published(self, record: bytes) -> Published:
        read = json.loads(record)
        place = f"{read['cell']}/{read['slot']}"
        drawn = read["status"] == "released"
        return Published(
            read["release_id"], self.name, DAY, place, 0, read["seq"], 0, record, horizon=DAY, is_drawn=drawn
        )

    async def copy(self) -> None:
        keys: list[Any] = await self.redis.keys(f"{{{self.name}*")
        self.copies.append({key: await self.redis.dump(key) or b"" for key in keys})

    async def go_back(self) -> None:
        for key in await self.redis.keys(f"{{{self.name}*"):
            await self.redis.delete(key)
        for key, value in self.chance.choice(self.copies).items():
            await self.redis.restore(key, 0, value)
        await self.recover()

    async def recover(self) -> None:
        """As LedgerRecovery: adopt what is on the topic, then discard what is not."""
        store, end = self.recovery, Position("", len(self.topic))
        await self.redis.hdel(store._keys.row(rows.RECOVERY), "token")
        attempt = await store.begin()
        assert await store.store_ends(attempt, {OUTPUT: end})
        known = (await store.adopted()).get(OUTPUT)
        sent = [self.published(record) for record in self.topic[0 if known is None else known.offset :]]
        check = RecoveryCheck.in_progress(attempt.token)
        while different := await adopt(store, check, sent):
            for each in sent:
                if each.release_id in different and (here := await store.record_of(each)) is not None:
                    await store.supersede(check, self.published(here), each)
        for record in (await store.unsent.records(self.name, DAY)).values():
            await store.unsent.discard(attempt, self.published(record))
        assert await store.finish(attempt, {}, {})

    async def work(self) -> None:
        """Release the next slot of a cell, as far as the worker comes."""
        cell, steps = self.chance.choice(CELLS), self.chance.choice((1, 1, 2, 3, 3, 3))
        published = await self.ledger.are_published(DAY, [self.id_of(cell, slot) for slot in range(100)])
        slot = published.index(False)
        (stored,) = await self.ledger.find(DAY, [self.id_of(cell, slot)])
        record = await self.commit(cell, slot) if stored is None else stored.record
        if steps > 1:
            self.topic.append(record)
        if steps > 2:
            await self.ledger.mark_published(DAY, [self.id_of(cell, slot)])
            await self.ledger.horizons.settle(DAY, [cell])

    async def commit(self, cell: str, slot: int) -> bytes:
        stored = await self.ledger.horizons.read(DAY, [cell])
        state, drawn = stored.states[0], [] if stored.states[0] is None else json.loads(stored.states[0])
        change, status = StateChange(DAY, cell, state, None, stored.closed), stored.closed or "incomplete"
        if stored.closed is None and (not drawn or drawn[-1][0] < slot):
            drawn = [*drawn, [slot, next(self.draws)]]
            change, status = StateChange(DAY, cell, state, json.dumps(drawn).encode()), "released"
        name, place = self.id_of(cell, slot), f"{cell}/{slot}"
        head = {"release_id": name, "cell": cell, "slot": slot, "status": status, "drawn": drawn}
        parts = json.dumps(head).encode()[:-1] + b', "seq": ', b"}"
        proposal = Proposal(name, DAY, place, 0, parts, parts, change=change, release_partition=0)
        (committed,) = await self.ledger.commit([proposal], await guard_of(self.recovery, 1))
        return committed.record

    def id_of(self, cell: str, slot: int) -> str:
        return f"{self.name}/{DAY}T{slot:02}:00/{cell}"

    def check(self) -> None:
        """Each release has one value, and the sums of a cell are those of one run."""
        values: dict[str, set[bytes]] = {}
        for record in self.topic:
            values.setdefault(json.loads(record)["release_id"], set()).add(record)
        assert {len(found) for found in values.values()} <= {1}, "two values of one release"
        records = [json.loads(*found) for found in values.values()]
        for cell in CELLS:
            of_cell = sorted((each for each in records if each["cell"] == cell), key=lambda each: each["slot"])
            sums = [each["drawn"] for each in of_cell if each["status"] == "released"]
            assert all(before == after[:-1] for before, after in pairwise([[], *sums])), "not of one run"


async def live(url: str, seed: int, events: int = 25) -> Sequence[str]:
    """What has happened to a cell, in the end: the statuses of its records."""
    name = f"t-running-{uuid.uuid4().hex[:8]}"
    async with Redis.from_url(url) as redis:
        world = World(redis, name, random.Random(seed))
        try:
            await world.recover()
            for _ in range(events):
                match world.chance.choice(EVENTS):
                    case "work":
                        await world.work()
                    case "restart":
                        await world.recover()
                    case "copy":
                        await world.copy()
                    case _:
                        await world.go_back()
                world.check()
        finally:
            for key in await redis.keys(f"{{{name}*"):
                await redis.delete(key)
    return [json.loads(record)["status"] for record in world.topic]


async def lives(url: str, number: int = 16) -> list[Sequence[str]]:
    return [await live(url, seed) for seed in range(number)]


async def test_what_was_sent_of_a_cell_follows_from_one_run_whatever_happens_to_redis(
    redis_server: RedisServer,
) -> None:
    found = await lives(redis_server.url)
    assert {status for statuses in found for status in statuses} == {"released", "incomplete"}
    assert sum(statuses.count("released") for statuses in found) > 4 * len(found), "hardly anything was released"
