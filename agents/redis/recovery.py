"""Ledger recovery in Redis: adopt records from the output topics, and decide whether it is complete. [decisions/0027]

Redis may go back in time: a lost fsync, a failover, a restored file, FLUSHALL. A release that is missing then may be on
the output topics, and drawing it again would publish a second value. So Redis stores the offset of each output
partition up to which the ledger has every record, in one step with the records adopted there. Whatever removes a record
moves that offset back too, and reading from there finds the record.
"""

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from hatcast.agents.redis.adoption import AdoptionBatch, Answered, OutputPartition, Position, Published, Span
from hatcast.agents.redis.attempts import (
    AlreadyAdopted,
    Attempt,
    RecordsMissing,
    RecoveryCheck,
    RecoveryEnded,
    RecoveryState,
)
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.policy_transition import claim_args
from hatcast.agents.redis.scripts import Script
from hatcast.agents.redis.sealed_days import Sealed
from hatcast.agents.redis.sealing import SealStore
from hatcast.agents.redis.slot_progress import ProgressStore
from hatcast.agents.redis.stored_values import parsing
from hatcast.agents.redis.unsent import UnsentStore
from hatcast.stream.ledger.rows import sequence_field
from hatcast.stream.ledger.transitions import NextPolicy
from hatcast.stream.records import BudgetRecord
from hatcast.stream.units import nano_ceil, nano_floor

_MSGPACK: Final = msgspec.msgpack.Encoder()
_TEXT_MARK: Final = b"\xdb"  # msgpack's longest text: Redis does not know its type for bytes


class RecoveryStore:
    """Recovery of one domain's ledger, for the workers of one policy. Errors of redis-py pass through.

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
        self._read_state = Script(redis, "read_recovery")
        self._begin = Script(redis, "begin")
        self._store_ends = Script(redis, "store_ends")
        self._finish = Script(redis, "finish")
        self._adopt = Script(redis, "adopt")
        self._restore_budget = Script(redis, "restore_budget")
        self._restore_reservation = Script(redis, "restore_reservation")
        self._supersede = Script(redis, "supersede")

    async def read_state(self, release_partitions: Iterable[int] = ()) -> RecoveryState:
        """Read whether the ledger is recovered, and the commit sequences of release partitions."""
        wanted, keys = list(release_partitions), self._keys
        token, attempt, sealed, commits, generation, *sequences = await self._read_state(
            keys=[keys.recovery, keys.sequences, keys.sealed],
            args=[self._name, *(sequence_field(self._name, r) for r in wanted)],
        )
        with parsing(keys.recovery):
            numbers = dict(zip(wanted, map(int, sequences), strict=True))
            names = token.decode(), attempt.decode(), sealed.decode()
            return RecoveryState(*names, int(commits), int(generation), numbers)

    async def begin(self, replaced: str = "", generation: int = 0) -> Attempt:
        """Begin a recovery, or join the one in progress. No commit succeeds until it is finished.

        replaced     token of a recovery in progress that does not end, to be replaced by a new one
        generation   the greatest one that this worker knows; the new recovery has a greater one
        """
        new = secrets.token_hex(16)
        token, fenced = await self._begin(
            keys=[self._keys.recovery, self._keys.ends], args=[new, replaced, str(generation)]
        )
        return Attempt(token.decode(), token.decode() == new, fenced == b"1")

    async def store_ends(self, attempt: Attempt, ends: Mapping[OutputPartition, Position]) -> bool:
        """Store the offsets up to which a recovery reads, once all publishers are fenced; False if another began."""
        flat = [part for place, end in ends.items() for part in (place.field, end.stored)]
        return bool(await self._store_ends(keys=[self._keys.recovery, self._keys.ends], args=[attempt.token, *flat]))

    async def finish(self, attempt: Attempt, sealed: Mapping[str, Sealed] = MappingProxyType({})) -> bool:
        """Finish a recovery; False if it is not complete, or Redis may have lost data that it adopted or restored."""
        keys, flat = self._keys, [part for name, seal in sealed.items() for part in (name, seal.through)]
        return bool(
            await self._finish(keys=[keys.recovery, keys.ends, keys.adopted, keys.sealed], args=[attempt.token, *flat])
        )

    async def restore_next_policies(self, next_policies: Mapping[str, NextPolicy]) -> None:
        """Restore policy transitions that Redis lacks."""
        for replaced, next_policy in next_policies.items():
            await self._redis.hsetnx(self._keys.next_policies, replaced, next_policy.stored)

    async def ends(self) -> dict[OutputPartition, Position]:
        """Return the position in each output partition up to which the recovery in progress reads."""
        return await self._positions(self._keys.ends)

    async def adopted(self) -> dict[OutputPartition, Position]:
        """Return the position in each output partition up to which the ledger has every record."""
        return await self._positions(self._keys.adopted)

    async def charged(self, name: str, date: str) -> tuple[int, set[str]]:
        """Return how many charged releases of a policy a day's ledger counts, and the ids of all of its records."""
        keys = self._keys
        counted = await self._redis.hget(keys.ledger(date), f"releases:{name}")
        ids: Any = await self._redis.hkeys(keys.releases(date, name))  # bytes, but the types allow for text
        with parsing(keys.ledger(date)):
            return int(counted or 0), {each.decode() for each in ids}

    async def _positions(self, key: str) -> dict[OutputPartition, Position]:
        stored: Any = await self._redis.hgetall(key)  # bytes, but the types allow for text
        found = {}
        with parsing(key):
            for field, value in stored.items():
                topic, _, partition = field.decode().rpartition("/")
                found[OutputPartition(topic, int(partition))] = Position.of(value.decode())
        return found

    async def adopt(
        self,
        check: RecoveryCheck,
        batch: AdoptionBatch,
        missing: frozenset[str] = frozenset(),
        committed: frozenset[str] = frozenset(),
    ) -> None:
        """Adopt consecutive records of an output partition, in one step with the new adopted position.

        missing     ids of records to write if the ledger lacks them
        committed   those of them that Kafka has committed, to be marked as published
        Raises RecoveryEnded, AlreadyAdopted, or RecordsMissing if the ledger lacks a record that is not in `missing`,
        or has other bytes for it; then nothing was written.
        """
        keys, groups = self._keys, _grouped(batch.records)
        named = [
            key
            for name, date in [*groups, *batch.days]
            for key in (
                keys.releases(date, name),
                keys.published(date, name),
                keys.ledger(date),
                keys.costs(date, name),
                keys.levels(date, name),
                keys.unsealed(name),
                keys.seen(date, name),
                keys.horizons(name),
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
            + [(name, date, str(first), 0, ()) for (name, date), first in batch.days.items()]
        )
        before = "" if batch.stored is None else batch.stored.stored
        reply, *more = await self._adopt(
            keys=[keys.recovery, keys.adopted, keys.oldest, keys.sealed, keys.dates, keys.total, keys.last, *named],
            args=[check.field, check.token, batch.place.field, before, batch.following.stored, packed],
        )
        match reply:
            case b"ended":
                raise RecoveryEnded
            case b"moved":
                raise AlreadyAdopted(Position.of(more[0].decode()) if more[0] else None)
            case b"missing":
                number, ids = more[0], [each.decode() for each in more[1:]]
                raise RecordsMissing(frozenset(ids[:number]), frozenset(ids[number:]))

    async def record_of(self, published: Published) -> bytes | None:
        """Return the record that the ledger has for a release, or None."""
        key = self._keys.releases(published.date, published.name)
        found = await self._redis.hget(key, published.release_id)
        return found if isinstance(found, bytes) else None

    async def supersede(self, unsent: Published, sent: Published) -> None:
        """Replace a record that was never sent by the one that was sent, with its charge."""
        keys, date, name = self._keys, sent.date, sent.name
        await self._supersede(
            keys=[
                keys.releases(date, name),
                keys.ledger(date),
                keys.costs(date, name),
                keys.levels(date, name),
                keys.total,
                keys.horizons(name),
            ],
            args=[
                name,
                sent.release_id,
                sent.place,
                *(part for each in (unsent, sent) for part in (each.record, str(each.charge), each.fineness)),
                sent.horizon,
            ],
        )

    async def mark_published(self, published: Iterable[Published]) -> None:
        """Mark records as published."""
        by_day: dict[tuple[str, str], list[str]] = {}
        for each in published:
            by_day.setdefault((each.date, each.name), []).append(each.release_id)
        for (date, name), ids in by_day.items():
            await self._redis.sadd(self._keys.published(date, name), *ids)

    async def restore_budget(self, budget: BudgetRecord) -> None:
        """Restore the contents of a budget record: ledger number, cap, limits, reservations, and policy transition."""
        keys, charged = self._keys, budget.releases > 0 or any(query.places for query in budget.queries)
        bounds = (
            None if budget.max_hats_per_day is None else str(budget.max_hats_per_day),
            str(nano_floor(budget.limit)) if charged else None,
            str(nano_floor(budget.total_limit)) if charged and budget.total_limit is not None else None,
        )
        await self._restore_budget(
            keys=[
                keys.ledger(budget.date),
                keys.levels(budget.date, budget.policy),
                keys.total,
                keys.next_policies,
                keys.dates,
            ],
            args=[
                budget.policy,
                str(budget.seq),
                *(text or "" for text in bounds),
                *claim_args(budget.policy, budget.replaces, budget.from_date),
                *(part for q in budget.queries for part in (q.query, str(q.places), str(nano_ceil(q.epsilon)))),
            ],
        )

    async def restore_reservation(self, answered: Answered) -> None:
        """Restore the reservation of an answered query, on each day of its period."""
        keys, args = self._keys, [answered.policy, answered.query, str(answered.places), str(answered.epsilon)]
        await self._restore_reservation.run_each(
            [([keys.ledger(day), keys.total, keys.dates], [day, *args]) for day in answered.period.dates]
        )

    async def restore_progress(self, name: str, span: Span, partitions: int) -> None:
        """Restore a policy's slot progress: its first slot, and that slots before its last one are published."""
        await ProgressStore(self._redis, self._domain, name).restore(span.first_ms, span.last_ms, range(partitions))


def _grouped(records: Sequence[tuple[int, Published]]) -> dict[tuple[str, str], list[tuple[int, Published]]]:
    """Group records by policy and date, each release once: with its first offset, and the bytes that were sent last."""
    groups: dict[tuple[str, str], dict[str, tuple[int, Published]]] = {}
    for offset, record in records:
        group = groups.setdefault((record.name, record.date), {})
        first, _ = group.get(record.release_id, (offset, record))
        group[record.release_id] = first, record
    return {key: list(group.values()) for key, group in groups.items()}


def _packed(record: Published, missing: frozenset[str], committed: frozenset[str]) -> tuple[object, ...]:
    """Return a record in the form that adopt.lua reads; the charge is text, because a Lua number would be a double."""
    digest = hashlib.sha1(record.record, usedforsecurity=False).hexdigest()
    if record.release_id not in missing:
        return record.release_id, digest
    text = msgspec.Raw(_TEXT_MARK + len(record.record).to_bytes(4, "big") + record.record)
    is_committed = int(record.release_id in committed)
    place, charge, horizon = record.place, str(record.charge), record.horizon
    return record.release_id, digest, place, charge, record.fineness, text, is_committed, horizon
