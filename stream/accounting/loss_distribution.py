"""Privacy loss distributions (PLDs) on a grid: construction, composition, and the epsilon of a delta.

A distribution here belongs to a pair of distributions that dominates the mechanism: it never understates a delta. dp-
accounting computes the same, with SciPy, whose import takes two seconds and 120 MB; the tests compare both.

Both mechanisms have a symmetric pair: the probability of the loss -x is exp(-x) times the probability of x. So one half
of the grid determines the other, and removing a user costs as much as adding one.
"""

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

_TRUNCATED: Final = 1e-15  # mass that may be outside of the retained losses; it is counted as an infinite loss
_ORDERS: Final = range(1, 21)  # of the Chernoff bound, divided by the number of losses

Probabilities = NDArray[np.float64]
"""[n] probabilities of n neighbouring multiples of the interval"""


@dataclass(frozen=True, slots=True, eq=False)
class LossDistribution:
    """Distribution of a privacy loss.

    interval       grid step of the losses
    first          smallest loss, in intervals
    probabilities  of the losses `first`, `first` + 1, ..., in intervals
    infinite       probability of an infinite loss
    """

    interval: float
    first: int
    probabilities: Probabilities
    infinite: float = 0.0

    @classmethod
    def pure(cls, epsilon: float, interval: float) -> Self:
        """Return the distribution of randomised response, which dominates every epsilon-DP mechanism.

        epsilon is rounded up to a multiple of the interval.
        """
        steps = _steps(epsilon, interval)
        probabilities = np.zeros(2 * steps + 1)
        probabilities[-1] = 1 / (1 + math.exp(-steps * interval))
        probabilities[0] = 1 - probabilities[-1]
        return cls(interval, -steps, probabilities)

    @classmethod
    def laplace(cls, epsilon: float, interval: float) -> Self:
        """Return the tightest distribution on the grid that dominates Laplace noise of scale distance / epsilon.

        It has the noise's delta(x) = 1 - exp((x - epsilon) / 2) at each multiple of the interval, and straight lines in
        exp(x) between them ["connect the dots": Doroshenko et al. 2022, Algorithm 1]. For equal steps h the probability
        of x is then exp((x - epsilon) / 2) tanh(h / 4); at the largest loss it is delta(x - h) / (1 - exp(-h)). The
        loss beside the largest takes what is missing to 1.
        """
        steps = _steps(epsilon, interval)
        losses: NDArray[np.float64] = interval * np.arange(steps + 1, dtype=np.float64)
        half = np.exp((losses - epsilon) / 2) * math.tanh(interval / 4)
        half[-1] = math.expm1((losses[-2] - epsilon) / 2) / math.expm1(-interval)
        half[-2] = 0.0
        half[-2] = max(0.0, 1 - float(_mirrored(half, losses).sum())) / (1 if steps == 1 else 1 + math.exp(-losses[-2]))
        return cls(interval, -steps, _mirrored(half, losses))

    def repeated(self, number: int) -> Self:
        """Return the composition of `number` mechanisms of this distribution. number: at least 1."""
        if number == 1:
            return self
        low, high = self._bounds(number)
        size = _transform_size(max(high - low + 1, len(self.probabilities)))
        spectrum = np.fft.rfft(self.probabilities, size)
        # The transform wraps around: what is outside of the bounds is added to what is within, at most _TRUNCATED.
        wrapped = np.fft.irfft(spectrum**number, size)
        probabilities = np.roll(wrapped, -low)[: high - low + 1]
        infinite = _TRUNCATED - math.expm1(number * math.log1p(-self.infinite))
        return type(self)(self.interval, self.first * number + low, probabilities, infinite)

    def composed(self, other: Self) -> Self:
        """Return the composition with a mechanism of another distribution on the same grid."""
        length = len(self.probabilities) + len(other.probabilities) - 1
        size = _transform_size(length)
        spectrum = np.fft.rfft(self.probabilities, size) * np.fft.rfft(other.probabilities, size)
        infinite = self.infinite + other.infinite
        return type(self)(self.interval, self.first + other.first, np.fft.irfft(spectrum, size)[:length], infinite)

    def epsilon_for(self, delta: float) -> float:
        """Return the smallest epsilon, at least 0, whose delta is at most `delta`; inf if there is none."""
        if self.infinite > delta:
            return math.inf
        lowest = max(0, -self.first)  # of the probabilities whose loss is 0 or more
        low, high = lowest - 1, len(self.probabilities) - 1  # the delta at `high` is `infinite`: small enough
        falling = np.expm1(-self.interval * np.arange(1, len(self.probabilities)))
        while high - low > 1:
            middle = (low + high) // 2
            if self._delta_at(middle, falling) <= delta:
                high = middle
            else:
                low = middle
        if high == lowest and self._delta_at_zero() <= delta:
            return 0.0
        # Between the losses of `high` - 1 and `high`, the delta is upper - exp(x - loss of `high`) lower.
        probabilities = self.probabilities[high:]
        upper = self.infinite + float(probabilities.sum())
        lower = float(probabilities @ np.exp(-self.interval * np.arange(len(probabilities))))
        return max(0.0, self._loss(high) + math.log((upper - delta) / lower))

    def _loss(self, index: int) -> float:
        return (self.first + index) * self.interval

    def _delta_at(self, index: int, falling: NDArray[np.float64]) -> float:
        """Return the delta at the loss with this index, as epsilon. falling: exp(-k interval) - 1 for k = 1, 2, ..."""
        above = self.probabilities[index + 1 :]
        return self.infinite - float((above * falling[: len(above)]).sum())  # BLAS's threads are slow beside others

    def _delta_at_zero(self) -> float:
        losses = self.interval * (self.first + np.arange(len(self.probabilities)))
        above = losses > 0
        return self.infinite - float(self.probabilities[above] @ np.expm1(-losses[above]))

    def _bounds(self, number: int) -> tuple[int, int]:
        """Return the first and last index of `number` draws' sum, without tails of mass _TRUNCATED [Chernoff]."""
        length = len(self.probabilities)
        low, high = 0, (length - 1) * number
        margin = math.log(2 / _TRUNCATED)
        for order in (each / length for each in _ORDERS):
            falling = np.exp(-order * np.arange(length))
            up = order * (length - 1) + math.log(self.probabilities @ falling[::-1])
            down = math.log(self.probabilities @ falling)
            high = min(high, math.ceil((number * up + margin) / order))
            low = max(low, math.floor(-(number * down + margin) / order))
        return low, high


def _steps(epsilon: float, interval: float) -> int:
    """Return the smallest number of intervals, at least 1, that reaches epsilon."""
    steps = max(1, math.ceil(epsilon / interval))
    return steps if steps * interval >= epsilon else steps + 1


def _mirrored(half: Probabilities, losses: NDArray[np.float64]) -> Probabilities:
    """Return the probabilities of all losses, from those of 0 and above."""
    return np.concatenate(((half * np.exp(-losses))[:0:-1], half))


def _transform_size(length: int) -> int:
    """Return a size of at least `length` for a fast Fourier transform."""
    power = 1 << (length - 1).bit_length()
    return next(
        size for size in (power * 9 // 16, power * 5 // 8, power * 3 // 4, power) if size >= length or size == power
    )
