"""A day's loss as (epsilon, delta): its charges, composed by privacy loss distributions.    [design 4, Budget]

Each charge stands for a mechanism that is no worse, at any (epsilon, delta), than a pair of distributions: randomised
response of that epsilon, whatever the mechanism; where it is known to be Laplace noise, a Laplace pair, which composes
to less. Pairs that dominate each charge dominate them all, also where each was chosen after the ones before
[Zhu, Dong, Wang 2022]. The proofs are in docs/privacy.md, "The reported (epsilon, delta)".
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from hatcast.stream.units import NANO

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_WEAKEST: Final = 20.0  # a charge above it is too weak for the finer figure to be worth its cost
_MIXTURE: Final = 16  # levels; more are too mixed
_FINE_ENOUGH: Final = 3  # noise of a smaller scale than 8 steps differs too much from the continuous one
_FEW: Final = 2_000  # charges
_FINE: Final = 9  # bits of the greatest epsilon that losses are rounded up to: too large by less than a millionth
_COARSE: Final = 7  # the same by 1e-5; 10,000 charges take 0.1 s
_ROUNDING: Final = 1e-15  # of delta and of each charge: what floating point may lose


@dataclass(frozen=True, slots=True)
class ChargeSplit:
    """How a charge was spent. The sum of all shares is 1.

    noises      shares of epsilon that went into Laplace noise on integers
    selections  shares that went into private selections
    fineness    no noise had a scale below 2**fineness
    """

    noises: tuple[Fraction, ...]
    selections: tuple[Fraction, ...]
    fineness: int


@dataclass(frozen=True, slots=True)
class _Part:
    """`count` mechanisms of a kind: Laplace noise, or anything."""

    laplace: bool
    epsilon: float
    count: int


@dataclass(frozen=True, slots=True)
class KnownCharges:
    """Charges of which it is known how they were spent: `count` of `level` (1e-9) each."""

    level: int
    count: int
    spending: ChargeSplit


def composed_epsilon(levels: Mapping[int, int], delta: float, known: KnownCharges | None = None) -> float:
    """The epsilon of (epsilon, delta) that these charges compose to; never above their sum.

    levels   charge in 1e-9 -> how often one user may have met it
    known    some of them; all others count as randomised response, which dominates any mechanism of its epsilon
    Pessimistic throughout. Takes up to a second for 10,000 charges the first time, 2 s more for loading dp-accounting.
    """
    charges = {level: count for level, count in levels.items() if count}
    plain = sum(level * count for level, count in charges.items()) / NANO
    margin = sum(charges.values()) * _ROUNDING
    if not charges or max(charges) > _WEAKEST * NANO or len(charges) > _MIXTURE or delta < 100 * margin:
        return plain
    figures = [plain, _epsilon(_pure(charges), delta - margin)]
    if known is not None and known.spending.fineness >= _FINE_ENOUGH:
        others = Counter(charges) - Counter({known.level: known.count})
        figures.append(_epsilon((*_spent(known), *_pure(others)), delta - margin))
    return min(figures)


def _pure(charges: Mapping[int, int]) -> tuple[_Part, ...]:
    return tuple(_Part(laplace=False, epsilon=level / NANO, count=charges[level]) for level in sorted(charges))


def _spent(known: KnownCharges) -> tuple[_Part, ...]:
    """Equal parts are one, so that they are composed together."""
    counts = Counter[tuple[bool, float]]()
    for share in known.spending.noises:
        # e + 2 ln cosh(1 / (2 scale)), and ln cosh(x) is at most x^2 / 2.
        counts[True, float(share * known.level) / NANO + 0.25 ** (known.spending.fineness + 1)] += known.count
    for share in known.spending.selections:
        counts[False, float(share * known.level) / NANO] += known.count
    return tuple(_Part(laplace, epsilon, count) for (laplace, epsilon), count in counts.items())


@lru_cache(maxsize=4096)
def _epsilon(parts: tuple[_Part, ...], delta: float) -> float:
    interval = _interval(parts)
    total = _distribution(parts[0], interval)
    for part in parts[1:]:
        total = total.compose(_distribution(part, interval))
    epsilon: float = total.get_epsilon_for_delta(delta)
    return epsilon


def _interval(parts: Sequence[_Part]) -> float:
    """What losses are rounded up to: a part of the greatest epsilon, and a power of 2 below that of the greatest pure
    one, which has two losses only: rounding does not touch those that are multiples.
    """
    bits = _FINE if sum(part.count for part in parts) <= _FEW else _COARSE
    greatest = max(part.epsilon for part in parts)
    pure = max((part.epsilon for part in parts if not part.laplace), default=greatest)
    return math.ldexp(pure, -max(0, bits + math.ceil(math.log2(pure / greatest))))


def _distribution(part: _Part, interval: float) -> "PrivacyLossDistribution":
    from dp_accounting.pld import common  # noqa: PLC0415 - takes two seconds, and most commands compose nothing
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415 - as above

    if part.laplace:
        one = pld.from_laplace_mechanism(1 / part.epsilon, value_discretization_interval=interval)
    else:
        # A whole number of intervals, so that the library does not round the negative loss up by one more.
        epsilon = math.ceil(part.epsilon / interval) * interval
        pure = common.DifferentialPrivacyParameters(epsilon, 0.0)
        one = pld.from_privacy_parameters(pure, value_discretization_interval=interval)
    return one.self_compose(part.count) if part.count > 1 else one
