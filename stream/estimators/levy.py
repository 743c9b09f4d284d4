"""LEVY: clip array means to an interval around their private median.    [M III.D, Alg 3]"""

import math
from fractions import Fraction
from typing import Final

import numpy as np

from hatcast.stream.estimators._array_means import NOISE_SHARE, ArrayMeans, ClippedMeans
from hatcast.stream.estimators._interface import ARRAY_CHOICES, Interval, Parameters
from hatcast.stream.estimators.grouping import Arrays, Integers
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import EstimatorKeys

GAMMA: Final = 0.2  # the default: probability of a mean farther than tau from its expectation, of independent readings
_PER_MILLI: Final = 1000  # tau is a whole number of 1e-6 km/h
_SHARE: Final = Fraction(1, 2)


class Levy(ClippedMeans):
    """(1/K) sum_k clip(A_k, a, b), [a, b] = [x - 3 tau/2, x + 3 tau/2] clipped to [0, U], x a private median.

    tau = U sqrt(ln(2 K / gamma) / (2 m)), m the array length, gamma = 0.2 or the policy's; [0, U] is divided into J =
    ceil(U / tau) bins of width tau, the last one ending at U. Each array mean is rounded to the nearest midpoint of a
    bin, mu_k, the lower one of two. Midpoint x is drawn with probability proportional to exp(-eps c(x) / (4 s)), c(x) =
    max(#{mu_k < x}, #{mu_k > x}). If tau >= U there is one bin: [a, b] = [0, U], and nothing is clipped.

    Privacy (replace): eps/2 for [a, b] and eps/2 for the noise. tau and the bins depend on counts and the policy only,
    with any gamma; the sensitivity is that of the [a, b] that they give, up to 3 tau wide. One user moves at most s
    array means, so each of the two numbers, and c(x), changes by at most s; then each weight and their sum change by a
    factor of at most exp(eps/4), and a probability by at most exp(eps/2). (The papers' constant is that of s = 1.)
    Sensitivity: see ClippedMeans.
    """

    name: Final = "levy"
    keys: Final = EstimatorKeys({"grouping": "bestfit", "array_length": "sensitivity"}, ARRAY_CHOICES, gamma=GAMMA)
    shares: Final = {"interval": _SHARE, "noise": NOISE_SHARE}

    def interval(self, means: ArrayMeans, arrays: Arrays, parameters: Parameters, noise: Noise) -> Interval:
        upper = parameters.upper_bound_milli
        tau = concentration(arrays, upper, parameters.gamma)
        if tau >= upper:
            return Fraction(0), Fraction(upper)
        bins = -(-upper // tau)
        last = ((bins - 1) * tau + upper) / 2
        # The nearest midpoint changes at multiples of tau; at the last bin, which is narrower, at a larger value.
        nearest = np.clip(means.ceilings(tau) - 1, 0, bins - 2)
        nearest += means.above(((bins - Fraction(3, 2)) * tau + last) / 2)
        costs = median_costs(np.bincount(nearest, minlength=bins))
        rate = Fraction(parameters.epsilon) * _SHARE / (2 * arrays.split)
        drawn = noise.choose(np.ones(bins, np.int64), costs, rate)
        x = last if drawn == bins - 1 else (drawn + Fraction(1, 2)) * tau
        return max(Fraction(0), x - 3 * tau / 2), min(Fraction(upper), x + 3 * tau / 2)


def concentration(arrays: Arrays, upper_bound_milli: int, gamma: float | None) -> Fraction:
    """Return tau in milli-units, rounded up to 1e-6 km/h. Floats are safe: tau depends on counts and the policy only.

    gamma   None: the default
    """
    spread = math.sqrt(math.log(2 * arrays.number / (GAMMA if gamma is None else gamma)) / (2 * arrays.array_length))
    return Fraction(math.ceil(upper_bound_milli * _PER_MILLI * spread), _PER_MILLI)


def median_costs(numbers: Integers) -> Integers:
    """Return c of each bin from the numbers of means in the bins: the means below or above it, whichever are more."""
    ends = np.cumsum(numbers)
    costs: Integers = np.maximum(ends - numbers, ends[-1] - ends)
    return costs


ESTIMATOR: Final = Levy()
