"""Encode the arguments of a checkpoint, and check the contributions that are read back from Redis."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from hatcast.agents.redis.errors import Damaged
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.stored_values import number_of, parsing, users_of, with_checksum, without_checksum
from hatcast.stream.fold.checkpoint import Changes
from hatcast.stream.fold.packing import users_in
from hatcast.stream.readings.reading import Outcome


def chunks_of(keys: PartitionKeys, slot: str, cell: str, found: Sequence[bytes]) -> Iterator[bytes]:
    """Yield a HAT's chunks from a reply of load.lua: the number of users in the index, if it is there, then the chunks.

    Raises Damaged if one is damaged or missing.
    """
    if not found:
        return
    index = keys.hats(slot)
    users = users_of(index, found[0])
    for number, stored in enumerate(found[1:]):
        chunk = without_checksum(keys.chunk(slot, cell, number), stored)
        with parsing(index):
            users -= users_in(chunk)
        yield chunk
    if users:
        raise Damaged(index)


def number_or_none(key: str, value: bytes | None) -> int | None:
    """Return a number, or None for None. Raises Damaged."""
    return None if value is None else number_of(key, value)


def outcome_of(key: str, field: bytes) -> str:
    """Return the name of an outcome. Raises Damaged."""
    with parsing(key):
        return Outcome(field.decode()).value


def packed_changes(changes: Changes) -> bytes:
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


def packed_values(changes: Changes, keys: PartitionKeys) -> Iterator[str | bytes]:
    """Yield the journal's block and the chunks for checkpoint.lua, each after its number or key."""
    if changes.block is None:
        yield from ("", b"")
    else:
        number, block = changes.block
        yield from (str(number), with_checksum(keys.journal_block(number), block))
    for (slot, cell, chunk), packed in changes.chunks.items():
        yield from (f"c:{slot}/{cell}/{chunk}", with_checksum(keys.chunk(slot, cell, chunk), packed))
    for (date, chunk), packed in changes.day_chunks.items():
        yield from (f"d:{date}/{chunk}", with_checksum(keys.day_chunk(date, chunk), packed))


def _texts(numbers: Mapping[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in numbers.items()}
