"""Fold state of input partitions in Redis: load it, checkpoint changes, and read and delete final HATs."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.scripts import Argument, Call, Script
from hatcast.agents.redis.user_keys import StoredKey, user_key_mismatch
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.checkpoint import Changes, Stored
from hatcast.stream.fold.open_slots import CHUNK_USERS
from hatcast.stream.readings.pseudonyms import PSEUDONYM_BYTES

_LOAD_BATCH: Final = 2_000  # chunks of one round trip: about 5 MB


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
        offset = int(found)
        if offset < log_start:
            if not accept_gap:
                raise deleted_error(self.topic, partition, offset, log_start)
            await self._skip(keys=[keys.state], args=[str(offset), str(log_start)])
            offset = log_start
        return offset, await self.read(partition)

    async def mark_gap(self, partition: int, offset: int) -> None:
        """Store that records after the stored watermark are missing, at the stored offset."""
        await self._skip(keys=[self._keys[partition].state], args=[str(offset), str(offset)])

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
            for slot in slots:
                pipe.hgetall(keys.hats(slot.decode()))
            hats = await pipe.execute() if slots else []
        wanted = [
            (
                (slot.decode(), cell.decode()),
                [keys.chunk(slot.decode(), cell.decode(), i) for i in range(_chunk_count(users))],
            )
            for slot, cells in zip(slots, hats, strict=True)
            for cell, users in cells.items()
        ]
        of_days = [
            (date.decode(), [keys.day_chunk(date.decode(), i) for i in range(_chunk_count(users))])
            for date, users in days.items()
        ]
        found = await self._get([key for _, chunks in (*wanted, *of_days) for key in chunks])
        return Stored(
            watermark=None if watermark is None else int(watermark),
            complete_from=None if complete_from is None else int(complete_from),
            # A first start above offset 0: the records before it were deleted.
            missing=gap is not None or (watermark is None and offset not in (None, b"0")),
            outcomes={outcome.decode(): int(records) for outcome, records in outcomes.items()},
            hats={hat: [chunk for key in chunks if (chunk := found.get(key))] for hat, chunks in wanted},
            days={date: [chunk for key in chunks if (chunk := found.get(key))] for date, chunks in of_days},
            journal=[journal[number] for number in sorted(journal, key=int)],
        )

    async def _get(self, keys: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for at in range(0, len(keys), _LOAD_BATCH):
            batch = keys[at : at + _LOAD_BATCH]
            values = await self._redis.mget(batch)
            found.update((key, value) for key, value in zip(batch, values, strict=True) if isinstance(value, bytes))
        return found

    async def checkpoint(self, partition: int, base: int, following: int, changes: Changes) -> bool:
        """Write the changes from folding the records `base` to `following` - 1; False if another state is stored.

        Also False if this worker no longer owns the partition: another worker opened it, or Redis lost the owner.
        """
        keys = self._keys[partition]
        owner = self._owners.get(partition, "")
        answer = await self._checkpoint(
            keys=[keys.state],
            args=[keys.prefix, str(base), str(following), owner, _packed(changes), *_values(changes)],
        )
        return bool(answer == b"OK")

    async def watermarks(self) -> list[int | None]:
        """Return every partition's stored watermark (ms UTC)."""
        return [None if watermark is None else int(watermark) for watermark in await self._read_field("clock")]

    async def offsets(self) -> list[int | None]:
        """Return every partition's stored offset, which is the next record to read."""
        return [None if offset is None else int(offset) for offset in await self._read_field("offset")]

    async def outcomes(self) -> dict[str, int]:
        """Return the number of records by outcome, summed over all partitions."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hgetall(keys.outcomes)
            found = await pipe.execute()
        totals: dict[str, int] = {}
        for outcomes in found:
            for outcome, records in outcomes.items():
                totals[outcome.decode()] = totals.get(outcome.decode(), 0) + int(records)
        return totals

    async def complete_from(self) -> int | None:
        """Return the time (ms UTC) before which some partition lacks records; None if none does."""
        found = [int(instant) for instant in await self._read_field("complete_from") if instant is not None]
        return max(found, default=None)

    async def _read_field(self, field: str) -> list[bytes | None]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hget(keys.state, field)
            found: list[bytes | None] = await pipe.execute()
        return found

    async def open_slots(self) -> dict[str, int]:
        """Return `date/slot` -> end (ms UTC) of every slot with contributions in any partition."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hgetall(keys.slots)
            indexes = await pipe.execute()
        return {slot.decode(): int(end) for index in indexes for slot, end in index.items()}

    async def cells(self, slot: str) -> dict[str, int]:
        """Return cell -> number of users, summed over all partitions, of the cells with contributions in a slot."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hgetall(keys.hats(slot))
            indexes = await pipe.execute()
        users: dict[str, int] = {}
        for index in indexes:
            for cell, count in index.items():
                users[cell.decode()] = users.get(cell.decode(), 0) + int(count)
        return users

    async def load(self, hats: Sequence[FinalHat]) -> list[list[bytes]] | None:
        """Return the chunks of each HAT from all partitions; None if a watermark is missing or too small.

        One script reads a partition's watermark and contributions, so a watermark that went back is detected.
        """
        answers = await self._load.run_each(self._calls(hats))
        if any(answer is None for answer in answers):
            return None
        return [[chunk for answer in answers for chunk in answer[i] if chunk] for i in range(len(hats))]

    async def delete(self, hats: Sequence[FinalHat], *, keep: bool = False) -> None:
        """Delete the contributions of published HATs.

        keep   retain, without pseudonyms, the parts that queries over days read: see retained.py
        """
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


def beyond_end_error(topic: str, partition: int, offset: int, end: int) -> HatcastError:
    """Return the error for a stored offset that the topic does not reach."""
    return HatcastError(
        f"{topic} partition {partition}: the stored offset {offset} is beyond the topic's end {end}: this is not the"
        " topic that was folded; configure the old one, or start under a new policy.name"
    )


def _chunk_count(users: bytes) -> int:
    return -(-int(users) // CHUNK_USERS)


def _packed(changes: Changes) -> bytes:
    """Pack the changes for checkpoint.lua, every number as text: Lua would print a large one as 1.6e+12."""
    return msgspec.msgpack.encode(
        {
            "clock": None if changes.watermark is None else str(changes.watermark),
            "complete_from": None if changes.complete_from is None else str(changes.complete_from),
            "outcomes": _texts(changes.outcomes),
            "slots": _texts(changes.slots),
            "hats": {slot: _texts(cells) for slot, cells in changes.hats.items()},
            "days": _texts(changes.days),
            "days_over": _texts(changes.days_over),
            "ends_journal": changes.ends_journal,
        }
    )


def _values(changes: Changes) -> Iterator[str | bytes]:
    yield from ("", b"") if changes.block is None else (str(changes.block[0]), changes.block[1])
    for (slot, cell, chunk), packed in changes.chunks.items():
        yield from (f"c:{slot}/{cell}/{chunk}", packed)
    for (date, chunk), packed in changes.day_chunks.items():
        yield from (f"d:{date}/{chunk}", packed)


def _texts(numbers: Mapping[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in numbers.items()}
