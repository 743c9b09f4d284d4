"""Discrete Laplace noise: calibration of its scale. Pure; `SystemNoise.laplace` draws the noise."""

import math
from fractions import Fraction

from hatcast.stream.mechanisms import MAX_SCALE, UnsafeNoise


def smallest_scale(distance: int, epsilon: float) -> float:
    """Return the smallest float of at least distance / epsilon.

    Raises UnsafeNoise if it exceeds MAX_SCALE, or epsilon is not positive and finite.
    """
    if not 0 < epsilon < math.inf or distance / epsilon > MAX_SCALE:
        raise UnsafeNoise("the noise would be too wide for 64 bits: use a coarser grid or a larger epsilon")
    scale = distance / epsilon
    exact = Fraction(distance) / Fraction(epsilon)
    while Fraction(scale) < exact:
        scale = math.nextafter(scale, math.inf)
    return scale


def variance(scale: float) -> float:
    """Return the variance of the discrete noise in steps^2: 2 p / (1 - p)^2 with p = exp(-1 / scale)."""
    return 0.5 / math.sinh(0.5 / scale) ** 2 if scale > 1e-3 else 0.0
