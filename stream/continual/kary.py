"""Kind `kary`: trees with many children for each node, and negative digits.

Source: Andersson, Pagh and Torkamani 2024, arXiv 2408.07021. A running sum after t slots adds and subtracts noisy
nodes: with B children for each node (odd), at most (B - 1) / 2 of each level. Laplace noise grows in proportion to the
number of levels, so few levels with many nodes are better than a binary tree. State: O(B log_B n) numbers.

Proof: `_prefixes`; nodes and sensitivity: `_digits`.
"""

from collections.abc import Iterator
from math import isqrt
from operator import itemgetter
from typing import NamedTuple

from hatcast.stream.continual._digits import Digits
from hatcast.stream.continual._interface import Setting
from hatcast.stream.continual._prefixes import PrefixNoise
from hatcast.stream.policy.method import NoiseKind


def kary(setting: Setting) -> PrefixNoise:
    """Return the k-ary tree mechanism of a setting. Without a branching it has the one of the least maximum error.

    Raises ValueError for a branching that is even or below 3, and for Gaussian noise: a node's noise may be in a sum
    before its last slot, and for streams that react to sums `_prefixes` has a proof for Laplace noise alone.
    """
    return PrefixNoise("kary", setting, kary_digits(setting))


class _Error(NamedTuple):
    """Integers that order shapes by their errors, the same on every machine.

    largest  proportional to the largest variance of a running sum
    mean     to the mean one
    """

    largest: int
    mean: int
    branching: int
    levels: int


def kary_digits(setting: Setting) -> Digits:
    """Return the branching and number of levels of the least maximum error; ties by the mean error, then the smallest.

    Shapes are tried in the order of a lower bound of their errors, until it exceeds the best error.
    Raises ValueError as `kary`.
    """
    if setting.noise is not NoiseKind.LAPLACE:
        raise ValueError("trees with negative digits have Laplace noise")
    k, b = setting.participations, setting.min_separation
    shapes = [(_error(digits, digits.nodes_of_even_slots(k, b)), digits) for digits in _shapes(setting)]
    best: tuple[_Error, Digits] | None = None
    for bound, digits in sorted(shapes, key=itemgetter(0)):
        if best is not None and bound.largest > best[0].largest:
            break
        error = _error(digits, digits.most_nodes(k, b))
        if best is None or error < best[0]:
            best = error, digits
    if best is None:
        raise AssertionError("each setting has a shape")
    return best[1]


def _shapes(setting: Setting) -> Iterator[Digits]:
    """Yield the trees to choose from. One level is noise for each slot, so it is left out where two are possible."""
    n = setting.slots
    widest = 4 * isqrt(n) + 3  # a tree of two levels is best near the square root of 2 n
    for base in range(3, widest + 1, 2) if setting.branching is None else (setting.branching,):
        levels = 2 if base < 2 * n else 1
        while levels <= 2 or base ** (levels - 1) < 2 * n:
            yield Digits(n, base, levels, balanced=True)
            levels += 1


def _error(digits: Digits, nodes: int) -> _Error:
    """Return the error of a shape whose sensitivity is `nodes`, or is at least that."""
    squared, numbers = nodes**2, digits.numbers
    return _Error(squared * int(numbers.max()), squared * int(numbers.sum()), digits.base, digits.levels)
