"""Book the cost of a policy's private list of cells, on each day that its selection has read.    [decisions/0015]"""

from collections.abc import Sequence
from typing import Final

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Call, Script
from hatcast.stream.ledger.reservations import reservations
from hatcast.stream.policy.policy import Policy
from hatcast.stream.queries import CELL_SELECTION

_DATES: Final = 366  # dates of one script call


class SpentStore:
    """The cost that a policy has spent before its first release. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str, policy: Policy) -> None:
        self._redis = redis
        self._keys = DomainKeys(domain)
        self._policy = policy
        self._spent = Script(redis, "book_spent")

    @property
    def dates(self) -> list[str]:
        """The local dates that the selection of the cells has read."""
        return [] if self._policy.selection_cost is None else self._policy.selection_cost.dates

    async def book(self) -> list[str]:
        """Book the cost on each date on which it is not booked yet; return these dates."""
        return await self._run(self.dates, announced=False)

    async def is_announced(self) -> bool:
        """Return whether the cost of every date is on `hats.budget`."""
        return bool(await self._redis.hexists(self._keys.announced, self._policy.name))

    async def confirm(self) -> bool:
        """Store that every cost is on `hats.budget`; False if Redis had lost some, which are then booked again."""
        # The second script has only the last dates: if Redis is emptied in between, it lacks these too, and stores
        # nothing.
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
        return [date.decode() for booked in await self._spent.run_each(calls) for date in booked] if calls else []

    def _args(self, date: str) -> list[str]:
        """Return the script arguments that are the same for all dates of a batch."""
        reserved, total = reservations(self._policy, date)[CELL_SELECTION], self._policy.total_limit_nano
        return [
            self._policy.name,
            CELL_SELECTION,
            str(reserved.places),
            str(reserved.epsilon),
            str(self._policy.daily_limit_nano),
            "" if total is None else str(total),
        ]
