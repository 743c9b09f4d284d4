"""Means of arrays as exact fractions, compared and added in vectorised form."""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators._interface import EmptyHat, Estimate, Estimator, Interval, Parameters, Users, with_noise
from hatcast.stream.estimators.array_averaging import arrays_of
from hatcast.stream.estimators.grouping import Arrays, Counts, Integers, sum_of_fractions, sums_of_runs
from hatcast.stream.mechanisms import Noise

Wide = NDArray[Any]
"""int64, or Python integers (dtype object) if products could overflow 64 bits; public bounds decide which"""
_INT64_LIMIT: Final = 2**62
NOISE_SHARE: Final = Fraction(1, 2)


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMeans:
    """Means of K arrays: numerators / denominators [K], milli-units in [0, U].

    Numerators are private. Denominators depend on counts only.
    """

    numerators: Wide
    denominators: Wide
    upper_bound_milli: int  # U
    largest_denominator: int  # upper bound of the denominators

    @classmethod
    def of(cls, counts: Counts, sums: Integers, arrays: Arrays, upper_bound_milli: int) -> Self:
        """Return the mean of each array k: sum(places_l s_l / counts_l) / fills[k] over its parts.

        A user with all its readings in one array adds s_l. At most two parts of an array are not whole users (see
        Arrays): their counts_l, divided by gcd(counts_l, places_l), become denominators.
        """
        whole = arrays.places == counts[arrays.users]
        split = np.flatnonzero(~whole)
        users, homes, places = arrays.users[split], arrays.arrays[split], arrays.places[split]
        common = np.gcd(places, counts[users])
        divisors, factors = counts[users] // common, places // common
        second = np.zeros(len(split), np.bool_)
        second[1:] = homes[1:] == homes[:-1]
        largest = int(arrays.fills.max())
        for part in (~second, second):
            largest *= int(divisors[part].max(initial=1))
        dtype = np.dtype(np.int64) if upper_bound_milli * largest < _INT64_LIMIT else np.dtype(object)

        numerators = np.zeros(arrays.number, dtype)
        np.add.at(numerators, arrays.arrays[whole], sums[arrays.users[whole]].astype(dtype))
        denominators = np.ones(arrays.number, dtype)
        for part in (~second, second):
            home, divisor = homes[part], divisors[part].astype(dtype)
            numerators[home] = (
                numerators[home] * divisor + factors[part].astype(dtype) * sums[users[part]] * denominators[home]
            )
            denominators[home] *= divisor
        return cls(numerators, denominators * arrays.fills, upper_bound_milli, largest)

    def nearest(self, step: Fraction) -> Integers:
        """Return each mean [K] rounded to steps; of two nearest, the even one, as Grid.nearest."""
        dividends, divisors = self._divided_by(step)
        steps = dividends // divisors
        remainders = dividends - steps * divisors
        up = (2 * remainders > divisors) | ((2 * remainders == divisors) & (steps % 2 == 1))
        return np.asarray(steps + up, np.int64)

    def ceilings(self, step: Fraction) -> Integers:
        """Return each mean [K] rounded up to steps."""
        dividends, divisors = self._divided_by(step)
        return np.asarray(-(-dividends // divisors), np.int64)

    def above(self, bound: Fraction) -> NDArray[np.bool_]:
        """Return a mask [K] of the means greater than the bound."""
        left, right = self._divided_by(bound)
        return np.asarray(left > right, np.bool_)

    def below(self, bound: Fraction) -> NDArray[np.bool_]:
        """Return a mask [K] of the means less than the bound."""
        left, right = self._divided_by(bound)
        return np.asarray(left < right, np.bool_)

    def total(self, mask: NDArray[np.bool_]) -> Fraction:
        """Return the sum of the means in the mask [K]."""
        numerators, denominators = self.numerators[mask], self.denominators[mask]
        if not len(numerators):
            return Fraction(0)
        order = np.argsort(denominators, kind="stable")
        numerators, denominators = numerators[order], denominators[order]
        starts = np.flatnonzero(np.concatenate(([True], denominators[1:] != denominators[:-1])))
        if numerators.dtype == object:
            runs = np.add.reduceat(numerators, starts).tolist()
        else:
            runs = sums_of_runs(numerators, starts)
        return sum_of_fractions(dict(zip(denominators[starts].tolist(), runs, strict=True)))

    def _divided_by(self, number: Fraction) -> tuple[Wide, Wide]:
        """Return dividends and divisors of means / number, in a type that also holds their doubles."""
        dividend_factor, divisor_factor = number.denominator, number.numerator
        numerators, denominators = self.numerators, self.denominators
        if self.largest_denominator * max(self.upper_bound_milli * dividend_factor, divisor_factor) >= _INT64_LIMIT:
            numerators, denominators = numerators.astype(object), denominators.astype(object)
        return numerators * dividend_factor, denominators * divisor_factor


class ClippedMeans(Estimator):
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
        return 1

    def estimate(self, users: Users, parameters: Parameters, noise: Noise) -> Estimate | None:
        """Estimate the mean; half of epsilon is for the interval, half for the noise. Otherwise as in `Estimator`."""
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
