"""LEVY: clip array means to where half of them are, found by a private median.    [M III.D, Alg 3]"""

import math
from fractions import Fraction
from types import MappingProxyType
from typing import Final

import numpy as np

from hatcast.stream.estimators._array_means import ArrayMeans
from hatcast.stream.estimators._clipped_means import NOISE_SHARE, ClippedMeans
from hatcast.stream.estimators._interface import ARRAY_CHOICES, Interval, Parameters
from hatcast.stream.estimators.grouping import Arrays, Integers
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import EstimatorKeys, Relation

GAMMA: Final = 0.2  # means are within tau of their expectation but for this chance, if readings are independent
_PER_MILLI: Final = 1000  # tau is a whole number of 1e-6 km/h
_SHARE: Final = Fraction(1, 2)


class Levy(ClippedMeans):
    """(1/K) sum_k cut(A_k, a, b), [a, b] = [x - 3 tau/2, x + 3 tau/2] cut to [0, U] around a private median x.

    tau = U sqrt(ln(2 K / 0.2) / (2 m)), m the array length; [0, U] falls into J = ceil(U / tau) bins of width tau, the
    last one cut at U. Each array mean goes to the nearest midpoint of a bin, mu_k, the lower one of two. Midpoint x is
    drawn with a chance proportional to exp(-eps c(x) / (4 s)), c(x) = max(#{mu_k < x}, #{mu_k > x}). With tau >= U
    there is one bin: [a, b] = [0, U], and nothing is clipped.

    Privacy (replace): eps/2 for [a, b] and eps/2 for the noise. tau and the bins depend on counts only. One user moves
    s array means at most, so each of the two numbers, and c(x), by s at most; then each weight and their sum change by
    exp(eps/4) at most, a chance by exp(eps/2). (The papers' constant is that of s = 1.) Sensitivity: see ClippedMeans.
    """

    name: Final = "levy"
    keys: Final = EstimatorKeys(
        frozenset({Relation.REPLACE}),
        MappingProxyType({"grouping": "bestfit", "array_length": "sensitivity"}),
        ARRAY_CHOICES,
    )
    shares: Final = MappingProxyType({"interval": _SHARE, "noise": NOISE_SHARE})

    def interval(self, means: ArrayMeans, arrays: Arrays, parameters: Parameters, noise: Noise) -> Interval:
        """See ClippedMeans."""
        upper = parameters.upper_bound_milli
        tau = concentration(arrays, upper)
        if tau >= upper:
            return Fraction(0), Fraction(upper)
        bins = -(-upper // tau)
        last = ((bins - 1) * tau + upper) / 2
        # The nearest midpoint changes at multiples of tau; before the last bin, which is narrower, it does so later.
        nearest = np.clip(means.ceilings(tau) - 1, 0, bins - 2)
        nearest += means.above(((bins - Fraction(3, 2)) * tau + last) / 2)
        costs = median_costs(np.bincount(nearest, minlength=bins))
        rate = Fraction(parameters.epsilon) * _SHARE / (2 * arrays.split)
        drawn = noise.choose(np.ones(bins, np.int64), costs, rate)
        x = last if drawn == bins - 1 else (drawn + Fraction(1, 2)) * tau
        return max(Fraction(0), x - 3 * tau / 2), min(Fraction(upper), x + 3 * tau / 2)


def concentration(arrays: Arrays, upper_bound_milli: int) -> Fraction:
    """tau in milli-units, rounded up to 1e-6 km/h. Floats are fine here: counts and U decide, which are public."""
    spread = math.sqrt(math.log(2 * arrays.number / GAMMA) / (2 * arrays.array_length))
    return Fraction(math.ceil(upper_bound_milli * _PER_MILLI * spread), _PER_MILLI)


def median_costs(numbers: Integers) -> Integers:
    """c of each bin, from the number of means in it: how many lie below or above, whichever is more."""
    ends = np.cumsum(numbers)
    costs: Integers = np.maximum(ends - numbers, ends[-1] - ends)
    return costs


ESTIMATOR: Final = Levy()
