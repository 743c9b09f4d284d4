"""State in Redis of a policy's tracker, before its next day.    [docs/specification/tracker.md, section 4]"""

from typing import Any

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Script
from hatcast.agents.redis.stored_values import date_of, without_checksum
from hatcast.stream.ledger.rejections import Unrecovered
from hatcast.stream.ledger.view import with_checksum


class TrackerStore:
    """The state of one policy's tracker. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        self._redis = redis
        keys = DomainKeys(domain)
        self._keys = [keys.recovery, keys.tracker(name)]
        self._store = Script(redis, "store_tracker")

    async def read(self) -> bytes | None:
        """Return the state after the last day that was settled; None if there is none. Raises Damaged."""
        key = self._keys[1]
        stored: Any = await self._redis.hmget(key, ["state", "date"])  # bytes, but the types allow text
        state, day = stored
        return None if state is None and day is None else without_checksum(f"{key}/{date_of(key, day)}", state)

    async def settled(self) -> str:
        """Return the local date through which days are settled; "" if there is none."""
        stored: Any = await self._redis.hget(self._keys[1], "date")  # bytes, but the types allow text
        return "" if stored is None else date_of(self._keys[1], stored)

    async def store(self, date: str, state: bytes, token: str) -> None:
        """Store the state after a local date, unless a later one is stored.

        token   of the finished recovery
        Raises Unrecovered if this Redis may have lost data.
        """
        checked = with_checksum(f"{self._keys[1]}/{date}", state)
        if not await self._store(keys=self._keys, args=[token, date, checked]):
            raise Unrecovered
