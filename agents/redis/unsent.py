"""Records in Redis that were never sent to an output topic: a ledger recovery discards them with their charges.

During a recovery nothing is committed, all publishers are fenced, and every record on the output topics is adopted. A
record in Redis that is on no topic by then was never sent.    [decisions/0029]
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.row_store import RowStore
from hatcast.agents.redis.stored_values import date_of, parsing
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adoption import Published
from hatcast.stream.ledger.recovery import Attempt, Nonces, RecoveryCheck
from hatcast.stream.ledger.unsent import discard, record_rows, unreserve, unreserve_rows
from hatcast.stream.ledger.view import merged

_BATCH: Final = 100  # days of one decision


class UnsentStore:
    """The unsent records of one domain. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str) -> None:
        self._redis = redis
        self._rows = RowStore(redis, domain)
        self._keys = DomainKeys(domain)

    async def dates(self) -> list[str]:
        """Return the local dates with a ledger, oldest first."""
        dates: Any = await self._redis.smembers(self._keys.dates)  # bytes, but the types allow text
        return sorted(date_of(self._keys.dates, date) for date in dates)

    async def nonces(self, dates: Collection[str]) -> Nonces:
        """Return the nonces of these dates and of the total."""
        fields = {*dates, rows.TOTAL}
        return await self._rows.look(
            {rows.NONCES: fields}, lambda view: {each: view.get(rows.NONCES, each) for each in sorted(fields)}
        )

    async def records(self, name: str, date: str) -> Mapping[str, bytes]:
        """Return release_id -> record for the records of a policy and date that are on no output topic."""
        releases, published = self._keys.releases(date, name), self._keys.published(date, name)
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hlen(releases)
            pipe.scard(published)
            number, sent = await pipe.execute()
        if number == sent:
            return {}
        names: Any = await self._redis.hkeys(releases)
        ids = set(names) - set(await self._redis.smembers(published))
        ids -= set(await self._redis.smembers(self._keys.seen(date, name)))
        wanted = sorted(ids)
        records: Any = await self._redis.hmget(releases, wanted) if wanted else []
        with parsing(releases):
            return {each.decode(): record for each, record in zip(wanted, records, strict=True) if record is not None}

    async def discard(self, attempt: Attempt, record: Published) -> None:
        """Discard a record with its charge, unless it was sent. Raises RecoveryEnded if the attempt is over."""
        wanted = record_rows(record, RecoveryCheck.in_progress(attempt.token))
        if record.is_drawn:
            cell, name = record.place.partition("/")[0], record.name
            states = {key(name, record.horizon): {cell} for key in (rows.states, rows.states_before)}
            wanted = merged(wanted, states)
        await self._rows.decide(wanted, lambda view: discard(view, attempt.token, record))

    async def unreserve(self, attempt: Attempt, days: Sequence[tuple[str, str]]) -> None:
        """Remove reservations that no topic has reported.

        days   (policy name, local date)
        Raises RecoveryEnded as `discard`.
        """
        for at in range(0, len(days), _BATCH):
            some = days[at : at + _BATCH]
            await self._rows.decide(unreserve_rows(some), partial(unreserve, attempt=attempt.token, days=some))
