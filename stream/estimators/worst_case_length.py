"""Rule `worst_case`: the array length with the least worst-case error E_M of the mean of array means.    [V, E_M]

It reads counts, epsilon and the grouping only. See docs/specification/estimators.md, sections 3 and 4.
"""

import math
from fractions import Fraction
from hashlib import sha256
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators._exact import Weights, capped_weights, excess_weight, total, weights_in
from hatcast.stream.estimators.grouping import GROUPINGS, Counts, Integers, places_taken

MOST_LENGTHS: Final = 4096  # tried, and as many counts: each one that is tried takes a grouping of all users
_ERROR: Final = 1e-12  # of a float score, relative to 1 + 1/eps; its roundings cause less than 1e-14

Floats = NDArray[np.float64]


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
