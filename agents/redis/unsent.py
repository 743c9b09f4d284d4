"""Records in Redis that were never sent to an output topic: a ledger recovery discards them with their charges.

During a recovery nothing is committed, all publishers are fenced, and every record on the output topics is adopted. A
record in Redis that is on no topic by then was never sent.    [decisions/0029]
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hatcast.agents.redis.adoption import Published
from hatcast.agents.redis.attempts import Attempt, RecoveryEnded
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Script
from hatcast.agents.redis.stored_values import date_of, parsing
from hatcast.stream.policy.query import CELL_SELECTION

_BATCH: Final = 500  # days in one round trip


class UnsentStore:
    """The unsent records of one domain. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str) -> None:
        self._redis = redis
        self._keys = DomainKeys(domain)
        self._discard = Script(redis, "discard")
        self._unreserve = Script(redis, "unreserve")

    async def dates(self) -> list[str]:
        """Return the local dates with a ledger, oldest first."""
        dates: Any = await self._redis.smembers(self._keys.dates)  # bytes, but the types allow text
        return sorted(date_of(self._keys.dates, date) for date in dates)

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
        keys, date, name = self._keys, record.date, record.name
        horizon = record.horizon if record.is_drawn else ""
        (answer,) = await self._discard(
            keys=[
                keys.recovery,
                keys.releases(date, name),
                keys.published(date, name),
                keys.seen(date, name),
                keys.ledger(date),
                keys.costs(date, name),
                keys.levels(date, name),
                keys.total,
                keys.progress(name),
                *(keys.of_horizon(name, horizon) if horizon else ()),
            ],
            args=[
                attempt.token,
                name,
                record.release_id,
                record.record,
                record.place,
                str(record.charge),
                record.fineness,
                *((horizon, record.place.partition("/")[0]) if horizon else ()),
            ],
        )
        _continue(answer)

    async def unreserve(self, attempt: Attempt, days: Sequence[tuple[str, str]]) -> None:
        """Remove reservations that no topic has reported.

        days   (policy name, local date)
        Raises RecoveryEnded as `discard`.
        """
        keys = self._keys
        for at in range(0, len(days), _BATCH):
            answers = await self._unreserve.run_each(
                [
                    ([keys.recovery, keys.ledger(date), keys.total], [attempt.token, name, CELL_SELECTION])
                    for name, date in days[at : at + _BATCH]
                ]
            )
            for (answer,) in answers:
                _continue(answer)


def _continue(answer: bytes) -> None:
    if answer == b"ended":
        raise RecoveryEnded
