"""Rules for the array length: m, or m_UB in the papers. They read counts, epsilon and the grouping only.

G = sum_l min(counts_l, m), M = sum_l counts_l, U the upper bound. Floats only discard candidates far from the optimum;
exact numbers decide. To add a rule: a function here, a name in RULES.
See docs/specification/estimators.md, section 3.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import partial
from hashlib import sha256
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators.grouping import (
    GROUPINGS,
    Counts,
    Integers,
    Weights,
    capped_weights,
    excess_weight,
    places_taken,
    total,
    weights_in,
)

MOST_LENGTHS: Final = 4096  # tried, and as many counts: each one that is tried takes a grouping of all users
_ERROR: Final = 1e-12  # of a float score, relative to 1 + 1/eps; its roundings cause less than 1e-14

Floats = NDArray[np.float64]
Rule = Callable[[Counts, float, str | None], int]
"""(counts of one or more users, epsilon, grouping or None) -> array length in [1, largest count]"""


def worst_case(counts: Counts, epsilon: float, grouping: str | None) -> int:
    """Return the smallest m that minimises E_M / U = sum_l (m_l / M - v_l)^+ + 1 / (eps K), 1 <= m <= m*.

    grouping   decides v_l and K; None, for `weighted_mean`: v_l = min(m_l, m) / G and K = G / m
    The lengths that it chooses from are all integers, or above 4,096 fewer: see `lengths_to_try`. They are tried in the
    order of a lower bound of E_M, until it exceeds the least E_M found: usually after a tenth of them. Lengths that
    give all users the same weights are scored once: if one user has most of the readings, those are nearly all lengths.
    """
    lengths = lengths_to_try(counts)
    bounds = _lower_bounds(counts, lengths, epsilon, grouping)
    slack, least = _ERROR * (1 + 1 / epsilon), math.inf
    found: dict[bytes, tuple[float, int]] = {}  # digest of the weights -> their score and the smallest length
    for index in np.argsort(bounds, kind="stable").tolist():
        if bounds[index] > least + slack:
            break
        length = int(lengths[index])
        weights = _weights(counts, length, grouping)
        digest = _digest(*weights)
        if digest in found:
            score, smallest = found[digest]
            found[digest] = score, min(smallest, length)
        else:
            bias, noise = _bias_and_noise(counts, *weights)
            found[digest] = bias + noise / epsilon, length
            least = min(least, found[digest][0])
    near = [length for score, length in found.values() if score <= least + slack]
    if len(near) == 1:
        return near[0]
    return min(near, key=lambda length: (_exact_score(counts, length, epsilon, grouping), length))


def lengths_to_try(counts: Counts) -> Integers:
    """Return the array lengths that `worst_case` tries, ascending: all integers up to m*, if they are 4,096 or fewer.

    If they are more: 1, the counts, and 4,096 lengths evenly spread up to m*. Even steps alone pass over the lengths of
    all users but the busiest ones; with 7,200 readings the first two steps are 2 and 4. Between two counts nearly the
    same users fill arrays of their own, so little is gained there. Of more than 4,096 different counts as many are
    taken, evenly by rank.
    """
    spread = _evenly(int(counts[0]))
    if len(spread) == counts[0]:
        return spread
    different = np.unique(counts)
    return np.unique(np.concatenate(([1], spread, different[_evenly(len(different)) - 1])))


def _evenly(largest: int) -> Integers:
    """Return the integers from 1 to `largest`; if they are more than 4,096, that many of them, evenly spread."""
    number = min(largest, MOST_LENGTHS)
    return -(-np.arange(1, number + 1) * largest // number)


def _lower_bounds(counts: Counts, lengths: Integers, epsilon: float, grouping: str | None) -> Floats:
    """Return a lower bound of E_M / U for each length.

    No user has a weight above 1 / K, and K is from `fewest` to `most`. WRAPAROUND: K = floor(G / m). BESTFIT: the
    arrays have G places taken, so K >= G / m. A user opens a new array only if it fits into no other, so any two arrays
    have more than m places taken together, and K < 2 G / m + 1.
    """
    taken = places_taken(counts, lengths)
    fewest: Floats = taken / lengths
    most = fewest
    if grouping == "bestfit":
        fewest, most = np.ceil(fewest), np.minimum(2 * fewest + 1, len(counts))
    elif grouping == "wraparound":
        fewest = most = (taken // lengths).astype(np.float64)
    readings = float(total(counts))
    sums = np.concatenate(([0.0], np.cumsum(counts, dtype=np.float64)))
    above = np.searchsorted(-counts, -readings / fewest)  # number of users with m_l / M > 1 / fewest
    bias = np.maximum(sums[above] / readings - above / fewest, 0)
    return np.asarray(bias + 1 / (epsilon * most), np.float64)


def _weights(counts: Counts, length: int, grouping: str | None) -> tuple[Weights, int, Fraction]:
    """Return the users' weights, their sum and K."""
    if grouping is None:
        weights = capped_weights(counts, length)
        taken = total(weights[0])
        return weights, taken, Fraction(taken, length)
    arrays = GROUPINGS[grouping](counts, length)
    return weights_in(counts, arrays), arrays.number, Fraction(arrays.number)


def _digest(weights: Weights, whole: int, number: Fraction) -> bytes:
    """Return the same bytes for the same weights, whatever the array length is that they come from."""
    places, fills = weights
    common = np.gcd(places, fills)
    digest = sha256(f"{whole} {number} ".encode())
    for part in (places // common, fills // common):
        digest.update(part.tobytes())
    return digest.digest()


def bias_and_noise(counts: Counts, length: int, grouping: str | None) -> tuple[float, float]:
    """Return both parts of E_M / U at epsilon 1; at another epsilon the noise is divided by it."""
    return _bias_and_noise(counts, *_weights(counts, length, grouping))


def _bias_and_noise(counts: Counts, weights: Weights, whole: int, number: Fraction) -> tuple[float, float]:
    places, fills = weights
    excess = counts / float(total(counts)) - places / fills / whole
    return float(np.maximum(excess, 0).sum()), 1 / float(number)


def _exact_score(counts: Counts, length: int, epsilon: float, grouping: str | None) -> Fraction:
    """Return E_M / U."""
    weights, whole, number = _weights(counts, length, grouping)
    return excess_weight(counts, weights, whole) + 1 / (Fraction(epsilon) * number)


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


RULES: Final[Mapping[str, Rule]] = {
    "median": median,
    "sensitivity": sensitivity,
    "minimax": minimax,
    "minimax_sqrt2": partial(minimax, noise_squared=2),
    "minimax_convex": minimax_convex,
    "worst_case": worst_case,
}
"""Rules that a policy may name."""

PRINTED_RULES: Final[Mapping[str, Rule]] = {"minimax_convex_printed": minimax_convex_printed}
"""Rules as printed in the papers and corrected above: for `evaluate`, never in a policy."""


def array_length(choice: str | int, counts: Counts, epsilon: float, grouping: str | None) -> int:
    """Return the array length for these counts: by the named rule, or the fixed number capped at the largest count.

    Raises KeyError for an unknown rule; policies are validated earlier.
    """
    return min(choice, int(counts[0])) if isinstance(choice, int) else RULES[choice](counts, epsilon, grouping)
