"""Confidence intervals of a blend: 95 % quantiles of sums of noises."""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np

from hatcast.stream.mechanisms import gaussian
from hatcast.stream.mechanisms.grid import quantile95

_PERIOD: Final = 40.0  # standard deviations
_TERMS: Final = 2**12
_LEVEL: Final = 0.95 + 2e-6
_MAX_WIDTH: Final = 5.0  # standard deviations; beyond 4.48 any distribution has less than 5 % (Chebyshev)
_BISECTIONS: Final = 30
_NO_TAIL: Final = 0.01  # below this scale, noise is 0 with probability 1 - 2 exp(-100)
_FREQUENCIES: Final = np.asarray(np.arange(1, _TERMS + 1) * (2 * math.pi / _PERIOD), np.float64)


@lru_cache(maxsize=1024)  # the same settings recur every hour
def half_width(central: float, local: float, reports: int, weight: Fraction) -> int:
    """Return h such that the blend is within h steps of the blend before noise with probability 0.95 or more.

    central   scale of the discrete Laplace noise on the central mean, steps
    local     scale of the discrete Laplace noise on each report, steps
    reports   number of reports; 0 if the weight is 1
    weight    w, weight of the central mean
    A single noise has `quantile95`, around its value on the grid.

    Proof for sums. A geometric variable is an exponential one rounded down, so discrete Laplace noise of scale b (the
    difference of two geometric variables) is less than 1 from continuous Laplace noise of scale b. In the blend, a
    convex combination, this adds up to less than 1 step, rounding of values to the grid to at most 1/2, and rounding of
    the blend to at most 1/2. So h is the 95 % quantile of the continuous sum W plus 2 steps.

    W, in units of its standard deviation: its characteristic function is f(t) = 1 / ((1 + a^2 t^2) (1 + b^2 t^2)^k).
    Repeated with period L = 40, W has the density (1 + 2 sum_j f(t_j) cos(t_j x)) / L, t_j = 2 pi j / L; integrated
    from -q to q this gives P(|W| <= q), up to
    - the repetitions: at most P(|W| > 35). E exp(W) is at most 2, because a^2 + k b^2 = 1/2; so at most 4 exp(-35);
    - the omitted terms: f(t) <= 2 / t^2, so at most (4 L^2 / (2 pi)^3) / J^2 < 1.6e-6 with J = 2^12 terms;
    - floating point, far less.
    The quantile is computed for 0.95 + 2e-6.
    """
    if not reports:
        return quantile95(central)
    if not weight and reports == 1:
        return quantile95(local)
    central_scale, report_scale = float(weight * Fraction(central)), float((1 - weight) * Fraction(local) / reports)
    deviation = math.sqrt(2 * (central_scale**2 + reports * report_scale**2))
    if deviation == 0:
        return 2
    low, high = 0.0, _MAX_WIDTH
    squares = _FREQUENCIES**2
    terms = np.exp(
        -np.log1p((central_scale / deviation) ** 2 * squares)
        - reports * np.log1p((report_scale / deviation) ** 2 * squares)
    )
    terms /= _FREQUENCIES
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        within = (2 * middle + 4 * float(terms @ np.sin(_FREQUENCIES * middle))) / _PERIOD
        low, high = (low, middle) if within >= _LEVEL else (middle, high)
    return math.ceil(high * deviation + 2)


def variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise in steps^2: 2 p / (1 - p)^2, p = exp(-1/scale); 0 for scale 0."""
    return 0.0 if scale < _NO_TAIL else 0.5 / math.sinh(0.5 / scale) ** 2


def gaussian_half_width(central: float, local: float, reports: int, weight: Fraction) -> int:
    """Return `half_width` for discrete Gaussian noise. A single noise has `gaussian.quantile95`, around its value.

    Proof for sums. Each noise is at most 2 from continuous Gaussian noise (see the lemma in `mechanisms.gaussian`), so
    the blend of the discrete noises is at most 2 from that of the continuous ones, which is Gaussian. Rounding moves
    values to the grid by at most 1/2, the central mean in the blend by 1/2 and the blend by 1/2. So h is the 95 %
    quantile plus 3.5 steps.
    """
    if not reports:
        return gaussian.quantile95(central)
    if not weight and reports == 1:
        return gaussian.quantile95(local)
    share = float(weight)
    deviation = math.hypot(share * central, (1 - share) * local / math.sqrt(reports))
    return math.ceil(gaussian.continuous_quantile95(deviation) + 3.5)
