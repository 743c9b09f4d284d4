"""The proof of Redis: that this server holds every record that ever left.    [design 4, Proven]

Redis may go back in time: a lost fsync, a failover, a restored file, FLUSHALL. What is missing then may stand on the
output topics, and drawing it anew would publish a second value. So a key holds (the server's run_id, a random token):
a restart changes the first, FLUSHALL removes both, an older copy has an older one. Commits compare both.
"""

import secrets
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from agents.redis_clients import AnyRedis
from agents.store.keys import DomainKeys
from agents.store.progress import ProgressStore
from agents.store.scripts import Call, Script
from agents.store.succession import claim_of
from stream.contracts import BudgetRecord
from stream.queries import Period
from stream.release import date_of
from stream.units import nano, nano_within

_LOCK_MS: Final = 20_000
_ADOPTED: Final = 1_000  # records of one script
_MSGPACK: Final = msgspec.msgpack.Encoder()
_TEXT: Final = struct.Struct(">BI")  # msgpack's longest text: Redis does not know its type for bytes


class Term(NamedTuple):
    """What Kafka calls one producer of a `transactional.id`: the next one that is made has the next epoch."""

    producer_id: int
    epoch: int


Held = Mapping[int, Term]
"""Release partition -> the producer of it that a worker holds."""


class Published(msgspec.Struct, frozen=True):
    """A record found on an output topic, as the ledger needs it.

    place          `cell/slot`
    charge         1e-9
    fineness       of its noise; 0: not known
    slot_start_ms  ms UTC, of a HAT under `add_remove`, where all of a policy goes by slots; else None
    answered       of an answer to a query: what it has reserved
    """

    release_id: str
    name: str
    date: str
    place: str
    charge: int
    seq: int
    fineness: int
    record: bytes
    slot_start_ms: int | None = None
    answered: "Answered | None" = None


class Answered(NamedTuple):
    """What a query has reserved on the dates of a period: all its answers tell the same."""

    policy: str
    query: str
    period: Period
    places: int
    epsilon: int


@dataclass(frozen=True, slots=True)
class Span:
    """From the first to the last slot of which something was published, under one policy with `add_remove`.

    Slots are published one after the other, so all between them is published too. Starts in ms UTC.
    """

    first_ms: int
    last_ms: int

    def widened(self, start_ms: int) -> "Span":
        """With one more slot."""
        return Span(min(self.first_ms, start_ms), max(self.last_ms, start_ms))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One worker's proving: the life of the server that it is for, and the token of its proof. The last begun wins."""

    run_id: str
    token: str


def _packed(record: Published) -> tuple[object, ...]:
    """As adopt.lua reads it; the charge as text, since a number would be a double there."""
    data = record.record
    text = msgspec.Raw(_TEXT.pack(0xDB, len(data)) + data)
    return record.release_id, record.place, str(record.charge), record.seq, record.fineness, text


class ProofStore:
    """One domain's proof, and the rebuilding that leads to it. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, domain: str) -> None:
        self._redis = redis
        self._domain = domain
        self._keys = DomainKeys(domain)
        self._proof = Script(redis, "proof")
        self._prove = Script(redis, "prove")
        self._adopt = Script(redis, "adopt")
        self._number = Script(redis, "number")
        self._recall = Script(redis, "recall")
        self._reserved = Script(redis, "reserved")
        self._supersede = Script(redis, "supersede")

    async def token(self, held: Held = MappingProxyType({})) -> str | None:
        """The token of the proof, if it was written in this life of the server.

        held    the producers of whoever asks: if one of these was made after one that this server has not heard of, the
                proof is over
        """
        _, token = await self._look(held)
        return None if token is None else token.decode()

    async def run_id(self) -> str:
        """What names this life of the server: of a cluster, of the one that holds the domain."""
        run_id, _ = await self._look({})
        return run_id.decode()

    async def _look(self, held: Held) -> tuple[bytes, bytes | None]:
        run_id, token = await self._proof(keys=[self._keys.proof, self._keys.producers], args=_named(held))
        return run_id, token

    async def begin(self) -> Attempt:
        """Begin to prove. What is lost from here on takes the attempt's token with it, and there will be no proof."""
        attempt = Attempt(await self.run_id(), secrets.token_hex(16))
        await self._redis.hset(self._keys.proof, "attempt", attempt.token)
        return attempt

    async def lock(self) -> bool:
        """True for one worker at a time; two that prove at once are safe, and only wasteful."""
        return bool(await self._redis.set(self._keys.proving, "1", nx=True, px=_LOCK_MS))

    async def unlock(self) -> None:
        """Let another worker prove."""
        await self._redis.delete(self._keys.proving)

    async def adopt(self, published: Sequence[Published]) -> tuple[int, list[Published]]:
        """Put back the records that are missing, with their charges.

        Returns how many were, and those of which another record is here.
        """
        keys = self._keys
        by_day: dict[tuple[str, str], list[Published]] = {}
        for record in published:
            by_day.setdefault((record.date, record.name), []).append(record)
        lots, calls = [], list[Call]()
        for (date, name), records in by_day.items():
            books = [keys.releases(date), keys.ledger(date), keys.costs(date, name), keys.levels(date, name)]
            for at in range(0, len(records), _ADOPTED):
                lots.append(records[at : at + _ADOPTED])
                packed = _MSGPACK.encode([_packed(record) for record in lots[-1]])
                calls.append(([*books, keys.dates, keys.total, keys.last], [date, name, packed]))
        missing, others = 0, []
        for lot, (number, *different) in zip(lots, await self._adopt.each(calls) if calls else [], strict=True):
            missing += number
            others += [record for record in lot if record.release_id.encode() in set(different)]
        return missing, others

    async def kept(self, published: Published) -> bytes | None:
        """The record that is here of a release."""
        found = await self._redis.hget(self._keys.releases(published.date), published.release_id)
        return found if isinstance(found, bytes) else None

    async def supersede(self, kept: Published, sent: Published) -> None:
        """Let the record that was sent take the place of the one that is here, with its charge."""
        keys, date, name = self._keys, sent.date, sent.name
        await self._supersede(
            keys=[
                keys.releases(date),
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

    async def mark(self, release_ids: Iterable[str]) -> None:
        """Remember that Kafka has committed these: of a record that was lost here it is not known any more."""
        by_date: dict[str, list[str]] = {}
        for release_id in release_ids:
            by_date.setdefault(date_of(release_id), []).append(release_id)
        for date, ids in by_date.items():
            await self._redis.sadd(self._keys.published(date), *ids)

    async def number(self, date: str) -> None:
        """After all of a day was adopted: its ledger number is none that a release has passed already."""
        await self._number(keys=[self._keys.ledger(date)], args=[])

    async def recall(self, budget: BudgetRecord) -> None:
        """Take back what a record of `hats.budget` tells: its number, what binds its day, and a succession."""
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
        """Take back what an answer to a query tells: on each of its days it has cost what it reserved."""
        keys, told = self._keys, [answered.policy, answered.query, str(answered.places), str(answered.epsilon)]
        await self._reserved.each(
            [([keys.ledger(day), keys.total, keys.dates], [day, *told]) for day in answered.period.dates]
        )

    async def restore_progress(self, name: str, span: Span, partitions: int) -> None:
        """Put back how far a policy was: its first slot, and that what ended before its last one began is published."""
        await ProgressStore(self._redis, self._domain, name).restore(span.first_ms, span.last_ms, range(partitions))

    async def prove(self, attempt: Attempt, held: Held = MappingProxyType({})) -> bool:
        """Write the proof that an attempt was for; False if what it has put back may be lost by now.

        held    the producers that were made for it
        """
        keys = [self._keys.proof, self._keys.producers]
        return bool(await self._prove(keys=keys, args=[attempt.run_id, attempt.token, *_named(held)]))


def _named(held: Held) -> list[str | int]:
    return [part for release_partition, term in held.items() for part in (release_partition, *term)]
