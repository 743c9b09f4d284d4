"""Fast random draws for simulations, and users' means: recorded, or drawn from a model of readings in [0, U].

They protect nothing: releases draw from stream/mechanisms/system.py. The distributions are those of `Noise`, up to
floating point: tests/unit/test_evaluate.py compares them. The models: docs/specification/estimators.md, section 8.
"""

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators.grouping import Counts

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_NO_TAIL: Final = 0.02  # below this scale the noise is 0 with probability above 1 - 2 exp(-50)
_BINS: Final = 512  # of a reading; its mean stays exact, its variance grows by less than (U / 512)^2 / 4
_SUM_DEVIATIONS: Final = 8  # a table of sums covers this many standard deviations to either side
_SCORE_MAX: Final = 6  # a normal number is beyond it once in 10^9
_POINTS_PER_UNIT: Final = 128  # of a table, for each unit of the normal score


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


Means = Callable[[Draws, int], Floats]
"""(draws, runs) -> [runs, L] users' means in milli-units; for vectors [runs, d, L]"""


class Readings(msgspec.Struct, frozen=True, rename={"upper_bound": "U"}):
    """Statistics of simulated readings, km/h. The defaults are the published ones of the ITMS HAT."""

    upper_bound: float = 65.0
    mean: float = 20.66769
    variance: float = 115.135


def recorded(means: Floats) -> Means:
    """Return the same means for every run."""
    return lambda _draws, runs: np.broadcast_to(means, (runs, len(means)))


def iid(counts: Counts, readings: Readings) -> Means:
    """Draw independent readings: normal, clipped to [0, U]."""
    equal = pairwise([0, *(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(counts)])
    tables = [(start, stop, mean_quantiles(int(counts[start]), readings)) for start, stop in equal]

    def draw(draws: Draws, runs: int) -> Floats:
        means = np.empty((runs, len(counts)))
        for start, stop, quantiles in tables:
            at = (np.clip(draws.normal(runs, stop - start), -_SCORE_MAX, _SCORE_MAX) + _SCORE_MAX) * _POINTS_PER_UNIT
            left = np.minimum(at.astype(np.int64), len(quantiles) - 2)
            means[:, start:stop] = quantiles[left] + (at - left) * (quantiles[left + 1] - quantiles[left])
        return means * 1000

    return draw


def user_effects(counts: Counts, readings: Readings) -> Means:
    """Draw normal user effects and readings, half of the variance each; each user's mean is clipped to [0, U]."""
    spread = np.sqrt(readings.variance / 2 * (1 + 1 / counts))

    def draw(draws: Draws, runs: int) -> Floats:
        means = readings.mean + spread * draws.normal(runs, len(counts))
        return np.clip(means, 0, readings.upper_bound) * 1000

    return draw


def vectors(counts: Counts, readings: Readings, dimensions: int) -> Means:
    """Draw vectors as `user_effects` does, in the l1 ball of radius U: [runs, d, L].

    Each coordinate has 1/d of the mean and of the variance. A user's mean outside the ball is scaled onto it.
    """
    spread = np.sqrt(readings.variance / dimensions / 2 * (1 + 1 / counts))

    def draw(draws: Draws, runs: int) -> Floats:
        normal = draws.normal(runs, dimensions * len(counts)).reshape(runs, dimensions, len(counts))
        means = readings.mean / dimensions + spread * normal
        norms = np.abs(means).sum(axis=1, keepdims=True)
        return np.asarray(means / np.maximum(norms / readings.upper_bound, 1) * 1000, np.float64)

    return draw


VALUES: Final[Mapping[str, Callable[[Counts, Readings], Means]]] = MappingProxyType(
    {"iid": iid, "user_effects": user_effects}
)


def mean_quantiles(count: int, readings: Readings) -> Floats:
    """Return the quantile function of the mean of `count` readings, in km/h, at normal scores from -6 to 6.

    It is computed by Fourier transform: drawing 17,166 readings in each of 10^4 runs would take most of the time.
    """
    probabilities = reading_probabilities(readings)
    step = readings.upper_bound / _BINS
    mean = float(probabilities @ np.arange(_BINS + 1))
    deviation = math.sqrt(float(probabilities @ (np.arange(_BINS + 1) - mean) ** 2))
    spread = _SUM_DEVIATIONS * deviation * math.sqrt(count)
    first, last = max(0, math.floor(count * mean - spread)), min(count * _BINS, math.ceil(count * mean + spread))
    size = 1 << max(_BINS + 1, last - first + 1).bit_length()
    sums = np.fft.irfft(np.fft.rfft(probabilities, size) ** count, size)
    sums = np.maximum(np.roll(sums, -(first % size))[: last - first + 1], 0)
    below = (np.cumsum(sums) - sums / 2) / sums.sum()
    scores = np.arange(-_SCORE_MAX * _POINTS_PER_UNIT, _SCORE_MAX * _POINTS_PER_UNIT + 1) / _POINTS_PER_UNIT
    targets = [math.erfc(-score / math.sqrt(2)) / 2 for score in scores.tolist()]
    return np.asarray(np.interp(targets, below, np.arange(first, last + 1) * (step / count)), np.float64)


def reading_probabilities(readings: Readings) -> Floats:
    """Return the probabilities of 0, U/512, .., U: a reading is rounded at random, so that its mean stays exact."""
    step = readings.upper_bound / _BINS
    deviation = math.sqrt(readings.variance)

    def integral(x: float) -> float:
        """Return the integral of the normal distribution function up to x."""
        score = (x - readings.mean) / deviation
        density = math.exp(-score * score / 2) / math.sqrt(2 * math.pi)
        return deviation * (score * math.erfc(-score / math.sqrt(2)) / 2 + density)

    inside = np.array([integral(step * level) for level in range(_BINS + 1)])
    inside -= inside[0]
    whole = np.concatenate(([0.0], inside, [inside[-1] + step]))
    return np.asarray(np.maximum(np.diff(whole, 2) / step, 0), np.float64)
