"""Policy transitions of a domain, in Redis: hatcast.stream.ledger.transitions."""

from dataclasses import dataclass
from typing import Any

import msgspec

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.row_store import RowStore
from hatcast.agents.redis.stored_values import parsing
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.transitions import AlreadyBegun, NextPolicy, claim
from hatcast.stream.ledger.view import Wanted


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy that this domain has started.

    from_date    its own first local date, if it replaces another policy
    partitions   number of telemetry partitions at its first start; 0 if Redis has lost it
    """

    from_date: str | None
    partitions: int


class PolicyTransitionStore:
    """The policy transitions of a domain. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str) -> None:
        self._redis = redis
        self._keys = DomainKeys(domain)
        self._rows = RowStore(redis, domain)

    async def next_policy(self, name: str) -> NextPolicy | None:
        """Return a policy's next policy, or None."""
        stored = await self._redis.hget(self._keys.next_policies, name)
        with parsing(self._keys.next_policies):
            return NextPolicy.of(stored) if isinstance(stored, bytes) else None

    async def claim(self, replaced: str, next_policy: NextPolicy) -> NextPolicy | AlreadyBegun:
        """Store a policy's next policy unless one is stored, and return the stored one.

        AlreadyBegun, checked in the same atomic step, if the replaced policy has released a date of the next policy.
        """
        wanted: Wanted = {rows.NEXT_POLICIES: {replaced}, rows.LAST: {replaced}}
        return await self._rows.decide(
            wanted, lambda view: claim(view, replaced, next_policy.from_date, next_policy.name)
        )

    async def known(self, name: str) -> StoredPolicy | None:
        """Return a policy of this domain; None if it was never started here and has never released anything."""
        policy: Any = await self._redis.hmget(self._keys.policy(name), ["canonical", "partitions"])
        canonical, partitions = policy
        if canonical is not None:
            with parsing(self._keys.policy(name)):
                return StoredPolicy(msgspec.json.decode(canonical).get("from"), int(partitions))
        released = await self._redis.hget(self._keys.last, name)
        stored: Any = await self._redis.hgetall(self._keys.next_policies)  # bytes, but the types allow for text
        with parsing(self._keys.next_policies):
            from_dates = [each.from_date for each in map(NextPolicy.of, stored.values()) if each.name == name]
        if released is None and not from_dates:
            return None
        return StoredPolicy(from_dates[0] if from_dates else None, 0)

    async def last_date(self, name: str) -> str | None:
        """Return a policy's last local date with a record, or None."""
        stored = await self._redis.hget(self._keys.last, name)
        with parsing(self._keys.last):
            return stored.decode() if isinstance(stored, bytes) else None

    async def domain_of(self, name: str) -> str | None:
        """Return the telemetry topic on which a policy of this name was started, or None."""
        stored = await self._redis.hget(self._keys.owner(name), "domain")
        return stored.decode() if isinstance(stored, bytes) else None
