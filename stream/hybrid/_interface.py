"""What a hybrid estimator is: a weight for two means that are private already, each by its own noise.    [H 3.3]

- HybridParameters: public; bounds, the epsilon of either group, grid, what is known about users' means
- HybridEstimator: the weight, and what a central user pays
- HybridEstimate: what may be published
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final, Protocol, Self

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import Parameters
from hatcast.stream.hybrid.setting import Number, Setting
from hatcast.stream.mechanisms import MAX_SCALE, Noise, Noisy
from hatcast.stream.mechanisms.gaussian import MIN_DELTA, deviation_for, scale_bound, smallest_scale
from hatcast.stream.mechanisms.grid import Grid, clip
from hatcast.stream.policy.policy import NoiseKind, Policy

TARGET: Final = "user_mean"
"""What all of them estimate: the unweighted mean of users' means, (1/n) sum mu_l. A release says so."""

_WEIGHT_DIGITS: Final = 6


class Needs(StrEnum):
    """What the operator has to know about users' means, from elsewhere: never measured on the data."""

    NOTHING = "nothing"
    SIGMA = "sigma"
    BOTH_GROUPS = "both groups"


@dataclass(frozen=True, slots=True)
class Spread:
    """What the policy claims about users' means; constants. A wrong claim costs accuracy, never privacy.

    central_milli, local_milli   sigma_T, sigma_L: standard deviations of users' means, milli-units
    gap_milli                    mu_L - mu_T, milli-units
    """

    central_milli: int
    local_milli: int
    gap_milli: int = 0

    @classmethod
    def homogeneous(cls, sigma_milli: int) -> Self:
        """Both groups from one distribution."""
        return cls(sigma_milli, sigma_milli)

    @property
    def is_homogeneous(self) -> bool:
        """Whether nothing tells them apart."""
        return self.central_milli == self.local_milli and not self.gap_milli


@dataclass(frozen=True, slots=True)
class HybridParameters:
    """All that is public. Raises SettingError where no estimate could keep its promise.

    upper_bound_milli  U, milli-units
    epsilon            of the operator's noise on the mean of central users
    local_epsilon      of each local device's own noise
    spread             None where no estimator needs it
    delta              of Gaussian noise, the operator's on one mean and a device's on one report; None: it is Laplace
    max_coalition      local users that may tell others their own noise; None: no amplification is claimed
    """

    upper_bound_milli: int
    grid: Grid
    epsilon: float
    local_epsilon: float
    spread: Spread | None = None
    delta: float | None = None
    max_coalition: int | None = None

    def __post_init__(self) -> None:
        Parameters(self.upper_bound_milli, self.grid, self.epsilon)  # refuses what no estimator may have
        where = "policy.privacy.local_epsilon"
        if not 0 < self.local_epsilon < math.inf:
            raise SettingError(where, "is no epsilon", "use a number above 0, such as 1.0")
        if 4 * self.local_distance > MAX_SCALE * self.local_epsilon:
            raise SettingError(where, "needs noise too wide for 64 bits", "use a larger epsilon or a coarser grid")
        if self.delta is not None:
            self._check_gaussian(self.delta)
        if self.spread is not None:
            self._check(self.spread)

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """The part of a policy that hybrid estimators read. Raises SettingError; ValueError for another estimator's."""
        keys = policy.hybrid
        if keys is None:
            raise ValueError(f"{policy.estimator} takes no reports")
        spread = None
        if keys.sigma_milli is not None and keys.sigma_local_milli is not None:
            spread = Spread(keys.sigma_milli, keys.sigma_local_milli, keys.mean_gap_milli)
        delta = None if keys.noise is NoiseKind.LAPLACE else delta_per_hat(policy)
        grid = Grid(policy.grid)
        return cls(policy.upper_bound, grid, policy.epsilon, keys.local_epsilon, spread, delta, keys.max_coalition)

    def _check_gaussian(self, delta: float) -> None:
        if not MIN_DELTA <= delta < 1:
            raise SettingError("policy.privacy.delta", "is too small for Gaussian noise", "use a number such as 1e-6")
        for key, epsilon in (("epsilon", self.epsilon), ("local_epsilon", self.local_epsilon)):
            if 4 * scale_bound(self.local_distance, epsilon, delta) > MAX_SCALE:
                raise SettingError(
                    f"policy.privacy.{key}",
                    "needs noise too wide for 64 bits",
                    "use a larger epsilon or a coarser grid",
                )

    def _check(self, spread: Spread) -> None:
        """No distribution on [0, U] has a standard deviation above U/2 (Popoviciu)."""
        for key, sigma in (("sigma", spread.central_milli), ("sigma_local", spread.local_milli)):
            if not 0 <= 2 * sigma <= self.upper_bound_milli:
                raise SettingError(
                    f"policy.estimator.{key}",
                    "is no standard deviation of speeds",
                    "write km/h from 0 to half of the bound",
                )
        if abs(spread.gap_milli) > self.upper_bound_milli:
            raise SettingError("policy.estimator.mean_gap", "is above the upper bound", "write km/h")

    @property
    def local_distance(self) -> int:
        """The most that a device's value on the grid can move, steps."""
        return self.grid.distance(Fraction(self.upper_bound_milli))

    @property
    def kind(self) -> NoiseKind:
        """Of the operator's noise and of devices'."""
        return NoiseKind.LAPLACE if self.delta is None else NoiseKind.GAUSSIAN

    @property
    def local_scale(self) -> float:
        """Of the noise on each report, steps: for Gaussian noise the standard deviation."""
        return self.scale_for(self.local_distance, self.local_epsilon)

    def scale_for(self, distance: int, epsilon: float) -> float:
        """Of noise that hides a move by `distance`; as drawn, or up to rounding less."""
        return distance / epsilon if self.delta is None else smallest_scale(distance, epsilon, self.delta)

    def noisy(self, noise: Noise, value: int, distance: int, epsilon: float) -> Noisy:
        """`value` with the policy's kind of noise, which hides a move by `distance`; steps."""
        if self.delta is None:
            return noise.laplace(value, distance, epsilon)
        return noise.gaussian(value, distance, epsilon, self.delta)

    def sensitivity(self, central: int) -> Fraction:
        """U / (c n): the most that one of so many central users can move their mean, milli-units."""
        return Fraction(self.upper_bound_milli, central)

    def setting(self, central: int, local: int) -> Setting:
        """What weights are computed from, exactly, in milli-units. Both groups have one or more users.

        Noise is that of the formulas, without the grid's widening, and epsilons are the decimals that were written:
        s_T^2 = 2 U^2 / (eps c n)^2 and s_L^2 = 2 U^2 / eps^2; Gaussian s_T^2 = (s U / (c n))^2 and s_L^2 = (s U)^2 with
        s the deviation for a move by 1.
        """
        known = self.spread or Spread(0, 0)
        return Setting(
            central=Fraction(central),
            local=Fraction(local),
            central_noise=self._variance_for_1(self.epsilon) * self.sensitivity(central) ** 2,
            local_noise=self._variance_for_1(self.local_epsilon) * self.upper_bound_milli**2,
            central_variance=Fraction(known.central_milli) ** 2,
            local_variance=Fraction(known.local_milli) ** 2,
            gap=Fraction(known.gap_milli),
        )

    def _variance_for_1(self, epsilon: float) -> Fraction:
        """Of noise that hides a move by 1."""
        if self.delta is None:
            return 2 / _written(epsilon) ** 2
        # In nine digits, so that no library's last bit shows in a weight.
        return Fraction(f"{deviation_for(epsilon, self.delta):.9g}") ** 2


def delta_per_hat(policy: Policy) -> float:
    """The delta of one HAT: a user is in `most_hats` of them a day at most, and deltas add up to no more than delta."""
    delta = policy.delta / policy.most_hats
    while Fraction(delta) * policy.most_hats > Fraction(policy.delta):
        delta = math.nextafter(delta, 0)
    return delta


def _written(epsilon: float) -> Fraction:
    """As the decimal that was written: 0.1 is 1/10."""
    return Fraction(Decimal(repr(epsilon)))


@dataclass(frozen=True, slots=True)
class HybridEstimate:
    """What may be published of a HAT, in grid steps: `Grid.text` writes it in km/h. Its target is TARGET.

    raw            the blend of two noisy means, on the grid
    top            the greatest step that is not above U
    interval95     within [0, top]; for any data, 95 of 100 draws or more give one around the blend before noise. It
                   covers the noise only, not sampling, nor that the groups may differ
    weight         w, of the central mean
    kind           of both noises; the scale of Gaussian noise is its standard deviation
    central_scale  of the noise on the central mean, steps; 0: none was drawn
    local_scale    of the noise on each local report, steps; 0: there is none
    variance       of both noises in `raw` together, steps^2
    public_epsilon what holds for any user against those who see releases only: at most the epsilon of its own noise
    delta          of Gaussian noise, with every epsilon; 0 for Laplace noise
    """

    raw: int
    top: int
    interval95: tuple[int, int]
    weight: Fraction
    kind: NoiseKind
    central_scale: float
    local_scale: float
    variance: float
    public_epsilon: float
    delta: float

    @property
    def mean(self) -> int:
        """`raw` cut to [0, U]."""
        return clip(self.raw, self.top)

    @property
    def weight_text(self) -> str:
        """w with up to six digits: "0.731059", "1.0"."""
        whole, rest = divmod(round(self.weight * 10**_WEIGHT_DIGITS), 10**_WEIGHT_DIGITS)
        return f"{whole}.{f'{rest:0{_WEIGHT_DIGITS}}'.rstrip('0') or '0'}"


class HybridEstimator(Protocol):
    """A blend of two private means, in one file. Its docstring gives the weight and its source.

    The weight reads public numbers only: counts of the two groups (public under `replace`), epsilons, constants.
    Law (tests/laws/test_hybrid.py): whatever values users have, a neighbour's estimate has the same weight and noise.
    """

    @property
    def name(self) -> str:
        """As in `[policy.estimator]`."""
        ...

    @property
    def needs(self) -> Needs:
        """What has to be known about users' means."""
        ...

    @property
    def fixed_weight(self) -> Fraction | None:
        """w where it is the same in every setting. None: it is not, and a group without users weighs nothing."""
        ...

    @property
    def all_local(self) -> bool:
        """Whether central users' means get the noise of local devices too, one by one."""
        ...

    def weight(self, setting: Setting) -> Number:
        """w in [0, 1], of the central mean; that of the local reports weighs 1 - w. Both groups have users."""
        ...


def charge(estimator: HybridEstimator, parameters: HybridParameters) -> float:
    """What one central user pays for one estimate, as epsilon. A local user has paid `local_epsilon` to its device."""
    if estimator.all_local:
        return parameters.local_epsilon
    return 0.0 if estimator.fixed_weight == 0 else parameters.epsilon


def check(estimator: HybridEstimator, parameters: HybridParameters) -> None:
    """At start-up: is known what the estimator needs? Raises SettingError."""
    where, spread = "policy.estimator.sigma", parameters.spread
    if estimator.needs is Needs.NOTHING:
        return
    if spread is None:
        raise SettingError(where, f"is missing, and {estimator.name} cannot do without", "write it in km/h, or use pwh")
    if estimator.needs is Needs.SIGMA and not spread.is_homogeneous:
        raise SettingError(where, f"of two groups is not used by {estimator.name}", "use kvh_heterogeneous")
