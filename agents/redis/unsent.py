"""Records in Redis that were never sent to an output topic, and their charges: a recovery discards them.

While a recovery is in progress nothing is committed, all publishers are fenced, and everything that was sent is read:
what is not known to be sent by then never was.    [decisions/0029]
"""

from collections.abc import Mapping
from typing import Any

from hatcast.agents.redis.adoption import Published
from hatcast.agents.redis.attempts import Attempt, RecoveryEnded
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Script
from hatcast.stream.policy.query_keys import CELLS


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
        return sorted(date.decode() for date in dates)

    async def records(self, name: str, date: str) -> Mapping[str, bytes]:
        """Return release_id -> record of what no output topic is known to hold, of a policy and a date."""
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
        return {each.decode(): record for each, record in zip(wanted, records, strict=True) if record is not None}

    async def discard(self, attempt: Attempt, record: Published) -> None:
        """Discard a record with its charge, unless it was sent. Raises RecoveryEnded where the attempt is over."""
        keys, date, name = self._keys, record.date, record.name
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
            ],
            args=[
                attempt.token,
                name,
                record.release_id,
                record.record,
                record.place,
                str(record.charge),
                record.fineness,
            ],
        )
        _go_on(answer)

    async def unreserve(self, attempt: Attempt, name: str, date: str) -> None:
        """Take back what a policy's queries reserved on a date and no topic told of. Raises RecoveryEnded as `discard`."""
        keys = self._keys
        (answer,) = await self._unreserve(
            keys=[keys.recovery, keys.ledger(date), keys.total], args=[attempt.token, name, CELLS]
        )
        _go_on(answer)


def _go_on(answer: bytes) -> None:
    if answer == b"ended":
        raise RecoveryEnded
