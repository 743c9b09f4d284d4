"""Rules for the array length: m, or m_UB in the papers. They read counts, epsilon and the grouping only.

G = sum_l min(counts_l, m), M = sum_l counts_l, U the upper bound. Floats only discard candidates far from the optimum;
exact numbers decide. To add a rule: a function here, a name in RULES.
See docs/specification/estimators.md, section 3.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators.grouping import Counts, Integers, places_taken
from hatcast.stream.estimators.worst_case_length import worst_case

Rule = Callable[[Counts, float, str | None], int]
"""(counts of one or more users, epsilon, grouping or None) -> array length in [1, largest count]"""
_ERROR: Final = 1e-12  # of a float score, relative to its summands; the few roundings cause less than 1e-15


def median(counts: Counts, _epsilon: float, _grouping: str | None = None) -> int:
    """Return the ceil(L/2)-th largest count.    [M III.C]"""
    return int(counts[(len(counts) + 1) // 2 - 1])


def sensitivity(counts: Counts, _epsilon: float, _grouping: str | None = None) -> int:
    """Return the smallest m that maximises G / sqrt(m).    [M (9)], [S (8)]

    Compared as G^2 / m. Between two counts G is a + b m with a >= 0, so G^2 / m = a^2/m + 2 a b + b^2 m is convex, and
    the maximum is at a count.
    """
    lengths, taken = _candidates(counts)
    scores = taken.astype(np.float64) ** 2 / lengths

    def better(one: int, other: int) -> bool:
        return int(taken[one]) ** 2 * int(lengths[other]) > int(taken[other]) ** 2 * int(lengths[one])

    return int(lengths[_best(-scores, scores, better)])


def minimax(counts: Counts, epsilon: float, _grouping: str | None = None, *, noise_squared: int = 1) -> int:
    """Return the smallest m in {counts_l} that minimises U (1 - G/M) + c U m / (eps G).    [M (15)]; [S (4)]

    noise_squared   c^2: c = 1 [M], c = sqrt 2 [S]
    The first summand bounds the bias from the readings beyond m; the second is the mean (c = 1) or the standard
    deviation (c = sqrt 2) of the noise. Between two counts both summands are concave, so no other m is better [M V.2].
    Compared is c A - B with A = m M / G and B = eps G: c A - B < c A' - B' by the signs and squares of c (A - A') and
    B - B'.
    """
    lengths, taken = _candidates(counts)
    noise = math.sqrt(noise_squared) * lengths * float(taken[-1]) / taken
    used = epsilon * taken.astype(np.float64)
    exact_epsilon = Fraction(epsilon)

    def better(one: int, other: int) -> bool:
        noise_difference = Fraction(int(taken[-1]) * int(lengths[one]), int(taken[one])) - Fraction(
            int(taken[-1]) * int(lengths[other]), int(taken[other])
        )
        used_difference = exact_epsilon * (int(taken[one]) - int(taken[other]))
        return _signed_square(noise_difference) * noise_squared < _signed_square(used_difference)

    return int(lengths[_best(noise - used, noise + used, better)])


def minimax_convex(counts: Counts, _epsilon: float, _grouping: str | None = None) -> int:
    """Return the smallest m that minimises the convex 1 - G/M + max(m, M/L) / m*, m* the largest count.    [M (19)]

    It is linear between neighbours in {counts_l, M/L}, so of the integers only these counts and both neighbours of M/L
    are candidates. Erratum: the paper tries only the two ends unless M / m* is an integer. See
    `minimax_convex_printed`.
    """
    readings, users = _sum(counts), len(counts)
    lengths, _ = _candidates(counts)
    return _convex_argmin(counts, [*lengths.tolist(), readings // users, -(-readings // users)])


def minimax_convex_printed(counts: Counts, _epsilon: float, _grouping: str | None = None) -> int:
    """Return m as printed in [M VI], for comparison only.

    It is m_q if q = M/m* is an integer and m_q >= M/L, else the better of the smallest and the largest count.
    """
    q, rest = divmod(_sum(counts), int(counts[0]))
    if rest == 0 and int(counts[q - 1]) * len(counts) >= _sum(counts):
        return int(counts[q - 1])
    return _convex_argmin(counts, [int(counts[-1]), int(counts[0])])


def _convex_argmin(counts: Counts, candidates: Iterable[int]) -> int:
    """Return the smallest candidate that minimises max(m, M/L) / m* - G/M, compared times M L m*."""
    readings, users, largest = _sum(counts), len(counts), int(counts[0])
    lengths = np.unique(np.array([*candidates], np.int64))
    scores = (
        max(m * users, readings) * readings - taken * users * largest
        for m, taken in zip(lengths.tolist(), places_taken(counts, lengths).tolist(), strict=True)
    )
    return int(lengths[min(enumerate(scores), key=lambda each: (each[1], each[0]))[0]])


def _candidates(counts: Counts) -> tuple[Integers, Integers]:
    """Return the different counts as candidates of m, ascending, and G of each."""
    lengths = np.unique(counts)
    return lengths, places_taken(counts, lengths)


def _best(scores: NDArray[np.float64], magnitudes: NDArray[np.float64], better: Callable[[int, int], bool]) -> int:
    """Return the first index with the smallest score; `better` compares scores that floats cannot distinguish."""
    slack = _ERROR * magnitudes
    near = np.flatnonzero(scores - slack <= np.min(scores + slack)).tolist()
    best: int = near[0]
    for index in near[1:]:
        if better(index, best):
            best = index
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
        "worst_case": worst_case,
    }
)
"""Rules that a policy may name."""

PRINTED_RULES: Final[Mapping[str, Rule]] = MappingProxyType({"minimax_convex_printed": minimax_convex_printed})
"""Rules as printed in the papers and corrected above: for `evaluate`, never in a policy."""


def array_length(choice: str | int, counts: Counts, epsilon: float, grouping: str | None) -> int:
    """Return the array length for these counts: by the named rule, or the fixed number capped at the largest count.

    Raises KeyError for an unknown rule; policies are validated earlier.
    """
    return min(choice, int(counts[0])) if isinstance(choice, int) else RULES[choice](counts, epsilon, grouping)
