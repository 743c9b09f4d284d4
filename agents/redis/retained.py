"""Retained contributions: parts of released HATs, stored until the queries over days that read them are answered.

They are in the partitions' own keys, written in the step that deletes the contributions: a Redis that goes back in time
loses both changes, and contributions that are folded again are retained again.    [decisions/0014]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hatcast.agents.redis.clients import AnyRedis, Call, Script
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.partition_values import next_nonce, read_counted
from hatcast.agents.redis.stored_values import cell_of, number_of, parsing, slot_of, without_digest
from hatcast.stream.fold.packing import check_stripped

_DELETE_BATCH: Final = 5_000  # cells of one script: Redis does nothing else meanwhile


@dataclass(frozen=True, slots=True)
class Gap:
    """A gap in a partition: records that arrived between these times (ms UTC) may be lost."""

    from_ms: int | None  # its watermark at the gap; None if its state was new, so that all earlier records are unknown
    until_ms: int


@dataclass(frozen=True, slots=True)
class Retained:
    """Retained contributions of some cells in some slots, from all partitions."""

    gaps: tuple[Gap, ...]  # of the partitions that have one
    data: frozenset[str]  # slots in which any cell has data in any partition
    parts: Mapping[tuple[str, str], list[bytes]]  # (cell, slot) -> stripped chunks; no entry if none are retained


class RetainedStore:
    """Retained contributions of all partitions of a policy. Slots are `date/slot`."""

    def __init__(self, redis: AnyRedis, name: str, partitions: int) -> None:
        self.partitions = partitions
        self._redis = redis
        self._keys = [PartitionKeys(name, partition) for partition in range(partitions)]
        self._list = Script(redis, "list_retained")
        self._load = Script(redis, "load_retained")
        self._delete = Script(redis, "delete_retained")

    async def slots(self) -> set[str]:
        """Return the slots with retained contributions."""
        found = await read_counted(self._redis, self._keys, "kept", lambda keys: keys.retained)
        return {slot_of(keys.retained, slot) for keys, slots in zip(self._keys, found, strict=True) for slot in slots}

    async def slot_counts(self) -> tuple[int, ...]:
        """Return each partition's number of slots with retained contributions; cheap for any number of slots."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hlen(keys.retained)
            return tuple(await pipe.execute())

    async def cells(self, slots: Sequence[str]) -> dict[str, int]:
        """Return cell -> number of users, summed over these slots, of the cells with retained contributions."""
        named = [[keys.state, keys.retained, *map(keys.retained_hats, slots)] for keys in self._keys]
        answers = await self._list.run_each([(keys, slots) for keys in named])
        users: dict[str, int] = {}
        for keys, answer in zip(self._keys, answers, strict=True):
            for name, of_cell in zip(answer[::2], answer[1::2], strict=True):
                cell = cell_of(keys.retained, name)
                users[cell] = users.get(cell, 0) + int(of_cell)
        return users

    async def load(self, slots: Sequence[str], closes_ms: int, cells: Sequence[str]) -> Retained | None:
        """Return the retained contributions; None if a watermark is missing or too small, or one of the HATs is open.

        closes_ms   the least watermark at which a partition accepts no more readings of the last slot
        """
        calls: list[Call] = []
        for keys in self._keys:
            of_slots = [key for slot in slots for key in (keys.retained_hats(slot), keys.hats(slot))]
            calls.append(([keys.state, keys.retained, *of_slots], [closes_ms, len(slots), *slots, *cells]))
        answers = await self._load.run_each(calls)
        if any(answer is None for answer in answers):
            return None
        gaps = [
            Gap(number_of(keys.state, lost_from) if lost_from else None, number_of(keys.state, complete_from))
            for keys, (complete_from, lost_from, *_) in zip(self._keys, answers, strict=True)
            if complete_from
        ]
        data = {slot for _, _, there, *_ in answers for slot, has in zip(slots, there, strict=True) if has}
        parts: dict[tuple[str, str], list[bytes]] = {}
        for keys, (_, _, _, *by_cell) in zip(self._keys, answers, strict=True):
            for cell, of_cell in zip(cells, by_cell, strict=True):
                for slot, part in zip(slots, of_cell, strict=True):
                    if part is not None:
                        chunks = without_digest(keys.retained_hats(slot), cell, part)
                        with parsing(keys.retained_hats(slot)):
                            check_stripped(chunks)
                        parts.setdefault((cell, slot), []).append(chunks)
        return Retained(tuple(gaps), frozenset(data), parts)

    async def delete(self, hats: Sequence[tuple[str, str]]) -> None:
        """Delete the retained contributions of these (slot, cell)."""
        cells: dict[str, list[str]] = {}
        for slot, cell in hats:
            cells.setdefault(slot, []).append(cell)
        for slot, of_slot in cells.items():
            for at in range(0, len(of_slot), _DELETE_BATCH):
                some = of_slot[at : at + _DELETE_BATCH]
                named = [[keys.state, keys.retained, keys.retained_hats(slot)] for keys in self._keys]
                await self._delete.run_each([(keys, [next_nonce(), slot, *some]) for keys in named])
