"""Fold state of input partitions in Redis: load it, and checkpoint changes."""

import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from hatcast.agents.redis import partition_values as values
from hatcast.agents.redis.clients import AnyRedis, Script, cluster_problem
from hatcast.agents.redis.final_hats import FinalHats
from hatcast.agents.redis.identity import StoredKey, user_key_mismatch
from hatcast.agents.redis.keys import DomainKeys, PartitionKeys
from hatcast.agents.redis.stored_values import (
    Damaged,
    Reopened,
    cell_of,
    number_of,
    users_of,
    value_of,
)
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.checkpoint import FoldChanges, StoredPartition

T = TypeVar("T")

CLAIM_MS: Final = 600_000  # longer than from a claim to its checkpoint: a worker that is frozen for so long is fenced


class PartitionStore:
    """Fold state of all partitions of a policy. Errors of redis-py pass through: the caller backs off and reloads."""

    def __init__(self, redis: AnyRedis, name: str, partitions: int, topic: str = "telemetry") -> None:
        """Args: `topic`, for messages."""
        self.topic = topic
        self.name = name
        self.partitions = partitions
        self._redis = redis
        self._keys = [PartitionKeys(name, partition) for partition in range(partitions)]
        self._owners: dict[int, str] = {}
        self._open = Script(redis, "open")
        self._checkpoint = Script(redis, "checkpoint")
        self._skip = Script(redis, "skip")
        self.final_hats = FinalHats(redis, self._keys)  # to read and delete them

    async def open(
        self, partition: int, log_start: int, user_key: StoredKey | None = None, *, accept_gap: bool = False
    ) -> tuple[int, StoredPartition]:
        """Take over a partition; return the offset to read from and the state at that offset.

        The start offset is written before the first fetch; otherwise the loss of the first batch could not be detected.
        From here on only this worker can write the partition, until another worker opens it or Redis goes back in time.
        Args: `user_key`, of the pseudonyms that will be folded; None if none will be.
        Raises OtherUserKey if the state was folded under another key, and HatcastError if the log has lost records that
        were not folded yet, unless that is accepted.
        """
        keys = self._keys[partition]
        owner = secrets.token_hex(8)
        key = ("", b"") if user_key is None else (user_key.fingerprint, user_key.key or b"")
        found, other_key = await self._open(keys=[keys.state], args=[str(log_start), owner, *key, values.next_nonce()])
        if other_key:
            raise user_key_mismatch(self.name, partition, other_key.decode(), key[0])
        self._owners[partition] = owner
        offset = number_of(keys.state, found)
        if offset < log_start:
            if not accept_gap:
                raise deleted_error(self.topic, partition, offset, log_start)
            await self._skip(keys=[keys.state], args=[str(offset), str(log_start), values.next_nonce()])
            offset = log_start
        return offset, await self.read(partition)

    def cluster_problem(self) -> str | None:
        """Return why a Redis Cluster has not run a command of this client lately, or None."""
        return cluster_problem(self._redis)

    async def read(self, partition: int) -> StoredPartition:
        """Return a partition's stored state. Raises Damaged, unless the state changed between the steps of the read.

        Raises Reopened if this worker has opened it and, before the read or after it, no longer owns it. A Redis that
        went back meanwhile, and then to a copy in which it does, would let it write on what an older state lacked.
        """
        keys, owner = self._keys[partition], self._owners.get(partition)
        while True:
            state: Mapping[bytes, bytes] = await self._redis.hgetall(keys.state)  # type: ignore[assignment] # redis-py allows text
            try:
                stored = await self._read_rows(keys, state, values.index_of(keys.state, state))
            except Damaged:
                if await self._redis.hget(keys.state, "nonce") == state.get(b"nonce"):
                    raise
            else:
                if owner is not None:
                    after: bytes | None = await self._redis.hget(keys.state, "owner")  # type: ignore[assignment] # see above
                    if not state.get(b"owner") == after == owner.encode():
                        raise Reopened(keys.state)
                return stored

    async def _read_rows(
        self, keys: PartitionKeys, state: Mapping[bytes, bytes], index: values.Index
    ) -> StoredPartition:
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hgetall(keys.journal)
            for slot in index.cells:
                pipe.hgetall(keys.hats(slot))
            journal, *hats = await pipe.execute()
        blocks = {number_of(keys.journal, number): block for number, block in journal.items()}
        if len(blocks) != index.journal or sorted(blocks) != [*range(len(blocks))]:
            raise Damaged(keys.journal)
        users = {}
        for (slot, number), cells in zip(index.cells.items(), hats, strict=True):
            if len(cells) != number:
                raise Damaged(keys.hats(slot))
            for cell, of_cell in cells.items():
                users[slot, cell_of(keys.hats(slot), cell)] = users_of(keys.hats(slot), of_cell)
        chunks = await values.load_chunks(self._redis, users, lambda hat, number: keys.chunk(*hat, number))
        of_days = await values.load_chunks(self._redis, index.days, keys.day_chunk)
        watermark, offset = state.get(b"clock"), state.get(b"offset")
        return StoredPartition(
            watermark=values.number_or_none(keys.state, watermark),
            complete_from=values.number_or_none(keys.state, state.get(b"complete_from")),
            # A first start above offset 0: the records before it were deleted.
            missing=b"gap" in state or (watermark is None and offset not in (None, b"0")),
            outcomes=index.outcomes,
            hats=chunks,
            days=of_days,
            journal=[value_of(keys.journal_block(number), blocks[number]) for number in sorted(blocks)],
            users=users,
            users_of_days=index.days,
            rules=values.rules_of(keys.state, state.get(b"rules")),
        )

    async def read_until(
        self, partition: int, stored: StoredPartition, use: Callable[[StoredPartition], T]
    ) -> tuple[StoredPartition, T]:
        """Return a partition's state and `use(state)`; read it again if it changed between the steps of the read.

        stored   the state as it was read; the returned one may be newer

        A read has several steps. Between them a worker may delete a released HAT, or Redis may lose everything; then
        users of an index are missing, and `use` raises ValueError. So the state is read until it is twice the same.
        Raises HatcastError if `use` refuses that too.
        """
        while True:
            try:
                return stored, use(stored)
            except ValueError:
                again = await self.read(partition)
                if again == stored:
                    raise HatcastError(
                        f"{self.topic} partition {partition}: its state in Redis cannot be read: start the version of"
                        " hatcast that wrote it, or restore all of Redis from a copy, or empty it; what is missing then"
                        " is read again from Kafka"
                    ) from None
                stored = again

    async def checkpoint(self, partition: int, base: int, following: int, changes: FoldChanges) -> bool:
        """Write the changes from folding the records `base` to `following` - 1; False if another state is stored.

        Also False if this worker no longer owns the partition: another worker opened it, or Redis lost the owner.
        """
        owner = self._owners.get(partition, "")
        keys, args = values.checkpoint_call(self._keys[partition], base, following, owner, changes)
        return bool(await self._checkpoint(keys, args) == b"OK")

    async def watermarks(self) -> list[int | None]:
        """Return every partition's stored watermark (ms UTC)."""
        return await self._read_numbers("clock")

    async def offsets(self) -> list[int | None]:
        """Return every partition's stored offset, which is the next record to read."""
        return await self._read_numbers("offset")

    async def outcomes(self) -> dict[str, int]:
        """Return the number of records by outcome, summed over all partitions."""
        return dict(sum((Counter(index.outcomes) for index in await self._indexes()), Counter[str]()))

    async def complete_from(self) -> int | None:
        """Return the time (ms UTC) before which some partition lacks records; None if none does."""
        found = [instant for instant in await self._read_numbers("complete_from") if instant is not None]
        return max(found, default=None)

    async def rules(self) -> set[tuple[str, str]]:
        """Return each local date that has opened in a partition, with the rules under which it was folded there."""
        found = zip(self._keys, await self._read_field("rules"), strict=True)
        return {rule for keys, stored in found for rule in values.rules_of(keys.state, stored).items()}

    async def claim(self, date: str, rules: str) -> str:
        """Claim the rules of a local date that is about to open in a partition; return those that were claimed first.

        The partitions of a date may be on several nodes of Redis, so no step can compare all and write. The claim
        expires: from then on the states have the rules, and a date that did not open has none.
        """
        key = DomainKeys.opening(self.name, date)
        while True:
            await self._redis.set(key, rules, nx=True, px=CLAIM_MS)
            claimed = await self._redis.get(key)
            if isinstance(claimed, bytes):
                return claimed.decode(errors="replace")

    async def _read_numbers(self, field: str) -> list[int | None]:
        found = zip(self._keys, await self._read_field(field), strict=True)
        return [values.number_or_none(keys.state, value) for keys, value in found]

    async def _read_field(self, field: str) -> list[bytes | None]:
        """Return a field of every partition's state."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hget(keys.state, field)
            found: list[bytes | None] = await pipe.execute()
        return found

    async def _indexes(self) -> list[values.Index]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hgetall(keys.state)
            states = await pipe.execute()
        return [values.index_of(keys.state, state) for keys, state in zip(self._keys, states, strict=True)]

    async def open_slots(self) -> dict[str, int]:
        """Return `date/slot` -> end (ms UTC) of every slot with contributions in any partition."""
        return {slot: end for index in await self._indexes() for slot, end in index.ends.items()}

    async def cells(self, slot: str) -> dict[str, int]:
        """Return cell -> number of users, summed over all partitions, of the cells with contributions in a slot."""
        users = Counter[str]()
        indexes = await values.read_counted(self._redis, self._keys, f"slot:{slot}", lambda keys: keys.hats(slot))
        for keys, index in zip(self._keys, indexes, strict=True):
            key = keys.hats(slot)
            users.update({cell_of(key, cell): number_of(key, number) for cell, number in index.items()})
        return dict(users)


def deleted_error(topic: str, partition: int, offset: int, log_start: int) -> HatcastError:
    """Return the error for records that were deleted before they were folded."""
    return HatcastError(
        f"{topic} partition {partition}: records {offset} to {log_start - 1} were deleted before they were folded:"
        " start with --accept-gap, which publishes what is unreleased of those days as incomplete, and raise the"
        " topic's retention"
    )


def compacted_error(topic: str, partition: int, first: int, following: int) -> HatcastError:
    """Return the error for records that compaction removed before they were folded."""
    return HatcastError(
        f"{topic} partition {partition}: compaction removed records {first} to {following - 1} before they were folded:"
        " set the topic's cleanup.policy to delete, and start with --accept-gap, which publishes what is unreleased of"
        " those days as incomplete"
    )


def beyond_end_error(topic: str, partition: int, offset: int, end: int) -> HatcastError:
    """Return the error for a stored offset that the topic does not reach."""
    return HatcastError(
        f"{topic} partition {partition}: the stored offset {offset} is beyond the topic's end {end}: this is not the"
        " topic that was folded; configure the old one, or start under a new policy.name"
    )
