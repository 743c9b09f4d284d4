"""What partitions keep of released HATs until the queries over days that read them are answered.

It is kept in the partitions' own keys, in the step that deletes the contributions: a Redis that goes back in time takes
both back, and what is folded again is kept again.    [decisions/0014]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.scripts import Script

_FORGOTTEN: Final = 5_000  # HATs of one script: a call takes about a million arguments, and Redis does nothing else


@dataclass(frozen=True, slots=True)
class Gap:
    """What a partition cannot vouch for: records that arrived between these instants (ms UTC) may be lost.

    from_ms   its clock when it met the gap; None: its state was new, so all before is unknown
    """

    from_ms: int | None
    until_ms: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of some cells in some slots, from all partitions.

    gaps    of partitions that have one
    data    the slots of which any cell has data in any partition
    parts   (cell, slot) -> stripped chunks; no entry where nothing is kept
    """

    gaps: tuple[Gap, ...]
    data: frozenset[str]
    parts: Mapping[tuple[str, str], list[bytes]]


class RetainedStore:
    """What all partitions of a policy keep. Slots are `date/slot`. Errors of redis-py pass through."""

    def __init__(self, redis: AnyRedis, name: str, partitions: int) -> None:
        self.partitions = partitions
        self._redis = redis
        self._keys = [PartitionKeys(name, partition) for partition in range(partitions)]
        self._list = Script(redis, "kept")
        self._load = Script(redis, "recollect")
        self._forget = Script(redis, "forget")

    async def slots(self) -> set[str]:
        """The slots of which anything is kept."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hkeys(keys.kept)
            found = await pipe.execute()
        return {slot.decode() for slots in found for slot in slots}

    async def numbers(self) -> tuple[int, ...]:
        """Of how many slots each partition keeps something: costs little however many they are."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for keys in self._keys:
                pipe.hlen(keys.kept)
            return tuple(await pipe.execute())

    async def cells(self, slots: Sequence[str]) -> dict[str, int]:
        """The cells of which anything is kept in one of these slots, and how many users, of all days."""
        answers = await self._list.each([([keys.state], [keys.prefix, *slots]) for keys in self._keys])
        users: dict[str, int] = {}
        for answer in answers:
            for cell, of_cell in zip(answer[::2], answer[1::2], strict=True):
                users[cell.decode()] = users.get(cell.decode(), 0) + int(of_cell)
        return users

    async def load(self, slots: Sequence[str], closes_ms: int, cells: Sequence[str]) -> Kept | None:
        """What is kept of these cells; None if a partition's clock is missing or too small, or one of the HATs is open.

        closes_ms   the least clock at which no partition takes more readings of the last slot
        """
        answers = await self._load.each(
            [([keys.state], [keys.prefix, closes_ms, len(slots), *slots, *cells]) for keys in self._keys]
        )
        if any(answer is None for answer in answers):
            return None
        gaps = [
            Gap(int(lost_from) if lost_from else None, int(complete_from))
            for complete_from, lost_from, *_ in answers
            if complete_from
        ]
        data = {slot for _, _, there, *_ in answers for slot, has in zip(slots, there, strict=True) if has}
        parts: dict[tuple[str, str], list[bytes]] = {}
        for _, _, _, *kept in answers:
            for cell, of_cell in zip(cells, kept, strict=True):
                for slot, part in zip(slots, of_cell, strict=True):
                    if part:
                        parts.setdefault((cell, slot), []).append(part)
        return Kept(tuple(gaps), frozenset(data), parts)

    async def forget(self, hats: Sequence[tuple[str, str]]) -> None:
        """Delete what is kept of these (slot, cell)."""
        for at in range(0, len(hats), _FORGOTTEN):
            named = [part for hat in hats[at : at + _FORGOTTEN] for part in hat]
            await self._forget.each([([keys.state], [keys.prefix, *named]) for keys in self._keys])
