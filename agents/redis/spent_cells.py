"""Book what a policy's private list of cells has cost, on all of the days that it has read.    [decisions/0015]"""

from collections.abc import Sequence
from typing import Final

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Call, Script
from hatcast.stream.policy.policy import Policy
from hatcast.stream.queries import CELLS, reservations

_DATES: Final = 366  # of one script


class SpentStore:
    """The costs of one policy that are spent before it releases anything. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str, policy: Policy) -> None:
        self._redis = redis
        self._keys = DomainKeys(domain)
        self._policy = policy
        self._spent = Script(redis, "spent")

    @property
    def dates(self) -> list[str]:
        """The local dates that the list has cost something."""
        return [] if self._policy.chosen is None else self._policy.chosen.dates

    async def book(self) -> list[str]:
        """Book them on each date on which they are not booked yet; returns these dates."""
        return await self._run(self.dates, announced=False)

    async def is_announced(self) -> bool:
        """Whether all of them are on `hats.budget`."""
        return bool(await self._redis.hexists(self._keys.announced, self._policy.name))

    async def confirm(self) -> bool:
        """Note that all of them are on `hats.budget`; False if some had been lost meanwhile, and are booked again."""
        # With the last dates alone: if Redis is emptied in between, these are missing too, and nothing is noted.
        return not await self.book() and not await self._run(self.dates[-_DATES:], announced=True)

    async def _run(self, dates: Sequence[str], *, announced: bool) -> list[str]:
        keys, calls = self._keys, list[Call]()
        for at in range(0, len(dates), _DATES):
            batch = dates[at : at + _DATES]
            calls.append(
                (
                    [keys.total, keys.dates, keys.announced, *map(keys.ledger, batch)],
                    [*self._args(batch[0]), str(int(announced)), *batch],
                )
            )
        return [date.decode() for booked in await self._spent.each(calls) for date in booked] if calls else []

    def _args(self, date: str) -> list[str]:
        """What is the same on all of these dates."""
        reserved, total = reservations(self._policy, date)[CELLS], self._policy.total_limit_nano
        return [
            self._policy.name,
            CELLS,
            str(reserved.places),
            str(reserved.epsilon),
            str(self._policy.daily_limit_nano),
            "" if total is None else str(total),
        ]
