"""Noise, private selection and the public grid. `Noise` is the core's only source of randomness, passed in.

See docs/specification/release.md, Invariants, I6.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.errors import HatcastError

# Within these limits, noise of either kind overflows 64 bits with a probability below e**-7000 per draw.
MAX_VALUE: Final = 2**60
MAX_SCALE: Final = 2.0**50


class UnsafeNoise(HatcastError):
    """A draw cannot guarantee its epsilon: numbers would overflow 64 bits, or OpenDP's own bound exceeds epsilon."""


@dataclass(frozen=True, slots=True)
class Noisy:
    """A noisy number in grid steps, and the public scale of its noise."""

    value: int
    scale: float  # 0 if no noise was drawn; the standard deviation for Gaussian noise


class NoisyVector(NamedTuple):
    """Noisy numbers in grid steps, and the public scale of the noise of each."""

    values: NDArray[np.int64]  # int64 [N]
    scale: float  # as in `Noisy`


@dataclass(frozen=True, slots=True)
class Distances:
    """Bounds of how far apart two vectors of integers are, in grid steps."""

    l1: int  # sum of the absolute differences, at most
    l2_squared: int  # sum of their squares, at most

    @property
    def l2(self) -> float:
        """The square root of l2_squared, rounded upwards."""
        root = math.isqrt(self.l2_squared << 64)  # 2**32 times the root, rounded down
        return math.nextafter((root + 1) / 2**32, math.inf)


class LaplaceNoise(Protocol):
    """Laplace noise alone: enough for code that draws nothing else, and for its simulations."""

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        """Return `value` plus discrete Laplace noise for sensitivity `distance`, all in grid steps.

        Guarantee: values at most `distance` apart give outputs whose probabilities differ by a factor of at most
        exp(epsilon). distance 0: the value depends on no user's data, and no noise is drawn.
        Raises UnsafeNoise rather than saturate.
        """


class VectorNoise(Protocol):
    """Noise for many numbers at once: enough for code that draws nothing else."""

    def laplace_many(self, values: NDArray[np.int64], distance: int, epsilon: float) -> NoisyVector:
        """Return `values` plus independent discrete Laplace noise, all in grid steps.

        Guarantee: if the values of one call, or of several with the same distance and epsilon, are at most `distance`
        apart in l1, taken together, then the probabilities of all outputs differ by a factor of at most exp(epsilon).
        This holds also if values follow from the outputs before them. distance 0: no noise is drawn.
        Raises UnsafeNoise rather than saturate.
        """

    def gaussian_many(
        self, values: NDArray[np.int64], distances: Distances, epsilon: float, delta: float
    ) -> NoisyVector:
        """Return `values` plus independent discrete Gaussian noise, all in grid steps.

        Guarantee: if the values of one call, or of several with the same arguments, are within `distances` of each
        other, taken together, then the probabilities p and q of any set of outputs satisfy p <= exp(epsilon) q + delta.
        This holds also if values follow from the outputs before them. l1 distance 0: no noise is drawn.
        Raises UnsafeNoise rather than saturate.
        """


class Noise(LaplaceNoise, VectorNoise, Protocol):
    """The core's only source of randomness. The production implementation uses the system's and takes no seed."""

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        """Return `value` plus discrete Gaussian noise for sensitivity `distance`, all in grid steps.

        Guarantee: for values at most `distance` apart, the probabilities p and q of any set of outputs satisfy
        p <= exp(epsilon) q + delta. distance 0: the value depends on no user's data, and no noise is drawn.
        Raises UnsafeNoise rather than saturate.
        """

    def choose(self, weights: NDArray[np.int64], costs: NDArray[np.int64], rate: Fraction) -> int:
        """Draw index i with probability exactly proportional to weights[i] exp(-rate costs[i]): none underflows.

        weights, costs   [N] 0 or more; some weight is above 0; the weights' sum fits into 64 bits
        rate             above 0

        Guarantee: with equal weights, if each cost changes by at most s, each probability changes by a factor of at
        most exp(2 s rate). Raises ValueError for other arguments.
        """

    def uniform(self, number: int) -> int:
        """Draw an integer in [0, number), each with probability exactly 1 / number. Raises ValueError below 1."""
