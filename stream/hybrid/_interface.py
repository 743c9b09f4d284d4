"""Hybrid estimator interface: a weight for two means, each of which is private by its own noise.    [H 3.3]

- HybridParameters: public; bounds, epsilon of either group, grid, prior knowledge about users' means
- HybridEstimator: the weight, and the charge of a central user
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final, Self

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import Parameters
from hatcast.stream.mechanisms import MAX_SCALE, Noise, Noisy, gaussian
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.continual_keys import part_of_delta
from hatcast.stream.policy.policy import EstimatorKeys, GroupMeans, HybridKeys, HybridUse, NoiseKind, Policy

Number = Fraction | float
"""Fractions in releases, floats in plots. Fractions give a fraction; ints would not, because n / m is a float."""
_ROUNDED: Final = 1 + 1e-12  # factor of ratios, above their floating-point error


@dataclass(frozen=True, slots=True)
class Setting:
    """Public setting of a hybrid estimate, in any unit of values that all fields share."""

    # central, local: number of users of either group: c n that trust the operator, (1 - c) n that do not
    central: Number
    local: Number
    central_noise: Number  # s_T^2: variance of the noise on the mean of the central users
    local_noise: Number  # s_L^2: variance of the noise on each local user's own value
    central_variance: Number = Fraction(0)  # sigma_T^2: variance of the distribution of central users' values
    local_variance: Number = Fraction(0)  # sigma_L^2: variance of the distribution of local users' values
    gap: Number = Fraction(0)  # mu_L - mu_T

    @property
    def users(self) -> Number:
        """Number of users, n."""
        return self.central + self.local

    @property
    def share(self) -> Number:
        """Share of central users, c."""
        return self.central / self.users


class Needs(StrEnum):
    """Prior knowledge about users' means that the operator needs; it is never measured on the data."""

    NOTHING = "nothing"
    SIGMA = "sigma"
    BOTH_GROUPS = "both groups"


@dataclass(frozen=True, slots=True)
class Spread:
    """Prior knowledge about users' means; constants of the policy. A wrong value costs accuracy, never privacy."""

    # central_milli, local_milli: sigma_T, sigma_L: standard deviations of users' means, milli-units
    central_milli: int
    local_milli: int
    gap_milli: int = 0  # mu_L - mu_T, milli-units


@dataclass(frozen=True, slots=True)
class HybridParameters:
    """Public parameters of a hybrid estimate. Raises SettingError if no estimate could satisfy them."""

    upper_bound_milli: int  # U, milli-units
    grid: Grid
    epsilon: float  # epsilon of the operator's noise on the mean of central users
    local_epsilon: float  # epsilon of each local device's own noise
    spread: Spread | None = None  # None if the estimator does not need it
    # delta of the operator's Gaussian noise on one mean, and of a device's on one report; None for Laplace noise
    delta: float | None = None
    # number of local users that may share their own noise; None: no amplification is claimed
    max_coalition: int | None = None
    # users that each group needs for a mean of its own; None: no group's own mean is published
    group_min_users: int | None = None

    def __post_init__(self) -> None:
        Parameters(self.upper_bound_milli, self.grid, self.epsilon)  # the checks that all estimators share
        key = "policy.privacy.local_epsilon"
        if not 0 < self.local_epsilon < math.inf:
            raise SettingError(key, "is out of range", "use a number above 0, such as 1.0")
        if 4 * self.local_distance > MAX_SCALE * self.local_epsilon:
            raise SettingError(key, "needs noise too wide for 64 bits", "use a larger epsilon or a coarser grid")
        if self.delta is not None:
            self._check_gaussian(self.delta)
        if self.spread is not None:
            self._check_spread(self.spread)

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Return the parameters of a policy. Raises SettingError; ValueError if its estimator is not hybrid."""
        keys = policy.keys_of(HybridKeys)
        spread = None
        if keys.sigma_milli is not None and keys.sigma_local_milli is not None:
            spread = Spread(keys.sigma_milli, keys.sigma_local_milli, keys.mean_gap_milli)
        delta = None if keys.noise is NoiseKind.LAPLACE else delta_per_hat(policy)
        return cls(
            policy.upper_bound,
            Grid(policy.grid, policy.lower),
            policy.epsilon,
            keys.local_epsilon,
            spread,
            delta,
            keys.max_coalition,
            policy.min_users if keys.groups is GroupMeans.SEPARATE else None,
        )

    def _check_gaussian(self, delta: float) -> None:
        if not gaussian.MIN_DELTA <= delta < 1:
            raise SettingError("policy.privacy.delta", "is too small for Gaussian noise", "use a number such as 1e-6")
        for key, epsilon in (("epsilon", self.epsilon), ("local_epsilon", self.local_epsilon)):
            if 4 * gaussian.scale_bound(self.local_distance, epsilon, delta) > MAX_SCALE:
                raise SettingError(
                    f"policy.privacy.{key}",
                    "needs noise too wide for 64 bits",
                    "use a larger epsilon or a coarser grid",
                )

    def _check_spread(self, spread: Spread) -> None:
        """Raise SettingError unless a distribution on [0, U] can have this spread: deviations <= U/2 (Popoviciu)."""
        for key, sigma in (("sigma", spread.central_milli), ("sigma_local", spread.local_milli)):
            if not 0 <= 2 * sigma <= self.upper_bound_milli:
                raise SettingError(
                    f"policy.estimator.{key}",
                    "is out of range for a standard deviation of values",
                    "write a number from 0 to half of the range, in the unit of readings",
                )
        if abs(spread.gap_milli) > self.upper_bound_milli:
            raise SettingError(
                "policy.estimator.mean_gap", "is above the upper bound", "write it in the unit of readings"
            )

    @property
    def local_distance(self) -> int:
        """Sensitivity of a device's value on the grid, in steps."""
        return self.grid.distance(Fraction(self.upper_bound_milli))

    @property
    def kind(self) -> NoiseKind:
        """Kind of the operator's and the devices' noise."""
        return NoiseKind.LAPLACE if self.delta is None else NoiseKind.GAUSSIAN

    @property
    def local_scale(self) -> float:
        """Scale of the noise on each report, in steps; for Gaussian noise the standard deviation."""
        return self.scale_for(self.local_distance, self.local_epsilon)

    def scale_for(self, distance: int, epsilon: float) -> float:
        """Return the scale of noise for sensitivity `distance`: as drawn, or less by rounding."""
        return distance / epsilon if self.delta is None else gaussian.smallest_scale(distance, epsilon, self.delta)

    def noisy(self, noise: Noise, value: int, distance: int, epsilon: float) -> Noisy:
        """Return `value` plus the policy's kind of noise for sensitivity `distance`, in steps."""
        if self.delta is None:
            return noise.laplace(value, distance, epsilon)
        return noise.gaussian(value, distance, epsilon, self.delta)

    def sensitivity(self, central: int) -> Fraction:
        """Return U / (c n), the sensitivity of the mean of c n central users, in milli-units."""
        return Fraction(self.upper_bound_milli, central)

    def setting(self, central: int, local: int) -> Setting:
        """Return the exact inputs of weights, in milli-units. Both groups must have at least one user.

        Noise is that of the formulas, without the increase by the grid, and epsilons have their decimal values:
        s_T^2 = 2 U^2 / (eps c n)^2 and s_L^2 = 2 U^2 / eps^2; Gaussian s_T^2 = (s U / (c n))^2 and s_L^2 = (s U)^2 with
        s the deviation for sensitivity 1.
        """
        spread = self.spread or Spread(0, 0)
        return Setting(
            central=Fraction(central),
            local=Fraction(local),
            central_noise=self._unit_variance(self.epsilon) * self.sensitivity(central) ** 2,
            local_noise=self._unit_variance(self.local_epsilon) * self.upper_bound_milli**2,
            central_variance=Fraction(spread.central_milli) ** 2,
            local_variance=Fraction(spread.local_milli) ** 2,
            gap=Fraction(spread.gap_milli),
        )

    def _unit_variance(self, epsilon: float) -> Fraction:
        """Return the variance of noise for sensitivity 1."""
        if self.delta is None:
            return 2 / Fraction(Decimal(repr(epsilon))) ** 2  # the exact value of its decimal text: 0.1 is 1/10
        # Rounded to nine digits, so that a weight does not depend on the last bits of a library's result.
        return Fraction(f"{gaussian.deviation_for(epsilon, self.delta):.9g}") ** 2


def delta_per_hat(policy: Policy) -> float:
    """Return the delta of one HAT: a user is in at most `most_hats` HATs a day, whose deltas sum to at most delta."""
    return part_of_delta(policy.delta, policy.most_hats)


@dataclass(frozen=True, slots=True)
class HybridEstimator:
    """A blend of two private means.

    The weight reads public numbers only: counts of the two groups (public under `replace`), epsilons, constants.
    Law (tests/laws/test_hybrid.py): for any values of users, a neighbour's estimate has the same weight and noise.
    """

    name: str  # in `[policy.estimator]`
    # returns the weight w in [0, 1] of the central mean; the local mean has 1 - w. Both groups have users
    weight: Callable[[Setting], Number]
    needs: Needs = Needs.NOTHING  # prior knowledge about users' means that the weight requires
    fixed_weight: Fraction | None = None  # w if it is the same in every setting; None if it depends on the setting
    all_local: bool = False  # whether each central user's mean gets the noise of a local device too


def charge(estimator: HybridEstimator, parameters: HybridParameters) -> float:
    """Return the epsilon of one central user for one estimate. A local user pays `local_epsilon` on its device."""
    if estimator.all_local:
        return parameters.local_epsilon
    return 0.0 if estimator.fixed_weight == 0 else parameters.epsilon


def check(estimator: HybridEstimator, parameters: HybridParameters) -> None:
    """Check that the parameters contain the prior knowledge that the estimator needs. Raises SettingError."""
    key, spread = "policy.estimator.sigma", parameters.spread
    if estimator.needs is Needs.NOTHING:
        return
    if spread is None:
        raise SettingError(
            key, f"is missing, but {estimator.name} needs it", "write it in the values' unit, or use pwh"
        )
    if estimator.needs is Needs.SIGMA and (spread.central_milli != spread.local_milli or spread.gap_milli):
        raise SettingError(key, f"of two groups is not used by {estimator.name}", "use kvh_heterogeneous")


_SPREAD: Final = {Needs.NOTHING: (), Needs.SIGMA: ("sigma",), Needs.BOTH_GROUPS: ("sigma", "sigma_local", "mean_gap")}


def keys_of(estimator: HybridEstimator) -> EstimatorKeys:
    """Return the keys of an estimator. It is proved under `replace` only, because the groups' counts are public."""
    fixed = estimator.fixed_weight
    use = HybridUse(
        central=estimator.all_local or fixed != 0,
        local=fixed != 1,
        all_local=estimator.all_local,
        spread=_SPREAD[estimator.needs],
    )
    return EstimatorKeys(hybrid=use)


def gaussian_epsilon(policy: Policy, releases: int, delta: float, min_scale: float = 0.0) -> float:
    """Return the epsilon, at `delta`, of this many composed Gaussian releases, for a user of either group.

    delta       of the composition; it need not equal the delta that each release was calibrated for
    min_scale   lower bound of the scales of central noise, steps; 0 if not known
    A scale is never below the deviation for sensitivity 1, times a distance of at least 1 step.
    Raises ValueError for a policy without Gaussian noise.
    """
    keys, parameters = policy.keys_of(HybridKeys), HybridParameters.of(policy)
    if parameters.delta is None:
        raise ValueError(f"{policy.name} has no Gaussian noise")
    if not releases:
        return 0.0
    groups = [(parameters.epsilon, 1, min_scale)] if keys.use.central and not keys.use.all_local else []
    if keys.use.local or keys.use.all_local:
        groups.append((parameters.local_epsilon, parameters.local_distance, 0.0))
    largest = 0.0
    for epsilon, distance, group_min_scale in groups:
        deviation = gaussian.deviation_for(epsilon, parameters.delta)
        ratio = _ROUNDED / deviation
        excess_loss = gaussian.discretization_loss(ratio, max(group_min_scale, deviation * distance))
        largest = max(largest, gaussian.composed_epsilon(ratio, excess_loss, releases, delta))
    return largest
