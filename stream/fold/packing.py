"""Binary format of chunks of users; each is one Redis string.    [docs/specification/release.md, State in Redis]

A chunk of contributions is columnar, so that a release of a million users reads it with numpy and skips the columns
that it does not need:

    version, users, width of counts, of totals, of maxima      one byte each
    pseudonyms, counts, totals, maxima                         users x width, little-endian
    seen                                                       one code a user, see seen_steps.py

With several values (`[policy] values`) the version is 2, and before `seen` are

    values, width of totals of each                            one byte each: the values besides the speed
    totals of each                                             users x width, little-endian

For queries over days only a chunk's header, counts, totals and maxima are retained (`strip`; agents/redis/delete.lua
does the same): neither pseudonyms nor times.

A chunk of a day's users: users (one byte), pseudonyms, HATs entered (two bytes each); that of a horizon's users is in
`pack_horizon`.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from hatcast.stream.fold.seen_steps import quick_seen, read_varint, unpack_sets, varint
from hatcast.stream.readings.vehicles import PSEUDONYM_BYTES

VERSION: Final = 1
VALUES_VERSION: Final = 2
HORIZON_VERSION: Final = 1
_HEADER: Final = struct.Struct("5B")
_WIDTHS: Final = ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))
FORMATS: Final = dict(_WIDTHS)
_HORIZON_HEADER_BYTES: Final = 3
_CELL_BYTES: Final = 8

CellSlots = dict[int, list[int]]  # H3 cell -> numbers of the slots that a user has entered in a horizon, ascending


class Row(msgspec.Struct, gc=False):
    """One user's contribution to a HAT, with the pseudonym. others: totals of the values besides the speed."""

    pseudonym: bytes
    count: int
    total: int
    maximum: int
    seen: int
    others: tuple[int, ...] = ()


def pack(rows: Sequence[Row]) -> bytes:
    """Pack 1 to 255 users into a chunk."""
    counts, totals, maxima = [r.count for r in rows], [r.total for r in rows], [r.maximum for r in rows]
    widths, columns = packed_columns((counts, totals, maxima))
    others: tuple[bytes, ...] = ()
    if rows[0].others:
        other_widths, other_columns = packed_columns(list(zip(*(r.others for r in rows), strict=True)))
        others = (bytes((len(other_widths), *other_widths)), *other_columns)
    return b"".join(
        (
            _HEADER.pack(VALUES_VERSION if others else VERSION, len(rows), *widths),
            b"".join([r.pseudonym for r in rows]),
            *columns,
            *others,
            b"".join([quick_seen(r.seen) for r in rows]),
        )
    )


def packed_columns(columns: Sequence[Sequence[int]]) -> tuple[list[int], list[bytes]]:
    """Return the width of each column's numbers in bytes, and the columns, little-endian."""
    widths, packed = [], []
    for column in columns:
        width, code = _width(max(column))
        widths.append(width)
        packed.append(struct.pack(f"<{len(column)}{code}", *column))
    return widths, packed


class ChunkUsers(NamedTuple):
    """Users of a chunk in order, one sequence for each field of their rows. others: empty without further values."""

    pseudonyms: Sequence[bytes]
    counts: Sequence[int]
    totals: Sequence[int]
    maxima: Sequence[int]
    seen: Sequence[int]
    others: Sequence[tuple[int, ...]]


def unpack_users(chunk: bytes) -> ChunkUsers:
    """Return the users of a chunk. Raises ValueError for another format version."""
    users, widths = _read_header(chunk)
    layout = _layout(users, *widths)
    fields, at = layout.unpack_from(chunk), layout.size
    totals_at, maxima_at = 2 * users, 3 * users
    others: Sequence[tuple[int, ...]] = ()
    if chunk[0] == VALUES_VERSION:
        places, at = _others(chunk, users, at)
        columns = [struct.unpack_from(f"<{users}{FORMATS[width]}", chunk, start) for start, width in places]
        others = list(zip(*columns, strict=True))
    return ChunkUsers(
        fields[:users],
        fields[users:totals_at],
        fields[totals_at:maxima_at],
        fields[maxima_at:],
        unpack_sets(chunk, at, users),
        others,
    )


def unpack(chunk: bytes) -> Iterator[Row]:
    """Return the users of a chunk in order. Raises ValueError for another format version."""
    *fields, others = unpack_users(chunk)
    return map(Row, *fields, others) if others else map(Row, *fields)


def columns(chunk: bytes) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the columns that estimators use: pseudonyms (big-endian integers), counts, totals in milli-units.

    With several values, totals are those of the speed.
    """
    users, widths = _read_header(chunk)
    at = _HEADER.size
    pseudonyms = np.frombuffer(chunk, ">u8", users, at)
    at += users * PSEUDONYM_BYTES
    counts = np.frombuffer(chunk, f"<u{widths[0]}", users, at)
    totals = np.frombuffer(chunk, f"<u{widths[1]}", users, at + users * widths[0])
    return pseudonyms.astype(np.uint64), counts.astype(np.int64), totals.astype(np.int64)


def joined_columns(chunks: Sequence[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the columns of all users of one or more chunks, as `columns` does of one.

    A HAT of few users has a chunk in each partition. Columns of equal widths, the usual case, are joined as bytes and
    read once.
    """
    if len({chunk[2:4] for chunk in chunks}) > 1:
        read = [columns(chunk) for chunk in chunks]
        of_counts, of_totals = [each[1] for each in read], [each[2] for each in read]
        return np.concatenate([each[0] for each in read]), np.concatenate(of_counts), np.concatenate(of_totals)
    parts: list[tuple[bytes, bytes, bytes]] = []
    for chunk in chunks:
        users, widths = _read_header(chunk)
        counts_at = _HEADER.size + users * PSEUDONYM_BYTES
        totals_at = counts_at + users * widths[0]
        end = totals_at + users * widths[1]
        if len(chunk) < end:
            raise ValueError("contributions are shorter than their header says")
        parts.append((chunk[_HEADER.size : counts_at], chunk[counts_at:totals_at], chunk[totals_at:end]))
    pseudonyms, counts, totals = map(b"".join, zip(*parts, strict=True))
    return (
        np.frombuffer(pseudonyms, ">u8").astype(np.uint64),
        np.frombuffer(counts, f"<u{chunks[0][2]}").astype(np.int64),
        np.frombuffer(totals, f"<u{chunks[0][3]}").astype(np.int64),
    )


def values_columns(chunk: bytes) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Return pseudonyms, counts [users] and totals [users, d] of a chunk with several values, speed first.

    Raises ValueError for a chunk of speeds alone.
    """
    pseudonyms, counts, speeds = columns(chunk)
    if chunk[0] != VALUES_VERSION:
        raise ValueError("contributions have no values but the speed")
    users, widths = _read_header(chunk)
    places, _ = _others(chunk, users, _HEADER.size + users * (PSEUDONYM_BYTES + sum(widths)))
    others = [np.frombuffer(chunk, f"<u{width}", users, start).astype(np.int64) for start, width in places]
    return pseudonyms, counts, np.column_stack((speeds, *others))


def _others(chunk: bytes, users: int, at: int) -> tuple[list[tuple[int, int]], int]:
    """Return (offset, width) of each further column of totals, and the offset after them."""
    places, number = [], chunk[at]
    widths = chunk[at + 1 : at + 1 + number]
    at += 1 + number
    for width in widths:
        places.append((at, width))
        at += users * width
    return places, at


def strip(chunk: bytes) -> bytes:
    """Return the part of a chunk that is retained after the release: no pseudonyms, no seen steps."""
    users, widths = _read_header(chunk)
    start = _HEADER.size + users * PSEUDONYM_BYTES
    return chunk[: _HEADER.size] + chunk[start : start + users * sum(widths)]


def stripped_columns(chunks: bytes) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Yield counts, totals and maxima (milli-units) of each chunk in a concatenation of stripped chunks."""
    at = 0
    while at < len(chunks):
        users, widths = _read_header(chunks[at : at + _HEADER.size])
        at += _HEADER.size
        arrays = []
        for width in widths:
            arrays.append(np.frombuffer(chunks, f"<u{width}", users, at).astype(np.int64))
            at += users * width
        yield arrays[0], arrays[1], arrays[2]


def users_in(chunk: bytes) -> int:
    """Return the number of users of a chunk. Raises ValueError for another format version."""
    users, _ = _read_header(chunk)
    return users


def check_stripped(chunks: bytes) -> None:
    """Raise ValueError unless this is a concatenation of whole stripped chunks."""
    at = 0
    while at < len(chunks):
        if at + _HEADER.size > len(chunks):
            raise ValueError("retained contributions are cut off")
        users, widths = _read_header(chunks[at : at + _HEADER.size])
        at += _HEADER.size + users * sum(widths)
        if any(width not in FORMATS for width in widths) or at > len(chunks):
            raise ValueError("retained contributions are cut off, or of another format")


def _read_header(chunk: bytes) -> tuple[int, tuple[int, int, int]]:
    version, users, counts, totals, maxima = _HEADER.unpack_from(chunk)
    if version not in (VERSION, VALUES_VERSION):
        raise ValueError(
            f"contributions have format version {version}, this hatcast reads {VERSION} and {VALUES_VERSION}"
        )
    return users, (counts, totals, maxima)


@lru_cache(1024)
def _layout(users: int, *widths: int) -> struct.Struct:
    """Return the layout of header, pseudonyms and columns. All numbers of users and common widths are cached."""
    columns = "".join(f"{users}{FORMATS[width]}" for width in widths)
    return struct.Struct(f"<{_HEADER.size}x{f'{PSEUDONYM_BYTES}s' * users}{columns}")


def _width(greatest: int) -> tuple[int, str]:
    for width, code in _WIDTHS:
        if greatest < 1 << 8 * width:
            return width, code
    raise OverflowError("a contribution exceeds 64 bits")


def pack_day(users: Sequence[tuple[bytes, int]]) -> bytes:
    """Pack 1 to 255 pairs (pseudonym, HATs entered) into a chunk."""
    entered = struct.pack(f"<{len(users)}H", *(count for _, count in users))
    return bytes([len(users)]) + b"".join([pseudonym for pseudonym, _ in users]) + entered


def unpack_day(chunk: bytes) -> list[tuple[bytes, int]]:
    """Return the (pseudonym, HATs entered) of a chunk in order."""
    users = chunk[0]
    entered = struct.unpack_from(f"<{users}H", chunk, 1 + users * PSEUDONYM_BYTES)
    return [(chunk[1 + i * PSEUDONYM_BYTES : 1 + (i + 1) * PSEUDONYM_BYTES], entered[i]) for i in range(users)]


def pack_cell_slots(cell_slots: CellSlots) -> bytes:
    """Pack the cells and slots that one user has entered: its part of a chunk, without the pseudonym."""
    parts = [varint(len(cell_slots))]
    for cell, slots in cell_slots.items():
        parts += (cell.to_bytes(_CELL_BYTES, "little"), varint(len(slots)), varint(slots[0]))
        parts += [varint(after - before) for before, after in pairwise(slots)]
    return b"".join(parts)


def pack_horizon(users: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Pack 1 to 255 pairs (pseudonym, packed cell slots) into a chunk. [docs/specification/release.md, State in Redis]

    0, version, users                                          one byte each
    pseudonyms                                                 users x 8
    of each user: cells                                        varint
    of each of its cells: the H3 index                         8 bytes, little-endian
                          slots                                varint
                          number of the first slot, then the distance of each next one   varints

    A chunk of a day's users (`pack_day`) begins with their number, which is never 0, so neither is read as the other.
    """
    pseudonyms, cell_slots = zip(*users, strict=True)
    return b"".join((bytes((0, HORIZON_VERSION, len(users))), *pseudonyms, *cell_slots))


def unpack_horizon(chunk: bytes) -> list[tuple[bytes, CellSlots]]:
    """Return the users of a chunk in order. Raises ValueError if it is damaged or of another version."""
    if len(chunk) < _HORIZON_HEADER_BYTES or chunk[0] or chunk[1] != HORIZON_VERSION:
        raise ValueError(f"users of a horizon are not in format version {HORIZON_VERSION}")
    try:
        return list(_horizon_users(chunk))
    except IndexError:
        raise ValueError("users of a horizon are damaged") from None


def _horizon_users(chunk: bytes) -> Iterator[tuple[bytes, CellSlots]]:
    at = _HORIZON_HEADER_BYTES + chunk[2] * PSEUDONYM_BYTES
    for user in range(chunk[2]):
        start = _HORIZON_HEADER_BYTES + user * PSEUDONYM_BYTES
        cell_slots: CellSlots = {}
        cells, at = read_varint(chunk, at)
        for _ in range(cells):
            cell = int.from_bytes(chunk[at : at + _CELL_BYTES], "little")
            number, at = read_varint(chunk, at + _CELL_BYTES)
            slots = cell_slots[cell] = [0] * number
            last = 0
            for position in range(number):
                distance, at = read_varint(chunk, at)
                last += distance
                slots[position] = last
        yield chunk[start : start + PSEUDONYM_BYTES], cell_slots
    if at != len(chunk):
        raise IndexError
