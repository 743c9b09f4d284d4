"""Kinds with correlated noise: sensitivity, noise and error of y = round(2^s C x) + z, C lower triangular and Toeplitz.

x are the sums of the slots, z independent noise, and decode(y) = A C^-1 y / 2^s are the running sums, where A adds up.
Proofs: docs/specification/continual.md.
"""

import math
from fractions import Fraction
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.continual._interface import NoiseCalibration, SumSetting
from hatcast.stream.mechanisms import Distances

Integers = NDArray[np.int64]
Number = TypeVar("Number", np.int64, np.float64)
Floats = NDArray[np.float64]

MAX_SHIFT: Final = 20
_WIDENING: Final = Fraction(1001, 1000)  # of the noise by rounding, at most


def participation_of(column: NDArray[Number], setting: SumSetting) -> NDArray[Number]:
    """Return C x for a user with x = 1 in slots 0, b, 2b, ..., its k participations: the worst case of all.

    column  [n], the first column of C or a multiple of it: 0 or more, and not increasing
    """
    b = setting.min_separation
    rows = -(-len(column) // b)
    padded = np.zeros(rows * b, column.dtype)
    padded[: len(column)] = column
    sums = np.cumsum(padded.reshape(rows, b), axis=0)
    k = setting.participations
    sums[k:] -= sums[: rows - k].copy()
    return sums.ravel()[: len(column)]


class MatrixNoise:
    """Sensitivity and noise of y.

    column   int64 [n], the first column of C times 2^bits
    excess   rounding moves a coordinate of neighbours' y apart by at most this many steps
    """

    def __init__(self, setting: SumSetting, column: Integers, bits: int, excess: Fraction) -> None:
        worst = participation_of(column, setting).tolist()
        scaled = Fraction(setting.bound, 1 << bits)
        self._l1: Fraction = scaled * sum(worst)
        self._l2_squared: Fraction = scaled * scaled * sum(each * each for each in worst)
        self._slots = setting.slots
        self._excess = excess
        self.shift = next(s for s in range(MAX_SHIFT + 1) if s == MAX_SHIFT or self._is_narrow(s))  # s
        self.calibration = NoiseCalibration(setting, self._distances(self.shift))

    def _distances(self, shift: int) -> Distances:
        """Return bounds of neighbours' distances in steps: |d_t| <= 2^s |C dx|_t + excess, and d_t is an integer."""
        l1, l2_squared, excess = (1 << shift) * self._l1, (1 << 2 * shift) * self._l2_squared, self._excess
        squares = l2_squared + 2 * excess * l1 + self._slots * excess * excess
        return Distances(math.floor(l1 + self._slots * excess), math.floor(squares))

    def _is_narrow(self, shift: int) -> bool:
        """Return whether rounding widens the noise by less than 0.1 %."""
        wide = self._distances(shift)
        return (
            wide.l1 < _WIDENING * (1 << shift) * self._l1
            and wide.l2_squared < _WIDENING * _WIDENING * (1 << 2 * shift) * self._l2_squared
        )  # fmt: skip


class Decoding:
    """Error of the running sums: after slot t it is the sum of weights[i] z_(t - i) / 2^s."""

    def __init__(self, noise: MatrixNoise, weights: Floats) -> None:
        self.weights = weights  # float64 [n], the first column of A C^-1
        self._step = 0.5**noise.shift
        self._calibration = noise.calibration
        self._squares = np.cumsum(weights**2)
        self._fourths = np.cumsum(weights**4)

    def sd(self, age: int) -> float:
        """Return the standard deviation `age` slots after the first one."""
        return self._calibration.sd * math.sqrt(self._squares[age]) * self._step

    def width95(self, age: int) -> float:
        """Return the half width of a 95 % interval `age` slots after the first one."""
        return self._calibration.width95(float(self._squares[age]), float(self._fourths[age])) * self._step
