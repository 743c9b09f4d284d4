"""Exact draws by weight: no floating point decides, and no chance is rounded to 0.    [estimators.md, section 4]

Pure: uniform bits come in as a function. `SystemNoise.choose` passes the system's.
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
Bits = Callable[[int], int]
"""k -> an integer uniform in [0, 2**k), independent of all before"""

FIRST_BITS: Final = 128  # leaves a draw open with a chance below 2**-60 for a million candidates
_LN2: Final = Fraction(6932, 10_000)  # a little above ln 2


def choose(weights: Integers, costs: Integers, rate: Fraction, bits: Bits) -> int:
    """An index i, with a chance of exactly weights[i] exp(-rate costs[i]) / Z.

    weights  int64 [N]  0 or more, not all 0; their sum fits into 64 bits
    costs    int64 [N]  0 or more
    rate                above 0
    Raises ValueError otherwise.

    Proof. Let S_0 = 0 and S_j be the sum of the first j terms w exp(-rate (c - min c)), cheapest first, ties by index
    (an order that no precision changes), and Z the sum of all. The bits drawn are the first ones of a real V uniform in
    [0, 1), and j is returned only if S_(j-1) <= V Z < S_j for every V that begins with them. These intervals part
    [0, Z), so j comes with chance (S_j - S_(j-1)) / Z. At b bits, drawn as the integer u: u <= 2**b V < u + 1, and
    integers lower_j <= 2**b S_j <= upper_j are known (of Z too), so that it suffices to compare
        2**b upper_(j-1) <= u lower_Z    and    (u + 1) upper_Z <= 2**b lower_j.
    While no j satisfies both, V gets more bits and the bounds more digits. The gap between bounds tends to 0, so this
    ends unless V Z is one of the N sums: with chance 1. Terms below 2**-b are not computed: their bounds are 0 and w.
    """
    candidates, positive = _cheapest_first(weights, costs)
    weights, costs = weights[candidates], positive
    if not (len(weights) and rate > 0):
        raise ValueError("a choice needs a candidate of positive weight, and a rate above 0")
    drawn, digits, wanted = 0, 0, FIRST_BITS
    while True:
        drawn, digits = drawn << wanted - digits | bits(wanted - digits), wanted
        # exp(-rate c) <= 2**-digits for every c beyond
        head = int(np.searchsorted(costs, min(-(-digits * _LN2 // rate), 2**63 - 1), side="right"))
        lower, upper = _sums(weights[:head].tolist(), costs[:head].tolist(), rate, digits)
        most = (drawn + 1) * (upper[-1] + int(weights[head:].sum()))
        found = bisect_left(lower, -(-most >> digits))  # the first whose lower bound is no less than V Z can be
        if found < head and (found == 0 or upper[found - 1] << digits <= drawn * lower[-1]):
            return int(candidates[found])
        wanted = 2 * digits


def _cheapest_first(weights: Integers, costs: Integers) -> tuple[Integers, Integers]:
    """The candidates of positive weight by cost, and their costs above the least."""
    if len(weights) != len(costs) or bool(np.any(weights < 0)) or bool(np.any(costs < 0)):
        raise ValueError("a choice needs a weight and a cost of 0 or more for each candidate")
    candidates = np.flatnonzero(weights)
    costs = costs[candidates]
    order = np.argsort(costs, kind="stable")
    costs = costs[order]
    return candidates[order], costs - costs[:1]


def _sums(weights: list[int], costs: list[int], rate: Fraction, digits: int) -> tuple[list[int], list[int]]:
    """Bounds of 2**digits (w_1 exp(-rate c_1) + ... + w_j exp(-rate c_j)) for each j. Costs ascend from 0."""
    lower, upper = _powers(costs, exponential(rate, digits), digits)
    return list(accumulate(map(mul, weights, lower))), list(accumulate(map(mul, weights, upper)))


Bounds = tuple[int, int]
"""Of a real in [0, 1], times 2**digits."""


def _powers(costs: list[int], base: Bounds, digits: int) -> tuple[list[int], list[int]]:
    """Bounds of base**cost for ascending costs: each from the one before."""
    lower, upper = [], []
    steps: dict[int, Bounds] = {}
    now: Bounds = (1 << digits, 1 << digits)
    before = 0
    for cost in costs:
        if cost != before:
            gap, before = cost - before, cost
            step = steps.get(gap)
            if step is None:
                step = steps[gap] = _power(base, gap, digits)
            now = now[0] * step[0] >> digits, -(-now[1] * step[1] >> digits)
        lower.append(now[0])
        upper.append(now[1])
    return lower, upper


def _power(base: Bounds, exponent: int, digits: int) -> Bounds:
    """By squaring; rounded down and up at each step."""
    low = high = 1 << digits
    square_low, square_high = base
    while exponent:
        if exponent & 1:
            low, high = low * square_low >> digits, -(-high * square_high >> digits)
        square_low, square_high = square_low * square_low >> digits, -(-square_high * square_high >> digits)
        exponent >>= 1
    return low, high


def exponential(x: Fraction, digits: int) -> Bounds:
    """Integers around 2**digits exp(-x), for x of 0 or more.

    With y = x / 2**k <= 1/2 the series 1 - y + y^2/2 - ... alternates and its terms fall, so that its sums lie above
    and below exp(-y) in turn; then k squarings. Every term is rounded down or up, whichever keeps the bound.
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
