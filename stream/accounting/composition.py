"""Composition of a day's charges to (epsilon, delta) by privacy loss distributions (PLDs).

Each charge is replaced by a dominating pair of distributions: randomised response of its epsilon, which dominates any
mechanism, or a Laplace pair if the mechanism is known to be Laplace noise. The Laplace pair composes to less. The
product of dominating pairs dominates the composition, adaptive composition included [Zhu, Dong, Wang 2022]. Proofs:
docs/proofs.md, "The reported (epsilon, delta)".
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Self

from hatcast.stream.accounting.loss_distribution import LossDistribution
from hatcast.stream.units import NANO

_MAX_EPSILON: Final = 20.0  # of one charge; above it a PLD gains too little for its cost
_MAX_LEVELS: Final = 16  # different charges; with more the plain sum is returned
_MIN_FINENESS: Final = 3  # below a scale of 8 steps discrete noise differs too much from continuous noise
_FINE_MAX_COUNT: Final = 2_000  # charges composed with _FINE_BITS; more with _COARSE_BITS
_FINE_BITS: Final = 9  # losses are rounded up to 2**-9 of the largest epsilon: error below 1e-6
_COARSE_BITS: Final = 7  # error below 1e-5; 10,000 charges take 0.1 s
_FLOAT_ERROR: Final = 1e-15  # of delta, for each charge
NOISES: Final = frozenset({"noise", "numerator", "denominator"})
"""names of an estimator's `shares` that pay for Laplace noise on integers; all others pay for private selections"""


@dataclass(frozen=True, slots=True)
class ChargeSplit:
    """Mechanisms that one charge paid for. All shares sum to 1.

    noises      shares of epsilon of Laplace noise on integers
    selections  shares of epsilon of private selections
    fineness    every noise had a scale of at least 2**fineness grid steps
    """

    noises: tuple[Fraction, ...]
    selections: tuple[Fraction, ...]
    fineness: int

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


def composed_epsilon(levels: Mapping[int, int], delta: float, known: KnownCharges | None = None) -> float:
    """Return the epsilon that these charges compose to at `delta`; never above their sum.

    levels   charge in 1e-9 -> largest number of such charges of one user
    known    charges whose mechanisms are known; all others are composed as randomised response
    Rounds upwards throughout. The first call takes up to 1 s for 10,000 charges.
    """
    charges = {level: count for level, count in levels.items() if level and count}
    plain_sum = sum(level * count for level, count in charges.items()) / NANO
    margin = sum(charges.values()) * _FLOAT_ERROR
    if not charges or max(charges) > _MAX_EPSILON * NANO or len(charges) > _MAX_LEVELS or delta < 100 * margin:
        return plain_sum
    bounds = [plain_sum, _epsilon(_pure_parts(charges), delta - margin)]
    if known is not None and known.split.fineness >= _MIN_FINENESS:
        others = Counter(charges) - Counter({known.level: known.count})
        bounds.append(_epsilon((*_known_parts(known), *_pure_parts(others)), delta - margin))
    return min(bounds)


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
