"""Estimator interface: public parameters and per-user (count, sum) in, one noisy number out.

- Parameters: public; bounds, epsilon, grid, grouping of users
- Users: private; counts and sums, in an order that does not depend on speeds
- Estimator: value and sensitivity before noise, and the noisy estimate
- Estimate: the publishable result

A privately selected interval to clip to is paid for and public once drawn. So it becomes a parameter, which `value` and
`sensitivity` read.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators.array_length import RULES
from hatcast.stream.estimators.grouping import (
    GROUPINGS,
    Counts,
    Integers,
    Weights,
    excess_weight,
    order_of,
    weighted_sum,
)
from hatcast.stream.mechanisms import MAX_SCALE, MAX_VALUE, Noise, Noisy
from hatcast.stream.mechanisms.grid import Grid, clip, quantile95
from hatcast.stream.policy.estimator_keys import check_gamma
from hatcast.stream.policy.policy import EstimatorKeys, MeansKeys, Policy
from hatcast.stream.units import float_below

MAX_COUNT: Final = 2**31  # readings of one user in one HAT: products of two counts fit into 64 bits
MAX_READINGS: Final = 2**62  # readings of one HAT
MAX_UPPER_BOUND: Final = 2**31  # milli-units: a user's sum fits into 64 bits

NOISE_ONLY: Final[Mapping[str, Fraction]] = {"noise": Fraction(1)}
"""`shares` of an estimator without private selection"""
ARRAY_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {"grouping": tuple(GROUPINGS), "array_length": tuple(RULES)}
"""`EstimatorKeys.choices` of an estimator with arrays"""

Interval = tuple[Fraction, Fraction]
"""(a, b), 0 <= a <= b <= U, milli-units: the interval that array means are clipped to"""


class BadUsers(ValueError):
    """Counts or sums violate the invariants of the fold. The message contains no data."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Public parameters of an estimate. Raises SettingError if no estimate could satisfy them."""

    upper_bound_milli: int  # U, milli-units
    grid: Grid
    epsilon: float  # epsilon of the whole estimate
    grouping: str | None = None  # a name of GROUPINGS; None for estimators without arrays
    array_length: str | int | None = None  # a name of RULES or a number of places; None for estimators without arrays
    quantiles: str | None = None  # a name of QUANTILES; None except for `quantile`
    # the privately selected interval; None before or without selection, meaning all of [0, U]
    interval: Interval | None = None
    # readings; a HAT with a smaller noisy weight is suppressed. None except for a ratio of noisy sums
    weight_threshold: float | None = None
    gamma: float | None = None  # of `levy`; None: its default
    least_scale: int = 0  # of noise, in steps: narrower noise is widened; 0 without a limit given as (epsilon, delta)

    def __post_init__(self) -> None:
        if not 1 <= self.upper_bound_milli < MAX_UPPER_BOUND:
            raise SettingError("policy.upper_bound", "is out of range", "write km/h above 0, such as 65.0")
        if not 0 < self.epsilon < math.inf:
            raise SettingError("policy.privacy.epsilon", "is out of range", "use a number above 0, such as 1.0")
        if self.grid.milli > self.upper_bound_milli:
            raise SettingError("policy.grid", "is larger than the upper bound", "write km/h, such as 0.001")
        a, b = self.bounds
        if not 0 <= a <= b <= self.upper_bound_milli:
            raise ValueError("the interval must lie within [0, U]")
        # No sensitivity exceeds U and no share of epsilon is below 1/4, so no draw is ever rejected as too wide.
        widest = 4 * self.grid.distance(Fraction(self.upper_bound_milli))
        if widest > MAX_SCALE * self.epsilon:
            raise SettingError(
                "policy.privacy.epsilon", "needs noise too wide for 64 bits", "use a larger epsilon or a coarser grid"
            )
        if self.gamma is not None:
            check_gamma(self.gamma)
        if self.weight_threshold is not None:
            self._check_ratio(self.weight_threshold)

    def _check_ratio(self, threshold: float) -> None:
        """Check the parameters of a ratio of noisy sums (`capped_ratio`). Raises SettingError."""
        if not 0 < threshold < math.inf:
            raise SettingError(
                "policy.estimator.weight_threshold", "is out of range", "use a number of readings above 0"
            )
        length = self.array_length
        if not (isinstance(length, int) and length >= 1):
            raise SettingError("policy.estimator.array_length", "must not depend on counts", "use a number of places")
        widest = max(self.grid.distance(Fraction(length * self.upper_bound_milli, 2)), length)
        if widest > MAX_VALUE or 2 * widest > MAX_SCALE * self.epsilon:
            raise SettingError(
                "policy.estimator.array_length",
                "needs noise too wide for 64 bits",
                "use fewer places or a coarser grid",
            )

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Return the parameters of a policy."""
        keys = policy.method if isinstance(policy.method, MeansKeys) else MeansKeys()
        return cls(
            policy.upper_bound,
            Grid(policy.grid, policy.lower),
            policy.epsilon,
            keys.grouping,
            keys.array_length,
            keys.quantiles,
            weight_threshold=keys.weight_threshold,
            gamma=keys.gamma,
            least_scale=0 if policy.composed_limit is None else policy.composed_limit.least_scale,
        )

    def clipped_to(self, interval: Interval) -> Self:
        """Return a copy with the selected interval."""
        return replace(self, interval=interval)

    def distance(self, sensitivity: Fraction, share: Fraction) -> int:
        """Return the steps that the noise is made for: the sensitivity's, or more for the least scale."""
        steps = self.grid.distance(sensitivity)
        return max(steps, math.ceil(self.least_scale * Fraction(self.epsilon) * share)) if steps else 0

    @property
    def bounds(self) -> Interval:
        """`interval`, or [0, U] without one."""
        return self.interval or (Fraction(0), Fraction(self.upper_bound_milli))


@dataclass(frozen=True, slots=True, eq=False)
class Users:
    """Users of one HAT, largest count first, ties by pseudonym: an order that does not depend on speeds.

    Raises BadUsers if the arrays violate this.
    """

    counts: Counts  # int64 [L]  readings per user, 1 or more
    sums: Integers  # int64 [L]  sum of each user's readings, milli-units

    def __post_init__(self) -> None:
        counts, sums = self.counts, self.sums
        if counts.shape != sums.shape or counts.ndim != 1 or counts.dtype != np.int64 or sums.dtype != np.int64:
            raise BadUsers("counts and sums must be int64 arrays of equal length")
        check_counts(counts)
        if bool(np.any(sums < 0)):
            raise BadUsers("a sum is below 0")

    @classmethod
    def sorted(cls, pseudonyms: NDArray[np.uint64], counts: Counts, sums: Integers) -> Self:
        """Sort users that are in any order. pseudonyms: their 8 bytes as big-endian numbers."""
        order = order_of(pseudonyms, counts)
        return cls(counts[order], sums[order])

    def checked(self, upper_bound_milli: int) -> Self:
        """Return self if each user's mean is at most the bound, as sensitivities require. Raises BadUsers otherwise."""
        if bool(np.any(-(-self.sums // upper_bound_milli) > self.counts)):
            raise BadUsers("a user's mean is above the upper bound")
        return self


def check_counts(counts: Counts) -> None:
    """Raise BadUsers unless counts are sorted, each 1 or more, and their sum fits into 64 bits."""
    if not len(counts):
        return
    if bool(np.any(counts[1:] > counts[:-1])):
        raise BadUsers("users are not sorted by count, largest first")
    if not (counts[-1] >= 1 and counts[0] < MAX_COUNT and len(counts) * int(counts[0]) < MAX_READINGS):
        raise BadUsers("a user has no reading, or there are too many readings to add")


class EmptyHat(BadUsers):
    """Raised for a HAT without users. Under `replace`, `estimate` returns None instead: the HAT is suppressed."""

    def __init__(self) -> None:
        super().__init__("a HAT without users has no mean")


@dataclass(frozen=True, slots=True)
class Estimate:
    """Publishable estimate of a HAT, in grid steps; `Grid.text` and `Grid.scale_text` format it in the value's unit."""

    raw: int  # noisy value
    scale: float | None  # scale of its Laplace noise; None for a ratio of noisy sums, which has two scales
    top: int  # largest step that is not above U
    # within [0, top]; contains the value before noise with probability 0.95 or more, for any data. It covers the noise
    # only, not clipping or sampling
    interval95: tuple[int, int]
    interval: Interval | None = None  # privately selected interval, milli-units; None without selection

    @classmethod
    def of_laplace(cls, noisy: Noisy, top: int, interval: Interval | None = None) -> Self:
        """Return the estimate of a number with Laplace noise; `interval95` is raw -+ the noise's 95 % quantile."""
        half_width = quantile95(noisy.scale)
        ends = clip(noisy.value - half_width, top), clip(noisy.value + half_width, top)
        return cls(noisy.value, noisy.scale, top, ends, interval)

    @property
    def mean(self) -> int:
        """`raw` clipped to [0, U]."""
        return clip(self.raw, self.top)


class Estimator(Protocol):
    """A private mean of one HAT, one per file. Its docstring gives formula, relation, source and proof.

    Law under `replace` (tests/laws/test_estimators.py): for neighbours `value` differs by at most `sensitivity`, which
    is passed counts only and cannot read speeds.
    Law under `add_remove` (tests/laws/test_add_remove.py): for any users, `estimate` draws noise for the same number of
    terms, with the same distances and shares of epsilon; adding or removing a user moves each term by at most its
    distance.
    """

    @property
    def name(self) -> str:
        """Name in `[policy.estimator]`."""

    @property
    def keys(self) -> EstimatorKeys:
        """Relations it is proved for, and the keys of `[policy.estimator]` that it uses, with their defaults."""

    @property
    def shares(self) -> Mapping[str, Fraction]:
        """Shares of epsilon, by purpose. They sum to 1.

        `noise` on the value and any private selection before it, or the noisy sums of a ratio.
        """

    def value(self, users: Users, parameters: Parameters) -> Fraction:
        """Return the exact value before noise, in milli-units. Private. Raises BadUsers, EmptyHat."""

    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        """Return the sensitivity, to one user, of the number that gets noise, in milli-units. Public.

        `replace`: the number is `value`, and the user's sum changes. Counts are public and decide. Raises EmptyHat.
        `add_remove`: the number is the numerator of `value`, and a user is added or removed. Counts are private, so
        only `parameters` decide: the result is the same for all counts, also for none.
        """

    def bias(self, counts: Counts, parameters: Parameters) -> Fraction | None:
        """Return the largest difference of `value` from the mean of all readings, over all sums, in milli-units.

        None if an interval is drawn first, because `value` then is not a fixed function of the sums. Raises EmptyHat.
        """

    def least_users(self, parameters: Parameters) -> int:
        """Return the fewest users for whom `estimate` draws noise: 1 or more under `replace`, 0 under `add_remove`."""

    def estimate(self, users: Users, parameters: Parameters, noise: Noise) -> Estimate | None:
        """Return the noisy estimate, for exactly `parameters.epsilon`; None if suppressed.

        `replace`: None if there are fewer than `least_users`, which is public; no noise was drawn.
        `add_remove`: all noise is drawn and epsilon is spent for any users, also for none.
        """


def with_noise(
    value: Fraction, sensitivity: Fraction, parameters: Parameters, noise: Noise, share: Fraction = NOISE_ONLY["noise"]
) -> Estimate:
    """Round a value (milli-units) to the grid and add noise, for a share of epsilon."""
    grid = parameters.grid
    distance = parameters.distance(sensitivity, share)
    noisy = noise.laplace(grid.nearest(value), distance, epsilon_share(parameters.epsilon, share))
    return Estimate.of_laplace(noisy, grid.floor(parameters.upper_bound_milli), parameters.interval)


def epsilon_share(epsilon: float, share: Fraction) -> float:
    """Return the largest float that is at most this share of epsilon. Halves and quarters are exact."""
    return float_below(Fraction(epsilon) * share)


@dataclass(frozen=True, slots=True)
class BeforeNoise:
    """An estimate before its one draw, which all of epsilon pays for. Private: it has the exact value."""

    value: int  # rounded to the grid, in steps
    distance: int  # of the values of neighbours, in steps, at most. As public as the counts
    parameters: Parameters  # of the estimate
    weights: tuple[Weights, int] | None = None  # of `Linear.weights`, if they were computed on the way

    @classmethod
    def of(
        cls, value: Fraction, sensitivity: Fraction, parameters: Parameters, weights: tuple[Weights, int] | None = None
    ) -> Self:
        """Round a value to the grid. value, sensitivity: milli-units."""
        distance = parameters.distance(sensitivity, NOISE_ONLY["noise"])
        return cls(parameters.grid.nearest(value), distance, parameters, weights)

    @property
    def epsilon(self) -> float:
        """Epsilon of the draw."""
        return self.parameters.epsilon

    def estimate(self, noisy: Noisy) -> Estimate:
        """Return the estimate of this value with its noise."""
        return Estimate.of_laplace(noisy, self.parameters.grid.floor(self.parameters.upper_bound_milli))


class OneDraw(Estimator):
    """An estimator whose estimate is its value, with noise for its sensitivity."""

    def least_users(self, _parameters: Parameters) -> int:
        return 1

    def before_noise(self, users: Users, parameters: Parameters) -> BeforeNoise:
        """Return the estimate before its noise. Raises BadUsers, EmptyHat."""
        return BeforeNoise.of(self.value(users, parameters), self.sensitivity(users.counts, parameters), parameters)

    def estimate(self, users: Users, parameters: Parameters, noise: Noise) -> Estimate | None:
        if len(users.counts) < self.least_users(parameters):
            return None
        before = self.before_noise(users, parameters)
        return before.estimate(noise.laplace(before.value, before.distance, before.epsilon))


class Linear(OneDraw):
    """An estimator whose value is a sum of users' means with public weights, so that it also has a vector form.

    `sensitivity` is U times the largest weight, or more, and `bias` is U times the weight that the plain mean has in
    excess. U only means the largest distance of two means: `hatcast.stream.estimators.vectors` relies on this.
    """

    @abstractmethod
    def weights(self, counts: Counts, parameters: Parameters) -> tuple[Weights, int]:
        """Return (places, fills) and a total: user l's mean has weight places_l / (fills_l total); weights sum to 1.

        Raises EmptyHat.
        """

    def value(self, users: Users, parameters: Parameters) -> Fraction:
        return weighted_mean(users, self.weights(users.counts, parameters), parameters)

    def bias(self, counts: Counts, parameters: Parameters) -> Fraction:
        """Return the bias as `Estimator` does; never None, because no interval is drawn."""
        return parameters.upper_bound_milli * excess_weight(counts, *self.weights(counts, parameters))


def weighted_mean(users: Users, weights: tuple[Weights, int], parameters: Parameters) -> Fraction:
    """Return the mean of users' means with the weights of `Linear.weights`, in milli-units. Raises BadUsers."""
    checked, (of_users, whole) = users.checked(parameters.upper_bound_milli), weights
    return weighted_sum(checked.counts, checked.sums, of_users) / whole
