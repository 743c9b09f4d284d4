"""Exact sampling by weight, without floating point: no probability underflows.

Pure: uniform bits are passed in as a function. `SystemNoise.choose` passes the system's.
See docs/specification/estimators.md, section 4.
"""

from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate
from operator import mul
from typing import Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Bits = Callable[[int], int]  # k -> an integer uniform in [0, 2**k), independent of all before

FIRST_BITS: Final = 128  # does not decide a draw with a probability below 2**-60 for a million candidates
_LN2: Final = Fraction(6932, 10_000)  # a little above ln 2


def choose(weights: Integers, costs: Integers, rate: Fraction, bits: Bits) -> int:
    """Draw index i with probability exactly weights[i] exp(-rate costs[i]) / Z.

    weights  int64 [N]  0 or more, not all 0; their sum fits into 64 bits
    costs    int64 [N]  0 or more
    rate                above 0
    Raises ValueError otherwise.

    Proof. Let S_0 = 0 and S_j be the sum of the first j terms w exp(-rate (c - min c)), by ascending cost, ties by
    index (an order that does not depend on the precision), and Z the sum of all terms. The bits drawn are the first
    bits of a real V uniform in [0, 1), and j is returned only if S_(j-1) <= V Z < S_j for every V with these first
    bits. These intervals partition [0, Z), so j is returned with probability (S_j - S_(j-1)) / Z. With b bits, drawn as
    the integer u: u <= 2**b V < u + 1, and integers lower_j <= 2**b S_j <= upper_j are known (also for Z), so it
    suffices to compare
        2**b upper_(j-1) <= u lower_Z    and    (u + 1) upper_Z <= 2**b lower_j.
    While no j satisfies both, V gets more bits and the bounds more digits. The gap between the bounds tends to 0, so
    this terminates unless V Z equals one of the N sums: with probability 1. Terms below 2**-b are not computed: their
    bounds are 0 and w.
    """
    candidates, positive = _by_cost(weights, costs)
    weights, costs = weights[candidates], positive
    if not (len(weights) and rate > 0):
        raise ValueError("a private selection needs a candidate of positive weight and a rate above 0")
    drawn, digits, wanted = 0, 0, FIRST_BITS
    while True:
        drawn, digits = drawn << wanted - digits | bits(wanted - digits), wanted
        # Beyond `head`, exp(-rate c) <= 2**-digits.
        head = int(np.searchsorted(costs, min(-(-digits * _LN2 // rate), 2**63 - 1), side="right"))
        lower, upper = _sums(weights[:head].tolist(), costs[:head].tolist(), rate, digits)
        largest = (drawn + 1) * (upper[-1] + int(weights[head:].sum()))
        index = bisect_left(lower, -(-largest >> digits))  # the first with a lower bound of at least the largest V Z
        if index < head and (index == 0 or upper[index - 1] << digits <= drawn * lower[-1]):
            return int(candidates[index])
        wanted = 2 * digits


def _by_cost(weights: Integers, costs: Integers) -> tuple[Integers, Integers]:
    """Return the candidates of positive weight by ascending cost, and their costs minus the smallest."""
    if len(weights) != len(costs) or bool(np.any(weights < 0)) or bool(np.any(costs < 0)):
        raise ValueError("a private selection needs a weight and a cost of 0 or more for each candidate")
    candidates = np.flatnonzero(weights)
    costs = costs[candidates]
    order = np.argsort(costs, kind="stable")
    costs = costs[order]
    return candidates[order], costs - costs[:1]


def _sums(weights: list[int], costs: list[int], rate: Fraction, digits: int) -> tuple[list[int], list[int]]:
    """Return bounds of 2**digits (w_1 exp(-rate c_1) + ... + w_j exp(-rate c_j)) for each j. Costs ascend from 0."""
    lower, upper = _powers(costs, exponential(rate, digits), digits)
    return list(accumulate(map(mul, weights, lower))), list(accumulate(map(mul, weights, upper)))


Bounds = tuple[int, int]  # integers (lower, upper) around 2**digits times a real in [0, 1]


def _powers(costs: list[int], base: Bounds, digits: int) -> tuple[list[int], list[int]]:
    """Return bounds of base**cost for ascending costs, each computed from the previous."""
    lower, upper = [], []
    powers: dict[int, Bounds] = {}
    current: Bounds = (1 << digits, 1 << digits)
    previous = 0
    for cost in costs:
        if cost != previous:
            gap, previous = cost - previous, cost
            power = powers.get(gap)
            if power is None:
                power = powers[gap] = _power(base, gap, digits)
            current = current[0] * power[0] >> digits, -(-current[1] * power[1] >> digits)
        lower.append(current[0])
        upper.append(current[1])
    return lower, upper


def _power(base: Bounds, exponent: int, digits: int) -> Bounds:
    """Return bounds of base**exponent by repeated squaring, rounded down and up at each step."""
    low = high = 1 << digits
    square_low, square_high = base
    while exponent:
        if exponent & 1:
            low, high = low * square_low >> digits, -(-high * square_high >> digits)
        square_low, square_high = square_low * square_low >> digits, -(-square_high * square_high >> digits)
        exponent >>= 1
    return low, high


def exponential(x: Fraction, digits: int) -> Bounds:
    """Return bounds of 2**digits exp(-x), for x of 0 or more.

    With y = x / 2**k <= 1/2 the series 1 - y + y^2/2 - ... alternates with falling terms, so its partial sums lie above
    and below exp(-y) in turn. Then k squarings. Each term is rounded in the direction that preserves the bound.
    """
    if x >= digits:
        return 0, 1  # exp(-digits) < 2**-digits
    halvings = (-(-x // 1)).bit_length() + 1
    guarded = digits + 2 * halvings + 16
    numerator, denominator = x.numerator, x.denominator << halvings
    low = high = term_low = term_high = 1 << guarded
    n = 0
    while n % 2 or term_high > 1:
        n += 1
        term_low = term_low * numerator // (denominator * n)
        term_high = -(-term_high * numerator // (denominator * n))
        added = (-term_high, -term_low) if n % 2 else (term_low, term_high)
        low, high = low + added[0], high + added[1]
    low, high = _power((low - 1, high), 1 << halvings, guarded)  # the next term would be subtracted and is at most 1
    return low >> guarded - digits, -(-high >> guarded - digits)
