"""Base of LEVY and QUANTILE: the mean of array means, clipped to a privately drawn interval.    [M III.D, III.E]"""

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
    """(1/K) sum_k clip(A_k, a, b), A_k the mean of array k, [a, b] = `parameters.interval` (milli-units).

    Sensitivity (replace): min(s (b - a), U) / K, s = 1 for BESTFIT and 2 for WRAPAROUND, given [a, b], which is public
    once drawn. One user is in at most s arrays, and each clipped mean is within [a, b]. Clipping never increases a
    difference, so the sum moves by at most as much as it does unclipped, which is U (see ArrayAveraging).
    """

    def value(self, users: Users, parameters: Parameters) -> Fraction:
        """Return the mean of the clipped array means. See Estimator."""
        arrays = arrays_of(users.counts, parameters)
        return _value(_means(users, arrays, parameters), parameters)

    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        """Return min(s (b - a), U) / K. See Estimator."""
        return _sensitivity(arrays_of(counts, parameters), parameters)

    def bias(self, counts: Counts, _parameters: Parameters) -> None:
        """Return None: the bias depends on the drawn interval. See Estimator."""
        if not len(counts):
            raise EmptyHat

    def least_users(self, _parameters: Parameters) -> int:
        """Return 1. See Estimator."""
        return 1

    def estimate(self, users: Users, parameters: Parameters, noise: Noise) -> Estimate | None:
        """See Estimator. Half of epsilon pays for the interval, half for the noise."""
        if not len(users.counts):
            return None
        arrays = arrays_of(users.counts, parameters)
        means = _means(users, arrays, parameters)
        clipped = parameters.clipped_to(self.interval(means, arrays, parameters, noise))
        return with_noise(_value(means, clipped), _sensitivity(arrays, clipped), clipped, noise, NOISE_SHARE)

    @abstractmethod
    def interval(self, means: ArrayMeans, arrays: Arrays, parameters: Parameters, noise: Noise) -> Interval:
        """Draw the interval that means are clipped to, for half of epsilon."""


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
