"""State in Redis of a policy's tracker, before its next day.    [docs/specification/tracker.md, section 4]"""

from typing import Any

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.row_store import RowStore
from hatcast.agents.redis.stored_values import date_of
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.recovery import RECOVERED_ROWS
from hatcast.stream.ledger.tracked import state_of, store_state
from hatcast.stream.ledger.view import Wanted


class TrackerStore:
    """The state of one policy's tracker. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        self._redis = redis
        self._rows = RowStore(redis, domain)
        self._name = name
        self._key = DomainKeys(domain).tracker(name)

    async def read(self) -> bytes | None:
        """Return the state after the last day that was settled; None if there is none. Raises Damaged."""
        return await self._rows.look(
            {rows.tracker(self._name): {"date", "state"}}, lambda view: state_of(view, self._name)
        )

    async def settled(self) -> str:
        """Return the local date through which days are settled; "" if there is none."""
        stored: Any = await self._redis.hget(self._key, "date")  # bytes, but the types allow text
        return "" if stored is None else date_of(self._key, stored)

    async def store(self, date: str, state: bytes, token: str) -> None:
        """Store the state after a local date, unless a later one is stored.

        token   of the finished recovery
        Raises Unrecovered if this Redis may have lost data.
        """
        wanted: Wanted = {rows.tracker(self._name): {"date"}, **RECOVERED_ROWS}
        await self._rows.decide(wanted, lambda view: store_state(view, self._name, date, state, token))
