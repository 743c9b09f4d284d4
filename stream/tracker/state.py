"""State of a tracker between two days, as bytes: all later queries and estimates follow from it.

The bytes contain floats as they are, so a tracker that goes on from them does exactly what the one that wrote them
would have done. They follow from public counts and released numbers.
"""

from typing import Final, Self

import msgspec
import numpy as np

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.tracker.contributions import Floats
from hatcast.stream.tracker.model import SHARED

_VERSION: Final = 1


class TrackerState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a tracker after a day.

    policy_id     of its policy
    date          local date through which days are settled
    cells         names of cells, in the order of their numbers
    seen, hours   as in `Outlook`; float64 [C]
    newest_ms     start of the newest slot, ms UTC; None: there was none
    covariance, slopes, variance   as in `Covariance`: float64 [27, 27], [C, 27], [C]
    means, intercepts              as in `Means`: float64 [27], [C]
    calibration   the two running means of `Calibration`
    Arrays are little-endian bytes, row by row.
    """

    policy_id: str
    date: str
    cells: tuple[str, ...]
    seen: bytes
    hours: int
    newest_ms: int | None
    covariance: bytes
    slopes: bytes
    variance: bytes
    means: bytes
    intercepts: bytes
    calibration: tuple[float, float]
    version: int = _VERSION

    def encoded(self) -> bytes:
        """Return the bytes, as `decoded` reads them."""
        return _ENCODER.encode(self)

    @classmethod
    def decoded(cls, stored: bytes | None, policy_id: str) -> Self | None:
        """Return the state; None if they are missing, or of another version or policy."""
        if stored is None:
            return None
        try:
            state = msgspec.msgpack.decode(stored, type=cls)
        except UNREADABLE:
            return None
        cells = len(state.cells)
        sizes = (
            (state.covariance, SHARED**2),
            (state.slopes, cells * SHARED),
            (state.variance, cells),
            (state.means, SHARED),
            (state.intercepts, cells),
            (state.seen, cells),
        )
        fits = all(len(array) == 8 * numbers for array, numbers in sizes)
        return state if fits and (state.version, state.policy_id) == (_VERSION, policy_id) else None


_ENCODER: Final = msgspec.msgpack.Encoder()


def bytes_of(numbers: Floats) -> bytes:
    """Return the bytes of an array."""
    return numbers.astype("<f8").tobytes()


def floats_of(stored: bytes, *shape: int) -> Floats:
    """Return the array, float64 of this shape, that may be written to."""
    return np.frombuffer(stored, "<f8").astype(np.float64).reshape(shape)
