"""Reservations of clusterings in the ledger.    [docs/proofs.md, "Clusterings with devices"]"""

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.row_store import RowStore
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.ledger.commits import Reservation, dates_rows, reserve
from hatcast.stream.ledger.date_rules import rules_rows
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.view import merged
from hatcast.stream.policy.policy import Policy


class ClusteringStore:
    """Costs of a policy's clusterings. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str, policy: Policy) -> None:
        self._redis = redis
        self._rows = RowStore(redis, domain)
        self._keys = DomainKeys(domain)
        self._policy = policy
        self._calendar = Calendar(policy)

    async def policy_id(self) -> str | None:
        """Return the policy_id under which this policy was started; None if it was not, or Redis has lost it."""
        stored = await self._redis.hget(self._keys.policy(self._policy.name), "policy_id")
        return stored.decode() if isinstance(stored, bytes) else None

    async def reserve(self, query: str, date: str, epsilon_nano: int) -> Reservation:
        """Reserve an epsilon (1e-9) for each user of a local date, once for each query name.

        Raises Unrecovered, DaySealed, Replaced or Exhausted, and HatcastError if the domain's policies release the date
        by other rules: then nothing was written.
        """
        policy, cost = self._policy, Reserved(1, epsilon_nano)
        wanted = merged(dates_rows(policy, [date]), rules_rows(policy.name, [date]))
        return await self._rows.decide(wanted, lambda view: reserve(view, policy, query, date, cost, self._calendar))
