"""Chunks of users as bytes: what one Redis string holds.    [design 4, State in Redis]

A chunk of contributions is a row of columns, so that a release of a million users reads it with numpy and never
looks at what it does not need:

    version, users, width of counts, of totals, of maxima      one byte each
    pseudonyms, counts, totals, maxima                         users x width, little-endian
    seen                                                       one code a user, see `pack_seen`

What is kept of a chunk for queries over days (`strip`; agents/redis/delete.lua does the same) is its header, counts,
totals and maxima: neither who they were of nor when.

A chunk of a day's users: users (one byte), pseudonyms, HATs entered (two bytes each).
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hatcast.stream.readings.pseudonyms import PSEUDONYM_BYTES

VERSION: Final = 1
_HEADER: Final = struct.Struct("5B")
_WIDTHS: Final = ((1, "B"), (2, "H"), (4, "I"), (8, "Q"))
_FORMATS: Final = dict(_WIDTHS)
_DELTAS, _RUNS, _BITMAP = range(3)


class Row(msgspec.Struct, gc=False):
    """One user of a HAT: what `contributions.Contribution` keeps, and whose it is."""

    pseudonym: bytes
    count: int
    total: int
    maximum: int
    seen: int


def pack(rows: Sequence[Row]) -> bytes:
    """A chunk of 1 to 255 users."""
    counts, totals, maxima = [r.count for r in rows], [r.total for r in rows], [r.maximum for r in rows]
    columns = []
    widths = []
    for column in (counts, totals, maxima):
        width, code = _width(max(column))
        widths.append(width)
        columns.append(struct.pack(f"<{len(rows)}{code}", *column))
    return b"".join(
        (
            _HEADER.pack(VERSION, len(rows), *widths),
            b"".join([r.pseudonym for r in rows]),
            *columns,
            b"".join([pack_seen(r.seen) for r in rows]),
        )
    )


def unpack(chunk: bytes) -> Iterator[Row]:
    """The users of a chunk, in order. Raises ValueError on bytes of another version."""
    users, (counts, totals, maxima), at = _columns(chunk)
    start = _HEADER.size
    for i in range(users):
        pseudonym = chunk[start + i * PSEUDONYM_BYTES : start + (i + 1) * PSEUDONYM_BYTES]
        seen, at = unpack_seen(chunk, at)
        yield Row(pseudonym, counts[i], totals[i], maxima[i], seen)


def columns(chunk: bytes) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """What an estimator needs of a chunk: pseudonyms (big-endian numbers), counts, totals in milli-units."""
    users, widths = _head(chunk)
    at = _HEADER.size
    pseudonyms = np.frombuffer(chunk, ">u8", users, at)
    at += users * PSEUDONYM_BYTES
    counts = np.frombuffer(chunk, f"<u{widths[0]}", users, at)
    totals = np.frombuffer(chunk, f"<u{widths[1]}", users, at + users * widths[0])
    return pseudonyms.astype(np.uint64), counts.astype(np.int64), totals.astype(np.int64)


def strip(chunk: bytes) -> bytes:
    """What is kept of a chunk once its HAT is released: without pseudonyms and seen steps."""
    users, widths = _head(chunk)
    start = _HEADER.size + users * PSEUDONYM_BYTES
    return chunk[: _HEADER.size] + chunk[start : start + users * sum(widths)]


def stripped_columns(kept: bytes) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
    """Counts, totals and maxima (milli-units) of each of the stripped chunks that stand one after the other."""
    at = 0
    while at < len(kept):
        users, widths = _head(kept[at : at + _HEADER.size])
        at += _HEADER.size
        found = []
        for width in widths:
            found.append(np.frombuffer(kept, f"<u{width}", users, at).astype(np.int64))
            at += users * width
        yield found[0], found[1], found[2]


def _head(chunk: bytes) -> tuple[int, tuple[int, int, int]]:
    version, users, *widths = _HEADER.unpack_from(chunk)
    if version != VERSION:
        raise ValueError(f"contributions of version {version}: written by another hatcast")
    return users, (widths[0], widths[1], widths[2])


def _columns(chunk: bytes) -> tuple[int, list[tuple[int, ...]], int]:
    users, widths = _head(chunk)
    at = _HEADER.size + users * PSEUDONYM_BYTES
    found = []
    for width in widths:
        found.append(struct.unpack_from(f"<{users}{_FORMATS[width]}", chunk, at))
        at += users * width
    return users, found, at


def _width(greatest: int) -> tuple[int, str]:
    for width, code in _WIDTHS:
        if greatest < 1 << 8 * width:
            return width, code
    raise OverflowError("a contribution passed 2**64")


def pack_seen(seen: int) -> bytes:
    """The set of steps in the smallest of three codes, behind a number (length of the code x 4 + its kind).

    deltas   first step, then the distances
    runs     first step, length of its run - 1, then distance - 1 and length - 1 of each next
    bitmap   first step, then the bits from there on
    """
    first = (seen & -seen).bit_length() - 1
    bits = seen >> first
    best, kind = _number(first) + bits.to_bytes((bits.bit_length() + 7) // 8, "little"), _BITMAP
    # Each step costs a list a byte at least, each run two: only then is the exact length worth finding.
    if (bits & ~(bits << 1)).bit_count() * 2 < len(best):
        runs = b"".join(map(_number, _as_runs(first, bits)))
        if len(runs) < len(best):
            best, kind = runs, _RUNS
    if bits.bit_count() < len(best):
        deltas = b"".join(map(_number, _as_deltas(first, bits)))
        if len(deltas) < len(best):
            best, kind = deltas, _DELTAS
    return _number(len(best) << 2 | kind) + best


def unpack_seen(chunk: bytes, at: int) -> tuple[int, int]:
    """The set of steps whose code begins at `at`, and where the next one begins."""
    head, at = _read_number(chunk, at)
    end = at + (head >> 2)
    kind = head & 3
    first, at = _read_number(chunk, at)
    if kind == _BITMAP:
        return int.from_bytes(chunk[at:end], "little") << first, end
    seen = 0
    if kind == _DELTAS:
        seen = 1 << first
        while at < end:
            distance, at = _read_number(chunk, at)
            first += distance
            seen |= 1 << first
        return seen, end
    length, at = _read_number(chunk, at)
    seen = (1 << length + 1) - 1 << first
    last = first + length
    while at < end:
        distance, at = _read_number(chunk, at)
        length, at = _read_number(chunk, at)
        first = last + distance + 1
        seen |= (1 << length + 1) - 1 << first
        last = first + length
    return seen, end


def _as_deltas(first: int, bits: int) -> Iterator[int]:
    yield first
    bits >>= 1
    while bits:
        distance = (bits & -bits).bit_length()
        yield distance
        bits >>= distance


def _as_runs(first: int, bits: int) -> Iterator[int]:
    yield first
    while True:
        length = (~bits & bits + 1).bit_length() - 1
        yield length - 1
        bits >>= length
        if not bits:
            return
        distance = (bits & -bits).bit_length() - 1
        yield distance
        bits >>= distance


def _number(value: int) -> bytes:
    """A number of 0 or more in base 128, least first; the top bit says that more follows."""
    if value < 128:
        return _SMALL[value]
    code = bytearray()
    while value > 127:
        code.append(value & 127 | 128)
        value >>= 7
    code.append(value)
    return bytes(code)


_SMALL: Final = [bytes([value]) for value in range(128)]


def _read_number(chunk: bytes, at: int) -> tuple[int, int]:
    byte = chunk[at]
    if byte < 128:
        return byte, at + 1
    value, shift = byte & 127, 7
    while True:
        at += 1
        byte = chunk[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + 1
        shift += 7


def pack_day(users: Sequence[tuple[bytes, int]]) -> bytes:
    """A chunk of 1 to 255 (pseudonym, HATs entered)."""
    entered = struct.pack(f"<{len(users)}H", *(count for _, count in users))
    return bytes([len(users)]) + b"".join([pseudonym for pseudonym, _ in users]) + entered


def unpack_day(chunk: bytes) -> list[tuple[bytes, int]]:
    """The (pseudonym, HATs entered) of a chunk, in order."""
    users = chunk[0]
    entered = struct.unpack_from(f"<{users}H", chunk, 1 + users * PSEUDONYM_BYTES)
    return [(chunk[1 + i * PSEUDONYM_BYTES : 1 + (i + 1) * PSEUDONYM_BYTES], entered[i]) for i in range(users)]
