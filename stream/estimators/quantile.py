"""QUANTILE: clip array means to two private quantiles of themselves.    [M III.E], [Smith 2011, Alg 2]"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

import numpy as np

from hatcast.stream.estimators._array_means import NOISE_SHARE, ArrayMeans, ClippedMeans
from hatcast.stream.estimators._interface import ARRAY_CHOICES, Interval, Parameters
from hatcast.stream.estimators.grouping import Arrays, Integers, ceil_2_over
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import EstimatorKeys

_SHARE: Final = Fraction(1, 4)  # of epsilon, for each end

Rank = Callable[[int, float], int]  # (K, epsilon) -> number of means below the lower end, and above the upper end

QUANTILES: Final[Mapping[str, Rank]] = {
    "fixed": lambda number, _epsilon: number // 10,
    "epsilon_dependent": lambda number, epsilon: min(ceil_2_over(epsilon), number // 2),
    "smoothed": lambda number, _epsilon: number // 10,
}
SMOOTHED: Final = "smoothed"
_RADII: Final = 100  # rho is this part of [0, U], and at least a step


class Quantile(ClippedMeans):
    """(1/K) sum_k clip(A_k, a, b), [a, b] private quantiles of the array means A_k.

    `quantiles` = fixed: a tenth and nine tenths, ranks t = floor(K/10) and K - t. epsilon_dependent: t = ceil(2/eps),
    at most floor(K/2). In grid steps let z_1 <= ... <= z_K be the means, z_0 = 0, z_(K+1) = the last step within U. For
    either end, interval i is drawn with probability proportional to (z_(i+1) - z_i) exp(-e |i - t| / (2 s)), e = eps/4,
    then an integer uniformly from (z_i, z_(i+1)]. The ends are swapped if they are out of order.

    smoothed: ranks as fixed, but a step v of [0, the last one] has the least cost of all steps within rho = U/100:
    c(v) = max(#{z_k < v - rho} - t, t - #{z_k <= v + rho}, 0). So also a quantile at which many means are equal, of no
    width between them, is drawn near it.    [Asi and Duchi 2020]

    Privacy (replace): eps/4 for each end and eps/2 for the noise. A step v > 0 is drawn with probability proportional
    to exp(-e |i(v) - t| / (2 s)), i(v) = #{z_k < v}, because the steps of an interval share its probability equally.
    One user moves at most s array means, so i(v) changes by at most s; then each weight and their sum change by a
    factor of at most exp(e/2), and a probability by at most exp(e). (The papers' constant is that of s = 1.) smoothed:
    each of the two numbers in c(v) changes by at most s, rho is public, and so c(v) changes by at most s too.
    Sensitivity: see ClippedMeans.
    """

    name: Final = "quantile"
    keys: Final = EstimatorKeys(
        {"grouping": "bestfit", "array_length": "sensitivity", "quantiles": "fixed"},
        {**ARRAY_CHOICES, "quantiles": tuple(QUANTILES)},
    )
    shares: Final = {"lower_end": _SHARE, "upper_end": _SHARE, "noise": NOISE_SHARE}

    def interval(self, means: ArrayMeans, arrays: Arrays, parameters: Parameters, noise: Noise) -> Interval:
        if parameters.quantiles is None:
            raise ValueError("the quantile estimator needs `quantiles`")
        grid = parameters.grid
        top = grid.floor(parameters.upper_bound_milli)
        steps = np.sort(np.minimum(means.nearest(grid.milli), top))
        rank = QUANTILES[parameters.quantiles](arrays.number, parameters.epsilon)
        rate = Fraction(parameters.epsilon) * _SHARE / (2 * arrays.split)
        draw = smoothed_quantile if parameters.quantiles == SMOOTHED else private_quantile
        ends = [draw(steps, top, end_rank, rate, noise) for end_rank in (rank, arrays.number - rank)]
        return min(ends) * grid.milli, max(ends) * grid.milli


def private_quantile(steps: Integers, top: int, rank: int, rate: Fraction, noise: Noise) -> int:
    """Draw a step in [1, top] with about `rank` of the K ascending steps (each in [0, top]) below it."""
    borders = np.concatenate(([0], steps, [top]))
    widths = np.diff(borders)
    drawn = noise.choose(widths, np.abs(np.arange(len(widths)) - rank), rate)
    return int(borders[drawn]) + 1 + noise.uniform(int(widths[drawn]))


def smoothed_quantile(steps: Integers, top: int, rank: int, rate: Fraction, noise: Noise) -> int:
    """Draw a step in [0, top] that has a step with about `rank` of the K ascending steps below it within rho."""
    borders, costs = smoothed_costs(steps, top, rank)
    widths = np.diff(borders)
    drawn = noise.choose(widths, costs, rate)
    return int(borders[drawn]) + noise.uniform(int(widths[drawn]))


def smoothed_costs(steps: Integers, top: int, rank: int) -> tuple[Integers, Integers]:
    """Return borders [2 K + 2], and the cost [2 K + 1] of each step from a border up to the next one."""
    radius = max(1, top // _RADII)
    changes = np.sort(np.concatenate((steps - radius, steps + radius + 1)))
    borders = np.concatenate(([0], np.clip(changes, 0, top + 1), [top + 1]))
    above = np.searchsorted(steps, borders[:-1] - radius, side="left") - rank
    below = rank - np.searchsorted(steps, borders[:-1] + radius, side="right")
    return borders, np.maximum(np.maximum(above, below), 0)


ESTIMATOR: Final = Quantile()
