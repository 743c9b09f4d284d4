"""Running sums in Redis: the states of cells in a horizon.    [docs/specification/release.md, Running sums]

The scripts that write records write the states too, in the same step: commit.lua stores one, discard.lua takes one
back, and adopt.lua and supersede.lua close the horizon of a record that Redis lacked.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.errors import Damaged
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Argument, Script
from hatcast.agents.redis.stored_values import number_of, parsing, without_checksum
from hatcast.stream.ledger.proposals import StateChange
from hatcast.stream.ledger.sums import StoredStates
from hatcast.stream.ledger.view import with_checksum
from hatcast.stream.records.fields import Status


def change_arguments(change: StateChange, keys: DomainKeys, name: str) -> list[Argument]:
    """Return the last arguments of commit.lua, for a policy of this name."""
    place, digest = f"{keys.states(name, change.horizon)}/{change.cell}", ""
    if change.before is not None:
        digest = hashlib.sha1(with_checksum(place, change.before), usedforsecurity=False).hexdigest()
    after = b"" if change.after is None else with_checksum(place, change.after)
    return [change.horizon, change.cell, digest, after, change.closes or ""]


class HorizonStore:
    """The horizons of one policy. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        self._redis = redis
        self._keys = DomainKeys(domain)
        self._name = name
        self._read = Script(redis, "read_horizon")

    async def read(self, horizon: str, cells: Sequence[str]) -> StoredStates:
        """Return the states of cells in a horizon."""
        key, index = self._keys.states(self._name, horizon), self._keys.horizons(self._name)
        closed, *stored = await self._read(keys=[key, index], args=[horizon, *cells])
        with parsing(index):
            status = Status(closed.decode()) if closed else None
        try:
            states = [
                None if state is None else without_checksum(f"{key}/{cell}", state)
                for cell, state in zip(cells, stored, strict=True)
            ]
        except Damaged:
            return StoredStates(status, [None] * len(cells), damaged=True)
        return StoredStates(status, states)

    async def settle(self, horizon: str, cells: Sequence[str]) -> None:
        """Drop the states before the last releases of these cells, which are published now."""
        if cells:
            await self._redis.hdel(self._keys.states_before(self._name, horizon), *cells)

    async def known(self) -> list[str]:
        """Return the horizons with a stored state, oldest first."""
        fields: Any = await self._redis.hkeys(self._keys.horizons(self._name))  # bytes, but the types allow text
        with parsing(self._keys.horizons(self._name)):
            names = [field.decode().partition(":") for field in fields]
        return sorted({horizon for kind, _, horizon in names if kind in ("cells", "closed")})

    async def cells(self, horizon: str) -> int:
        """Return the number of cells with a running sum in a horizon."""
        key = self._keys.horizons(self._name)
        stored: Any = await self._redis.hget(key, f"cells:{horizon}")  # bytes, but the types allow text
        return 0 if stored is None else number_of(key, stored)

    async def drop(self, horizon: str) -> None:
        """Delete the states of a horizon of which every day is sealed, or belongs to the next policy."""
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.delete(self._keys.states(self._name, horizon))
            pipe.delete(self._keys.states_before(self._name, horizon))
            await pipe.execute()
        await self._redis.hdel(self._keys.horizons(self._name), f"cells:{horizon}", f"closed:{horizon}")
