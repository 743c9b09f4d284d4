"""Final HATs in Redis: read their contributions, and delete them once they are published.

The keys of chunks follow from the number of users in the index. So both take two steps: read the index, then run a
script that declares all of these keys, and learn from it whether they still follow from the index.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

from hatcast.agents.redis.clients import AnyRedis, Argument, Call, Script
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.partition_values import chunks_of, next_nonce, stored_chunks
from hatcast.agents.redis.stored_values import Damaged, number_of, users_of
from hatcast.stream.fold.open_slots import CHUNK_USERS
from hatcast.stream.readings.vehicles import PSEUDONYM_BYTES

_MOVED: Final = b"moved"
_MANY_USERS: Final = (
    1_000 * CHUNK_USERS
)  # of a HAT whose last chunk is looked for first: a damaged number names millions


@dataclass(frozen=True, slots=True)
class FinalHat:
    """A HAT whose slot has ended, from the partitions' indexes."""

    slot: str  # `date/slot`
    cell: str  # H3 index in hexadecimal
    closes_ms: int  # the least watermark (ms UTC) at which a partition accepts no more readings of it


class _PartitionHats(NamedTuple):
    """HATs of one slot in one partition."""

    keys: PartitionKeys
    slot: str
    closes_ms: int
    cells: tuple[str, ...]

    def users_of(self, numbers: Sequence[bytes | None]) -> list[int]:
        """Return the number of users of each cell; 0 for a cell that is not in the index. Raises Damaged."""
        return [0 if number is None else users_of(self.keys.hats(self.slot), number) for number in numbers]

    def chunk_keys(self, users: Sequence[int]) -> list[str]:
        """Return the keys of all chunks of these numbers of users."""
        return [
            self.keys.chunk(self.slot, cell, chunk)
            for cell, number in zip(self.cells, users, strict=True)
            for chunk in range(_chunks_of(number))
        ]


class _Indexed(NamedTuple):
    """The index of a part, from which its keys are derived: its nonce, and the number of users of each cell."""

    nonce: bytes
    users: list[int]


class FinalHats:
    """Final HATs of all partitions of a policy."""

    def __init__(self, redis: AnyRedis, partitions: Sequence[PartitionKeys]) -> None:
        self._redis = redis
        self._partitions = partitions
        self._load = Script(redis, "load")
        self._delete = Script(redis, "delete")
        self._sweep = Script(redis, "sweep")

    async def load(self, hats: Sequence[FinalHat]) -> list[list[bytes]] | None:
        """Return the chunks of each HAT from all partitions; None if a watermark is missing or too small.

        A script reads watermark, index and contributions together, so a watermark that went back is noticed.
        Raises Damaged if a chunk is missing or damaged, or has other users than the index says.
        """
        found: dict[tuple[str, str], list[bytes]] = {(hat.slot, hat.cell): [] for hat in hats}
        left = [part for each in _by_slot(hats) for part in self._parts(*each)]
        while left:
            indexes, again = await self._indexed(left), []
            calls = [_load_call(part, users) for part, (_, users) in zip(left, indexes, strict=True)]
            for part, (_, users), answer in zip(left, indexes, await self._load.run_each(calls), strict=True):
                if answer is None:
                    return None
                if part.users_of(answer[: len(users)]) != users:
                    again.append(part)
                    continue
                chunks = iter(answer[len(users) :])
                for cell, number in zip(part.cells, users, strict=True):
                    stored = islice(chunks, _chunks_of(number))
                    found[part.slot, cell] += chunks_of(part.keys, part.slot, cell, number, stored)
            left = again
        return [found[hat.slot, hat.cell] for hat in hats]

    async def delete(self, hats: Sequence[FinalHat], *, keep: bool = False) -> None:
        """Delete the contributions of published HATs.

        keep   retain, without pseudonyms, the parts that queries over days read: see retained.py. Raises Damaged as
               `load` does, since what is retained gets a checksum of its own, and would pass for sound
        """
        if keep:
            await self.load(hats)
        for each in _by_slot(hats):
            left = self._parts(*each)
            while left:
                indexed = zip(left, await self._indexed(left), strict=True)
                found = [(part, index) for part, index in indexed if any(index.users)]
                answers = await self._delete.run_each([_delete_call(*each, keep=keep) for each in found])
                left = [part for (part, _), answer in zip(found, answers, strict=True) if answer == _MOVED]

    async def sweep(self, date: str, users_from: str) -> None:
        """Delete the contributions from a local date on, with the journal, which has rows of open slots alone.

        All retained contributions too: queries whose periods have not ended will never be answered.
        users_from   first date, or horizon, whose users are deleted
        """
        for keys in self._partitions:
            while not await self._swept(keys, date, users_from):
                pass  # a worker has changed the index meanwhile

    async def _swept(self, keys: PartitionKeys, date: str, users_from: str) -> bool:
        state: Any = await self._redis.hgetall(keys.state)  # bytes, but the types allow for text
        names = [field.decode().partition(":") for field in state]
        slots = [slot for kind, _, slot in names if kind == "slot" and slot >= date]
        days = [day for kind, _, day in names if kind == "day" and day >= users_from]
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hkeys(keys.retained)
            for slot in slots:
                pipe.hgetall(keys.hats(slot))
            retained, *hats = await pipe.execute()
        # As many as there are: the users after the last one are in the journal, or their number is damaged.
        of_hats = {
            (slot, cell.decode()): number_of(keys.hats(slot), number)
            for slot, cells in zip(slots, hats, strict=True)
            for cell, number in cells.items()
        }
        of_days = {day: number_of(keys.state, state[f"day:{day}".encode()]) for day in days}
        chunks_of_hats = stored_chunks(self._redis, of_hats, lambda hat, number: keys.chunk(*hat, number))
        chunks = [key async for _, key, _ in chunks_of_hats]
        chunks += [key async for _, key, _ in stored_chunks(self._redis, of_days, keys.day_chunk)]
        indexes = [keys.journal, keys.retained, *map(keys.hats, slots)]
        indexes += [keys.retained_hats(slot.decode()) for slot in retained]
        fields = ["journal", "kept", *(f"slot:{slot}" for slot in slots), *(f"day:{day}" for day in days)]
        args: list[Argument] = [state.get(b"nonce", b""), next_nonce(), *fields]
        return bool(await self._sweep([keys.state, *indexes, *chunks], args) != _MOVED)

    def _parts(self, slot: str, closes_ms: int, cells: tuple[str, ...]) -> list[_PartitionHats]:
        return [_PartitionHats(keys, slot, closes_ms, cells) for keys in self._partitions]

    async def _indexed(self, parts: Sequence[_PartitionHats]) -> list[_Indexed]:
        """Return the index of each part. Raises Damaged."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for part in parts:
                pipe.hget(part.keys.state, "nonce")
                pipe.hmget(part.keys.hats(part.slot), part.cells)
            answers = await pipe.execute()
        found = [
            _Indexed(nonce or b"", part.users_of(numbers))
            for part, nonce, numbers in zip(parts, answers[::2], answers[1::2], strict=True)
        ]
        for part, (nonce, users) in zip(parts, found, strict=True):
            for cell, number in zip(part.cells, users, strict=True):
                if number > _MANY_USERS:
                    last = part.keys.chunk(part.slot, cell, _chunks_of(number) - 1)
                    if not await self._redis.exists(last) and await self._redis.hget(part.keys.state, "nonce") == nonce:
                        raise Damaged(part.keys.hats(part.slot))
        return found


def _by_slot(hats: Sequence[FinalHat]) -> list[tuple[str, int, tuple[str, ...]]]:
    """Return slot, least watermark and cells of the HATs of each slot."""
    cells: dict[tuple[str, int], list[str]] = {}
    for hat in hats:
        cells.setdefault((hat.slot, hat.closes_ms), []).append(hat.cell)
    return [(slot, closes_ms, (*of_slot,)) for (slot, closes_ms), of_slot in cells.items()]


def _chunks_of(users: int) -> int:
    return -(-users // CHUNK_USERS)


def _load_call(part: _PartitionHats, users: Sequence[int]) -> Call:
    args: list[Argument] = [part.slot, part.closes_ms, *part.cells]
    return [part.keys.state, part.keys.hats(part.slot), *part.chunk_keys(users)], args


def _delete_call(part: _PartitionHats, index: _Indexed, *, keep: bool) -> Call:
    keys, slot = part.keys, part.slot
    retained = [keys.retained, keys.retained_hats(slot)] if keep else []
    counted = [(cell, _chunks_of(number)) for cell, number in zip(part.cells, index.users, strict=True) if number]
    named = [each for pair in counted for each in pair]
    args: list[Argument] = [index.nonce, next_nonce(), slot, part.closes_ms, PSEUDONYM_BYTES if keep else "", *named]
    return [keys.state, keys.hats(slot), *retained, *part.chunk_keys(index.users)], args
