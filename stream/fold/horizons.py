"""Horizons of a policy with `[policy.continual]`: the place of a slot in its horizon, and chunks of a horizon's users.

A horizon is named by its first local date. Its n slots are numbered by the local clock: the day of the horizon times
the slots of a day, plus the position of the slot's local start among the day's. So n is the same for every horizon: the
number of an hour that the clock skips is not used, and a repeated hour is one slot.
"""

from collections.abc import Iterator, Sequence
from datetime import date
from itertools import pairwise
from typing import Final

from hatcast.stream.fold.seen_steps import read_varint, varint
from hatcast.stream.policy.policy import ContinualKeys, Policy
from hatcast.stream.policy.query import Period
from hatcast.stream.readings.vehicles import PSEUDONYM_BYTES
from hatcast.stream.units import HOUR_MS, MINUTE_MS

VERSION: Final = 1
_HEADER_BYTES: Final = 3
_CELL_BYTES: Final = 8

Places = dict[int, list[int]]  # H3 cell -> numbers of the slots that a user has entered in a horizon, ascending


def horizon_of(keys: ContinualKeys, day: str) -> Period:
    """Return the horizon that contains a local date. Raises ValueError for a date outside of all horizons."""
    horizon = keys.horizon_of(day)
    if horizon is None:
        raise ValueError(f"{day} is not in a horizon of the policy")
    return horizon


class SlotIndex:
    """Number of each slot of a policy in its horizon, 0 to n - 1. Raises ValueError for a policy without horizons."""

    def __init__(self, policy: Policy) -> None:
        self._keys = policy.keys_of(ContinualKeys)
        self._minutes = policy.slot_length_ms // MINUTE_MS
        self._first = -(-policy.hours[0] * HOUR_MS // policy.slot_length_ms)  # of the slots of a whole day
        self._slots_of_day = self._keys.slots // self._keys.horizon_days

    def of(self, day: str, name: str) -> int:
        """Return the number of the slot with this local date and start. Raises ValueError if it is not released."""
        hour, _, minute = name.partition(":")
        step, rest = divmod(int(hour) * 60 + int(minute), self._minutes)
        place = step - self._first
        if rest or not 0 <= place < self._slots_of_day:
            raise ValueError(f"{day}/{name} is not a slot within the policy's hours")
        past = date.fromisoformat(day) - horizon_of(self._keys, day).first
        return past.days * self._slots_of_day + place


def pack_places(places: Places) -> bytes:
    """Pack the cells and slots that one user has entered: its part of a chunk, without the pseudonym."""
    parts = [varint(len(places))]
    for cell, slots in places.items():
        parts += (cell.to_bytes(_CELL_BYTES, "little"), varint(len(slots)), varint(slots[0]))
        parts += [varint(after - before) for before, after in pairwise(slots)]
    return b"".join(parts)


def pack_horizon(users: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Pack 1 to 255 pairs (pseudonym, packed places) into a chunk. [docs/specification/release.md, State in Redis]

    0, version, users                                          one byte each
    pseudonyms                                                 users x 8
    of each user: cells                                        varint
    of each of its cells: the H3 index                         8 bytes, little-endian
                          slots                                varint
                          number of the first slot, then the distance of each next one   varints

    A chunk of a day's users (`packing.pack_day`) begins with their number, which is never 0, so neither is read as the
    other.
    """
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
