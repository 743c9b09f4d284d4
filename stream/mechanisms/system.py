"""The only production `Noise`: the system's randomness, without a seed and without an off switch.

Numbers get OpenDP's discrete Laplace or Gaussian noise. Selections are drawn by `selection.choose` on system bits.
Built in `agents/` and `lab/` and passed in; no module of `stream/` imports this file (docs/specification/release.md,
Invariants, I6).
"""

import math
import secrets
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace
from opendp.metrics import absolute_distance, l1_distance, l2_distance
from opendp.mod import enable_features

from hatcast.stream.mechanisms import MAX_VALUE, Distances, Noisy, NoisyVector, UnsafeNoise, selection
from hatcast.stream.mechanisms.gaussian import satisfies, satisfies_vector, smallest_vector_scale
from hatcast.stream.mechanisms.gaussian import smallest_scale as smallest_gaussian_scale
from hatcast.stream.mechanisms.laplace import smallest_scale

enable_features("contrib")  # required by both: their proofs are published, OpenDP's review is not complete
_INTEGERS: Final = atom_domain(T="i64")  # the 32-bit type saturates silently
_DISTANCE: Final = absolute_distance(T="i64")
_VECTORS: Final = vector_domain(_INTEGERS)
_L1: Final = l1_distance(T="i64")
_L2: Final = l2_distance(T="f64")
_UNCONFIRMED: Final = "OpenDP does not confirm epsilon for its noise: install the version in uv.lock"

Integers = NDArray[np.int64]

_ATTEMPTS: Final = 16  # each with a scale larger by one unit in the last place; OpenDP 0.16 accepts the first
_GAUSSIAN_FACTOR: Final = 1 + 2.0**-40  # a delta does not change visibly by one unit in the last place


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
            measurement: Any = make_laplace(_INTEGERS, _DISTANCE, scale)
            if measurement.map(distance) <= epsilon:
                return Noisy(int(measurement(value)), scale)
            scale = math.nextafter(scale, math.inf)
        raise UnsafeNoise(_UNCONFIRMED)

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        """See `Noise.gaussian`. As fast as `laplace`, but the first call for an epsilon and delta takes seconds."""
        _check(value, distance)
        if distance == 0:
            return Noisy(value, 0.0)
        scale = smallest_gaussian_scale(distance, epsilon, delta)
        for _ in range(_ATTEMPTS):
            measurement: Any = make_gaussian(_INTEGERS, _DISTANCE, scale)
            # OpenDP returns rho = r^2 / 2, rounded upwards: at each draw this r must satisfy epsilon and delta.
            if satisfies(math.sqrt(2 * measurement.map(distance)), scale, epsilon, delta):
                return Noisy(int(measurement(value)), scale)
            scale *= _GAUSSIAN_FACTOR
        raise UnsafeNoise(_UNCONFIRMED)

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        """See `VectorNoise.laplace_many`. Takes about 15 us for each number."""
        _check_all(values, distance)
        if distance == 0 or not len(values):
            return NoisyVector(values, smallest_scale(distance, epsilon) if distance else 0.0)
        scale = smallest_scale(distance, epsilon)
        for _ in range(_ATTEMPTS):
            measurement: Any = make_laplace(_VECTORS, _L1, scale)
            if measurement.map(distance) <= epsilon:
                return NoisyVector(np.array(measurement(values.tolist()), np.int64), scale)
            scale = math.nextafter(scale, math.inf)
        raise UnsafeNoise(_UNCONFIRMED)

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        """See `VectorNoise.gaussian_many`. As fast as `laplace_many`."""
        _check_all(values, distances.l1)
        if distances.l1 == 0 or not len(values):
            scale = smallest_vector_scale(distances, epsilon, delta) if distances.l1 else 0.0
            return NoisyVector(values, scale)
        scale = smallest_vector_scale(distances, epsilon, delta)
        for _ in range(_ATTEMPTS):
            measurement: Any = make_gaussian(_VECTORS, _L2, scale)
            # As in `gaussian`: OpenDP's own bound of the ratio must satisfy epsilon and delta.
            if satisfies_vector(math.sqrt(2 * measurement.map(distances.l2)), distances.l1, scale, epsilon, delta):
                return NoisyVector(np.array(measurement(values.tolist()), np.int64), scale)
            scale *= _GAUSSIAN_FACTOR
        raise UnsafeNoise(_UNCONFIRMED)

    def choose(self, weights: NDArray[np.int64], costs: NDArray[np.int64], rate: Fraction) -> int:
        """See `Noise.choose`; the proof is in `selection.choose`. Takes under 0.1 s for 100,000 candidates."""
        return selection.choose(weights, costs, rate, secrets.randbits)

    def uniform(self, number: int) -> int:
        """Draw as `Noise.uniform`, by rejection sampling, without modulo bias."""
        return secrets.randbelow(number)


def _check(value: int, distance: int) -> None:
    if not (abs(value) <= MAX_VALUE and 0 <= distance <= MAX_VALUE):
        raise UnsafeNoise("a number with its noise does not fit into 64 bits: use a coarser grid")


def _check_all(values: Integers, distance: int) -> None:
    largest = max(-int(values.min()), int(values.max())) if len(values) else 0
    _check(largest, distance)
