"""Seal a policy's days in Redis, reduce them to summaries, and restore summaries that Redis lost."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from types import MappingProxyType
from typing import Final

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.row_store import RowStore
from hatcast.stream.ledger import rows, sealing
from hatcast.stream.ledger.adoption import OutputPartition, Position
from hatcast.stream.ledger.recovery import RecoveryCheck
from hatcast.stream.ledger.sealed_days import Sealed, SealedDay, TopicStart
from hatcast.stream.ledger.view import Wanted, merged

_BATCH: Final = 100  # summaries restored by one decision


class SealStore:
    """The seals of one domain. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str) -> None:
        self._redis = redis
        self._rows = RowStore(redis, domain)
        self._keys = DomainKeys(domain)

    async def through(self, name: str) -> str:
        """Return the local date through which a policy's days are sealed; "" for none."""
        stored = await self._redis.hget(self._keys.sealed, name)
        return stored.decode() if isinstance(stored, bytes) else ""

    async def missing(self, sealed: Mapping[str, Sealed]) -> dict[str, Sealed]:
        """Return those of these seals that Redis lacks."""
        return {name: seal for name, seal in sealed.items() if await self.through(name) < seal.through}

    async def seal(
        self, name: str, through: str, token: str, adopted: Mapping[OutputPartition, Position] = MappingProxyType({})
    ) -> bool:
        """Seal a policy's days through a local date.

        False, and nothing was written, if the ledger is not recovered under this token, or has not adopted the output
        partitions up to `adopted`.
        """
        wanted: Wanted = {
            rows.RECOVERY: {"token"},
            rows.SEALED: {name},
            rows.ADOPTED: [place.field for place in adopted],
        }
        return await self._rows.decide(wanted, lambda view: sealing.seal(view, name, through, token, adopted))

    async def day(self, name: str, date: str) -> SealedDay | None:
        """Return the summary of a policy's part of a day, or None."""
        return await self._rows.look(sealing.day_rows(name, date), lambda view: sealing.day_of(view, name, date))

    async def starts(self, unsealed_from: str, name: str) -> dict[str, TopicStart]:
        """Return where reading the output topics starts once a policy's days before a date are sealed.

        All earlier records are of sealed days, of this policy or of others.
        """
        wanted: Wanted = {rows.ADOPTED: None, rows.OLDEST: None}
        return await self._rows.look(wanted, lambda view: sealing.starts_of(view, unsealed_from, name))

    async def shrink(self, name: str, dates: Sequence[str]) -> None:
        """Delete the records and costs of sealed days, and keep their summaries."""
        wanted: Wanted = {rows.SEALED: {name}, rows.OLDEST: None}
        for date in dates:
            await self._rows.decide(wanted, partial(sealing.shrink, name=name, date=date))

    async def restore(self, check: RecoveryCheck, sealed: Mapping[str, Sealed], days: Iterable[SealedDay]) -> None:
        """Restore the seals and summaries that Redis lacks. Raises RecoveryEnded if that recovery is over."""
        missing = await self.missing(sealed)
        through = {name: seal.through for name, seal in missing.items()}
        common: Wanted = {rows.RECOVERY: {check.field}, rows.SEALED: missing.keys()}
        lacking = [day for day in days if day.policy in missing]
        for at in range(0, len(lacking), _BATCH):
            some = lacking[at : at + _BATCH]
            wanted = reduce(merged, (sealing.day_rows(day.policy, day.date) for day in some), common)
            await self._rows.decide(wanted, partial(sealing.restore_days, check=check, days=some, through=through))
        if missing:
            wanted = merged(common, {rows.progress(name): None for name in missing})
            await self._rows.decide(wanted, partial(sealing.restore_seals, check=check, seals=list(missing.values())))
