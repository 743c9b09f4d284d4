"""Policy transitions of a domain: each policy's next policy and its first local date, which every commit checks.

Redis stores `DATE NAME` under the name of the replaced policy. Every budget record of the next policy contains the
transition too, so ledger recovery restores a lost one from `hats.budget`.    [decisions/0008]
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Script
from hatcast.agents.redis.stored_values import parsing
from hatcast.stream.ledger.transitions import AlreadyBegun, NextPolicy


def claim_args(name: str, replaces: str | None, from_date: str | None) -> tuple[str, str]:
    """Return script arguments: the policy that `name` replaces, and `name` as its next policy; '' if there is none."""
    return ("", "") if replaces is None or from_date is None else (replaces, NextPolicy(from_date, name).stored)


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
        self._claim_next = Script(redis, "claim_next_policy")

    async def next_policy(self, name: str) -> NextPolicy | None:
        """Return a policy's next policy, or None."""
        stored = await self._redis.hget(self._keys.next_policies, name)
        with parsing(self._keys.next_policies):
            return NextPolicy.of(stored) if isinstance(stored, bytes) else None

    async def claim(self, replaced: str, next_policy: NextPolicy) -> NextPolicy | AlreadyBegun:
        """Store a policy's next policy unless one is stored, and return the stored one.

        AlreadyBegun, checked in the same atomic step, if the replaced policy has released a date of the next policy.
        """
        reply, value = await self._claim_next(
            keys=[self._keys.next_policies, self._keys.last], args=[replaced, next_policy.from_date, next_policy.stored]
        )
        return AlreadyBegun(value.decode()) if reply == b"begun" else NextPolicy.of(value)

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
