"""Which policy follows which, from what local date on: the domain's own key, which every commit looks at.    [design 4]

It is kept as `DATE NAME` under the name of the policy that is replaced, and every budget record of the successor tells
it too, so a Redis that has lost it finds it on `hats.budget` when the ledger is recovered.    [decisions/0008]
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Script


@dataclass(frozen=True, slots=True)
class NextPolicy:
    """The policy that follows another, and its first local date."""

    from_date: str
    name: str

    @property
    def stored(self) -> str:
        """As it is kept."""
        return f"{self.from_date} {self.name}"

    @staticmethod
    def of(stored: bytes) -> "NextPolicy":
        """As it was kept."""
        return NextPolicy(*stored.decode().split(" "))


def claim_of(name: str, replaces: str | None, from_date: str | None) -> tuple[str, str]:
    """For the scripts: the policy that `name` replaces, and `name` as its successor; '' where it replaces none."""
    return ("", "") if replaces is None or from_date is None else (replaces, NextPolicy(from_date, name).stored)


@dataclass(frozen=True, slots=True)
class Begun:
    """The policy to be replaced has released this date already, or a later one."""

    last: str


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored of a policy.

    from_date    its own first local date, if it follows another
    partitions   of telemetry, at its first start; 0 where Redis has lost that
    """

    from_date: str | None
    partitions: int


class PolicyTransitionStore:
    """The successions of a domain. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str) -> None:
        self._redis = redis
        self._keys = DomainKeys(domain)
        self._succeed = Script(redis, "succeed")

    async def successor(self, name: str) -> NextPolicy | None:
        """Who follows a policy."""
        stored = await self._redis.hget(self._keys.successors, name)
        return NextPolicy.of(stored) if isinstance(stored, bytes) else None

    async def claim(self, replaced: str, successor: NextPolicy) -> NextPolicy | Begun:
        """Keep a successor, in one step with the look at what the other has released; returns who is kept now."""
        how, what = await self._succeed(
            keys=[self._keys.successors, self._keys.last], args=[replaced, successor.from_date, successor.stored]
        )
        return Begun(what.decode()) if how == b"begun" else NextPolicy.of(what)

    async def known(self, name: str) -> Known | None:
        """What this domain knows of a policy; None if it was never started here, and never released anything."""
        policy: Any = await self._redis.hmget(self._keys.policy(name), ["canonical", "partitions"])
        canonical, partitions = policy
        if canonical is not None:
            return Known(msgspec.json.decode(canonical).get("from"), int(partitions))
        released = await self._redis.hget(self._keys.last, name)
        successors: Any = await self._redis.hvals(self._keys.successors)
        began = [one.from_date for stored in successors if (one := NextPolicy.of(stored)).name == name]
        return Known(began[0] if began else None, 0) if released is not None or began else None

    async def domain_of(self, name: str) -> str | None:
        """The telemetry topic that a policy of this name was started on."""
        stored = await self._redis.hget(self._keys.owner(name), "domain")
        return stored.decode() if isinstance(stored, bytes) else None
