"""What LEVY and QUANTILE share: the mean of array means, clipped to an interval drawn before.    [M III.D, III.E]"""

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Final

from hatcast.stream.estimators._array_means import ArrayMeans
from hatcast.stream.estimators._interface import EmptyHat, Estimate, Interval, Parameters, Users, with_noise
from hatcast.stream.estimators.array_averaging import arrays_of
from hatcast.stream.estimators.grouping import Arrays, Counts
from hatcast.stream.mechanisms import Noise

NOISE_SHARE: Final = Fraction(1, 2)


class ClippedMeans(ABC):
    """(1/K) sum_k cut(A_k, a, b), A_k the mean of array k, [a, b] = `parameters.interval` (milli-units).

    Sensitivity (replace): min(s (b - a), U) / K, s = 1 for BESTFIT and 2 for WRAPAROUND. Given [a, b], which is public
    once drawn: one user is part of s arrays at most, and each clipped mean stays within [a, b]; and clipping brings no
    two means further apart, so that the sum moves by no more than it does unclipped, which is U (see ArrayAveraging).
    """

    def value(self, users: Users, parameters: Parameters) -> Fraction:
        """The mean of clipped array means. See Estimator."""
        arrays = arrays_of(users.counts, parameters)
        return _value(_means(users, arrays, parameters), parameters)

    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        """min(s (b - a), U) / K. See Estimator."""
        return _sensitivity(arrays_of(counts, parameters), parameters)

    def bias(self, counts: Counts, _parameters: Parameters) -> None:
        """None: it depends on the interval drawn. See Estimator."""
        if not len(counts):
            raise EmptyHat

    def estimate(self, users: Users, parameters: Parameters, noise: Noise) -> Estimate | None:
        """See Estimator. Half of epsilon draws the interval, half is for the noise."""
        if not len(users.counts):
            return None
        arrays = arrays_of(users.counts, parameters)
        means = _means(users, arrays, parameters)
        settled = parameters.clipped_to(self.interval(means, arrays, parameters, noise))
        return with_noise(_value(means, settled), _sensitivity(arrays, settled), settled, noise, NOISE_SHARE)

    @abstractmethod
    def interval(self, means: ArrayMeans, arrays: Arrays, parameters: Parameters, noise: Noise) -> Interval:
        """What means are clipped to, drawn for half of epsilon."""


def _means(users: Users, arrays: Arrays, parameters: Parameters) -> ArrayMeans:
    checked = users.checked(parameters.upper_bound_milli)
    return ArrayMeans.of(checked.counts, checked.sums, arrays, parameters.upper_bound_milli)


def _value(means: ArrayMeans, parameters: Parameters) -> Fraction:
    a, b = parameters.bounds
    below, above = means.below(a), means.above(b)
    clipped = int(below.sum()) * a + int(above.sum()) * b
    return (clipped + means.total(~(below | above))) / len(below)


def _sensitivity(arrays: Arrays, parameters: Parameters) -> Fraction:
    a, b = parameters.bounds
    return min(arrays.split * (b - a), Fraction(parameters.upper_bound_milli)) / arrays.number
