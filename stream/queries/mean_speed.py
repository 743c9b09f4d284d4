"""`mean_speed`: the mean over user-days of the user's mean of that day, in one cell and slot.    [T III.B, Query 1]"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query_keys import Query
from hatcast.stream.queries._interface import RetainedDay

_FINE: Final = 20  # bits after the point, of milli-units


class MeanSpeed:
    """(1 / N) sum over the N user-days of s / c; s is the sum of the c readings of that user, that day, in [0, c U].

    Sensitivity (replace, one user's day): U / N. Counts, so N and which user-days there are, are public and equal for
    neighbours; one summand moves, within [0, U].

    Each s / c is rounded down to 2^-20 milli-units, so that the sum is exact whatever the order. Rounding down keeps it
    in [0, U], for U is a whole number of these: the proof stands, and the value is off by less than 1e-9 km/h.
    """

    unit: str = "km/h"

    def value(self, days: Sequence[RetainedDay], query: Query) -> Fraction:
        """The mean of day means. See QueryKind."""
        del query
        whole = parts = user_days = 0
        for day in days:
            quotient, rest = np.divmod(day.sums, day.counts)
            whole += int(quotient.sum())
            parts += int(((rest << _FINE) // day.counts).sum())  # rest < count < 2^31: within 64 bits
            user_days += len(day.counts)
        return Fraction((whole << _FINE) + parts, user_days << _FINE)

    def sensitivity(self, user_days: int, days: int, policy: Policy) -> Fraction:
        """U / N. See QueryKind."""
        del days
        return Fraction(policy.upper_bound, user_days)

    def top(self, policy: Policy) -> int | None:
        """U. See QueryKind."""
        return policy.upper_bound


KIND: Final = MeanSpeed()
