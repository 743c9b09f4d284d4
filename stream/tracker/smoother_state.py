"""State of a smoother at the beginning of a local date, exact to the last bit.

A snapshot is small: it has no HATs. Whoever continues from it reads the records of its date and of later ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import msgspec
import numpy as np

from hatcast.stream.tracker.contributions import Floats
from hatcast.stream.tracker.model import SHARED, Covariance, Means

VERSION: Final = 2
"""of the model and of this format: another version's state is not read"""


@dataclass(frozen=True, slots=True, eq=False)
class CityModel:
    """Parts of a smoother that outlive a date.

    cells      number of each cell, in order
    """

    covariance: Covariance
    means: Means
    cells: dict[str, int]


class SmootherState(msgspec.Struct, frozen=True, kw_only=True):
    """State without HATs. Arrays are little-endian float64, C cells in the order of `cells`.

    date         no slot of this date or later was taken; "" if none was
    start_ms     start of the last slot that was taken, ms UTC
    shared       [27, 27]; slopes [C, 27]; variance [C]: of `Covariance`
    means        [27]; intercepts [C]: of `Means`
    calibration  `means` of the calibration
    """

    version: int
    policy_id: str
    date: str
    start_ms: int | None
    cells: Sequence[str]
    shared: bytes
    slopes: bytes
    variance: bytes
    means: bytes
    intercepts: bytes
    calibration: tuple[float, ...]

    @classmethod
    def of(
        cls, policy_id: str, date: str, start_ms: int | None, calibration: tuple[float, ...], model: CityModel
    ) -> Self:
        """Return the state of a model. calibration: its `means`."""
        covariance = model.covariance
        return cls(
            version=VERSION,
            policy_id=policy_id,
            date=date,
            start_ms=start_ms,
            cells=list(model.cells),
            shared=_packed(covariance.shared),
            slopes=_packed(covariance.slopes),
            variance=_packed(covariance.variance),
            means=_packed(model.means.shared),
            intercepts=_packed(model.means.intercepts),
            calibration=calibration,
        )

    def restore(self, model: CityModel) -> None:
        """Put the state into a new model."""
        covariance, cells = model.covariance, len(self.cells)
        model.cells.update((cell, number) for number, cell in enumerate(self.cells))
        covariance.shared = _unpacked(self.shared, SHARED, SHARED)
        covariance.slopes = _unpacked(self.slopes, cells, SHARED)
        covariance.variance = _unpacked(self.variance, cells)
        model.means.shared = _unpacked(self.means, SHARED)
        model.means.intercepts = _unpacked(self.intercepts, cells)


def _packed(array: Floats) -> bytes:
    return array.astype("<f8").tobytes()


def _unpacked(data: bytes, *shape: int) -> Floats:
    return np.frombuffer(data, "<f8").astype(np.float64).reshape(shape)
