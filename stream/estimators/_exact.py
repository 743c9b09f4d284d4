"""Exact sums of fractions over a million users, in vectorised form."""

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final

import numpy as np

from hatcast.stream.estimators.grouping import Arrays, Counts, Integers

FEW: Final = 64  # so many numbers are added faster one by one, as Python's integers
_FEW_DENOMINATORS: Final = 512  # so many have a common multiple with few enough digits to compute with


def total(numbers: Integers) -> int:
    """Return the exact sum, even if it overflows 64 bits."""
    return sums_of_runs(numbers, np.zeros(1, np.int64))[0] if len(numbers) > FEW else sum(numbers.tolist())


Weights = tuple[Integers, Integers]
"""(places, fills), [L] each: a user's mean has weight places / fills"""


def weights_in(counts: Counts, arrays: Arrays) -> Weights:
    """Return the users' weights in the sum of all array means: q / f for q places in arrays of fill f."""
    places = np.zeros(len(counts), np.int64)
    np.add.at(places, arrays.users, arrays.places)
    fills = np.ones(len(counts), np.int64)
    fills[arrays.users] = arrays.fills[arrays.arrays]
    return places, fills


def capped_weights(counts: Counts, length: int) -> Weights:
    """Return min(m_l, m) as weights: a user's number of readings m_l, capped at the length m."""
    return np.minimum(counts, length), np.ones(len(counts), np.int64)


def weighted_sum(counts: Counts, sums: Integers, weights: Weights) -> Fraction:
    """Return the sum of weight times mean over all users, in milli-units. `sums` may be negative (vector coordinates).

    A user adds q s_l / (m_l f). In lowest terms q / (m_l f) is 1 / f or 1 / m_l for each user that lies whole in its
    arrays, so there are few different denominators.
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
    """Return sum_l (m_l / M - v_l)^+, v_l = weight / sum_of_weights: weight that the plain mean has in excess of v."""
    places, fills = weights
    readings = total(counts)
    users = [1] * len(counts)
    if len(counts) > FEW:
        starts = _starts_of_runs(counts, places, fills)
        users = np.diff(np.append(starts, len(counts))).tolist()
        counts, places, fills = counts[starts], places[starts], fills[starts]
    plain = 0
    by_fill: dict[int, int] = {1: 0}
    for number, count, place, fill in zip(users, counts.tolist(), places.tolist(), fills.tolist(), strict=True):
        if count * fill * sum_of_weights > place * readings:
            plain += number * count
            by_fill[fill] = by_fill.get(fill, 0) + number * place
    return Fraction(plain, readings) - sum_of_fractions(by_fill) / sum_of_weights


def ceil_2_over(epsilon: float) -> int:
    """Return ceil(2 / epsilon), with epsilon as its decimal text: 2 / 0.1 is 20."""
    return math.ceil(2 / Fraction(Decimal(repr(epsilon))))


def _starts_of_runs(*columns: Integers) -> Integers:
    """Return the indexes at which any of the columns changes."""
    changed = np.zeros(len(columns[0]), np.bool_)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def _lowest_terms(places: Integers, counts: Integers, fills: Integers) -> tuple[Integers, Integers]:
    """Reduce places / (counts fills). Counts are below 2**31 (see Users), so the product fits into 64 bits."""
    common = np.gcd(places, fills)
    places, fills = places // common, fills // common
    common = np.gcd(places, counts)
    return places // common, counts // common * fills


def sums_of_runs(numbers: Integers, starts: Integers) -> list[int]:
    """Return the sum of each run. The 32-bit halves are added separately, because a sum of many may overflow.

    The high half is rounded down, so the low half is 0 or more also for negative numbers.
    """
    high = np.add.reduceat(numbers >> 32, starts).tolist()
    low = np.add.reduceat(numbers & 0xFFFFFFFF, starts).tolist()
    return [(h << 32) + each for h, each in zip(high, low, strict=True)]


def sum_of_fractions(numerators: Mapping[int, int]) -> Fraction:
    """Return the sum of numerator / denominator over a table denominator -> numerator.

    Few denominators are replaced by their least common multiple, so that one fraction is reduced. Many are added in
    pairs: with thousands of them a running sum would take quadratic time.
    """
    if len(numerators) <= _FEW_DENOMINATORS:
        common = math.lcm(*numerators)
        return Fraction(sum(each * (common // denominator) for denominator, each in numerators.items()), common)
    summands = [Fraction(numerator, denominator) for denominator, numerator in sorted(numerators.items())]
    while len(summands) > 1:
        odd = summands[len(summands) & ~1 :]
        summands = [a + b for a, b in zip(summands[::2], summands[1::2], strict=False)] + odd
    return summands[0]
