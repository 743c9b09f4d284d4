"""Encode a checkpoint, and check the contributions that are read back from Redis."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from hatcast.agents.redis.errors import Damaged
from hatcast.agents.redis.index import next_nonce
from hatcast.agents.redis.keys import PartitionKeys
from hatcast.agents.redis.scripts import Argument, Call
from hatcast.agents.redis.stored_values import date_of, number_of, parsing, without_checksum
from hatcast.stream.fold.checkpoint import Changes
from hatcast.stream.fold.packing import users_in
from hatcast.stream.ledger.view import with_checksum


def chunks_of(keys: PartitionKeys, slot: str, cell: str, users: int, found: Iterable[object]) -> Iterator[bytes]:
    """Yield the chunks of a HAT as they are stored, without their checksums.

    Raises Damaged if one is damaged or missing, or has other users than the index.
    """
    index = keys.hats(slot)
    for number, stored in enumerate(found):
        chunk = without_checksum(keys.chunk(slot, cell, number), stored)
        with parsing(index):
            users -= users_in(chunk)
        yield chunk
    if users:
        raise Damaged(index)


def number_or_none(key: str, value: bytes | None) -> int | None:
    """Return a number, or None for None. Raises Damaged."""
    return None if value is None else number_of(key, value)


def rules_of(key: str, stored: bytes | None) -> dict[str, str]:
    """Return date -> rules, of the dates that have opened in a partition. Raises Damaged."""
    with parsing(key):
        rules = {} if stored is None else msgspec.json.decode(stored, type=dict[str, str])
    return {date_of(key, date.encode()): text for date, text in rules.items()}


def checkpoint_call(keys: PartitionKeys, base: int, following: int, owner: str, changes: Changes) -> Call:
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
    slots = [(slot, str(changes.slots[slot]), _texts(cells)) for slot, cells in changes.hats.items()]
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


def _texts(numbers: Mapping[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in numbers.items()}
