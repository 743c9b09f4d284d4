"""The one production `Noise`, on the system's randomness. No seed, no switch.    [design, I6]

Numbers get OpenDP's discrete Laplace or Gaussian noise; selections are drawn by `selection.choose`, on bits of the
system.

Built in `agents/` and passed in; nothing in `stream/` imports this file.
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

enable_features("contrib")  # both are behind it: their proofs are published, the review by OpenDP is not complete
_INTEGERS: Final = atom_domain(T="i64")  # the 32-bit type saturates in silence
_APART: Final = absolute_distance(T="i64")

_WIDENINGS: Final = 16  # by one unit in the last place each; with OpenDP 0.16 the first scale does
_WIDER: Final = 1 + 2.0**-40  # where a delta decides, one unit does not show


class _Measurement(Protocol):
    """The part of OpenDP's untyped measurement that is used."""

    def map(self, distance: int) -> float: ...

    def __call__(self, value: int) -> int: ...


class SystemNoise:
    """Draws from the system. Without state: two workers, or two threads, share nothing."""

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        """See `Noise.laplace`. About 0.2 ms, of which 0.06 ms is OpenDP's own check of the promise."""
        _check(value, distance)
        if distance == 0:
            return Noisy(value, 0.0)
        scale = smallest_scale(distance, epsilon)
        # Our arithmetic does not decide: OpenDP's own figure, rounded against us, has to agree at every draw.
        for _ in range(_WIDENINGS):
            measurement: _Measurement = make_laplace(_INTEGERS, _APART, scale)
            if measurement.map(distance) <= epsilon:
                return Noisy(int(measurement(value)), scale)
            scale = math.nextafter(scale, math.inf)
        raise UnsafeNoise("OpenDP does not confirm epsilon for its noise: install the version that uv.lock names")

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        """See `Noise.gaussian`. About as fast; the first of an epsilon and a delta asks dp-accounting, for seconds."""
        _check(value, distance)
        if distance == 0:
            return Noisy(value, 0.0)
        scale = smallest_gaussian_scale(distance, epsilon, delta)
        for _ in range(_WIDENINGS):
            measurement: _Measurement = make_gaussian(_INTEGERS, _APART, scale)
            # OpenDP tells rho = r^2 / 2, rounded against us: this r, at this scale, has to agree at every draw.
            if satisfies(math.sqrt(2 * measurement.map(distance)), scale, epsilon, delta):
                return Noisy(int(measurement(value)), scale)
            scale *= _WIDER
        raise UnsafeNoise("OpenDP does not confirm epsilon for its noise: install the version that uv.lock names")

    def choose(self, weights: NDArray[np.int64], costs: NDArray[np.int64], rate: Fraction) -> int:
        """See `Noise.choose`; the proof is in `selection.choose`. Under 0.1 s for 100,000 candidates."""
        return selection.choose(weights, costs, rate, secrets.randbits)

    def uniform(self, number: int) -> int:
        """See `Noise.uniform`. By rejection, so no remainder makes some integers likelier."""
        return secrets.randbelow(number)


def _check(value: int, distance: int) -> None:
    if not (abs(value) <= MAX_VALUE and 0 <= distance <= MAX_VALUE):
        raise UnsafeNoise("a number does not fit into 64 bits with its noise: use a coarser grid")


def smallest_scale(distance: int, epsilon: float) -> float:
    """The smallest float that is at least distance / epsilon. Raises UnsafeNoise outside (0, MAX_SCALE]."""
    if not 0 < epsilon < math.inf or distance / epsilon > MAX_SCALE:
        raise UnsafeNoise("the noise would be too wide for 64 bits: use a coarser grid or a larger epsilon")
    scale = distance / epsilon
    exact = Fraction(distance) / Fraction(epsilon)
    while Fraction(scale) < exact:
        scale = math.nextafter(scale, math.inf)
    return scale
