"""Means of arrays as exact fractions, compared and added in vectorised form."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators._exact import sum_of_fractions, sums_of_runs
from hatcast.stream.estimators.grouping import Arrays, Counts, Integers

Wide = NDArray[Any]
"""int64, or Python integers (dtype object) if products could overflow 64 bits; public bounds decide which"""
_INT64_LIMIT: Final = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class ArrayMeans:
    """Means of K arrays: numerators / denominators [K], milli-units in [0, U].

    Numerators are private. Denominators depend on counts only.
    upper_bound_milli     U
    largest_denominator   upper bound of the denominators
    """

    numerators: Wide
    denominators: Wide
    upper_bound_milli: int
    largest_denominator: int

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
