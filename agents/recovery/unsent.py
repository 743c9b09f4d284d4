"""Discard records that were committed and never sent, so that the ledger equals the output topics. [decisions/0029]"""

import structlog

from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.published_records import published_of
from hatcast.agents.redis.unsent import UnsentStore
from hatcast.stream.errors import UNREADABLE
from hatcast.stream.ledger.attempts import Attempt
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.spending import Fineness, fineness_of

log = structlog.get_logger()


class Unsent:
    """Discards unsent records. Several workers may do it at the same time: the second one finds nothing."""

    def __init__(self, policy: Policy, store: UnsentStore) -> None:
        self._policy_id = policy.policy_id
        self._fineness: Fineness = fineness_of(policy)
        self._store = store

    async def discard(self, domain: Domain, attempt: Attempt) -> int:
        """Discard all unsent records of the domain, after all sent ones are adopted; return their number.

        Raises RecoveryEnded if the attempt is over.
        """
        discarded, days = 0, [(name, date) for date in await self._store.dates() for name in domain.partitions]
        for name, date in days:
            if domain.is_sealed(name, date):
                continue
            for record in (await self._store.records(name, date)).values():
                try:
                    unsent = published_of(record, self._policy_id, self._fineness)
                except UNREADABLE:  # of another version of hatcast
                    log.warning("unreadable record in the ledger: it keeps its charge", policy=name, date=date)
                    continue
                await self._store.discard(attempt, unsent)
                discarded += 1
        # Sealed days too: an answer to a query over days charges each day of its period.
        await self._store.unreserve(attempt, days)
        return discarded
