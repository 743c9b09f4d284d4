"""Scheduled speeds of cells, from a timetable: public, so the prior of a tracker's cells may follow from them.

A cell's speed in a timetable explains up to two thirds of what cells differ by, but not one to one: buses wait where
they are early. So the model has one slope for all cells, which it learns.    [docs/specification/tracker.md, section 1]
"""

import hashlib
from collections.abc import Mapping
from typing import Final, Self

import msgspec

from hatcast.stream.policy.tracker_keys import TIMETABLE_PRIOR

REFERENCE: Final = TIMETABLE_PRIOR.reference
"""km/h: about the mean of cells' scheduled speeds, from which `deviation` counts"""
_TENTHS: Final = 10


class Timetable(msgspec.Struct, frozen=True):
    """Scheduled speeds of one timetable."""

    speeds: dict[str, int]  # cell -> 0.1 km/h, 1 or more; a cell that is missing has none
    digest: str  # of the speeds: equal for equal speeds

    @classmethod
    def of(cls, speeds: Mapping[str, int]) -> Self:
        """Return the timetable of these speeds. Raises ValueError for one below 1."""
        if any(speed < 1 for speed in speeds.values()):
            raise ValueError("a scheduled speed is below 0.1 km/h")
        in_order = dict(sorted(speeds.items()))
        digest = hashlib.blake2b(msgspec.json.encode(in_order), digest_size=16).hexdigest()
        return cls(in_order, f"b2:{digest}")


def tenths_of(scheduled: float) -> int:
    """Return a record's scheduled speed (km/h) in 0.1 km/h."""
    return round(scheduled * _TENTHS)


def deviation(tenths: int) -> float:
    """Return how far a scheduled speed is from REFERENCE, km/h, clipped. tenths: 0.1 km/h."""
    prior = TIMETABLE_PRIOR
    return min(max(tenths / _TENTHS - prior.reference, prior.lowest), prior.highest)
