"""Discard records that were committed and never sent, so that the ledger equals the output topics. [decisions/0004]"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import structlog

from hatcast.agents.recovery.domain import Domain
from hatcast.agents.recovery.published_records import published_of
from hatcast.agents.redis.recovery import UnsentStore
from hatcast.stream.errors import UNREADABLE
from hatcast.stream.ledger.adoption import Published
from hatcast.stream.ledger.recovery import Attempt, Nonces
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.spending import Fineness, fineness_of

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Discarded:
    """Unsent records that are discarded.

    number   how many
    nonces   of the dates and of the total, after the last one
    """

    number: int
    nonces: Nonces


class Unsent:
    """Discards unsent records. Several workers may do it at the same time: the second one finds nothing."""

    def __init__(self, policy: Policy, store: UnsentStore) -> None:
        self._policy_id = policy.policy_id
        self._fineness: Fineness = fineness_of(policy)
        self._store = store

    async def discard(self, domain: Domain, attempt: Attempt) -> Discarded:
        """Discard all unsent records of the domain, after all sent ones are adopted.

        Raises RecoveryEnded if the attempt is over.
        """
        number, unreadable = 0, set[tuple[str, str]]()
        while True:
            before, nonces = number, await self._store.nonces(dates := await self._store.dates())
            days = [(name, date) for date in dates for name in domain.partitions]
            for day in (day for day in days if not domain.is_sealed(*day)):
                async for record in self._records(day, unreadable):
                    await self._store.discard(attempt, record)
                    number += 1
            # Sealed days too: an answer to a query over days charges each day of its period.
            await self._store.unreserve(attempt, days)
            # Otherwise look again: as long as these nonces stay, nothing unsent is there.
            if number == before and await self._store.nonces(dates) == nonces:
                return Discarded(number, nonces)

    async def _records(self, day: tuple[str, str], unreadable: set[tuple[str, str]]) -> AsyncIterator[Published]:
        """Yield the unsent records of a policy and date; `unreadable` has the days that were logged."""
        for record in (await self._store.records(*day)).values():
            try:
                yield published_of(record, self._policy_id, self._fineness)
            except UNREADABLE:  # of another version of hatcast
                if day not in unreadable:
                    name, date = day
                    log.warning("unreadable record in the ledger: it keeps its charge", policy=name, date=date)
                unreadable.add(day)
