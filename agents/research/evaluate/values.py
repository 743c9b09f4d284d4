"""What users' means may be: recorded ones, or drawn from a model of readings in [0, U].  [estimators.md, section 8]"""

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np

from hatcast.agents.research.evaluate.simulation import Draws, Floats
from hatcast.stream.estimators.grouping import Counts

Means = Callable[[Draws, int], Floats]
"""(chance, runs) -> [runs, L] users' means in milli-units; of vectors [runs, d, L]"""

_LEVELS: Final = 512  # of a reading; its mean stays exact, its variance grows by less than (U / 512)^2 / 4
_WIDE: Final = 8  # standard deviations of a sum to either side
_FAR: Final = 6  # a normal number beyond it comes once in 10^9
_PER_UNIT: Final = 128  # points of a table


class Readings(msgspec.Struct, frozen=True, rename={"upper_bound": "U"}):
    """How fast simulated buses are, km/h: the published statistics of the ITMS HAT unless a file has others."""

    upper_bound: float = 65.0
    mean: float = 20.66769
    variance: float = 115.135


def recorded(means: Floats) -> Means:
    """The same means in each run."""
    return lambda _draws, runs: np.broadcast_to(means, (runs, len(means)))


def iid(counts: Counts, readings: Readings) -> Means:
    """Each reading normal and cut to [0, U], all independent."""
    tables = [(start, stop, mean_law(int(counts[start]), readings)) for start, stop in _runs(counts)]

    def draw(draws: Draws, runs: int) -> Floats:
        means = np.empty((runs, len(counts)))
        for start, stop, law in tables:
            at = (np.clip(draws.normal(runs, stop - start), -_FAR, _FAR) + _FAR) * _PER_UNIT
            left = np.minimum(at.astype(np.int64), len(law) - 2)
            means[:, start:stop] = law[left] + (at - left) * (law[left + 1] - law[left])
        return means * 1000

    return draw


def user_effects(counts: Counts, readings: Readings) -> Means:
    """Half of the variance is between users. Effects and readings are normal; the user's mean is what is cut."""
    spread = np.sqrt(readings.variance / 2 * (1 + 1 / counts))

    def draw(draws: Draws, runs: int) -> Floats:
        means = readings.mean + spread * draws.normal(runs, len(counts))
        return np.clip(means, 0, readings.upper_bound) * 1000

    return draw


def vectors(counts: Counts, readings: Readings, dimensions: int) -> Means:
    """As user_effects, in the l1 ball of radius U: [runs, d, L].

    Each coordinate has 1/d of the mean and of the variance. A user's mean outside the ball is drawn back towards 0.
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


def mean_law(count: int, readings: Readings) -> Floats:
    """km/h by standard normal score, from -6 to 6: z -> the mean of `count` readings with as much chance below it.

    By Fourier transform: drawing 17,166 readings in each of 10^4 runs would take most of the time.
    """
    chances = levels(readings)
    step = readings.upper_bound / _LEVELS
    mean = float(chances @ np.arange(_LEVELS + 1))
    deviation = math.sqrt(float(chances @ (np.arange(_LEVELS + 1) - mean) ** 2))
    spread = _WIDE * deviation * math.sqrt(count)
    first, last = max(0, math.floor(count * mean - spread)), min(count * _LEVELS, math.ceil(count * mean + spread))
    size = 1 << max(_LEVELS + 1, last - first + 1).bit_length()
    sums = np.fft.irfft(np.fft.rfft(chances, size) ** count, size)
    sums = np.maximum(np.roll(sums, -(first % size))[: last - first + 1], 0)
    below = (np.cumsum(sums) - sums / 2) / sums.sum()
    scores = np.arange(-_FAR * _PER_UNIT, _FAR * _PER_UNIT + 1) / _PER_UNIT
    wanted = [math.erfc(-score / math.sqrt(2)) / 2 for score in scores.tolist()]
    return np.asarray(np.interp(wanted, below, np.arange(first, last + 1) * (step / count)), np.float64)


def levels(readings: Readings) -> Floats:
    """Chances of 0, U/512, .., U: a reading between two goes to either, so that its mean stays what it is."""
    step = readings.upper_bound / _LEVELS
    deviation = math.sqrt(readings.variance)

    def integral(x: float) -> float:
        """Of the normal distribution function up to x."""
        score = (x - readings.mean) / deviation
        density = math.exp(-score * score / 2) / math.sqrt(2 * math.pi)
        return deviation * (score * math.erfc(-score / math.sqrt(2)) / 2 + density)

    inside = np.array([integral(step * level) for level in range(_LEVELS + 1)])
    inside -= inside[0]
    whole = np.concatenate(([0.0], inside, [inside[-1] + step]))
    return np.asarray(np.maximum(np.diff(whole, 2) / step, 0), np.float64)


def _runs(counts: Counts) -> Iterator[tuple[int, int]]:
    """Where users with equal counts begin and end."""
    return pairwise([0, *(np.flatnonzero(np.diff(counts)) + 1).tolist(), len(counts)])
