"""Composition of a day's charges to (epsilon, delta) by privacy loss distributions (PLDs).

Each charge is replaced by a dominating pair of distributions: randomised response of its epsilon, which dominates any
mechanism, or a Laplace pair if the mechanism is known to be Laplace noise. The Laplace pair composes to less. The
product of dominating pairs dominates the composition, adaptive composition included [Zhu, Dong, Wang 2022]. Proofs:
docs/proofs.md, "The reported epsilon and delta".

dp-accounting computes the same, with SciPy, whose import takes two seconds and 120 MB; the tests compare both.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.units import NANO

_TRUNCATED: Final = 1e-15  # mass that may be outside of the retained losses; it is counted as an infinite loss
_ORDERS: Final = range(1, 21)  # of the Chernoff bound, divided by the number of losses

Probabilities = NDArray[np.float64]  # [n] probabilities of n neighbouring multiples of the interval
_MAX_EPSILON: Final = 20.0  # of one charge; above it a PLD gains too little for its cost
_MAX_LEVELS: Final = 16  # different charges; with more the plain sum is returned
_MIN_FINENESS: Final = 3  # below a scale of 8 steps discrete noise differs too much from continuous noise
_FINE_MAX_COUNT: Final = 2_000  # charges composed with _FINE_BITS; more with _COARSE_BITS
_FINE_BITS: Final = 9  # losses are rounded up to 2**-9 of the largest epsilon: error below 1e-6
_COARSE_BITS: Final = 7  # error below 1e-5; 10,000 charges take 0.1 s
_FLOAT_ERROR: Final = 1e-15  # of delta, for each charge
NOISES: Final = frozenset({"noise", "numerator", "denominator"})
"""names of an estimator's `shares` that pay for Laplace noise on integers; all others pay for private selections"""


@dataclass(frozen=True, slots=True, eq=False)
class LossDistribution:
    """Distribution of a privacy loss."""

    interval: float  # grid step of the losses
    first: int  # smallest loss, in intervals
    probabilities: Probabilities  # of the losses `first`, `first` + 1, ..., in intervals
    infinite: float = 0.0  # probability of an infinite loss

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
        if high == lowest:
            losses = self.interval * (self.first + np.arange(len(self.probabilities)))
            above = losses > 0
            if self.infinite - float(self.probabilities[above] @ np.expm1(-losses[above])) <= delta:
                return 0.0
        # Between the losses of `high` - 1 and `high`, the delta is upper - exp(x - loss of `high`) lower.
        probabilities = self.probabilities[high:]
        upper = self.infinite + float(probabilities.sum())
        lower = float(probabilities @ np.exp(-self.interval * np.arange(len(probabilities))))
        return max(0.0, (self.first + high) * self.interval + math.log((upper - delta) / lower))

    def _delta_at(self, index: int, falling: NDArray[np.float64]) -> float:
        """Return the delta at the loss with this index, as epsilon. falling: exp(-k interval) - 1 for k = 1, 2, ..."""
        above = self.probabilities[index + 1 :]
        return self.infinite - float((above * falling[: len(above)]).sum())  # BLAS's threads are slow beside others

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


@dataclass(frozen=True, slots=True)
class ChargeSplit:
    """Mechanisms that one charge paid for. All shares sum to 1."""

    noises: tuple[Fraction, ...]  # shares of epsilon of Laplace noise on integers
    selections: tuple[Fraction, ...]  # shares of epsilon of private selections
    fineness: int  # every noise had a scale of at least 2**fineness grid steps

    @classmethod
    def of(cls, shares: Mapping[str, Fraction], fineness: int) -> Self:
        """Return the split of an estimator's `shares`."""
        noises = tuple(share for name, share in shares.items() if name in NOISES)
        return cls(noises, tuple(share for name, share in shares.items() if name not in NOISES), fineness)


@dataclass(frozen=True, slots=True)
class _Part:
    """`count` equal mechanisms: Laplace noise, or any mechanism that is `epsilon`-DP."""

    laplace: bool
    epsilon: float
    count: int


@dataclass(frozen=True, slots=True)
class KnownCharges:
    """Charges whose mechanisms are known: `count` charges of `level` (1e-9) each."""

    level: int
    count: int
    split: ChargeSplit


def composed_epsilon(
    levels: Mapping[int, int], delta: float, known: KnownCharges | None = None, *, enough: float = 0.0
) -> float:
    """Return the epsilon that these charges compose to at `delta`; never above their sum.

    levels   charge in 1e-9 -> largest number of such charges of one user
    known    charges whose mechanisms are known; all others are composed as randomised response
    enough   an epsilon below which a smaller one is not looked for
    Rounds upwards throughout. The first call takes up to 1 s for 10,000 charges.
    """
    charges = {level: count for level, count in levels.items() if level and count}
    plain_sum = sum(level * count for level, count in charges.items()) / NANO
    margin = sum(charges.values()) * _FLOAT_ERROR
    if not charges or max(charges) > _MAX_EPSILON * NANO or len(charges) > _MAX_LEVELS or delta < 100 * margin:
        return plain_sum
    least = plain_sum
    if known is not None and known.split.fineness >= _MIN_FINENESS:
        others = Counter(charges) - Counter({known.level: known.count})
        least = min(least, _epsilon((*_known_parts(known), *_pure_parts(others)), delta - margin))
    return least if least <= enough else min(least, _epsilon(_pure_parts(charges), delta - margin))


def _pure_parts(charges: Mapping[int, int]) -> tuple[_Part, ...]:
    return tuple(_Part(laplace=False, epsilon=level / NANO, count=charges[level]) for level in sorted(charges))


def _known_parts(known: KnownCharges) -> tuple[_Part, ...]:
    """Return the mechanisms of known charges; equal ones as one part, which composes faster."""
    counts = Counter[tuple[bool, float]]()
    for share in known.split.noises:
        # Discrete noise has epsilon e + 2 ln cosh(1 / (2 scale)), and ln cosh(x) is at most x^2 / 2.
        counts[True, float(share * known.level) / NANO + 0.25 ** (known.split.fineness + 1)] += known.count
    for share in known.split.selections:
        counts[False, float(share * known.level) / NANO] += known.count
    return tuple(_Part(laplace, epsilon, count) for (laplace, epsilon), count in counts.items())


@lru_cache(maxsize=4096)
def _epsilon(parts: tuple[_Part, ...], delta: float) -> float:
    interval = _interval(parts)
    total = _distribution(parts[0], interval)
    for part in parts[1:]:
        total = total.composed(_distribution(part, interval))
    return total.epsilon_for(delta)


def _interval(parts: Sequence[_Part]) -> float:
    """Return the value discretization interval of the PLDs.

    It is the largest pure epsilon divided by a power of 2. Randomised response has two losses only, -epsilon and
    epsilon, and rounding leaves multiples of the interval unchanged.
    """
    bits = _FINE_BITS if sum(part.count for part in parts) <= _FINE_MAX_COUNT else _COARSE_BITS
    largest = max(part.epsilon for part in parts)
    pure = max((part.epsilon for part in parts if not part.laplace), default=largest)
    return math.ldexp(pure, -max(0, bits + math.ceil(math.log2(pure / largest))))


def _distribution(part: _Part, interval: float) -> LossDistribution:
    make = LossDistribution.laplace if part.laplace else LossDistribution.pure
    return make(part.epsilon, interval).repeated(part.count)
