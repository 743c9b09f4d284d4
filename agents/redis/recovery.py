"""Ledger recovery in Redis: adopt records from the output topics, and decide whether it is complete. [decisions/0027]

Redis may go back in time: a lost fsync, a failover, a restored file, FLUSHALL. What each step compares, and why that is
enough, is in hatcast.stream.ledger: recovery, adopt, unsent and sealing.
"""

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import DomainKeys
from hatcast.agents.redis.row_store import RowStore
from hatcast.agents.redis.sealing import SealStore
from hatcast.agents.redis.stored_values import parsing
from hatcast.agents.redis.unsent import UnsentStore
from hatcast.stream.ledger import recovery, rows
from hatcast.stream.ledger.adopt import adopt, adopt_rows
from hatcast.stream.ledger.adoption import AdoptionBatch, OutputPartition, Position, Published
from hatcast.stream.ledger.recovery import Attempt, RecoveryCheck, RecoveryState
from hatcast.stream.ledger.sealed_days import Sealed
from hatcast.stream.ledger.transitions import NextPolicy, restore_next_policies
from hatcast.stream.ledger.unsent import record_rows, supersede
from hatcast.stream.ledger.view import Wanted, merged


class RecoveryStore:
    """Recovery of one domain's ledger, for the workers of one policy. Errors of redis-py pass through.

    seals    the sealed days of the domain
    unsent   its records that were never sent
    """

    def __init__(self, redis: AnyRedis, domain: str, name: str) -> None:
        self._redis = redis
        self._rows = RowStore(redis, domain)
        self._name = name
        self._keys = DomainKeys(domain)
        self.seals = SealStore(redis, domain)
        self.unsent = UnsentStore(redis, domain)

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

    async def finish(
        self,
        attempt: Attempt,
        sealed: Mapping[str, Sealed],
        nonces: recovery.Nonces,
    ) -> bool:
        """Finish a recovery; False if it is not complete, or an older copy of Redis came back during it.

        sealed   by policy: its last seal, which was restored
        nonces   what `Unsent.discard` has returned
        """
        through = {name: seal.through for name, seal in sealed.items()}
        return await self._rows.decide(
            recovery.finish_rows(through, nonces), lambda view: recovery.finish(view, attempt.token, through, nonces)
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

    async def charged(self, name: str, date: str) -> tuple[int, set[str]]:
        """Return how many charged releases of a policy a day's ledger counts, and the ids of all of its records."""
        keys = self._keys
        counted = await self._redis.hget(keys.ledger(date), f"releases:{name}")
        ids: Any = await self._redis.hkeys(keys.releases(date, name))  # bytes, but the types allow for text
        with parsing(keys.ledger(date)):
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
        key = self._keys.releases(published.date, published.name)
        found = await self._redis.hget(key, published.release_id)
        return found if isinstance(found, bytes) else None

    async def supersede(
        self, check: RecoveryCheck, unsent: Published, sent: Published, *, is_committed: bool = False
    ) -> None:
        """Replace a record that was never sent by the one that was sent, with its charge. Raises RecoveryEnded.

        is_committed   Kafka has committed the sent record, to be marked as published
        """
        horizon: Wanted = {rows.horizons(sent.name): {f"closed:{sent.horizon}"}} if sent.horizon else {}
        await self._rows.decide(
            merged(record_rows(sent, check), horizon),
            lambda view: supersede(view, check, unsent, sent, is_committed=is_committed),
        )
