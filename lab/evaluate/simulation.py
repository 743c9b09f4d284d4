"""Fast random draws for simulations. They protect nothing: releases draw from stream/mechanisms/system.py.

The distributions are those of `Noise`, up to floating point: tests/unit/test_evaluate.py compares them.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_NO_TAIL: Final = 0.02  # below this scale the noise is 0 with probability above 1 - 2 exp(-50)


class Draws:
    """Random number generator with a seed, so that results are reproducible."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)  # simulation: never noise of a release

    def normal(self, runs: int, number: int) -> Floats:
        """Return [runs, number] standard normal numbers."""
        return self._generator.standard_normal((runs, number))

    def laplace(self, scales: Floats) -> Integers:
        """Return [runs] discrete Laplace noise of these scales, in steps; 0 for scale 0.

        It is the difference of two geometric numbers with p = 1 - exp(-1/scale).
        """
        drawn = scales > _NO_TAIL
        p = -np.expm1(-1 / np.where(drawn, scales, 1.0))
        return np.where(drawn, self._generator.geometric(p) - self._generator.geometric(p), 0)

    def laplace_sum(self, scale: float, number: int, runs: int) -> Integers:
        """Return [runs] sums of `number` discrete Laplace noises of one scale, in steps."""
        p = -np.expm1(-1 / scale)
        return self._generator.negative_binomial(number, p, runs) - self._generator.negative_binomial(number, p, runs)

    def binomial(self, coins: int, runs: int) -> Integers:
        """Return [runs] numbers of heads among `coins` fair coins."""
        return self._generator.binomial(coins, 0.5, runs)

    def choose(self, weights: Floats) -> Integers:
        """Return [runs] an index into each row of weights [runs, N], with probability proportional to its weight."""
        ends = np.cumsum(weights, axis=1)
        drawn = self._generator.random(len(weights)) * ends[:, -1]
        return np.asarray((ends <= drawn[:, None]).sum(axis=1), np.int64)

    def uniform(self, numbers: Integers) -> Integers:
        """Return [runs] uniform integers in [0, numbers)."""
        return self._generator.integers(0, numbers)
