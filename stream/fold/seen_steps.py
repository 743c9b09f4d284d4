"""Varints, and codes of the sets of steps of which a user has a reading: a prefix, then one of three codes.

A varint is an integer in base 128, least significant first, with the top bit set if more bytes follow.
"""

from collections.abc import Iterator
from typing import Final

_DELTAS, _RUNS, _BITMAP = range(3)
_QUICK_BYTES: Final = 8


def varint(value: int) -> bytes:
    """Encode a non-negative integer."""
    if value < 128:
        return SHORT_VARINTS[value]
    code = bytearray()
    while value > 127:
        code.append(value & 127 | 128)
        value >>= 7
    code.append(value)
    return bytes(code)


SHORT_VARINTS: Final = [bytes([value]) for value in range(128)]


def read_varint(chunk: bytes, at: int) -> tuple[int, int]:
    """Decode the varint at offset `at`; return it and the offset after it."""
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


def quick_seen(seen: int) -> bytes:
    """Encode the set of steps as `pack_seen` does, or as a short bitmap: that takes a third of the time."""
    first = (seen & -seen).bit_length() - 1
    bits = seen >> first
    size = bits.bit_length() + 7 >> 3
    if size > _QUICK_BYTES:
        return pack_seen(seen)
    if first < 128:
        return SHORT_VARINTS[size + 1 << 2 | _BITMAP] + SHORT_VARINTS[first] + bits.to_bytes(size, "little")
    code = varint(first) + bits.to_bytes(size, "little")
    return varint(len(code) << 2 | _BITMAP) + code


def pack_seen(seen: int) -> bytes:
    """Encode the set of steps in the shortest of three codes, prefixed by a varint (code length x 4 + kind).

    deltas   first step, then the distances
    runs     first step, length of its run - 1, then distance - 1 and length - 1 of each further run
    bitmap   first step, then the bits from that step on
    """
    first = (seen & -seen).bit_length() - 1
    bits = seen >> first
    best, kind = varint(first) + bits.to_bytes((bits.bit_length() + 7) // 8, "little"), _BITMAP
    # Deltas take at least one byte a step, runs two a run. Only if that bound is shorter is the code computed.
    if (bits & ~(bits << 1)).bit_count() * 2 < len(best):
        runs = b"".join(map(varint, _as_runs(first, bits)))
        if len(runs) < len(best):
            best, kind = runs, _RUNS
    if bits.bit_count() < len(best):
        deltas = b"".join(map(varint, _as_deltas(first, bits)))
        if len(deltas) < len(best):
            best, kind = deltas, _DELTAS
    return varint(len(best) << 2 | kind) + best


def unpack_sets(chunk: bytes, at: int, number: int) -> list[int]:
    """Decode the sets of steps of `number` users, the first at offset `at`."""
    sets = []
    for _ in range(number):
        prefix, first = chunk[at], chunk[at + 1]
        if prefix & 3 == _BITMAP and prefix < 128 and first < 128:  # almost all: a call for each would cost as much
            end = at + 1 + (prefix >> 2)
            sets.append(int.from_bytes(chunk[at + 2 : end], "little") << first)
            at = end
        else:
            seen, at = unpack_seen(chunk, at)
            sets.append(seen)
    return sets


def unpack_seen(chunk: bytes, at: int) -> tuple[int, int]:
    """Decode the set of steps at offset `at`; return it and the offset of the next code."""
    prefix, at = read_varint(chunk, at)
    end = at + (prefix >> 2)
    kind = prefix & 3
    first, at = read_varint(chunk, at)
    if kind == _BITMAP:
        return int.from_bytes(chunk[at:end], "little") << first, end
    seen = 0
    if kind == _DELTAS:
        seen = 1 << first
        while at < end:
            distance, at = read_varint(chunk, at)
            first += distance
            seen |= 1 << first
        return seen, end
    length, at = read_varint(chunk, at)
    seen = (1 << length + 1) - 1 << first
    last = first + length
    while at < end:
        distance, at = read_varint(chunk, at)
        length, at = read_varint(chunk, at)
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
