"""Write open HATs to Redis through the product's checkpoint, which is equivalent to folding 1.5 million records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import h3.api.basic_int as h3
import numpy as np
from numpy.typing import NDArray
from redis.asyncio import Redis

from bench.settings import PARTITIONS
from hatcast.agents.config.settings import Settings
from hatcast.agents.redis.partition_store import PartitionStore
from hatcast.stream.fold.calendar import Calendar, closes_at
from hatcast.stream.fold.checkpoint import FoldChanges
from hatcast.stream.fold.open_slots import CHUNK_USERS
from hatcast.stream.fold.packing import Row, pack, pack_day

DATE, NAME = "2022-01-02", "09:00"
SLOT: Final = f"{DATE}/{NAME}"
CENTRE: Final = (21.17, 72.83)
COUNT_MAX: Final = 360  # a reading every 10 s of the hour


@dataclass(frozen=True, slots=True)
class Shape:
    """HATs that become final at once, users of each, and distinct users of the day."""

    hats: int
    users: int
    users_of_day: int


@dataclass(frozen=True, slots=True)
class SlotTimes:
    """The slot's end, and the watermark that makes it final (ms UTC)."""

    end_ms: int
    closes_ms: int


def slot_times(settings: Settings) -> SlotTimes:
    """Return the times of the only slot in use."""
    slot = Calendar(settings.policy).slot_named(DATE, NAME)
    if slot is None:
        raise ValueError(SLOT)
    return SlotTimes(slot.end_ms, closes_at(slot, settings.policy))


async def fill(redis: Redis, settings: Settings, shape: Shape) -> None:
    """Write a state in which the slot is open: offset 0, no watermark yet."""
    store = PartitionStore(redis, settings.policy.name, PARTITIONS)
    end = slot_times(settings).end_ms
    cells = cells_of(shape.hats)
    random = np.random.default_rng(7)
    pseudonyms = random.integers(0, 2**63, shape.users_of_day, np.uint64).astype(">u8")
    counts = np.minimum(random.geometric(1 / 20, shape.users_of_day), COUNT_MAX)
    speeds = random.integers(5_000, 65_000, shape.users_of_day)
    users = [_user(pseudonyms, counts, speeds, each) for each in range(shape.users_of_day)]
    for partition in range(PARTITIONS):
        await store.open(partition, 0)
        for at in range(0, len(cells), 500):  # a few MB per script call, like a checkpoint
            changes = FoldChanges(None, {}, slots={SLOT: end}, hats={SLOT: {}})
            for number, cell in enumerate(cells[at : at + 500], start=at):
                here = [users[each] for each in _users_of(number, shape) if each % PARTITIONS == partition]
                changes.hats[SLOT][cell] = len(here)
                for chunk, rows in enumerate(_chunks(here)):
                    changes.chunks[SLOT, cell, chunk] = pack(rows)
            await _write(store, partition, changes)
        if not settings.policy.method.has_horizons:
            await _write(store, partition, _day(users[partition::PARTITIONS], shape))


async def _write(store: PartitionStore, partition: int, changes: FoldChanges) -> None:
    if not await store.checkpoint(partition, 0, 0, changes):
        raise RuntimeError("the state was not written")


def _day(users: Sequence[Row], shape: Shape) -> FoldChanges:
    entered = -(-shape.hats * shape.users // shape.users_of_day)
    packed = {(DATE, i): pack_day([(row.pseudonym, entered) for row in rows]) for i, rows in enumerate(_chunks(users))}
    return FoldChanges(None, {}, days={DATE: len(users)}, day_chunks=packed)


def cells_of(number: int) -> list[str]:
    """Return cells of resolution 7 around Surat."""
    centre, radius = h3.latlng_to_cell(*CENTRE, 7), 0
    while 3 * radius * (radius + 1) + 1 < number:
        radius += 1
    return [h3.int_to_str(cell) for cell in sorted(h3.grid_disk(centre, radius))[:number]]


def _users_of(hat: int, shape: Shape) -> range | list[int]:
    first = hat * shape.users
    return [each % shape.users_of_day for each in range(first, first + shape.users)]


def _user(pseudonyms: NDArray[np.uint64], counts: NDArray[np.int64], speeds: NDArray[np.int64], user: int) -> Row:
    count, speed = int(counts[user]), int(speeds[user])
    return Row(pseudonyms[user].tobytes(), count, count * speed, speed, (1 << count) - 1)


def _chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for at in range(0, len(rows), CHUNK_USERS):
        yield rows[at : at + CHUNK_USERS]
