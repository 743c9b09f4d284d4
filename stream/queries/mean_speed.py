"""`mean_speed`: the mean over user-days of the user's mean on that day, in one cell and slot.    [T IV.C]"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import Query
from hatcast.stream.queries._interface import RetainedDay

_FRACTION_BITS: Final = 20  # of milli-units


class MeanSpeed:
    """(1 / N) sum over the N user-days of s / c; s is the sum of the c readings of that user on that day, in [0, c U].

    Sensitivity (replace, one user's day): U / N. Counts, and so N and the set of user-days, are public and equal for
    neighbours; one summand moves within [0, U].

    Each s / c is rounded down to a multiple of 2^-20 milli-units, so the sum is exact in any order. Rounding down keeps
    it in [0, U], because U is such a multiple: the proof still holds, and the value is off by less than 1e-9 units.
    """

    def unit(self, policy: Policy) -> str:
        """Return the unit of readings. See QueryKind."""
        return policy.released_value.unit

    def grid(self, policy: Policy) -> Grid:
        """Return the policy's grid. See QueryKind."""
        return Grid(policy.grid, policy.lower)

    def value(self, days: Sequence[RetainedDay], query: Query) -> Fraction:
        """Return the mean of day means. See QueryKind."""
        del query
        integers = fractions = user_days = 0
        for day in days:
            quotient, rest = np.divmod(day.sums, day.counts)
            integers += int(quotient.sum())
            fractions += int(((rest << _FRACTION_BITS) // day.counts).sum())  # rest < count < 2^31: within 64 bits
            user_days += len(day.counts)
        return Fraction((integers << _FRACTION_BITS) + fractions, user_days << _FRACTION_BITS)

    def sensitivity(self, user_days: int, days: int, policy: Policy) -> Fraction:
        """Return U / N. See QueryKind."""
        del days
        return Fraction(policy.upper_bound, user_days)

    def top(self, policy: Policy) -> int | None:
        """Return U. See QueryKind."""
        return policy.upper_bound


KIND: Final = MeanSpeed()
