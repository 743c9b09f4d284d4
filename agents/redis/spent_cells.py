"""Book the cost of a policy's private list of cells, on each day that its selection has read.    [decisions/0015]"""

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.row_store import RowStore
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.commits import announce_spent, book_spent, dates_rows
from hatcast.stream.ledger.view import merged
from hatcast.stream.policy.policy import Policy


class SpentStore:
    """The cost that a policy has spent before its first release. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str, policy: Policy) -> None:
        self._redis = redis
        self._rows = RowStore(redis, domain)
        self._keys = DomainKeys(domain)
        self._policy = policy

    @property
    def dates(self) -> list[str]:
        """The local dates that the selection of the cells has read."""
        return [] if self._policy.selection_cost is None else self._policy.selection_cost.dates

    async def book(self) -> list[str]:
        """Book the cost on each date on which it is not booked yet; return these dates."""
        return await self._rows.decide(
            dates_rows(self._policy, self.dates), lambda view: book_spent(view, self._policy, self.dates)
        )

    async def is_announced(self) -> bool:
        """Return whether the cost of every date is on `hats.budget`."""
        return bool(await self._redis.hexists(self._keys.announced, self._policy.name))

    async def confirm(self) -> bool:
        """Store that every cost is on `hats.budget`; False if Redis had lost some, which are then booked again."""
        wanted = merged(dates_rows(self._policy, self.dates), {rows.ANNOUNCED: {self._policy.name}})
        return await self._rows.decide(wanted, lambda view: announce_spent(view, self._policy, self.dates))
