"""What an estimator is: public parameters and per-user (count, sum) in, one noisy number out.

- Parameters: public; bounds, epsilon, grid, how users are grouped
- Users: private; counts and sums, in an order that no speed decides
- Estimator: value and sensitivity before noise, and the two together with noise
- Estimate: what may be published

What an estimator has selected privately, an interval to clip to, has been paid for and is public from then on. So it is
one more parameter, which `value` and `sensitivity` read.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators._exact import Weights
from hatcast.stream.estimators.array_length import RULES
from hatcast.stream.estimators.grouping import GROUPINGS, Counts, Integers
from hatcast.stream.mechanisms import MAX_SCALE, MAX_VALUE, Noise, Noisy
from hatcast.stream.mechanisms.grid import Grid, clip, quantile95
from hatcast.stream.policy.policy import EstimatorKeys, Policy

MAX_COUNT: Final = 2**31  # of one user in one HAT: products of two counts fit into 64 bits
MAX_READINGS: Final = 2**62  # of one HAT
MAX_UPPER_BOUND: Final = 2**31  # milli-units: so does a user's sum

NOISE_ONLY: Final[Mapping[str, Fraction]] = MappingProxyType({"noise": Fraction(1)})
"""`shares` of an estimator that selects nothing"""
NOISES: Final = frozenset({"noise", "numerator", "denominator"})
"""names of `shares` that go into Laplace noise on integers; all others go into private selections"""
ARRAY_CHOICES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"grouping": tuple(GROUPINGS), "array_length": tuple(RULES)}
)
"""`EstimatorKeys.choices` of an estimator with arrays"""

Interval = tuple[Fraction, Fraction]
"""(a, b), 0 <= a <= b <= U, milli-units: what array means are clipped to"""


class BadUsers(ValueError):
    """Counts or sums break what the fold promises. The message has no data in it."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """All that is public. Raises SettingError where no estimate could keep its promise.

    upper_bound_milli  U, milli-units
    epsilon            of the whole estimate
    grouping           a name of GROUPINGS; None where the estimator has no arrays
    array_length       a name of RULES or a number of places; None likewise
    quantiles          a name of QUANTILES; None but for the estimator of that name
    interval           what was selected privately; None before, and where nothing is: all of [0, U]
    weight_threshold   readings; with a noisy weight below it a HAT is suppressed. None but for a ratio of noisy sums
    """

    upper_bound_milli: int
    grid: Grid
    epsilon: float
    grouping: str | None = None
    array_length: str | int | None = None
    quantiles: str | None = None
    interval: Interval | None = None
    weight_threshold: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.upper_bound_milli < MAX_UPPER_BOUND:
            raise SettingError("policy.upper_bound", "is no upper bound", "write km/h above 0, such as 65.0")
        if not 0 < self.epsilon < math.inf:
            raise SettingError("policy.privacy.epsilon", "is no epsilon", "use a number above 0, such as 1.0")
        if self.grid.milli > self.upper_bound_milli:
            raise SettingError("policy.grid", "has no step within the upper bound", "write km/h, such as 0.001")
        a, b = self.bounds
        if not 0 <= a <= b <= self.upper_bound_milli:
            raise ValueError("an interval lies within [0, U]")
        # No sensitivity is above U and no share of epsilon below a quarter, so that no draw is ever refused for width.
        widest = 4 * self.grid.distance(Fraction(self.upper_bound_milli))
        if widest > MAX_SCALE * self.epsilon:
            raise SettingError(
                "policy.privacy.epsilon", "needs noise too wide for 64 bits", "use a larger epsilon or a coarser grid"
            )
        if self.weight_threshold is not None:
            self._check_ratio(self.weight_threshold)

    def _check_ratio(self, threshold: float) -> None:
        """What a ratio of noisy sums needs: see `capped_ratio`."""
        if not 0 < threshold < math.inf:
            raise SettingError(
                "policy.estimator.weight_threshold", "is no threshold", "use a number of readings above 0"
            )
        length = self.array_length
        if not (isinstance(length, int) and length >= 1):
            raise SettingError("policy.estimator.array_length", "may not depend on counts", "use a number of places")
        widest = max(self.grid.distance(Fraction(length * self.upper_bound_milli, 2)), length)
        if widest > MAX_VALUE or 2 * widest > MAX_SCALE * self.epsilon:
            raise SettingError(
                "policy.estimator.array_length", "needs noise too wide for 64 bits", "use less places or a coarser grid"
            )

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """The part of a policy that estimators read."""
        return cls(
            policy.upper_bound,
            Grid(policy.grid),
            policy.epsilon,
            policy.grouping,
            policy.array_length,
            policy.quantiles,
            weight_threshold=policy.weight_threshold,
        )

    def clipped_to(self, interval: Interval) -> Self:
        """These, with an interval that has been selected."""
        return replace(self, interval=interval)

    @property
    def bounds(self) -> Interval:
        """`interval`, or all of [0, U]."""
        return self.interval or (Fraction(0), Fraction(self.upper_bound_milli))


@dataclass(frozen=True, slots=True, eq=False)
class Users:
    """The users of one HAT, largest count first, ties by pseudonym: an order that no speed decides.

    counts   int64 [L]  readings, 1 or more
    sums     int64 [L]  of each user's readings, milli-units
    Raises BadUsers unless they are so.
    """

    counts: Counts
    sums: Integers

    def __post_init__(self) -> None:
        counts, sums = self.counts, self.sums
        if counts.shape != sums.shape or counts.ndim != 1 or counts.dtype != np.int64 or sums.dtype != np.int64:
            raise BadUsers("counts and sums are two int64 arrays of one length")
        check_counts(counts)
        if bool(np.any(sums < 0)):
            raise BadUsers("a sum is below 0")

    @classmethod
    def sorted(cls, pseudonyms: NDArray[np.uint64], counts: Counts, sums: Integers) -> Self:
        """Users in any order. pseudonyms: their 8 bytes as big-endian numbers."""
        order = np.lexsort((pseudonyms, -counts))
        return cls(counts[order], sums[order])

    def checked(self, upper_bound_milli: int) -> Self:
        """Themselves, if every mean is at most the bound: what sensitivities stand on. Raises BadUsers otherwise."""
        if bool(np.any(-(-self.sums // upper_bound_milli) > self.counts)):
            raise BadUsers("a user's mean is above the upper bound")
        return self


def check_counts(counts: Counts) -> None:
    """Sorted, each 1 or more, and few enough to be added. Raises BadUsers."""
    if not len(counts):
        return
    if bool(np.any(counts[1:] > counts[:-1])):
        raise BadUsers("users are not sorted by count, largest first")
    if not (counts[-1] >= 1 and counts[0] < MAX_COUNT and len(counts) * int(counts[0]) < MAX_READINGS):
        raise BadUsers("a user has no reading, or there are more than estimators can add")


class EmptyHat(BadUsers):
    """Nobody is there, so there is no mean. Under `replace`, `estimate` answers None instead: the HAT is suppressed."""

    def __init__(self) -> None:
        super().__init__("a HAT without users has no mean")


@dataclass(frozen=True, slots=True)
class Estimate:
    """What may be published of a HAT, in grid steps: `Grid.text` and `Grid.scale_text` write it in km/h.

    raw          the noisy value
    scale        of its Laplace noise; 0: none was drawn. None for a ratio of noisy sums, whose noise has no one scale
    top          the greatest step that is not above U
    interval95   within [0, top]; for any data, 95 of 100 draws or more give one around the value before noise. It
                 covers the noise only, not clipping or sampling
    interval     what was selected privately on the way, milli-units; None where nothing was
    """

    raw: int
    scale: float | None
    top: int
    interval95: tuple[int, int]
    interval: Interval | None = None

    @classmethod
    def of_laplace(cls, noisy: Noisy, top: int, interval: Interval | None = None) -> Self:
        """A number with noise on it. `interval95`: raw -+ the noise's 95 % quantile, then cut."""
        spread = quantile95(noisy.scale)
        ends = clip(noisy.value - spread, top), clip(noisy.value + spread, top)
        return cls(noisy.value, noisy.scale, top, ends, interval)

    @property
    def mean(self) -> int:
        """`raw` cut to [0, U]."""
        return clip(self.raw, self.top)


class Estimator(Protocol):
    """A private mean of one HAT, in one file. Its docstring gives formula, relation, source and proof.

    Law under `replace` (tests/laws/test_estimators.py): for neighbours `value` differs by at most `sensitivity`, which
    is handed counts and cannot look at a speed.
    Law under `add_remove` (tests/laws/test_add_remove.py): whoever is there, `estimate` draws for the same number of
    terms, with the same distances and parts of epsilon; one user more or less moves each term by at most its distance.
    """

    @property
    def name(self) -> str:
        """As in `[policy.estimator]`."""
        ...

    @property
    def keys(self) -> EstimatorKeys:
        """The relations it is proved for; the keys of `[policy.estimator]` that it uses, with their defaults."""
        ...

    @property
    def shares(self) -> Mapping[str, Fraction]:
        """What epsilon is spent on, by name. The sum is 1.

        `noise` on the value, and any private selection before it; or the noisy sums that a ratio is made of.
        """
        ...

    def value(self, users: Users, parameters: Parameters) -> Fraction:
        """What is published, but for noise, exactly, in milli-units. Private. Raises BadUsers, EmptyHat."""
        ...

    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        """The most that one user can move what noise is put on, in milli-units. Public.

        `replace`: that is `value`, moved by the user's sum. Counts are public and decide. Raises EmptyHat.
        `add_remove`: that is the numerator of `value`, moved when the user comes or goes. Counts are private, so
        `parameters` alone decide: the same number for all counts and for none.
        """
        ...

    def bias(self, counts: Counts, parameters: Parameters) -> Fraction | None:
        """The most that `value` and the mean of all readings can differ, over all sums, in milli-units.

        None where it is no fixed function of the sums, since an interval is drawn first. Raises EmptyHat.
        """
        ...

    def estimate(self, users: Users, parameters: Parameters, noise: Noise) -> Estimate | None:
        """What may be published, for exactly `parameters.epsilon`. None: suppressed.

        `replace`: nothing was drawn, since nobody is there, which is public.
        `add_remove`: all was drawn and epsilon is spent, whoever is there, nobody included.
        """
        ...


class Linear(Estimator, Protocol):
    """An estimator whose value is the sum of users' means, each with a public weight: it has a vector form too.

    `sensitivity` is U times the largest weight, or more, and `bias` U times all weight that the plain mean has more of.
    U is how far apart two means can be, and nothing else: `hatcast.stream.estimators.vectors` stands on this.
    """

    def bias(self, counts: Counts, parameters: Parameters) -> Fraction:
        """See Estimator. Never None: no interval is drawn."""
        ...

    def weights(self, counts: Counts, parameters: Parameters) -> tuple[Weights, int]:
        """(places, fills) and a total: the mean of user l weighs places_l / (fills_l total); all weights make 1.

        Raises EmptyHat.
        """
        ...


def with_noise(
    value: Fraction, sensitivity: Fraction, parameters: Parameters, noise: Noise, share: Fraction = NOISE_ONLY["noise"]
) -> Estimate:
    """A value (milli-units) on the grid, with noise for a share of epsilon."""
    grid = parameters.grid
    noisy = noise.laplace(grid.nearest(value), grid.distance(sensitivity), epsilon_share(parameters.epsilon, share))
    return Estimate.of_laplace(noisy, grid.floor(parameters.upper_bound_milli), parameters.interval)


def epsilon_share(epsilon: float, share: Fraction) -> float:
    """The greatest float that is at most this share of epsilon. Halves and quarters are exact."""
    exact = Fraction(epsilon) * share
    part = float(exact)
    return part if Fraction(part) <= exact else math.nextafter(part, 0.0)
