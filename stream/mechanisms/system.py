"""The only production `Noise`: the system's randomness, without a seed and without an off switch.

Numbers get OpenDP's discrete Laplace or Gaussian noise. Selections are drawn by `selection.choose` on system bits.
Built in `agents/` and passed in; no module of `stream/` imports this file (docs/specification/release.md, Invariants,
I6).
"""

import math
import secrets
from fractions import Fraction
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from opendp.domains import atom_domain
from opendp.measurements import make_gaussian, make_laplace
from opendp.metrics import absolute_distance
from opendp.mod import enable_features

from hatcast.stream.mechanisms import MAX_SCALE, MAX_VALUE, Noisy, UnsafeNoise, selection
from hatcast.stream.mechanisms.gaussian import satisfies
from hatcast.stream.mechanisms.gaussian import smallest_scale as smallest_gaussian_scale

enable_features("contrib")  # required by both: their proofs are published, OpenDP's review is not complete
_INTEGERS: Final = atom_domain(T="i64")  # the 32-bit type saturates silently
_DISTANCE: Final = absolute_distance(T="i64")

_ATTEMPTS: Final = 16  # each with a scale larger by one unit in the last place; OpenDP 0.16 accepts the first
_GAUSSIAN_FACTOR: Final = 1 + 2.0**-40  # a delta does not change visibly by one unit in the last place


class _Measurement(Protocol):
    """The used part of OpenDP's untyped measurement."""

    def map(self, distance: int) -> float: ...

    def __call__(self, value: int) -> int: ...


class SystemNoise:
    """Noise from the system's randomness, without state: workers and threads share nothing."""

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        """See `Noise.laplace`. Takes about 0.2 ms, 0.06 ms of it for OpenDP's own privacy check."""
        _check(value, distance)
        if distance == 0:
            return Noisy(value, 0.0)
        scale = smallest_scale(distance, epsilon)
        # At each draw OpenDP's own bound, which is rounded upwards, must confirm epsilon; our arithmetic is not enough.
        for _ in range(_ATTEMPTS):
            measurement: _Measurement = make_laplace(_INTEGERS, _DISTANCE, scale)
            if measurement.map(distance) <= epsilon:
                return Noisy(int(measurement(value)), scale)
            scale = math.nextafter(scale, math.inf)
        raise UnsafeNoise("OpenDP does not confirm epsilon for its noise: install the version in uv.lock")

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        """See `Noise.gaussian`. As fast as `laplace`, but the first call for an epsilon and delta takes seconds."""
        _check(value, distance)
        if distance == 0:
            return Noisy(value, 0.0)
        scale = smallest_gaussian_scale(distance, epsilon, delta)
        for _ in range(_ATTEMPTS):
            measurement: _Measurement = make_gaussian(_INTEGERS, _DISTANCE, scale)
            # OpenDP returns rho = r^2 / 2, rounded upwards: at each draw this r must satisfy epsilon and delta.
            if satisfies(math.sqrt(2 * measurement.map(distance)), scale, epsilon, delta):
                return Noisy(int(measurement(value)), scale)
            scale *= _GAUSSIAN_FACTOR
        raise UnsafeNoise("OpenDP does not confirm epsilon for its noise: install the version in uv.lock")

    def choose(self, weights: NDArray[np.int64], costs: NDArray[np.int64], rate: Fraction) -> int:
        """See `Noise.choose`; the proof is in `selection.choose`. Takes under 0.1 s for 100,000 candidates."""
        return selection.choose(weights, costs, rate, secrets.randbits)

    def uniform(self, number: int) -> int:
        """Draw as `Noise.uniform`, by rejection sampling, without modulo bias."""
        return secrets.randbelow(number)


def _check(value: int, distance: int) -> None:
    if not (abs(value) <= MAX_VALUE and 0 <= distance <= MAX_VALUE):
        raise UnsafeNoise("a number with its noise does not fit into 64 bits: use a coarser grid")


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
