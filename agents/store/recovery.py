"""The ledger's recovery in Redis: what is adopted of the output topics, and whether that is all.    [decisions/0027]

Redis may go back in time: a lost fsync, a failover, a restored file, FLUSHALL. What is missing then may stand on the
output topics, and drawing it anew would publish a second value. So Redis stores up to which offset of each output
partition everything is in the ledger, in one step with what it adopted; whatever takes a record back takes that offset
back as well, and reading on from there finds it.
"""

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from agents.redis_clients import AnyRedis
from agents.store.adoption import Answered, Chunk, OutputPartition, Position, Published, Span
from agents.store.attempts import Attempt, Ended, Grounds, Look, Missing, Moved
from agents.store.keys import DomainKeys
from agents.store.progress import ProgressStore
from agents.store.scripts import Script
from agents.store.sealed import Sealed
from agents.store.seals import SealStore
from agents.store.succession import Successor, claim_of
from agents.store.unsent import UnsentStore
from stream.contracts import BudgetRecord
from stream.units import nano, nano_within

_MSGPACK: Final = msgspec.msgpack.Encoder()
_TEXT_MARK: Final = b"\xdb"  # msgpack's longest text: Redis does not know its type for bytes


class RecoveryStore:
    """The recovery of one domain's ledger, seen by the workers of one policy. Errors of redis-py pass through.

    seals    the sealed days of the domain
    unsent   its records that were never sent
    """

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        self._redis = redis
        self._domain = domain
        self._name = name
        self._keys = DomainKeys(domain)
        self.seals = SealStore(redis, domain)
        self.unsent = UnsentStore(redis, domain)
        self._look = Script(redis, "look")
        self._begin = Script(redis, "begin")
        self._fenced = Script(redis, "fenced")
        self._finish = Script(redis, "finish")
        self._adopt = Script(redis, "adopt")
        self._recall = Script(redis, "recall")
        self._reserved = Script(redis, "reserved")
        self._supersede = Script(redis, "supersede")

    async def look(self, release_partitions: Iterable[int] = ()) -> Look:
        """Read whether the ledger is recovered, and the commit sequences of release partitions."""
        wanted, keys = list(release_partitions), self._keys
        token, attempt, sealed, commits, *sequences = await self._look(
            keys=[keys.recovery, keys.sequences, keys.sealed],
            args=[self._name, *(sequence_field(self._name, r) for r in wanted)],
        )
        numbers = dict(zip(wanted, map(int, sequences), strict=True))
        return Look(token.decode(), attempt.decode(), sealed.decode(), int(commits), numbers)

    async def begin(self, replaced: str = "") -> Attempt:
        """Begin a recovery, or join the one in progress. From here on nothing is committed until it is finished.

        replaced   the token of one in progress that does not end: it is given up for a new one
        """
        own = secrets.token_hex(16)
        token, fenced = await self._begin(keys=[self._keys.recovery, self._keys.ends], args=[own, replaced])
        return Attempt(token.decode(), token.decode() == own, fenced == b"1")

    async def fenced(self, attempt: Attempt, ends: Mapping[OutputPartition, Position]) -> bool:
        """Store how far a recovery has to read, once all publishers are fenced; False if another one has begun."""
        flat = [part for place, end in ends.items() for part in (place.field, end.stored)]
        return bool(await self._fenced(keys=[self._keys.recovery, self._keys.ends], args=[attempt.token, *flat]))

    async def finish(self, attempt: Attempt, sealed: Mapping[str, Sealed] = MappingProxyType({})) -> bool:
        """Finish a recovery; False if it is not complete, or what it adopted or restored may be lost by now."""
        keys, flat = self._keys, [part for name, seal in sealed.items() for part in (name, seal.through)]
        return bool(
            await self._finish(keys=[keys.recovery, keys.ends, keys.adopted, keys.sealed], args=[attempt.token, *flat])
        )

    async def restore_successors(self, successors: Mapping[str, Successor]) -> None:
        """Put back which policy follows which, where Redis lacks it."""
        for replaced, successor in successors.items():
            await self._redis.hsetnx(self._keys.successors, replaced, successor.stored)

    async def ends(self) -> dict[OutputPartition, Position]:
        """How far the recovery in progress has to read."""
        return await self._positions(self._keys.ends)

    async def adopted(self) -> dict[OutputPartition, Position]:
        """Up to which position of each output partition the ledger holds everything."""
        return await self._positions(self._keys.adopted)

    async def _positions(self, key: str) -> dict[OutputPartition, Position]:
        stored: Any = await self._redis.hgetall(key)  # bytes, but the types allow for text
        found = {}
        for field, value in stored.items():
            topic, _, partition = field.decode().rpartition("/")
            found[OutputPartition(topic, int(partition))] = Position.of(value.decode())
        return found

    async def adopt(
        self,
        grounds: Grounds,
        chunk: Chunk,
        missing: frozenset[str] = frozenset(),
        committed: frozenset[str] = frozenset(),
    ) -> None:
        """Adopt a stretch of an output partition, in one step with how far that is.

        missing     ids of records that are put in where the ledger lacks them
        committed   those of them that Kafka has committed: they are published
        Raises Ended, Moved, or Missing where the ledger lacks a record that is not in `missing`, or has another one:
        then nothing was written.
        """
        keys, groups = self._keys, _grouped(chunk.records)
        named = [
            key
            for name, date in [*groups, *chunk.days]
            for key in (
                keys.releases(date, name),
                keys.published(date, name),
                keys.ledger(date),
                keys.costs(date, name),
                keys.levels(date, name),
                keys.unsealed(name),
                keys.seen(date, name),
            )
        ]
        packed = _MSGPACK.encode(
            [
                (
                    name,
                    date,
                    str(min(offset for offset, _ in records)),
                    max(record.seq for _, record in records),
                    [_packed(record, missing, committed) for _, record in records],
                )
                for (name, date), records in groups.items()
            ]
            + [(name, date, str(first), 0, ()) for (name, date), first in chunk.days.items()]
        )
        before = "" if chunk.stored is None else chunk.stored.stored
        how, *more = await self._adopt(
            keys=[keys.recovery, keys.adopted, keys.oldest, keys.sealed, keys.dates, keys.total, keys.last, *named],
            args=[grounds.field, grounds.token, chunk.place.field, before, chunk.following.stored, packed],
        )
        match how:
            case b"ended":
                raise Ended
            case b"moved":
                raise Moved(Position.of(more[0].decode()) if more[0] else None)
            case b"missing":
                number, ids = more[0], [each.decode() for each in more[1:]]
                raise Missing(frozenset(ids[:number]), frozenset(ids[number:]))

    async def kept(self, published: Published) -> bytes | None:
        """Return the record that the ledger has of a release."""
        key = self._keys.releases(published.date, published.name)
        found = await self._redis.hget(key, published.release_id)
        return found if isinstance(found, bytes) else None

    async def supersede(self, kept: Published, sent: Published) -> None:
        """Replace a record that was never sent by the one that was, with its charge."""
        keys, date, name = self._keys, sent.date, sent.name
        await self._supersede(
            keys=[
                keys.releases(date, name),
                keys.ledger(date),
                keys.costs(date, name),
                keys.levels(date, name),
                keys.total,
            ],
            args=[
                name,
                sent.release_id,
                sent.place,
                *(part for each in (kept, sent) for part in (each.record, str(each.charge), each.fineness)),
            ],
        )

    async def mark(self, published: Iterable[Published]) -> None:
        """Mark records as published."""
        by_day: dict[tuple[str, str], list[str]] = {}
        for each in published:
            by_day.setdefault((each.date, each.name), []).append(each.release_id)
        for (date, name), ids in by_day.items():
            await self._redis.sadd(self._keys.published(date, name), *ids)

    async def recall(self, budget: BudgetRecord) -> None:
        """Take back what a record of `hats.budget` holds: its number, what binds its day, and a succession."""
        keys, charged = self._keys, budget.releases > 0 or any(query.places for query in budget.queries)
        told = (
            None if budget.max_hats_per_day is None else str(budget.max_hats_per_day),
            str(nano_within(budget.limit)) if charged else None,
            str(nano_within(budget.total_limit)) if charged and budget.total_limit is not None else None,
        )
        await self._recall(
            keys=[
                keys.ledger(budget.date),
                keys.levels(budget.date, budget.policy),
                keys.total,
                keys.successors,
                keys.dates,
            ],
            args=[
                budget.policy,
                str(budget.seq),
                *(text or "" for text in told),
                *claim_of(budget.policy, budget.replaces, budget.from_date),
                *(part for q in budget.queries for part in (q.query, str(q.places), str(nano(q.epsilon)))),
            ],
        )

    async def reserve(self, answered: Answered) -> None:
        """Take back what an answer to a query holds: on each of its days it has cost what it reserved."""
        keys, told = self._keys, [answered.policy, answered.query, str(answered.places), str(answered.epsilon)]
        await self._reserved.each(
            [([keys.ledger(day), keys.total, keys.dates], [day, *told]) for day in answered.period.dates]
        )

    async def restore_progress(self, name: str, span: Span, partitions: int) -> None:
        """Put back how far a policy was: its first slot, and that what ended before its last one began is published."""
        await ProgressStore(self._redis, self._domain, name).restore(span.first_ms, span.last_ms, range(partitions))


def sequence_field(name: str, release_partition: int) -> str:
    """How Redis names the commit sequence of a policy's release partition."""
    return f"{name}/{release_partition}"


def _grouped(records: Sequence[tuple[int, Published]]) -> dict[tuple[str, str], list[tuple[int, Published]]]:
    """By policy and date, each release once: with its first offset, and the bytes that were sent last."""
    groups: dict[tuple[str, str], dict[str, tuple[int, Published]]] = {}
    for offset, record in records:
        group = groups.setdefault((record.name, record.date), {})
        first, _ = group.get(record.release_id, (offset, record))
        group[record.release_id] = first, record
    return {of: list(each.values()) for of, each in groups.items()}


def _packed(record: Published, missing: frozenset[str], committed: frozenset[str]) -> tuple[object, ...]:
    """As adopt.lua reads it; the charge as text, since a number would be a double there."""
    digest = hashlib.sha1(record.record, usedforsecurity=False).hexdigest()
    if record.release_id not in missing:
        return record.release_id, digest
    text = msgspec.Raw(_TEXT_MARK + len(record.record).to_bytes(4, "big") + record.record)
    is_committed = int(record.release_id in committed)
    return record.release_id, digest, record.place, str(record.charge), record.fineness, text, is_committed
