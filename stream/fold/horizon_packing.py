"""Binary format of chunks of a horizon's users.    [docs/specification/release.md, State in Redis]

    0, version, users                                          one byte each
    pseudonyms                                                 users x 8
    of each user: cells                                        varint
    of each of its cells: the H3 index                         8 bytes, little-endian
                          slots                                varint
                          number of the first slot, then the distance of each next one   varints

A chunk of a day's users (`hatcast.stream.fold.packing.pack_day`) begins with their number, which is never 0, so
neither is read as the other.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from hatcast.stream.fold.varints import read_varint, varint
from hatcast.stream.readings.pseudonyms import PSEUDONYM_BYTES

VERSION: Final = 1
_HEADER_BYTES: Final = 3
_CELL_BYTES: Final = 8

Places = dict[int, list[int]]
"""H3 cell -> numbers of the slots that a user has entered in a horizon, ascending"""


def pack_places(places: Places) -> bytes:
    """Pack the cells and slots that one user has entered: its part of a chunk, without the pseudonym."""
    parts = [varint(len(places))]
    for cell, slots in places.items():
        parts += (cell.to_bytes(_CELL_BYTES, "little"), varint(len(slots)), varint(slots[0]))
        parts += [varint(after - before) for before, after in pairwise(slots)]
    return b"".join(parts)


def pack_horizon(users: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Pack 1 to 255 pairs (pseudonym, packed places) into a chunk."""
    pseudonyms, places = zip(*users, strict=True)
    return b"".join((bytes((0, VERSION, len(users))), *pseudonyms, *places))


def unpack_horizon(chunk: bytes) -> list[tuple[bytes, Places]]:
    """Return the users of a chunk in order. Raises ValueError if it is damaged or of another version."""
    if len(chunk) < _HEADER_BYTES or chunk[0] or chunk[1] != VERSION:
        raise ValueError(f"users of a horizon are not in format version {VERSION}")
    try:
        return list(_users(chunk))
    except IndexError:
        raise ValueError("users of a horizon are damaged") from None


def _users(chunk: bytes) -> Iterator[tuple[bytes, Places]]:
    at = _HEADER_BYTES + chunk[2] * PSEUDONYM_BYTES
    for user in range(chunk[2]):
        start = _HEADER_BYTES + user * PSEUDONYM_BYTES
        places: Places = {}
        cells, at = read_varint(chunk, at)
        for _ in range(cells):
            cell = int.from_bytes(chunk[at : at + _CELL_BYTES], "little")
            number, at = read_varint(chunk, at + _CELL_BYTES)
            slots = places[cell] = [0] * number
            last = 0
            for place in range(number):
                distance, at = read_varint(chunk, at)
                last += distance
                slots[place] = last
        yield chunk[start : start + PSEUDONYM_BYTES], places
    if at != len(chunk):
        raise IndexError
