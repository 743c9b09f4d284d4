"""Chance, and the public grid it falls on. All the chance the core knows is `Noise`, passed in.    [design, I6]"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.errors import HatcastError

# Within these, noise of either kind leaves 64 bits with a chance below e**-7000 a draw, so that nothing saturates.
MAX_VALUE: Final = 2**60
MAX_SCALE: Final = 2.0**50


class UnsafeNoise(HatcastError):
    """A draw would not keep its promise: the numbers leave 64 bits, or the library's own bound is above epsilon."""


@dataclass(frozen=True, slots=True)
class Noisy:
    """A number with noise on it, in grid steps, and the public scale of that noise (0: none was drawn).

    scale   of Gaussian noise its standard deviation
    """

    value: int
    scale: float


class LaplaceNoise(Protocol):
    """What code needs that draws nothing else: simulations of it need no more."""

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        """`value` plus discrete Laplace noise that hides a move by `distance`, all in grid steps.

        Guarantee: values at most `distance` apart give outputs whose probabilities differ by at most exp(epsilon).
        distance 0: the value depends on nobody, nothing is drawn.
        Raises UnsafeNoise rather than saturate.
        """
        ...


class Noise(LaplaceNoise, Protocol):
    """The only chance the core knows. The one implementation that ships draws from the system and takes no seed."""

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        """`value` plus discrete Gaussian noise that hides a move by `distance`, all in grid steps.

        Guarantee: values at most `distance` apart give outputs of which any set's chances p and q have
        p <= exp(epsilon) q + delta.
        distance 0: the value depends on nobody, nothing is drawn.
        Raises UnsafeNoise rather than saturate.
        """
        ...

    def choose(self, weights: NDArray[np.int64], costs: NDArray[np.int64], rate: Fraction) -> int:
        """An index i with a chance of exactly weights[i] exp(-rate costs[i]) over the sum of all: no chance underflows.

        weights, costs   [N] 0 or more; some weight is above 0; the weights' sum fits into 64 bits
        rate             above 0

        Guarantee: with equal weights, costs that differ by at most s give chances that differ by at most exp(2 s rate).
        Raises ValueError for anything else.
        """
        ...

    def uniform(self, number: int) -> int:
        """An integer in [0, number), each with a chance of exactly 1 / number. Raises ValueError below 1."""
        ...
