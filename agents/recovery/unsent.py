"""Discard records that were committed and never sent, so that the ledger equals the output topics. [decisions/0029]"""

from collections.abc import Callable

from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.published_records import published_of
from hatcast.agents.redis.attempts import Attempt
from hatcast.agents.redis.unsent import UnsentStore
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.spending import fineness_of


class Unsent:
    """Discards unsent records. Several workers may do it at the same time: the second one finds nothing."""

    def __init__(self, policy: Policy, store: UnsentStore) -> None:
        self._policy_id = policy.policy_id
        self._fineness: Callable[[float | None], int] = fineness_of(policy)
        self._store = store

    async def discard(self, domain: Domain, attempt: Attempt) -> int:
        """Discard all unsent records of the domain, after all sent ones are adopted; return their number.

        Raises RecoveryEnded if the attempt is over.
        """
        discarded = 0
        for date in await self._store.dates():
            for name in domain.publishing:
                if domain.is_sealed(name, date):
                    continue
                for record in (await self._store.records(name, date)).values():
                    await self._store.discard(attempt, published_of(record, self._policy_id, self._fineness))
                    discarded += 1
                await self._store.unreserve(attempt, name, date)
        return discarded
