"""How many places an array has: m, or m_UB in the papers. Counts decide, never speeds.    [estimators.md, section 3]

G = sum_l min(counts_l, m), M = sum_l counts_l, U the upper bound. Floats only sort out what is far from the best; exact
numbers decide. To add a rule: a function here, a name in RULES.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators.grouping import Counts, Integers

Rule = Callable[[Counts, float], int]
"""(counts of one or more users, epsilon) -> array length in [1, largest count]"""
_ERROR: Final = 1e-12  # of a float score, relative to its summands; a few roundings make less than 1e-15


def median(counts: Counts, _epsilon: float) -> int:
    """The ceil(L/2)-th largest count.    [M III.C]"""
    return int(counts[(len(counts) + 1) // 2 - 1])


def sensitivity(counts: Counts, _epsilon: float) -> int:
    """The smallest m that maximises G / sqrt(m).    [M (9)], [S (8)]

    Compared as G^2 / m. Between two counts G is a + b m with a >= 0, so G^2 / m = a^2/m + 2 a b + b^2 m is convex, and
    the maximum is at a count.
    """
    lengths, taken = _taken(counts)
    scores = taken.astype(np.float64) ** 2 / lengths

    def better(one: int, other: int) -> bool:
        return int(taken[one]) ** 2 * int(lengths[other]) > int(taken[other]) ** 2 * int(lengths[one])

    return int(lengths[_best(-scores, scores, better)])


def minimax(counts: Counts, epsilon: float, noise_squared: int = 1) -> int:
    """The smallest m in {counts_l} that minimises U (1 - G/M) + c U m / (eps G).    [M (15)]; c = sqrt 2: [S (4)]

    noise_squared   c^2
    The most that the readings beyond m can hide, plus the mean (c = 1) or the standard deviation (c = sqrt 2) of the
    noise. Between two counts both summands are concave, so no other m is better [M V.2]. Compared is c A - B with
    A = m M / G and B = eps G: c A - B < c A' - B' by the signs and squares of c (A - A') and B - B'.
    """
    lengths, taken = _taken(counts)
    noise = math.sqrt(noise_squared) * lengths * float(taken[-1]) / taken
    kept = epsilon * taken.astype(np.float64)
    exact_epsilon = Fraction(epsilon)

    def better(one: int, other: int) -> bool:
        noisier = Fraction(int(taken[-1]) * int(lengths[one]), int(taken[one])) - Fraction(
            int(taken[-1]) * int(lengths[other]), int(taken[other])
        )
        keeps = exact_epsilon * (int(taken[one]) - int(taken[other]))
        return _signed_square(noisier) * noise_squared < _signed_square(keeps)

    return int(lengths[_best(noise - kept, noise + kept, better)])


def minimax_convex(counts: Counts, _epsilon: float) -> int:
    """The smallest m that minimises the convex 1 - G/M + max(m, M/L) / m*, m* the largest count.    [M (19)]

    It is linear between neighbours in {counts_l, M/L}; of the integers, these and both neighbours of M/L are tried.
    Erratum: the paper looks at the ends only, unless M / m* is an integer. See `minimax_convex_printed`.
    """
    readings, users = _sum(counts), len(counts)
    lengths, _ = _taken(counts)
    return _least_convex(counts, [*lengths.tolist(), readings // users, -(-readings // users)])


def minimax_convex_printed(counts: Counts, _epsilon: float) -> int:
    """As [M VI] prints it, for comparison only: m_q if q = M/m* is an integer and m_q >= M/L, else the better end."""
    q, rest = divmod(_sum(counts), int(counts[0]))
    if rest == 0 and int(counts[q - 1]) * len(counts) >= _sum(counts):
        return int(counts[q - 1])
    return _least_convex(counts, [int(counts[-1]), int(counts[0])])


def _least_convex(counts: Counts, candidates: Iterable[int]) -> int:
    """The smallest candidate with the least max(m, M/L) / m* - G/M, compared times M L m*."""
    readings, users, largest = _sum(counts), len(counts), int(counts[0])
    lengths = np.unique(np.array([*candidates], np.int64))
    scores = (
        max(m * users, readings) * readings - taken * users * largest
        for m, taken in zip(lengths.tolist(), _taken_at(counts, lengths).tolist(), strict=True)
    )
    return int(lengths[min(enumerate(scores), key=lambda each: (each[1], each[0]))[0]])


def _taken(counts: Counts) -> tuple[Integers, Integers]:
    """Each different count as m, ascending, and its G."""
    lengths = np.unique(counts)
    return lengths, _taken_at(counts, lengths)


def _taken_at(counts: Counts, lengths: Integers) -> Integers:
    """G for each m."""
    ascending = counts[::-1]
    below = np.searchsorted(ascending, lengths)
    shorter: Integers = np.concatenate(([0], np.cumsum(ascending)))[below]
    return shorter + (len(counts) - below) * lengths


def _best(scores: NDArray[np.float64], magnitudes: NDArray[np.float64], better: Callable[[int, int], bool]) -> int:
    """The first index with the least score, by `better` among those that floats cannot tell apart."""
    slack = _ERROR * magnitudes
    near = np.flatnonzero(scores - slack <= np.min(scores + slack)).tolist()
    best: int = near[0]
    for each in near[1:]:
        if better(each, best):
            best = each
    return best


def _signed_square(number: Fraction) -> Fraction:
    return number * abs(number)


def _sum(counts: Counts) -> int:
    return int(counts.sum())  # below 2^62, see Users


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "median": median,
        "sensitivity": sensitivity,
        "minimax": minimax,
        "minimax_sqrt2": partial(minimax, noise_squared=2),
        "minimax_convex": minimax_convex,
    }
)
"""What a policy may name."""

PRINTED_RULES: Final[Mapping[str, Rule]] = MappingProxyType({"minimax_convex_printed": minimax_convex_printed})
"""What the papers print and the rules above correct: for `evaluate`, never in a policy."""


def array_length(choice: str | int, counts: Counts, epsilon: float) -> int:
    """The array length for these counts: by the named rule, or the fixed number, no more than the largest count.

    Raises KeyError for a name that is no rule: a policy has been checked before it comes here.
    """
    return min(choice, int(counts[0])) if isinstance(choice, int) else RULES[choice](counts, epsilon)
