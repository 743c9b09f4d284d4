"""Fast draws for simulated releases. None of them protects anybody: releases draw from stream/mechanisms/system.py.

The distributions are those of `Noise`, up to floating point: tests/unit/test_evaluate.py ties them.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_NO_TAIL: Final = 0.02  # below this scale 0 comes with a chance of 1 - 2 exp(-50)


class Draws:
    """Seeded, so that a table can be made again."""

    def __init__(self, seed: int) -> None:
        self._chance = np.random.default_rng(seed)  # simulation: never noise of a release

    def normal(self, runs: int, number: int) -> Floats:
        """[runs, number] standard normal."""
        return self._chance.standard_normal((runs, number))

    def laplace(self, scales: Floats) -> Integers:
        """[runs] discrete Laplace noise of these scales, in steps; 0 for scale 0.

        The difference of two geometric numbers with p = 1 - exp(-1/scale).
        """
        drawn = scales > _NO_TAIL
        p = -np.expm1(-1 / np.where(drawn, scales, 1.0))
        return np.where(drawn, self._chance.geometric(p) - self._chance.geometric(p), 0)

    def laplace_sum(self, scale: float, number: int, runs: int) -> Integers:
        """[runs] the sum of so many discrete Laplace noises of one scale, in steps."""
        p = -np.expm1(-1 / scale)
        return self._chance.negative_binomial(number, p, runs) - self._chance.negative_binomial(number, p, runs)

    def heads(self, coins: int, runs: int) -> Integers:
        """[runs] how many of so many fair coins show heads."""
        return self._chance.binomial(coins, 0.5, runs)

    def choose(self, weights: Floats) -> Integers:
        """[runs] an index into each row of weights [runs, N], with a chance proportional to its weight."""
        ends = np.cumsum(weights, axis=1)
        drawn = self._chance.random(len(weights)) * ends[:, -1]
        return np.asarray((ends <= drawn[:, None]).sum(axis=1), np.int64)

    def uniform(self, numbers: Integers) -> Integers:
        """[runs] integers in [0, numbers)."""
        return self._chance.integers(0, numbers)
