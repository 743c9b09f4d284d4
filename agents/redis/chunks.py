"""Load the chunks of a partition: as many as there are, not as many as a damaged index says."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Final, TypeVar

from hatcast.agents.redis.clients import AnyRedis
from hatcast.agents.redis.stored_values import without_checksum
from hatcast.stream.fold.open_slots import CHUNK_USERS

T = TypeVar("T")

_BATCH: Final = 2_000  # chunks of one round trip: about 5 MB


async def load_chunks(redis: AnyRedis, users: Mapping[T, int], key_of: Callable[[T, int], str]) -> dict[T, list[bytes]]:
    """Return the chunks of each HAT or day in order, up to the first that is missing.

    Users without a chunk are in the journal; otherwise the chunks or the index are damaged, and `restore` refuses them.
    Raises Damaged if a chunk is damaged.
    """
    found: dict[T, list[bytes]] = {place: [] for place in users}
    async for place, key, value in stored_chunks(redis, users, key_of):
        found[place].append(without_checksum(key, value))
    return found


async def stored_chunks(
    redis: AnyRedis, users: Mapping[T, int], key_of: Callable[[T, int], str]
) -> AsyncIterator[tuple[T, str, bytes]]:
    """Yield HAT or day, key and value of each chunk, up to the first of each that is missing.

    users    number of users of each, by the index
    key_of   returns the key of a chunk
    """
    ended: set[T] = set()
    keys = _keys(users, key_of, ended)
    while batch := list(islice(keys, _BATCH)):
        values: Any = await redis.mget(
            [key for _, key in batch]
        )  # bytes, though the types allow for text; None also for another type
        for (place, key), value in zip(batch, values, strict=True):
            if value is None:
                ended.add(place)
            elif place not in ended:
                yield place, key, value


def _keys(users: Mapping[T, int], key_of: Callable[[T, int], str], ended: AbstractSet[T]) -> Iterator[tuple[T, str]]:
    """Yield the keys of each one's chunks, until it has `ended`."""
    for place, number in users.items():
        for chunk in range(-(-number // CHUNK_USERS)):
            if place in ended:
                break
            yield place, key_of(place, chunk)
