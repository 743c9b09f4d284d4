"""Gaussian noise on integers: how wide it has to be, and what it comes to. Pure; `SystemNoise.gaussian` draws it.

X has the discrete Gaussian distribution of scale s, P(X = k) proportional to f(k) = exp(-k^2 / 2 s^2), and G the
continuous one of deviation s.

Lemma. X and G can be drawn together so that they are never more than 2 apart.
Proof. Let S be the sum of all f(k), and c = s sqrt(2 pi) the integral of f. c <= S (Poisson's summation formula, all of
whose terms are positive) and S <= 1 + c (f falls on both sides of 0). Draw both by one uniform number, as quantiles.
(a) For integers k >= 0, P(X > k) = sum_(i > k) f(i) / S is at most P(G > k): f falls, and S >= c. So X >= 1 only if
G > X - 1. (b) For integers j >= 1 let I be the integral of f from j + 1 on. P(X >= j) is at least the integral from j
on, over S, so at least (f(j + 1) + I) / S. As (j + 1 + y)^2 >= (j + 1)^2 + y^2, I <= f(j + 1) c / 2; so f(j + 1) + I >=
I (c + 2) / c >= I S / c, and P(X >= j) >= P(G > j + 1). So G <= X + 2 where G >= 0. Below 0 all is mirrored.

So with a move by d <= distance the loss of X, (d^2 + 2 d X) / 2 s^2, is that of G and at most 2 d / s^2 more. With
r = d / s the pair of G and G + d has delta(e) = Q(e / r - r / 2) - exp(e) Q(e / r + r / 2), Q the normal tail [Balle
and Wang 2018, Theorem 8], and X has no more than delta(e - 2 r / s), at every real e. A pair of distributions has just
that delta: G and, with a chance of exp(-2 r / s), G + d, nothing otherwise. So it dominates X and X + d, and pairs that
dominate each of several mechanisms dominate them together, also where a later one is chosen by what came out before
[Zhu, Dong, Wang 2022]: squares of r, and what is more than G's loss, add up.
"""

import math
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Final

from hatcast.stream.mechanisms import MAX_SCALE, UnsafeNoise

MIN_DELTA: Final = 1e-100
_SLACK: Final = 1e-9  # of a delta: what floating point loses of it is less, for epsilons up to 1e9
_NOTHING: Final = 1e-300  # what erfc rounds down to 0 is less
_HUGE: Final = 700.0  # exp() still is a float
_LEAST: Final = 1e-6  # of epsilons: what is below it is told as it
_HALVINGS: Final = 50
_CLOSE: Final = 1e-9
_QUANTILE95: Final = 1.96  # a little above the normal one


def delta_for_epsilon(epsilon: float, ratio: float) -> float:
    """The least delta for which Gaussian noise on a move by `ratio` deviations is (epsilon, delta), rounded upwards.

    epsilon   any number
    """
    near = epsilon / ratio - ratio / 2
    above = _tail(near)
    below = math.exp(epsilon) * _tail(near + ratio) if epsilon <= _HUGE else 0.0
    return above - below + _SLACK * above + _NOTHING


def epsilon_for_delta(deviation: float, delta: float) -> float:
    """The least epsilon, up to rounding upwards, for which Gaussian noise on a move by 1 is (epsilon, delta)."""
    ratio = 1 / deviation
    low = high = _LEAST
    while delta_for_epsilon(high, ratio) > delta:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_for_epsilon(middle, ratio) > delta else (low, middle)
    return high


def discretization_loss(ratio: float, scale: float) -> float:
    """The most that a loss is greater than that of continuous noise, for a move by `ratio` scales."""
    return 2 * ratio / scale


def satisfies(ratio: float, scale: float, epsilon: float, delta: float) -> bool:
    """Whether discrete Gaussian noise of this scale, in steps, makes a move by `ratio` scales (epsilon, delta)."""
    return delta_for_epsilon(epsilon - discretization_loss(ratio, scale), ratio) <= delta


@lru_cache(maxsize=64)  # of few policies
def deviation_for(epsilon: float, delta: float) -> float:
    """The least standard deviation of continuous noise for (epsilon, delta), for a move by 1.    [dp-accounting]

    Raises ValueError unless epsilon is above 0 and delta strictly between 0 and 1.
    """
    from dp_accounting.pld import common  # noqa: PLC0415 - takes two seconds, and few policies have such noise
    from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss  # noqa: PLC0415 - as above

    if not (epsilon > 0 and 0 < delta < 1):
        raise ValueError("Gaussian noise is for an epsilon above 0 and a delta between 0 and 1")
    found = GaussianPrivacyLoss.from_privacy_guarantee(common.DifferentialPrivacyParameters(epsilon, delta))
    return float(found.standard_deviation)


@lru_cache(maxsize=4096)  # counts of users come again every hour
def smallest_scale(distance: int, epsilon: float, delta: float) -> float:
    """The smallest scale, to 1e-9 of it, whose discrete noise on a move by 1 ... `distance` steps is (epsilon, delta).

    It is dp-accounting's deviation for the continuous one, raised: by 7e-2 of it for a distance of 1 step, 3e-4 for 217
    and 1e-6 for 65,001 (epsilon 1, delta 1e-8).
    Raises UnsafeNoise for what cannot be kept, or not within 64 bits.

    A smaller move has less of both, r and 2 r / s, so it is hidden too.
    """
    if not (0 < epsilon < math.inf and MIN_DELTA <= delta < 1):
        raise UnsafeNoise(f"Gaussian noise is for an epsilon above 0 and a delta from {MIN_DELTA:g} to 1")
    high = float(scale_bound(distance, epsilon, delta))
    if not high <= MAX_SCALE:
        raise UnsafeNoise("the noise would be too wide for 64 bits: use a coarser grid or a larger epsilon")
    low = deviation_for(epsilon, delta) * distance
    if low < high and satisfies(distance / low, low, epsilon, delta):
        return low
    if not satisfies(distance / high, high, epsilon, delta):
        raise UnsafeNoise("no Gaussian noise is found to keep epsilon and delta")
    while high > low * (1 + _CLOSE):
        middle = (low + high) / 2
        low, high = (low, middle) if satisfies(distance / middle, middle, epsilon, delta) else (middle, high)
    return high


def scale_bound(distance: int, epsilon: float, delta: float) -> Decimal:
    """A scale that is never below `smallest_scale`, and the same on every machine.

    It is the one that zero-concentrated privacy would ask for, at the usual epsilons and deltas 1.2 to 1.3 times it.

    A continuous loss is above r^2 / 2 + r sqrt(2 ln(1 / delta)) with a chance of at most delta. With 2 r / s added this
    is epsilon for r / sqrt(2) = (sqrt(l + g epsilon) - sqrt(l)) / g, l = ln(1 / delta), g = 1 + 4 / distance.
    """
    with localcontext(Context(prec=40)):
        wanted, extended = Decimal(epsilon), 1 + Decimal(4) / distance
        log = -Decimal(delta).ln()
        return distance * ((log + extended * wanted).sqrt() + log.sqrt()) / (Decimal(2).sqrt() * wanted)


def composed_epsilon(ratio: float, above: float, number: int, delta: float) -> float:
    """The epsilon of so many noises together, with delta.

    ratio, above   of each: the most that it is for a move by `ratio` scales, and `discretization_loss`
    """
    return epsilon_for_delta(1 / (ratio * math.sqrt(number)), delta) + number * above


def quantile95(scale: float) -> int:
    """A q with P(|X| <= q) >= 0.95, at most a step too large; 0 for scale 0. By (a) of the lemma."""
    return math.ceil(_QUANTILE95 * scale)


def continuous_quantile95(deviation: float) -> float:
    """The same of continuous noise."""
    return _QUANTILE95 * deviation


def variance(scale: float) -> float:
    """Of the discrete noise, steps^2: within 1e-13 of scale^2 from 1.5 on."""
    if scale >= 1.5:
        return scale**2
    terms = [math.exp(-0.5 * (k / scale) ** 2) for k in range(1, 20)] if scale else []
    return 2 * sum(k * k * term for k, term in enumerate(terms, 1)) / (1 + 2 * sum(terms))


def _tail(x: float) -> float:
    """P(G > x) for the normal distribution."""
    return 0.5 * math.erfc(x / math.sqrt(2))
