"""Noise of a continual mechanism: scale, draws, variance and quantiles. All numbers are in steps."""

import math
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.continual._interface import Setting
from hatcast.stream.mechanisms import Distances, VectorNoise, gaussian, laplace
from hatcast.stream.policy.method import NoiseKind

_QUANTILE95: Final = 1.96  # a little above the normal quantile
_CORRECTION: Final = (_QUANTILE95**3 - 3 * _QUANTILE95) / 24  # Cornish-Fisher's, for each unit of excess kurtosis
_MARGIN: Final = 1.001  # for what the correction neglects


class Calibration:
    """Noise for all numbers of one stream, of which neighbours are within `distances` of each other.

    Raises UnsafeNoise if it does not fit into 64 bits.
    """

    def __init__(self, setting: Setting, distances: Distances) -> None:
        self.setting = setting
        self.distances = distances
        if setting.noise is NoiseKind.LAPLACE:
            laplace.smallest_scale(distances.l1, setting.epsilon)
        else:
            gaussian.check_width(distances, setting.epsilon, setting.delta)

    @cached_property
    def scale(self) -> float:
        """The scale of each draw; with Gaussian noise its standard deviation."""
        if self.setting.noise is NoiseKind.LAPLACE:
            return laplace.smallest_scale(self.distances.l1, self.setting.epsilon)
        return gaussian.smallest_vector_scale(self.distances, self.setting.epsilon, self.setting.delta)

    @cached_property
    def sd(self) -> float:
        """The standard deviation of each draw."""
        of = laplace if self.setting.noise is NoiseKind.LAPLACE else gaussian
        return math.sqrt(of.variance(self.scale))

    def draw(self, values: NDArray[np.int64], noise: VectorNoise) -> NDArray[np.int64]:
        """Return `values` plus independent noise. Raises UnsafeNoise."""
        if self.setting.noise is NoiseKind.LAPLACE:
            return noise.laplace_many(values, self.distances.l1, self.setting.epsilon).values
        return noise.gaussian_many(values, self.distances, self.setting.epsilon, self.setting.delta).values

    def width95(self, squares: float, fourths: float) -> float:
        """Return a half width of a 95 % interval around a weighted sum of draws.

        squares, fourths  sums of the squares and of the fourth powers of the weights

        A Laplace draw has the excess kurtosis 3, so the sum has 3 fourths / squares^2. With Cornish and Fisher's
        correction the width is above the quantile: by 2.4 % for one draw, by 0.1 % for many
        (tests/statistics/test_continual.py).
        """
        if not squares:
            return 0.0
        quantile = _QUANTILE95
        if self.setting.noise is NoiseKind.LAPLACE:
            quantile = _MARGIN * (quantile + _CORRECTION * 3 * fourths / squares**2)
        return quantile * self.sd * math.sqrt(squares)
