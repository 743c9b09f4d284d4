"""Fold state of a partition as Redis stores it: its index, its chunks, and a checkpoint."""

import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from hatcast.agents.redis.clients import AnyRedis, Argument, Call
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.stored_values import Damaged, date_of, number_of, parsing, slot_of, users_of, value_of
from hatcast.stream.checksums import with_checksum
from hatcast.stream.fold.checkpoint import FoldChanges
from hatcast.stream.fold.open_slots import CHUNK_USERS
from hatcast.stream.fold.packing import users_in
from hatcast.stream.readings.reading import Outcome
from hatcast.stream.units import INSTANT_DIGITS


@dataclass(slots=True)
class Index:
    """The index of a partition: the fields of its state that count what is stored beside it.

    The keys of HATs and chunks follow from it. While a Redis Cluster moves a slot, keys that a script does not declare
    look absent to it. So every script declares all of its keys, and learns or compares whether they still follow from
    the index; if they do not, the caller reads the index again.
    """

    ends: dict[str, int] = field(default_factory=dict)  # `date/slot` -> end (ms UTC)
    cells: dict[str, int] = field(default_factory=dict)  # `date/slot` -> number of cells with contributions
    days: dict[str, int] = field(default_factory=dict)  # date -> users; of a horizon its first date
    outcomes: dict[str, int] = field(default_factory=dict)  # outcome -> records
    journal: int = 0  # number of blocks


def index_of(key: str, state: Mapping[bytes, bytes]) -> Index:
    """Return the index of a state. Raises Damaged."""
    index = Index()
    for name, value in state.items():
        match name.partition(b":"):
            case b"slot", _, slot:
                end, _, cells = value.partition(b" ")
                index.ends[slot_of(key, slot)] = number_of(key, end)
                index.cells[slot.decode()] = number_of(key, cells)
            case b"day", _, date:
                index.days[date_of(key, date)] = users_of(key, value)
            case b"outcome", _, outcome:
                with parsing(key):
                    index.outcomes[Outcome(outcome.decode()).value] = number_of(key, value)
            case b"journal", _, _:
                index.journal = number_of(key, value)
            case _:
                pass  # watermark, offset and others
    return index


def next_nonce() -> str:
    """Return a nonce for the next state of a partition.

    Random, not a counter: a Redis that went back in time would count to the same number again, with other rows.
    """
    return secrets.token_hex(16)


async def read_counted(
    redis: AnyRedis, partitions: Sequence[PartitionKeys], counted: str, key_of: Callable[[PartitionKeys], str]
) -> list[dict[bytes, bytes]]:
    """Return a hash of each partition. Raises Damaged if it has not as many entries as the state counts.

    counted   field of the state whose last word is that number; without the field there are none
    """
    found: dict[int, dict[bytes, bytes]] = {}
    while left := [keys for keys in partitions if keys.partition not in found]:
        async with redis.pipeline(transaction=False) as pipe:
            for keys in left:
                pipe.hmget(keys.state, [counted, "nonce"])
                pipe.hgetall(key_of(keys))
                pipe.hget(keys.state, "nonce")
            answers = await pipe.execute()
        for keys, (entry, before), entries, after in zip(left, answers[::3], answers[1::3], answers[2::3], strict=True):
            if len(entries) == number_of(keys.state, (entry or b"0").rpartition(b" ")[2]):
                found[keys.partition] = entries
            elif before == after:
                raise Damaged(key_of(keys))
    return [found[keys.partition] for keys in partitions]


T = TypeVar("T")

_BATCH: Final = 2_000  # chunks of one round trip: about 5 MB


async def load_chunks(redis: AnyRedis, users: Mapping[T, int], key_of: Callable[[T, int], str]) -> dict[T, list[bytes]]:
    """Return the chunks of each HAT or day in order, up to the first that is missing.

    Users without a chunk are in the journal; otherwise the chunks or the index are damaged, and `restore` refuses them.
    Raises Damaged if a chunk is damaged.
    """
    found: dict[T, list[bytes]] = {place: [] for place in users}
    async for place, key, value in stored_chunks(redis, users, key_of):
        found[place].append(value_of(key, value))
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
        # Bytes, though the types allow for text; None also for another type.
        values: Any = await redis.mget([key for _, key in batch])
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


def chunks_of(keys: PartitionKeys, slot: str, cell: str, users: int, found: Iterable[object]) -> Iterator[bytes]:
    """Yield the stored chunks of a HAT, without their checksums.

    Raises Damaged if one is damaged or missing, or has other users than the index.
    """
    index = keys.hats(slot)
    for number, stored in enumerate(found):
        chunk = value_of(keys.chunk(slot, cell, number), stored)
        with parsing(index):
            users -= users_in(chunk)
        yield chunk
    if users:
        raise Damaged(index)


def number_or_none(key: str, value: bytes | None) -> int | None:
    """Return an offset or a time (ms UTC), or None for None. Raises Damaged."""
    if value is None:
        return None
    if len(value) > INSTANT_DIGITS:
        raise Damaged(key)
    return number_of(key, value)


def rules_of(key: str, stored: bytes | None) -> dict[str, str]:
    """Return date -> rules, of the dates that have opened in a partition. Raises Damaged."""
    with parsing(key):
        rules = {} if stored is None else msgspec.json.decode(stored, type=dict[str, str])
    return {date_of(key, date.encode()): text for date, text in rules.items()}


def checkpoint_call(keys: PartitionKeys, base: int, following: int, owner: str, changes: FoldChanges) -> Call:
    """Return the keys and arguments of checkpoint.lua, every number as text: Lua would print a large one as 1.6e+12."""
    fields: dict[str, str | bool] = {"offset": str(following), "nonce": next_nonce()}
    if changes.watermark is not None:
        fields["clock"] = str(changes.watermark)
    if changes.complete_from is not None:
        fields |= {"complete_from": str(changes.complete_from), "gap": False}
    fields |= {f"outcome:{name}": str(records) for name, records in changes.outcomes.items()}
    fields |= {f"day:{date}": str(users) for date, users in changes.days.items()}
    fields |= {f"day:{date}": False for date in changes.days_over}
    if changes.rules:
        fields["rules"] = msgspec.json.encode(changes.rules).decode()
    block: tuple[str, bytes] = ("", b"")
    if changes.ends_journal:
        fields["journal"] = False
    if changes.block is not None:
        number, packed = changes.block
        fields["journal"] = str(number + 1)
        block = (str(number), with_checksum(keys.journal_block(number), packed))
    slots = [
        (slot, str(changes.slots[slot]), {cell: str(users) for cell, users in cells.items()})
        for slot, cells in changes.hats.items()
    ]
    chunks = {keys.chunk(*place): packed for place, packed in changes.chunks.items()}
    chunks |= {keys.day_chunk(*place): packed for place, packed in changes.day_chunks.items()}
    over = [keys.day_chunk(date, chunk) for date, number in changes.days_over.items() for chunk in range(number)]
    arguments: list[Argument] = [
        str(base),
        owner,
        msgspec.msgpack.encode(slots),
        msgspec.msgpack.encode(fields),
        *block,
        "1" if changes.ends_journal else "",
        *(with_checksum(key, packed) for key, packed in chunks.items()),
    ]
    return [keys.state, keys.journal, *map(keys.hats, changes.hats), *chunks, *over], arguments
