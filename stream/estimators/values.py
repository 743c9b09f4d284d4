"""Means of several values of a reading, released together for one epsilon.    [V]

A reading is a point of a box, [lower_i, upper_i] on axis i, W_i wide. Each axis has its own unit and grid. In units of
W_i around its middle the box is [-1/2, 1/2]^d, which lies in the l1 ball of radius d/2: two readings are at most d
apart. See docs/specification/estimators.md, section 4, and docs/proofs.md, "Several values".
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, Self

import numpy as np

from hatcast.stream.estimators import ESTIMATORS, EmptyHat, Estimator, Parameters, Users
from hatcast.stream.estimators._interface import epsilon_share
from hatcast.stream.estimators.grouping import Counts
from hatcast.stream.estimators.vectors import VectorUsers
from hatcast.stream.mechanisms import Noise, Noisy
from hatcast.stream.mechanisms.grid import Grid, quantile95
from hatcast.stream.policy.policy import Policy

VALUE_ESTIMATORS: Final[Mapping[str, Estimator]] = {
    name: each for name, each in ESTIMATORS.items() if each.keys.several_values
}
"""The estimators that can release several values."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One value of a reading."""

    lower: int  # milli-units; sums of users are of distances from it
    parameters: Parameters  # of the estimator on [0, W_i], with epsilon / d and the axis's grid

    @property
    def bounds(self) -> tuple[int, int]:
        """Steps of the grid that are within [lower, upper], first and last."""
        grid = self.parameters.grid
        return math.ceil(self.lower / grid.milli), grid.floor(self.lower + self.parameters.upper_bound_milli)


@dataclass(frozen=True, slots=True)
class ValueEstimate:
    """Publishable estimate of one value, in steps of its own grid."""

    raw: int  # noisy value
    mean: int  # `raw` clipped to [lower, upper]
    scale: float  # scale of its Laplace noise
    interval95: tuple[int, int]  # raw -+ the noise's 95 % quantile, clipped like the mean

    @classmethod
    def of(cls, noisy: Noisy, bounds: tuple[int, int]) -> Self:
        """Return the estimate of a noisy number; bounds: first and last step of the value's range."""
        first, last = bounds
        half_width = quantile95(noisy.scale)
        mean, low, high = (
            min(max(steps, first), last) for steps in (noisy.value, noisy.value - half_width, noisy.value + half_width)
        )
        return cls(noisy.value, mean, noisy.scale, (low, high))


@dataclass(frozen=True, slots=True)
class ValuesForm:
    """An estimator of several values: on each axis the estimator of speeds, on [0, W_i] and for epsilon / d.

    Sensitivity (replace): a neighbour has the same counts, and one other user's sums. So each axis sees neighbours of
    the estimator, and its number moves by at most Delta_i, the estimator's sensitivity with W_i for U. For weights v_l
    that is W_i max v_l: all axes together move by d max v_l in units of W_i, which is the form of
    `hatcast.stream.estimators.vectors` for the ball of diameter D_U = d.

    Privacy: rounded to its grid, axis i moves by at most n_i = Grid.distance(Delta_i) steps. Its noise gets
    epsilon / d, rounded down: the probability of its output changes by a factor of at most exp(epsilon / d). The axes'
    noise is independent, so for all outputs together the factors multiply to at most exp(epsilon). In l1: the scales
    are b_i >= d n_i / epsilon, so sum_i n_i / b_i <= epsilon.

    Choice: bias and mean noise of axis i are those of the estimator at epsilon / d, times W_i. So in units of W_i all
    axes have one optimal array length and one optimal clipping (`clipped_sum`: D_i is W_i times the
    ceil(2 d / epsilon)-th largest count), and these minimise the sum over the axes too.
    """

    estimator: Estimator
    axes: tuple[Axis, ...]

    def value(self, users: VectorUsers) -> tuple[Fraction, ...]:
        """Return the exact value of each axis before noise, in milli-units. Private. Raises BadUsers, EmptyHat."""
        if not len(users.counts):
            raise EmptyHat
        return tuple(
            axis.lower + self.estimator.value(Users(users.counts, column), axis.parameters)
            for axis, column in zip(self.axes, np.ascontiguousarray(users.sums.T), strict=True)
        )

    def sensitivity(self, counts: Counts) -> tuple[Fraction, ...]:
        """Return the sensitivity of each axis's value to one user's sums, in milli-units. Public."""
        return tuple(self.estimator.sensitivity(counts, axis.parameters) for axis in self.axes)

    @property
    def least_users(self) -> int:
        """Fewest users for whom noise is drawn. All axes have one epsilon, so it is that of each."""
        return self.estimator.least_users(self.axes[0].parameters)

    def estimate(self, users: VectorUsers, noise: Noise) -> tuple[ValueEstimate, ...] | None:
        """Return the noisy estimates, for at most epsilon; None if suppressed, without drawing noise.

        users   sums are int64 [L, d], of distances from each axis's lower end, milli-units
        """
        if len(users.counts) < self.least_users:
            return None
        estimates = []
        for axis, value, sensitivity in zip(self.axes, self.value(users), self.sensitivity(users.counts), strict=True):
            grid, epsilon = axis.parameters.grid, axis.parameters.epsilon
            noisy = noise.laplace(grid.nearest(value), grid.distance(sensitivity), epsilon)
            estimates.append(ValueEstimate.of(noisy, axis.bounds))
        return tuple(estimates)


def values_form(policy: Policy) -> ValuesForm:
    """Return the estimator of a policy with several values. Raises SettingError if no estimate could be made."""
    return ValuesForm(VALUE_ESTIMATORS[policy.estimator], _axes(policy))


def _axes(policy: Policy) -> tuple[Axis, ...]:
    epsilon = epsilon_share(policy.epsilon, Fraction(1, len(policy.released_values)))
    whole = Parameters.of(policy)
    return tuple(
        Axis(value.lower, replace(whole, upper_bound_milli=value.width, grid=Grid(value.grid), epsilon=epsilon))
        for value in policy.released_values
    )
