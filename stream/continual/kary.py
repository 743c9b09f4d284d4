"""Kind `kary`: trees with many children for each node, and negative digits.

Source: Andersson, Pagh and Torkamani 2024, arXiv 2408.07021. A running sum after t slots adds and subtracts noisy
nodes: with B children for each node (odd), at most (B - 1) / 2 of each level. Laplace noise grows in proportion to the
number of levels, so few levels with many nodes are better than a binary tree. State: O(B log_B n) numbers.

Proof: `_prefixes`; nodes and sensitivity: `_digits`.
"""

from collections.abc import Iterator
from math import isqrt
from typing import Final, NamedTuple

from hatcast.stream.continual._digits import Digits
from hatcast.stream.continual._interface import Setting
from hatcast.stream.continual._prefixes import PrefixNoise
from hatcast.stream.policy.hybrid_keys import NoiseKind

_EXACT: Final = 8  # shapes whose sensitivity is computed exactly, to choose the best of


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

    The best shapes are found by a bound of the sensitivity, and the best of these by the sensitivity itself.
    Raises ValueError as `kary`.
    """
    if setting.noise is not NoiseKind.LAPLACE:
        raise ValueError("trees with negative digits have Laplace noise")
    relaxed = sorted(_error(digits, setting, separation=1) for digits in _shapes(setting))[:_EXACT]
    shapes = [Digits(setting.slots, each.branching, each.levels, balanced=True) for each in relaxed]
    best = min(_error(digits, setting, setting.min_separation) for digits in shapes)
    return Digits(setting.slots, best.branching, best.levels, balanced=True)


def _shapes(setting: Setting) -> Iterator[Digits]:
    """Yield the trees to choose from. One level is noise for each slot, so it is left out where two are possible."""
    n = setting.slots
    widest = 4 * isqrt(n) + 3  # a tree of two levels is best near the square root of 2 n
    for base in range(3, widest + 1, 2) if setting.branching is None else (setting.branching,):
        levels = 2 if base < 2 * n else 1
        while levels <= 2 or base ** (levels - 1) < 2 * n:
            yield Digits(n, base, levels, balanced=True)
            levels += 1


def _error(digits: Digits, setting: Setting, separation: int) -> _Error:
    squared = digits.most_nodes(setting.participations, separation) ** 2
    numbers = digits.numbers
    return _Error(squared * int(numbers.max()), squared * int(numbers.sum()), digits.base, digits.levels)
