"""Stored states of continual mechanisms: a header and 64-bit integers."""

import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.continual._interface import BadState, Setting

_VERSION: Final = 1
_HEADER: Final = struct.Struct("<BIiI")  # version, setting, index, checksum of index and numbers


class Stored(NamedTuple):
    """Contents of a state.

    last     index of the last slot
    numbers  int64 [M], of the kind
    """

    last: int
    numbers: NDArray[np.int64]


@lru_cache(maxsize=256)
def fingerprint(kind: str, setting: Setting, extra: str = "") -> int:
    """Return a checksum of kind, setting and `extra`: a state of another one is rejected."""
    return zlib.crc32(f"{kind} {setting!r} {extra}".encode())


def pack(of: int, index: int, numbers: NDArray[np.int64] | Sequence[int]) -> bytes:
    """Return the state after slot `index`.

    of  `fingerprint` of the mechanism
    """
    body = np.asarray(numbers, "<i8").tobytes()
    return _HEADER.pack(_VERSION, of, index, zlib.crc32(body, index)) + body


def unpack(state: bytes, of: int, before: int) -> Stored:
    """Return the contents of a state.

    before  index of the next slot
    Raises BadState if it is damaged, of another version or setting, or not of a slot before `before`.
    """
    if len(state) < _HEADER.size or state[0] != _VERSION:
        raise BadState("the state of a running sum is damaged or of another version")
    _, stored_of, index, checksum = _HEADER.unpack_from(state)
    body = state[_HEADER.size :]
    if len(body) % 8 or zlib.crc32(body, index & 0xFFFFFFFF) != checksum:
        raise BadState("the state of a running sum is damaged")
    if stored_of != of:
        raise BadState("the state of a running sum is of another setting")
    if not 0 <= index < before:
        raise BadState(f"slot {before} of a running sum is not after slot {index}, its last one")
    return Stored(index, np.frombuffer(body, "<i8").astype(np.int64))


def check_index(index: int, setting: Setting) -> None:
    """Raise BadState for an index outside the horizon."""
    if not 0 <= index < setting.slots:
        raise BadState(f"slot {index} is not one of the {setting.slots} of the horizon")
