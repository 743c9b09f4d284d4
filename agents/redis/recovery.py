"""Ledger recovery in Redis: adopt records from the output topics, and decide whether it is complete. [decisions/0004]

Redis may go back in time: a lost fsync, a failover, a restored file, FLUSHALL. What each step compares, and why that is
enough, is in hatcast.stream.ledger: recovery, adopt, unsent and sealed_days.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from types import MappingProxyType
from typing import Any, Final

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.row_store import DomainRows
from hatcast.agents.redis.stored_values import date_of, parsing
from hatcast.stream.ledger import recovery, rows, sealed_days
from hatcast.stream.ledger.adopt import adopt, adopt_rows
from hatcast.stream.ledger.adoption import AdoptionBatch, OutputPartition, Position, Published
from hatcast.stream.ledger.recovery import Attempt, Nonces, RecoveryCheck, RecoveryState
from hatcast.stream.ledger.sealed_days import Sealed, SealedDay, TopicStart
from hatcast.stream.ledger.transitions import NextPolicy, restore_next_policies
from hatcast.stream.ledger.unsent import (
    discard,
    end_keeping,
    keep,
    keep_reserved,
    keep_rows,
    record_rows,
    reserved_rows,
    supersede,
    unreserve,
)
from hatcast.stream.ledger.view import Wanted, merged

_BATCH: Final = 100  # days of one decision
_RECORDS: Final = 1_000  # of one decision


class UnsentStore(DomainRows):
    """Records of one domain without a mark: a recovery discards or keeps them.    [hatcast.stream.ledger.unsent]"""

    async def nonces(self) -> Nonces:
        """Return the nonces of all local dates with a ledger, oldest first, and of the total."""
        found = await self._rows.look({rows.NONCES: None}, lambda view: view.whole(rows.NONCES))
        dates = sorted(date_of(self._keys.row(rows.NONCES), each.encode()) for each in found.keys() - {rows.TOTAL})
        return {each: found.get(each) for each in (*dates, rows.TOTAL)}

    async def ids(self, name: str, date: str) -> list[str]:
        """Return the release_ids of the records of a policy and date that are on no output topic."""
        releases, published = (self._keys.row(row(date, name)) for row in (rows.releases, rows.published))
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hlen(releases)
            pipe.scard(published)
            number, sent = await pipe.execute()
        if number == sent:
            return []
        names: Any = await self._redis.hkeys(releases)
        ids = set(names) - set(await self._redis.smembers(published))
        ids -= set(await self._redis.smembers(self._keys.row(rows.seen(date, name))))
        with parsing(releases):
            return sorted(each.decode() for each in ids)

    async def records(self, name: str, date: str) -> Mapping[str, bytes]:
        """Return release_id -> record for the records of a policy and date that are on no output topic."""
        wanted = await self.ids(name, date)
        records: Any = await self._redis.hmget(self._keys.row(rows.releases(date, name)), wanted) if wanted else []
        return {each: record for each, record in zip(wanted, records, strict=True) if record is not None}

    async def discard(self, attempt: Attempt, record: Published) -> None:
        """Discard a record with its charge, unless it was sent. Raises RecoveryEnded if the attempt is over."""
        wanted = record_rows(record, attempt.check)
        if record.is_drawn:
            cell, name = record.place.partition("/")[0], record.name
            states = {key(name, record.horizon): {cell} for key in (rows.states, rows.states_before)}
            wanted = merged(wanted, states)
        await self._rows.decide(wanted, lambda view: discard(view, attempt.check, record))

    async def keep(self, attempt: Attempt, name: str, date: str, ids: Sequence[str]) -> None:
        """Keep unsent records of a policy and date. Raises RecoveryEnded as `discard`."""
        for at in range(0, len(ids), _RECORDS):
            some = ids[at : at + _RECORDS]
            step = partial(keep, attempt=attempt.token, name=name, date=date, ids=some)
            await self._rows.decide(keep_rows(name, date, some), step)

    async def keep_reserved(self, attempt: Attempt, days: Sequence[tuple[str, str]]) -> None:
        """Keep what days have reserved. Raises RecoveryEnded as `discard`."""
        for at in range(0, len(days), _BATCH):
            some = days[at : at + _BATCH]
            step = partial(keep_reserved, attempt=attempt.token, days=some)
            await self._rows.decide(reserved_rows(RecoveryCheck.in_progress(attempt.token), some), step)

    async def end_keeping(self, attempt: Attempt, nonces: Nonces) -> None:
        """Store that all is kept. Raises RecoveryEnded as `discard`, also if a copy came back since these nonces."""
        wanted: Wanted = {rows.RECOVERY: {"attempt"}, rows.NONCES: nonces.keys()}
        await self._rows.decide(wanted, partial(end_keeping, attempt=attempt.token, nonces=nonces))

    async def unreserve(self, attempt: Attempt, days: Sequence[tuple[str, str]]) -> None:
        """Remove reservations that no topic has reported.

        days   (policy name, local date)
        Raises RecoveryEnded as `discard`.
        """
        for at in range(0, len(days), _BATCH):
            some = days[at : at + _BATCH]
            step = partial(unreserve, check=attempt.check, days=some)
            await self._rows.decide(reserved_rows(attempt.check, some), step)


class SealStore(DomainRows):
    """The seals of one domain."""

    async def through(self, name: str) -> str:
        """Return the local date through which a policy's days are sealed; "" for none."""
        return (await self._field(rows.SEALED, name) or b"").decode()

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
            rows.ADOPTED: [each.field for each in adopted],
        }
        return await self._rows.decide(wanted, lambda view: sealed_days.seal(view, name, through, token, adopted))

    async def day(self, name: str, date: str) -> SealedDay | None:
        """Return the summary of a policy's part of a day, or None."""
        return await self._rows.look(
            sealed_days.day_rows(name, date), lambda view: sealed_days.day_of(view, name, date)
        )

    async def starts(self, unsealed_from: str, name: str) -> dict[str, TopicStart]:
        """Return where reading the output topics starts once a policy's days before a date are sealed.

        All earlier records are of sealed days, of this policy or of others.
        """
        wanted: Wanted = {rows.ADOPTED: None, rows.OLDEST: None}
        return await self._rows.look(wanted, lambda view: sealed_days.starts_of(view, unsealed_from, name))

    async def shrink(self, name: str, dates: Sequence[str]) -> None:
        """Delete the records and costs of sealed days, and keep their summaries."""
        wanted: Wanted = {rows.SEALED: {name}, rows.OLDEST: None}
        for date in dates:
            await self._rows.decide(wanted, partial(sealed_days.shrink, name=name, date=date))

    async def restore(self, check: RecoveryCheck, sealed: Mapping[str, Sealed], days: Iterable[SealedDay]) -> None:
        """Restore the seals and summaries that Redis lacks. Raises RecoveryEnded if that recovery is over."""
        missing = await self.missing(sealed)
        through = {name: seal.through for name, seal in missing.items()}
        common: Wanted = {rows.RECOVERY: {check.field}, rows.SEALED: missing.keys()}
        lacking = [day for day in days if day.policy in missing]
        for at in range(0, len(lacking), _BATCH):
            some = lacking[at : at + _BATCH]
            wanted = reduce(merged, (sealed_days.day_rows(day.policy, day.date) for day in some), common)
            await self._rows.decide(wanted, partial(sealed_days.restore_days, check=check, days=some, through=through))
        if missing:
            wanted = merged(common, {rows.progress(name): None for name in missing})
            await self._rows.decide(
                wanted, partial(sealed_days.restore_seals, check=check, seals=list(missing.values()))
            )


class RecoveryStore(DomainRows):
    """Recovery of one domain's ledger, for the workers of one policy."""

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        super().__init__(redis, domain)
        self._name = name
        self.seals = SealStore(redis, domain)  # the sealed days of the domain
        self.unsent = UnsentStore(redis, domain)  # its records that were never sent

    async def read_state(self, release_partitions: Iterable[int] = ()) -> RecoveryState:
        """Read whether the ledger is recovered, and the commit sequences of release partitions."""
        own = list(release_partitions)
        wanted = recovery.state_rows(self._name, own)
        return await self._rows.look(wanted, lambda view: recovery.recovery_state(view, self._name, own))

    async def begin(self, replaced: str = "", generation: int = 0) -> Attempt:
        """Begin a recovery, or join the one in progress. No commit succeeds until it is finished.

        replaced     token of a recovery in progress that does not end, to be replaced by a new one
        generation   the greatest one that this worker knows; the new recovery has a greater one
        """
        new = secrets.token_hex(16)
        return await self._rows.decide(
            recovery.RECOVERY_ROWS, lambda view: recovery.begin(view, new, replaced, generation)
        )

    async def store_ends(self, attempt: Attempt, ends: Mapping[OutputPartition, Position]) -> bool:
        """Store the offsets up to which a recovery reads, once all publishers are fenced; False if another began."""
        return await self._rows.decide(
            recovery.RECOVERY_ROWS, lambda view: recovery.store_ends(view, attempt.token, ends)
        )

    async def finish(self, attempt: Attempt, sealed: Mapping[str, Sealed], nonces: recovery.Nonces) -> bool:
        """Finish a recovery; False if it is not complete, or an older copy of Redis came back during it.

        sealed   by policy: its last seal, which was restored
        nonces   what `Unsent.discard` has returned
        """
        through = {name: seal.through for name, seal in sealed.items()}
        return await self._rows.decide(
            recovery.finish_rows(through, nonces), lambda view: recovery.finish(view, attempt.check, through, nonces)
        )

    async def restore_next_policies(self, check: RecoveryCheck, next_policies: Mapping[str, NextPolicy]) -> None:
        """Restore policy transitions that Redis lacks. Raises RecoveryEnded if that recovery is over."""
        wanted: Wanted = {rows.RECOVERY: {check.field}, rows.NEXT_POLICIES: next_policies.keys()}
        await self._rows.decide(wanted, lambda view: restore_next_policies(view, check, next_policies))

    async def ends(self) -> dict[OutputPartition, Position]:
        """Return the position in each output partition up to which the recovery in progress reads."""
        return await self._rows.look({rows.ENDS: None}, lambda view: recovery.positions(view, rows.ENDS))

    async def adopted(self) -> dict[OutputPartition, Position]:
        """Return the position in each output partition up to which the ledger has every record."""
        return await self._rows.look({rows.ADOPTED: None}, lambda view: recovery.positions(view, rows.ADOPTED))

    async def positions_and_kept(self, attempt: Attempt) -> tuple[dict[OutputPartition, Position], bool]:
        """Return the adopted positions, and whether this attempt has kept the unsent records, read at one moment."""
        found = await self._rows.look(
            {rows.ADOPTED: None, rows.RECOVERY: {"kept"}},
            lambda view: (recovery.positions(view, rows.ADOPTED), view.get(rows.RECOVERY, "kept")),
        )
        return found[0], found[1] == attempt.token.encode()

    async def charged(self, name: str, date: str) -> tuple[int, set[str]]:
        """Return how many charged releases of a policy a day's ledger counts, and the ids of all of its records."""
        counted = await self._field(rows.ledger(date), f"releases:{name}")
        while True:
            ids: Any = await self._redis.hkeys(self._keys.row(rows.releases(date, name)))  # bytes; the types allow text
            known, counted = counted, await self._field(rows.ledger(date), f"releases:{name}")
            if counted == known:  # else another worker has adopted meanwhile
                break
        with parsing(self._keys.row(rows.ledger(date))):
            return int(counted or 0), {each.decode() for each in ids}

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
        wanted = adopt_rows(batch, check, missing)
        await self._rows.decide(wanted, lambda view: adopt(view, check, batch, missing, committed))

    async def record_of(self, published: Published) -> bytes | None:
        """Return the record that the ledger has for a release, or None."""
        return await self._field(rows.releases(published.date, published.name), published.release_id)

    async def supersede(
        self, check: RecoveryCheck, unsent: Published, sent: Published, *, in_kafka: bool = False
    ) -> None:
        """Replace a record that was never sent by the one that was sent, with its charge. Raises RecoveryEnded.

        in_kafka   the transaction of the sent record has ended: it is to be marked as published
        """
        horizon: Wanted = {rows.horizons(sent.name): {f"closed:{sent.horizon}"}} if sent.horizon else {}
        step = partial(supersede, check=check, unsent=unsent, sent=sent, in_kafka=in_kafka)
        await self._rows.decide(merged(record_rows(sent, check), horizon), step)
