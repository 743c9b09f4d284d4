"""One input partition's state in Redis: read it back, write its changes, read and delete what is final."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.scripts import Call, Part, Script
from hatcast.agents.redis.user_keys import StoredKey, other_user_key
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.checkpoint import Changes, Stored
from hatcast.stream.fold.open_slots import CHUNK_USERS
from hatcast.stream.readings.pseudonyms import PSEUDONYM_BYTES

_LOAD_BATCH: Final = 2_000  # chunks asked for in one round trip: about 5 MB


@dataclass(frozen=True, slots=True)
class FinalHat:
    """A HAT whose slot is over, as the partitions' indexes name it.

    slot        `date/slot`
    cell        H3 index in hexadecimal
    closes_ms   the least clock (ms UTC) at which no partition takes more readings of it
    """

    slot: str
    cell: str
    closes_ms: int


class PartitionStore:
    """The state of all partitions of a policy. Errors of redis-py pass through: the caller backs off and reloads."""

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
        """Take a partition; the offset to read from and the state at that offset.

        The start is written before the first fetch, else a lost first frame could not be seen. From here on nobody else
        can write the partition; whoever opens it after us ends that, and so does a Redis that goes back in time.
        Args: `user_key`, under which it is going to be folded; None: nothing is.
        Raises OtherUserKey if it was folded under another one, and HatcastError if the log has lost records that were not
        folded yet, unless that is accepted.
        """
        keys = self._keys[partition]
        owner = secrets.token_hex(8)
        key = ("", b"") if user_key is None else (user_key.fingerprint, user_key.key or b"")
        found, folded_under = await self._open(keys=[keys.state], args=[str(log_start), owner, *key])
        if folded_under:
            raise other_user_key(self.name, partition, folded_under.decode(), key[0])
        self._owners[partition] = owner
        offset = int(found)
        if offset < log_start:
            if not accept_gap:
                raise HatcastError(
                    f"{self.topic} partition {partition}: records {offset} to {log_start - 1} were deleted before they"
                    " were folded: start with --accept-gap, which publishes what is unreleased of those days as"
                    " incomplete, and raise the topic's retention"
                )
            await self._skip(keys=[keys.state], args=[str(offset), str(log_start)])
            offset = log_start
        return offset, await self.read(partition)

    async def read(self, partition: int) -> Stored:
        """A partition's stored state."""
        keys = self._keys[partition]
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hmget(keys.state, ["clock", "complete_from", "offset", "gap"])
            pipe.hgetall(keys.outcomes)
            pipe.hkeys(keys.slots)
            pipe.hgetall(keys.days)
            (clock, complete_from, offset, gap), outcomes, slots, days = await pipe.execute()
            for slot in slots:
                pipe.hgetall(keys.hats(slot.decode()))
            hats = await pipe.execute() if slots else []
        wanted = [
            (
                (slot.decode(), cell.decode()),
                [keys.chunk(slot.decode(), cell.decode(), i) for i in range(_chunks(users))],
            )
            for slot, cells in zip(slots, hats, strict=True)
            for cell, users in cells.items()
        ]
        of_days = [
            (date.decode(), [keys.day_chunk(date.decode(), i) for i in range(_chunks(users))])
            for date, users in days.items()
        ]
        found = await self._get([key for _, chunks in (*wanted, *of_days) for key in chunks])
        return Stored(
            clock=None if clock is None else int(clock),
            complete_from=None if complete_from is None else int(complete_from),
            # A first start above 0: what was there before is gone.
            missing=gap is not None or (clock is None and offset not in (None, b"0")),
            outcomes={outcome.decode(): int(records) for outcome, records in outcomes.items()},
            hats={hat: [chunk for key in chunks if (chunk := found.get(key))] for hat, chunks in wanted},
            days={date: [chunk for key in chunks if (chunk := found.get(key))] for date, chunks in of_days},
        )

    async def _get(self, keys: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for at in range(0, len(keys), _LOAD_BATCH):
            batch = keys[at : at + _LOAD_BATCH]
            values = await self._redis.mget(batch)
            found.update((key, value) for key, value in zip(batch, values, strict=True) if isinstance(value, bytes))
        return found

    async def checkpoint(self, partition: int, base: int, following: int, changes: Changes) -> bool:
        """Write what was folded from the records `base` to `following` - 1; False if another state is stored.

        False too if the partition is not ours any more: somebody opened it after us, or Redis has forgotten us.
        """
        keys = self._keys[partition]
        owner = self._owners.get(partition, "")
        answer = await self._checkpoint(
            keys=[keys.state],
            args=[keys.prefix, str(base), str(following), owner, _packed(changes), *_chunk_values(changes)],
        )
        return bool(answer == b"OK")

    async def clocks(self) -> list[int | None]:
        """Every partition's stored clock (ms UTC)."""
        return [None if clock is None else int(clock) for clock in await self._each("clock")]

    async def offsets(self) -> list[int | None]:
        """Every partition's stored offset: the next record to read."""
        return [None if offset is None else int(offset) for offset in await self._each("offset")]

    async def outcomes(self) -> dict[str, int]:
        """Records by outcome, of all partitions together."""
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
        """The instant (ms UTC) before which records are missing in some partition; None: nowhere."""
        found = [int(instant) for instant in await self._each("complete_from") if instant is not None]
        return max(found, default=None)

    async def _each(self, field: str) -> list[bytes | None]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hget(keys.state, field)
            found: list[bytes | None] = await pipe.execute()
        return found

    async def open_slots(self) -> dict[str, int]:
        """`date/slot` -> end (ms UTC) of every slot with contributions in any partition."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hgetall(keys.slots)
            indexes = await pipe.execute()
        return {slot.decode(): int(end) for index in indexes for slot, end in index.items()}

    async def cells(self, slot: str) -> dict[str, int]:
        """The cells with contributions in a slot, and their users in all partitions together."""
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
        """The chunks of each HAT from all partitions; None if a partition's clock is missing or too small.

        Each partition's clock and contributions are read in one script, so a clock that went back is seen.
        """
        answers = await self._load.each(self._of_each(hats))
        if any(answer is None for answer in answers):
            return None
        return [[chunk for answer in answers for chunk in answer[i] if chunk] for i in range(len(hats))]

    async def delete(self, hats: Sequence[FinalHat], *, keep: bool = False) -> None:
        """Delete the contributions of published HATs.

        keep   what queries over days read of them stays, without saying who they were of: retained.py
        """
        await self._delete.each(self._of_each(hats, PSEUDONYM_BYTES if keep else ""))

    async def sweep(self, date: str) -> None:
        """Delete what was folded of a local date and of all after it: another policy counts them."""
        await self._sweep.each([([keys.state], [keys.prefix, CHUNK_USERS, date]) for keys in self._keys])

    def _of_each(self, hats: Sequence[FinalHat], *more: Part) -> list[Call]:
        """These HATs, in every partition."""
        named = [part for hat in hats for part in (hat.slot, hat.cell, hat.closes_ms)]
        return [([keys.state], [keys.prefix, CHUNK_USERS, *more, *named]) for keys in self._keys]


def _chunks(users: bytes) -> int:
    return -(-int(users) // CHUNK_USERS)


def _packed(changes: Changes) -> bytes:
    """The changes for the script: every number as text, since Lua would print a large one as 1.6e+12."""
    return msgspec.msgpack.encode(
        {
            "clock": None if changes.clock is None else str(changes.clock),
            "complete_from": None if changes.complete_from is None else str(changes.complete_from),
            "outcomes": _texts(changes.outcomes),
            "slots": _texts(changes.slots),
            "hats": {slot: _texts(cells) for slot, cells in changes.hats.items()},
            "days": _texts(changes.days),
            "days_over": _texts(changes.days_over),
        }
    )


def _chunk_values(changes: Changes) -> Iterator[str | bytes]:
    for (slot, cell, chunk), packed in changes.chunks.items():
        yield from (f"c:{slot}/{cell}/{chunk}", packed)
    for (date, chunk), packed in changes.day_chunks.items():
        yield from (f"d:{date}/{chunk}", packed)


def _texts(numbers: Mapping[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in numbers.items()}
