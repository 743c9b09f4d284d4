"""Discrete Gaussian noise: calibration of its scale, and composition. Pure; `SystemNoise.gaussian` draws the noise.

X has the discrete Gaussian distribution of scale s, P(X = k) proportional to f(k) = exp(-k^2 / 2 s^2). G has the
continuous Gaussian distribution of standard deviation s.

Lemma. There is a coupling of X and G in which they are never more than 2 apart.
Proof. Let S be the sum of all f(k), and c = s sqrt(2 pi) the integral of f. c <= S (Poisson's summation formula, all of
whose terms are positive) and S <= 1 + c (f falls on both sides of 0). Draw both from one uniform number, as quantiles.
(a) For integers k >= 0, P(X > k) = sum_(i > k) f(i) / S is at most P(G > k), because f falls and S >= c. So X >= 1
implies G > X - 1. (b) For integers j >= 1 let I be the integral of f from j + 1 to infinity. P(X >= j) is at least the
integral of f from j to infinity, divided by S, so at least (f(j + 1) + I) / S. As (j + 1 + y)^2 >= (j + 1)^2 + y^2,
I <= f(j + 1) c / 2; so f(j + 1) + I >= I (c + 2) / c >= I S / c, and P(X >= j) >= P(G > j + 1). So G <= X + 2 if
G >= 0. Below 0 both are symmetric.

So for a shift by d <= distance the privacy loss of X, (d^2 + 2 d X) / 2 s^2, exceeds that of G by at most 2 d / s^2.
With r = d / s the pair of G and G + d has delta(e) = Q(e / r - r / 2) - exp(e) Q(e / r + r / 2), Q the normal tail
[Balle and Wang 2018, Theorem 8], and X has at most delta(e - 2 r / s), at every real e. Exactly this delta belongs to
the pair of G and a distribution that is G + d with probability exp(-2 r / s) and nothing otherwise. So this pair
dominates X and X + d. Products of dominating pairs dominate compositions, adaptive ones included [Zhu, Dong, Wang
2022]: the squares of r add up, and so do the excess losses 2 r / s.

Vectors. Coordinate t of a stream is shifted by d_t, which may depend on the outputs before it, with sum d_t^2 <= D^2
and sum |d_t| <= L whatever the outputs are. Then delta(e) of the whole stream is at most that of one continuous draw,
the pair of G and G + D, at e - 2 L / s^2: the ratio is r = D / s, and the excess loss 2 L / s^2.
Proof. Couple each X_t with its own G_t. The loss, sum (d_t^2 + 2 d_t X_t) / 2 s^2, is at most 2 L / s^2 above
M = sum (d_t^2 + 2 d_t G_t) / 2 s^2, where d_t is known before G_t is drawn. If sum d_t^2 = D^2 for all outputs, then
sum d_t G_t / s has the characteristic function exp(-u^2 r^2 / 2), as exp(i u sum d_t G_t / s + u^2 sum d_t^2 / 2 s^2)
is a martingale: it is normal with variance r^2, as for one draw. If the sum may be less, add one more coordinate with
the rest. exp(-M) is a martingale, and (1 - exp(e - M))^+ is convex in exp(-M), so by Jensen's inequality its mean,
delta(e), does not fall.
"""

import math
from decimal import Context, Decimal, localcontext
from functools import lru_cache
from typing import Final

from hatcast.stream.mechanisms import MAX_SCALE, Distances, UnsafeNoise

MIN_DELTA: Final = 1e-100
_SLACK: Final = 1e-9  # relative error of a delta in floating point, at most, for epsilons up to 1e9
_MIN_TAIL: Final = 1e-300  # above every tail that erfc rounds to 0
_MAX_EXPONENT: Final = 700.0  # exp() of it does not overflow
_MIN_EPSILON: Final = 1e-6  # a smaller epsilon is returned as this
_BISECTIONS: Final = 50
_TOLERANCE: Final = 1e-9  # relative, of a scale
_DEVIATION_TOLERANCE: Final = 1e-7  # absolute
QUANTILE95: Final = 1.96  # a little above the normal quantile


def delta_for_epsilon(epsilon: float, ratio: float) -> float:
    """Return the smallest delta of Gaussian noise for a sensitivity of `ratio` standard deviations, rounded upwards.

    epsilon   any real number
    """
    return _delta(epsilon, ratio) + _SLACK * _tail(epsilon / ratio - ratio / 2) + _MIN_TAIL


def epsilon_for_delta(deviation: float, delta: float) -> float:
    """Return the smallest epsilon of Gaussian noise for sensitivity 1, rounded upwards; at least 1e-6."""
    ratio = 1 / deviation
    low = high = _MIN_EPSILON
    while delta_for_epsilon(high, ratio) > delta:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_for_epsilon(middle, ratio) > delta else (low, middle)
    return high


def discretization_loss(ratio: float, scale: float) -> float:
    """Return the largest excess of the privacy loss over that of continuous noise, for a shift by `ratio` scales."""
    return 2 * ratio / scale


def satisfies(ratio: float, scale: float, epsilon: float, delta: float) -> bool:
    """Return whether discrete Gaussian noise is (epsilon, delta)-DP for a shift by `ratio` scales. scale: steps."""
    return delta_for_epsilon(epsilon - discretization_loss(ratio, scale), ratio) <= delta


def satisfies_vector(ratio: float, l1: int, scale: float, epsilon: float, delta: float) -> bool:
    """Return whether discrete Gaussian noise on each coordinate is (epsilon, delta)-DP for a shift of a vector.

    ratio   of the shift in l2: in scales, at most
    l1      of the shift, in steps, at most
    """
    return delta_for_epsilon(epsilon - 2 * l1 / scale**2, ratio) <= delta


@lru_cache(maxsize=64)  # a process has few policies
def deviation_for(epsilon: float, delta: float) -> float:
    """Return the smallest standard deviation of continuous Gaussian noise for sensitivity 1, up to 1e-7.

    The steps of the search are those of dp-accounting, so that both return the same number.
    Raises ValueError unless epsilon is above 0 and delta strictly between 0 and 1.
    """
    if not (epsilon > 0 and 0 < delta < 1):
        raise ValueError("Gaussian noise needs an epsilon above 0 and a delta strictly between 0 and 1")
    low, high = 0.0, math.sqrt(2 * math.log(1.5 / delta)) / epsilon
    while _delta(epsilon, 1 / high) > delta:
        low, high = high, 2 * high
    while high - low > _DEVIATION_TOLERANCE:
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(epsilon, 1 / middle) > delta else (low, middle)
    return high


@lru_cache(maxsize=4096)  # the same numbers of users recur every hour
def smallest_scale(distance: int, epsilon: float, delta: float) -> float:
    """Return the smallest scale (steps) whose discrete noise is (epsilon, delta)-DP, to a relative 1e-9.

    It holds for shifts of 1 to `distance` steps: a smaller shift has a smaller r and a smaller 2 r / s. The scale
    exceeds dp-accounting's deviation for continuous noise by 7e-2 of it for a distance of 1 step, by 3e-4 for 217 steps
    and by 1e-6 for 65,001 (epsilon 1, delta 1e-8).
    Raises UnsafeNoise if no scale satisfies epsilon and delta, or none within 64 bits.
    """
    if not (0 < epsilon < math.inf and MIN_DELTA <= delta < 1):
        raise UnsafeNoise(f"Gaussian noise needs an epsilon above 0 and a delta from {MIN_DELTA:g} to 1")
    high = float(scale_bound(distance, epsilon, delta))
    if not high <= MAX_SCALE:
        raise UnsafeNoise("the noise would be too wide for 64 bits: use a coarser grid or a larger epsilon")
    low = deviation_for(epsilon, delta) * distance
    if low < high and satisfies(distance / low, low, epsilon, delta):
        return low
    if not satisfies(distance / high, high, epsilon, delta):
        raise UnsafeNoise("no scale of Gaussian noise satisfies epsilon and delta")
    while high > low * (1 + _TOLERANCE):
        middle = (low + high) / 2
        low, high = (low, middle) if satisfies(distance / middle, middle, epsilon, delta) else (middle, high)
    return high


@lru_cache(maxsize=1024)
def smallest_vector_scale(distances: Distances, epsilon: float, delta: float) -> float:
    """Return the smallest scale (steps) whose discrete noise on each coordinate is (epsilon, delta)-DP, to 1e-9.

    It holds for vectors within `distances` of each other, and for one number after the other, each of which may follow
    from the outputs before it. Raises UnsafeNoise as `smallest_scale`.
    """
    if not (0 < epsilon < math.inf and MIN_DELTA <= delta < 1):
        raise UnsafeNoise(f"Gaussian noise needs an epsilon above 0 and a delta from {MIN_DELTA:g} to 1")
    low = high = deviation_for(epsilon, delta) * distances.l2
    while high <= MAX_SCALE and not satisfies_vector(distances.l2 / high, distances.l1, high, epsilon, delta):
        low, high = high, 2 * high
    if not high <= MAX_SCALE:
        raise UnsafeNoise("the noise would be too wide for 64 bits: use a coarser grid or a larger epsilon")
    while high > low * (1 + _TOLERANCE):
        middle = (low + high) / 2
        fits = satisfies_vector(distances.l2 / middle, distances.l1, middle, epsilon, delta)
        low, high = (low, middle) if fits else (middle, high)
    return high


def check_width(distances: Distances, epsilon: float, delta: float) -> None:
    """Raise UnsafeNoise if noise for these distances might not fit into 64 bits. By `scale_bound`, without a search."""
    distance = math.ceil(distances.l2)  # where a scale is too wide, its excess loss is nothing
    if not (0 < epsilon < math.inf and MIN_DELTA <= delta < 1 and scale_bound(distance, epsilon, delta) <= MAX_SCALE):
        raise UnsafeNoise("the noise would be too wide for 64 bits: use a coarser grid or a larger epsilon")


def scale_bound(distance: int, epsilon: float, delta: float) -> Decimal:
    """Return a closed-form upper bound of `smallest_scale`, the same on every machine.

    It is the scale that zero-concentrated DP requires: 1.2 to 1.3 times the smallest at usual epsilons and deltas.

    A continuous loss exceeds r^2 / 2 + r sqrt(2 ln(1 / delta)) with probability at most delta. With 2 r / s added this
    equals epsilon for r / sqrt(2) = (sqrt(l + g epsilon) - sqrt(l)) / g, l = ln(1 / delta), g = 1 + 4 / distance.
    """
    with localcontext(Context(prec=40)):
        exact_epsilon, g = Decimal(epsilon), 1 + Decimal(4) / distance
        log = -Decimal(delta).ln()
        return distance * ((log + g * exact_epsilon).sqrt() + log.sqrt()) / (Decimal(2).sqrt() * exact_epsilon)


def composed_epsilon(ratio: float, excess_loss: float, number: int, delta: float) -> float:
    """Return the epsilon, at `delta`, of `number` draws composed.

    ratio         of each draw: the largest shift, in scales
    excess_loss   of each draw: its `discretization_loss`
    """
    return epsilon_for_delta(1 / (ratio * math.sqrt(number)), delta) + number * excess_loss


def quantile95(scale: float) -> int:
    """Return a q with P(|X| <= q) >= 0.95, at most one step too large; 0 for scale 0. By (a) of the lemma."""
    return math.ceil(QUANTILE95 * scale)


def variance(scale: float) -> float:
    """Return the variance of the discrete noise in steps^2; from scale 1.5 on within 1e-13 of scale^2."""
    if scale >= 1.5:
        return scale**2
    terms = [math.exp(-0.5 * (k / scale) ** 2) for k in range(1, 20)] if scale else []
    return 2 * sum(k * k * term for k, term in enumerate(terms, 1)) / (1 + 2 * sum(terms))


def _delta(epsilon: float, ratio: float) -> float:
    """Return the delta of Gaussian noise for a sensitivity of `ratio` standard deviations, within _SLACK."""
    near = epsilon / ratio - ratio / 2
    below = math.exp(epsilon) * _tail(near + ratio) if epsilon <= _MAX_EXPONENT else 0.0
    return _tail(near) - below


def _tail(x: float) -> float:
    """Return P(G > x) for the standard normal distribution."""
    return 0.5 * math.erfc(x / math.sqrt(2))
