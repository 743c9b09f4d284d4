"""Fold state of input partitions in Redis: load it, checkpoint changes, and read and delete final HATs."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hatcast.agents.redis.chunks import load_chunks
from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.errors import Damaged
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.partition_values import (
    chunks_of,
    number_or_none,
    outcome_of,
    packed_changes,
    packed_values,
)
from hatcast.agents.redis.scripts import Argument, Call, Script
from hatcast.agents.redis.stored_values import (
    cell_of,
    date_of,
    number_of,
    numbers_of_hash,
    slot_of,
    users_of,
    without_checksum,
)
from hatcast.agents.redis.user_keys import StoredKey, user_key_mismatch
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.checkpoint import Changes, Stored
from hatcast.stream.fold.open_slots import CHUNK_USERS
from hatcast.stream.readings.pseudonyms import PSEUDONYM_BYTES

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FinalHat:
    """A HAT whose slot has ended, from the partitions' indexes.

    slot        `date/slot`
    cell        H3 index in hexadecimal
    closes_ms   the least watermark (ms UTC) at which a partition accepts no more readings of it
    """

    slot: str
    cell: str
    closes_ms: int


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
        self._load = Script(redis, "load")
        self._delete = Script(redis, "delete")
        self._skip = Script(redis, "skip")
        self._sweep = Script(redis, "sweep")

    async def open(
        self, partition: int, log_start: int, user_key: StoredKey | None = None, *, accept_gap: bool = False
    ) -> tuple[int, Stored]:
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
        found, other_key = await self._open(keys=[keys.state], args=[str(log_start), owner, *key])
        if other_key:
            raise user_key_mismatch(self.name, partition, other_key.decode(), key[0])
        self._owners[partition] = owner
        offset = number_of(keys.state, found)
        if offset < log_start:
            if not accept_gap:
                raise deleted_error(self.topic, partition, offset, log_start)
            await self._skip(keys=[keys.state], args=[str(offset), str(log_start)])
            offset = log_start
        return offset, await self.read(partition)

    async def read(self, partition: int) -> Stored:
        """Return a partition's stored state."""
        keys = self._keys[partition]
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hmget(keys.state, ["clock", "complete_from", "offset", "gap"])
            pipe.hgetall(keys.outcomes)
            pipe.hkeys(keys.slots)
            pipe.hgetall(keys.days)
            pipe.hgetall(keys.journal)
            (watermark, complete_from, offset, gap), outcomes, slots, days, journal = await pipe.execute()
            names = [slot_of(keys.slots, slot) for slot in slots]
            for slot in names:
                pipe.hgetall(keys.hats(slot))
            hats = await pipe.execute() if slots else []
        users = {
            (slot, cell_of(keys.hats(slot), cell)): users_of(keys.hats(slot), number)
            for slot, cells in zip(names, hats, strict=True)
            for cell, number in cells.items()
        }
        users_of_days = {date_of(keys.days, date): users_of(keys.days, number) for date, number in days.items()}
        chunks = await load_chunks(self._redis, users, lambda hat, number: keys.chunk(*hat, number))
        of_days = await load_chunks(self._redis, users_of_days, keys.day_chunk)
        blocks = {number_of(keys.journal, number): block for number, block in journal.items()}
        if sorted(blocks) != [*range(len(blocks))]:
            raise Damaged(keys.journal)
        return Stored(
            watermark=number_or_none(keys.state, watermark),
            complete_from=number_or_none(keys.state, complete_from),
            # A first start above offset 0: the records before it were deleted.
            missing=gap is not None or (watermark is None and offset not in (None, b"0")),
            outcomes=numbers_of_hash(keys.outcomes, outcome_of, outcomes),
            hats=chunks,
            days=of_days,
            journal=[without_checksum(keys.journal_block(number), blocks[number]) for number in sorted(blocks)],
            users=users,
            users_of_days=users_of_days,
        )

    async def read_until(self, partition: int, stored: Stored, use: Callable[[Stored], T]) -> tuple[Stored, T]:
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
                    raise unreadable_error(self.topic, partition) from None
                stored = again

    async def checkpoint(self, partition: int, base: int, following: int, changes: Changes) -> bool:
        """Write the changes from folding the records `base` to `following` - 1; False if another state is stored.

        Also False if this worker no longer owns the partition: another worker opened it, or Redis lost the owner.
        """
        keys = self._keys[partition]
        owner = self._owners.get(partition, "")
        answer = await self._checkpoint(
            keys=[keys.state],
            args=[
                keys.prefix,
                str(base),
                str(following),
                owner,
                packed_changes(changes),
                *packed_values(changes, keys),
            ],
        )
        return bool(answer == b"OK")

    async def watermarks(self) -> list[int | None]:
        """Return every partition's stored watermark (ms UTC)."""
        return await self._read_numbers("clock")

    async def offsets(self) -> list[int | None]:
        """Return every partition's stored offset, which is the next record to read."""
        return await self._read_numbers("offset")

    async def outcomes(self) -> dict[str, int]:
        """Return the number of records by outcome, summed over all partitions."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hgetall(keys.outcomes)
            found = await pipe.execute()
        totals: dict[str, int] = {}
        for keys, outcomes in zip(self._keys, found, strict=True):
            for outcome, records in numbers_of_hash(keys.outcomes, outcome_of, outcomes).items():
                totals[outcome] = totals.get(outcome, 0) + records
        return totals

    async def complete_from(self) -> int | None:
        """Return the time (ms UTC) before which some partition lacks records; None if none does."""
        found = [instant for instant in await self._read_numbers("complete_from") if instant is not None]
        return max(found, default=None)

    async def _read_numbers(self, field: str) -> list[int | None]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hget(keys.state, field)
            found: list[bytes | None] = await pipe.execute()
        return [number_or_none(keys.state, value) for keys, value in zip(self._keys, found, strict=True)]

    async def open_slots(self) -> dict[str, int]:
        """Return `date/slot` -> end (ms UTC) of every slot with contributions in any partition."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hgetall(keys.slots)
            indexes = await pipe.execute()
        found: dict[str, int] = {}
        for keys, index in zip(self._keys, indexes, strict=True):
            found |= numbers_of_hash(keys.slots, slot_of, index)
        return found

    async def cells(self, slot: str) -> dict[str, int]:
        """Return cell -> number of users, summed over all partitions, of the cells with contributions in a slot."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hgetall(keys.hats(slot))
            indexes = await pipe.execute()
        users: dict[str, int] = {}
        for keys, index in zip(self._keys, indexes, strict=True):
            for cell, count in numbers_of_hash(keys.hats(slot), cell_of, index).items():
                users[cell] = users.get(cell, 0) + count
        return users

    async def load(self, hats: Sequence[FinalHat]) -> list[list[bytes]] | None:
        """Return the chunks of each HAT from all partitions; None if a watermark is missing or too small.

        One script reads a partition's watermark and contributions, so a watermark that went back is detected.
        Raises Damaged if a chunk is missing or damaged, or has other users than the index says.
        """
        answers = await self._load.run_each(self._calls(hats))
        if any(answer is None for answer in answers):
            return None
        return [
            [
                chunk
                for keys, answer in zip(self._keys, answers, strict=True)
                for chunk in chunks_of(keys, hat.slot, hat.cell, answer[i])
            ]
            for i, hat in enumerate(hats)
        ]

    async def delete(self, hats: Sequence[FinalHat], *, keep: bool = False) -> None:
        """Delete the contributions of published HATs.

        keep   retain, without pseudonyms, the parts that queries over days read: see retained.py. Raises Damaged as
               `load` does, since what is retained gets a checksum of its own, and would pass for sound
        """
        if keep:
            await self.load(hats)
        await self._delete.run_each(self._calls(hats, PSEUDONYM_BYTES if keep else ""))

    async def sweep(self, date: str, users_from: str) -> None:
        """Delete the contributions from a local date on, which are the next policy's.

        users_from   first date, or horizon, whose users are deleted
        """
        calls: list[Call] = [([keys.state], [keys.prefix, CHUNK_USERS, date, users_from]) for keys in self._keys]
        await self._sweep.run_each(calls)

    def _calls(self, hats: Sequence[FinalHat], *more: Argument) -> list[Call]:
        """Return the calls of a script for these HATs in every partition."""
        named = [part for hat in hats for part in (hat.slot, hat.cell, hat.closes_ms)]
        return [([keys.state], [keys.prefix, CHUNK_USERS, *more, *named]) for keys in self._keys]


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


def unreadable_error(topic: str, partition: int) -> HatcastError:
    """Return the error for a state that is damaged, or that another version of hatcast wrote."""
    return HatcastError(
        f"{topic} partition {partition}: its state in Redis cannot be read: start the version of hatcast that wrote it,"
        " or restore all of Redis from a copy, or empty it; what is missing then is read again from Kafka"
    )
