"""The means of arrays, each an exact fraction, compared and added without a loop over arrays."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators._exact import sum_of_fractions, sums_of_runs
from hatcast.stream.estimators.grouping import Arrays, Counts, Integers

Wide = NDArray[Any]
"""int64, or Python's integers (dtype object) where products would not fit into 64 bits: public bounds decide which"""
_FITS: Final = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMeans:
    """numerators / denominators [K], milli-units in [0, U]. Private, but for the denominators: from counts only.

    upper_bound_milli     U
    largest_denominator   none is above it
    """

    numerators: Wide
    denominators: Wide
    upper_bound_milli: int
    largest_denominator: int

    @classmethod
    def of(cls, counts: Counts, sums: Integers, arrays: Arrays, upper_bound_milli: int) -> Self:
        """The mean of array k is sum(places_l s_l / counts_l) / fills[k] over the parts in it.

        A user with all its readings in one array adds s_l as it is. Of each array, two parts at most are of another
        kind (see Arrays): their counts_l, over what these have in common with places_l, become denominators.
        """
        whole = arrays.places == counts[arrays.users]
        broken = np.flatnonzero(~whole)
        users, homes, places = arrays.users[broken], arrays.arrays[broken], arrays.places[broken]
        common = np.gcd(places, counts[users])
        divisors, times = counts[users] // common, places // common
        second = np.zeros(len(broken), np.bool_)
        second[1:] = homes[1:] == homes[:-1]
        largest = int(arrays.fills.max())
        for at in (~second, second):
            largest *= int(divisors[at].max(initial=1))
        kind = np.dtype(np.int64) if upper_bound_milli * largest < _FITS else np.dtype(object)

        numerators = np.zeros(arrays.number, kind)
        np.add.at(numerators, arrays.arrays[whole], sums[arrays.users[whole]].astype(kind))
        denominators = np.ones(arrays.number, kind)
        for at in (~second, second):
            home, divisor = homes[at], divisors[at].astype(kind)
            numerators[home] = (
                numerators[home] * divisor + times[at].astype(kind) * sums[users[at]] * denominators[home]
            )
            denominators[home] *= divisor
        return cls(numerators, denominators * arrays.fills, upper_bound_milli, largest)

    def nearest(self, step: Fraction) -> Integers:
        """[K] each mean in whole steps, the nearest, the even one of two: as Grid.nearest."""
        dividends, divisors = self._over(step)
        steps = dividends // divisors
        rests = dividends - steps * divisors
        up = (2 * rests > divisors) | ((2 * rests == divisors) & (steps % 2 == 1))
        return np.asarray(steps + up, np.int64)

    def ceilings(self, step: Fraction) -> Integers:
        """[K] the least number of steps that is no less than the mean."""
        dividends, divisors = self._over(step)
        return np.asarray(-(-dividends // divisors), np.int64)

    def above(self, bound: Fraction) -> NDArray[np.bool_]:
        """[K] which means are greater than the bound."""
        left, right = self._over(bound)
        return np.asarray(left > right, np.bool_)

    def below(self, bound: Fraction) -> NDArray[np.bool_]:
        """[K] which means are less than the bound."""
        left, right = self._over(bound)
        return np.asarray(left < right, np.bool_)

    def total(self, chosen: NDArray[np.bool_]) -> Fraction:
        """The sum of the chosen means."""
        numerators, denominators = self.numerators[chosen], self.denominators[chosen]
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

    def _over(self, number: Fraction) -> tuple[Wide, Wide]:
        """Dividends and divisors of means / number, with room for twice as much."""
        dividend_by, divisor_by = number.denominator, number.numerator
        numerators, denominators = self.numerators, self.denominators
        if self.largest_denominator * max(self.upper_bound_milli * dividend_by, divisor_by) >= _FITS:
            numerators, denominators = numerators.astype(object), denominators.astype(object)
        return numerators * dividend_by, denominators * divisor_by
