"""Running sums in Redis: the states of cells in a horizon.    [docs/specification/release.md, Running sums]

The apply that writes a record writes the state too: hatcast.stream.ledger.sums.
"""

from collections.abc import Sequence
from typing import Any

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.row_store import RowStore
from hatcast.agents.redis.stored_values import number_of, parsing
from hatcast.stream.ledger.sums import StoredStates, drop_horizon, states_of, states_rows


class HorizonStore:
    """The horizons of one policy. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        self._redis = redis
        self._rows = RowStore(redis, domain)
        self._keys = DomainKeys(domain)
        self._name = name

    async def read(self, horizon: str, cells: Sequence[str]) -> StoredStates:
        """Return the states of cells in a horizon."""
        wanted = states_rows(self._name, horizon, cells)
        return await self._rows.look(wanted, lambda view: states_of(view, self._name, horizon, cells))

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
        await self._rows.decide({}, lambda view: drop_horizon(view, self._name, horizon))
