"""Reservations of clusterings in the ledger.    [docs/proofs.md, "Clusterings with devices"]"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Script
from hatcast.stream.ledger.rejections import DaySealed, Exhausted, Replaced, Unrecovered
from hatcast.stream.policy.policy import Policy

_REJECTIONS: Final[Mapping[bytes, type[Exception]]] = {
    b"unrecovered": Unrecovered,
    b"sealed": DaySealed,
    b"replaced": Replaced,
    b"exhausted": Exhausted,
}


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation that Redis has.

    new     whether this call made it
    token   of the finished recovery that Redis had
    """

    new: bool
    token: bytes


class ClusteringStore:
    """Costs of a policy's clusterings. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str, policy: Policy) -> None:
        self._redis = redis
        self._keys = DomainKeys(domain)
        self._policy = policy
        self._reserve = Script(redis, "reserve_clustering")

    async def policy_id(self) -> str | None:
        """Return the policy_id under which this policy was started; None if it was not, or Redis has lost it."""
        stored = await self._redis.hget(self._keys.policy(self._policy.name), "policy_id")
        return stored.decode() if isinstance(stored, bytes) else None

    async def reserve(self, query: str, date: str, epsilon_nano: int) -> Reservation:
        """Reserve an epsilon (1e-9) for each user of a local date, once for each query name.

        Raises Unrecovered, DaySealed, Replaced or Exhausted: then nothing was written.
        """
        keys, total = self._keys, self._policy.total_limit_nano
        answer: Any = await self._reserve(
            keys=[keys.recovery, keys.sealed, keys.next_policies, keys.ledger(date), keys.total, keys.dates],
            args=[
                self._policy.name,
                date,
                query,
                str(epsilon_nano),
                str(self._policy.daily_limit_nano),
                "" if total is None else str(total),
            ],
        )
        if (rejection := _REJECTIONS.get(answer[0])) is not None:
            raise rejection
        return Reservation(answer[0] == b"reserved", answer[1])
