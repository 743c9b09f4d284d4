"""Seal a policy's days in Redis, reduce them to summaries, and restore summaries that Redis lost."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hatcast.agents.redis.adoption import OutputPartition, Position
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.scripts import Call, Script
from hatcast.agents.redis.sealed_days import Sealed, SealedDay, TopicStart
from hatcast.agents.redis.slot_progress import ProgressStore

_BATCH: Final = 500  # summaries restored in one round trip
_BY_POLICY: Final = ("commits", "releases", "epsilon", "cap", "fineness", "query", "reserved", "told")


class SealStore:
    """The seals of one domain. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str) -> None:
        self._redis = redis
        self._domain = domain
        self._keys = DomainKeys(domain)
        self._seal = Script(redis, "seal")
        self._shrink = Script(redis, "shrink")
        self._restore = Script(redis, "restore_day")

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
        keys = [self._keys.recovery, self._keys.sealed, self._keys.adopted]
        flat = [part for place, end in adopted.items() for part in (place.field, end.stored)]
        return bool(await self._seal(keys=keys, args=[token, name, through, *flat]))

    async def day(self, name: str, date: str) -> SealedDay | None:
        """Return the summary of a policy's part of a day, or None."""
        keys = self._keys
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hgetall(keys.ledger(date))
            pipe.hgetall(keys.levels(date, name))
            pipe.hget(keys.total, "limit")
            ledger, levels, total_limit = await pipe.execute()
        texts = {field.decode(): value.decode() for field, value in ledger.items()}
        fields = {field: value for field, value in texts.items() if _is_of(field, name)}
        if not fields:
            return None
        return SealedDay(
            policy=name,
            date=date,
            cost=int(texts.get(f"cost:{name}", "0")),
            sequence=int(texts.get("sequence", "0")),
            limit=texts.get("limit", ""),
            total_limit="" if total_limit is None else total_limit.decode(),
            fields=fields,
            levels={level.decode(): count.decode() for level, count in levels.items()},
        )

    async def starts(self, unsealed_from: str, name: str) -> dict[str, TopicStart]:
        """Return where reading the output topics starts once a policy's days before a date are sealed.

        All earlier records are of sealed days, of this policy or of others.
        """
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hgetall(self._keys.adopted)
            pipe.hgetall(self._keys.oldest)
            adopted, oldest = await pipe.execute()
        found = {_place(field.decode()): Position.of(value.decode()) for field, value in adopted.items()}
        for field, value in oldest.items():
            place_text, date, policy = field.decode().rsplit(" ", 2)
            place, first = _place(place_text), Position.of(value.decode())
            known = found.get(place)
            is_open = policy != name or date >= unsealed_from
            if is_open and known is not None and known.topic_id == first.topic_id and first.offset < known.offset:
                found[place] = first
        ids = {place.topic: position.topic_id for place, position in found.items()}
        return {
            topic: TopicStart(
                topic_id, {place.partition: at.offset for place, at in found.items() if place.topic == topic}
            )
            for topic, topic_id in ids.items()
        }

    async def shrink(self, name: str, dates: Sequence[str]) -> None:
        """Delete the records and costs of sealed days, and keep their summaries."""
        keys = self._keys
        for date in dates:
            await self._shrink(
                keys=[
                    keys.sealed,
                    keys.unsealed(name),
                    keys.oldest,
                    keys.releases(date, name),
                    keys.published(date, name),
                    keys.costs(date, name),
                    keys.seen(date, name),
                ],
                args=[name, date],
            )

    async def restore(self, sealed: Mapping[str, Sealed], days: Iterable[SealedDay]) -> None:
        """Restore the seals and summaries that Redis lacks, while a recovery is in progress."""
        missing = await self.missing(sealed)
        if not missing:
            return
        calls = [self._restore_call(day, missing[day.policy].through) for day in days if day.policy in missing]
        for at in range(0, len(calls), _BATCH):
            await self._restore.run_each(calls[at : at + _BATCH])
        for name, seal in missing.items():
            if seal.first_ms is not None and seal.done_ms is not None:
                progress = ProgressStore(self._redis, self._domain, name)
                await progress.restore(seal.first_ms, seal.done_ms, range(seal.partitions))
            if seal.has_horizons:  # before the seal: Redis lacks the states after these days
                await self._redis.hset(self._keys.horizons(name), "lost", seal.through)
            await self._redis.hset(self._keys.sealed, name, seal.through)

    def _restore_call(self, day: SealedDay, through: str) -> Call:
        keys = self._keys
        flat = [part for pair in day.fields.items() for part in pair]
        flat += [part for pair in day.levels.items() for part in pair]
        return (
            [keys.ledger(day.date), keys.levels(day.date, day.policy), keys.total, keys.dates, keys.last, keys.sealed],
            [
                day.policy,
                day.date,
                str(day.cost),
                str(day.sequence),
                day.limit,
                day.total_limit,
                through,
                str(len(day.fields)),
                *flat,
            ],
        )


def _is_of(field: str, name: str) -> bool:
    kind, _, rest = field.partition(":")
    return kind in _BY_POLICY and rest.partition(":")[0] == name


def _place(field: str) -> OutputPartition:
    topic, _, partition = field.rpartition("/")
    return OutputPartition(topic, int(partition))
