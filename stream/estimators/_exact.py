"""Sums of fractions over a million users, exact and without a loop over users."""

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

import numpy as np

from hatcast.stream.estimators.grouping import Arrays, Counts, Integers


def total(numbers: Integers) -> int:
    """The sum, whatever its size."""
    return sums_of_runs(numbers, np.zeros(1, np.int64))[0] if len(numbers) else 0


Weights = tuple[Integers, Integers]
"""(places, fills), [L] each: every user's mean weighs places / fills"""


def weights_in(counts: Counts, arrays: Arrays) -> Weights:
    """What users' means weigh in the sum of all array means: a user with q places in arrays of fill f, q / f."""
    places = np.zeros(len(counts), np.int64)
    np.add.at(places, arrays.users, arrays.places)
    fills = np.ones(len(counts), np.int64)
    fills[arrays.users] = arrays.fills[arrays.arrays]
    return places, fills


def capped_weights(counts: Counts, length: int) -> Weights:
    """Users weigh their readings, up to `length` of them: min(m_l, m)."""
    return np.minimum(counts, length), np.ones(len(counts), np.int64)


def weighted_sum(counts: Counts, sums: Integers, weights: Weights) -> Fraction:
    """The sum of weight times mean over all users, in milli-units. Sums may be negative: a coordinate of vectors.

    A user adds q s_l / (m_l f). In lowest terms q / (m_l f) is 1 / f or 1 / m_l for all that lie whole in arrays, so
    that few denominators remain.
    """
    places, fills = weights
    starts = _starts_of_runs(counts, places, fills)
    numerators, denominators = _lowest_terms(places[starts], counts[starts], fills[starts])
    by_denominator: dict[int, int] = {}
    for each, numerator, denominator in zip(
        sums_of_runs(sums, starts), numerators.tolist(), denominators.tolist(), strict=True
    ):
        by_denominator[denominator] = by_denominator.get(denominator, 0) + each * numerator
    return sum_of_fractions(by_denominator)


def excess_weight(counts: Counts, weights: Weights, sum_of_weights: int) -> Fraction:
    """sum_l (m_l / M - v_l)^+, v_l = weight / sum_of_weights: how much weight is where the plain mean has more."""
    places, fills = weights
    readings = total(counts)
    starts = _starts_of_runs(counts, places, fills)
    users = np.diff(np.append(starts, len(counts))).tolist()
    plain = 0
    by_fill: dict[int, int] = {1: 0}
    for number, count, place, fill in zip(
        users, counts[starts].tolist(), places[starts].tolist(), fills[starts].tolist(), strict=True
    ):
        if count * fill * sum_of_weights > place * readings:
            plain += number * count
            by_fill[fill] = by_fill.get(fill, 0) + number * place
    return Fraction(plain, readings) - sum_of_fractions(by_fill) / sum_of_weights


def ceil_2_over(epsilon: float) -> int:
    """ceil(2 / epsilon), epsilon being the decimal that was written: 2 / 0.1 is 20."""
    return math.ceil(2 / Fraction(Decimal(repr(epsilon))))


def _starts_of_runs(*columns: Integers) -> Integers:
    """Where any of the columns changes."""
    changed = np.zeros(len(columns[0]), np.bool_)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def _lowest_terms(places: Integers, counts: Integers, fills: Integers) -> tuple[Integers, Integers]:
    """places / (counts fills). Counts are below 2**31 (see Users), so that the product fits into 64 bits."""
    common = np.gcd(places, fills)
    places, fills = places // common, fills // common
    common = np.gcd(places, counts)
    return places // common, counts // common * fills


def sums_of_runs(numbers: Integers, starts: Integers) -> list[int]:
    """The sum of each run. The halves of 64-bit numbers are added apart, since a sum of many may not fit.

    Of a negative number the high half is rounded down, so that the low one is 0 or more as for all others.
    """
    high = np.add.reduceat(numbers >> 32, starts).tolist()
    low = np.add.reduceat(numbers & 0xFFFFFFFF, starts).tolist()
    return [(h << 32) + each for h, each in zip(high, low, strict=True)]


def sum_of_fractions(numerators: Mapping[int, int]) -> Fraction:
    """The sum of numerator / denominator over a table denominator -> numerator.

    In pairs, like with like: with thousands of denominators a running sum would take the square of the time.
    """
    summands = [Fraction(numerator, denominator) for denominator, numerator in sorted(numerators.items())]
    while len(summands) > 1:
        odd = summands[len(summands) & ~1 :]
        summands = [a + b for a, b in zip(summands[::2], summands[1::2], strict=False)] + odd
    return summands[0]
