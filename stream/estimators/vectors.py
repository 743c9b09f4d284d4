"""Means of readings in R^d: the vector form of the linear estimators.    [V]

A reading lies in the l1 ball of radius U; for d = 1 in [0, U], like a speed. Distances are l1: sums over axes.
See docs/specification/estimators.md, section 4.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.errors import HatcastError
from hatcast.stream.estimators import BadUsers, EmptyHat, Estimator, Parameters, array_averaging, baseline
from hatcast.stream.estimators import weighted_mean as weighted
from hatcast.stream.estimators._interface import Linear, check_counts
from hatcast.stream.estimators.grouping import Counts, Integers, Weights, order_of, weighted_sum
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid

LINEAR: Final[Mapping[str, Linear]] = {
    each.name: each
    for each in (baseline.ESTIMATOR, array_averaging.ESTIMATOR, array_averaging.OPT_ESTIMATOR, weighted.ESTIMATOR)
}
"""The estimators with a vector form."""


@dataclass(frozen=True, slots=True)
class WorstCaseError:
    """E_M = bias + noise, in milli-units: an upper bound of the mean absolute error on every data set."""

    bias: Fraction  # largest difference of the value before noise from the mean of all readings, over all sums
    noise: Fraction  # E|noise|: the scale sensitivity / epsilon, without the increase by the grid

    @property
    def total(self) -> Fraction:
        """E_M: the sum of both."""
        return self.bias + self.noise


def worst_case_error(
    estimator: Estimator,
    counts: Counts,
    upper_bound_milli: int,
    epsilon: float,
    grouping: str | None = None,
    array_length: str | int | None = None,
) -> WorstCaseError | None:
    """Return the worst-case error for these counts. Omitted settings are the estimator's defaults.

    None for an estimator that selects an interval first: neither summand is fixed. None for a ratio of noisy sums: its
    bias is fixed (`Estimator.bias`), but the quotient of noisy numbers has no closed-form mean.
    Raises EmptyHat, SettingError.
    """
    defaults = estimator.keys.defaults
    parameters = Parameters(
        upper_bound_milli,
        Grid(Decimal(upper_bound_milli) / 1000),  # not used: the numbers are those before rounding
        epsilon,
        grouping or defaults.get("grouping"),
        array_length or defaults.get("array_length"),
        defaults.get("quantiles"),
    )
    bias = estimator.bias(counts, parameters)
    if bias is None or "noise" not in estimator.shares:
        return None
    spent = Fraction(epsilon) * estimator.shares["noise"]
    return WorstCaseError(bias, estimator.sensitivity(counts, parameters) / spent)


class NoVectorForm(HatcastError):
    """Raised for an estimator without a vector form."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} has no vector form; use {', '.join(LINEAR)}")


@dataclass(frozen=True, slots=True, eq=False)
class VectorUsers:
    """Users of one HAT, largest count first, ties by pseudonym: an order that does not depend on readings.

    Raises BadUsers if the arrays violate this.
    """

    counts: Counts  # int64 [L]      readings per user, 1 or more
    sums: Integers  # int64 [L, d]   sum of each user's readings, milli-units; d is 1 or more

    def __post_init__(self) -> None:
        counts, sums = self.counts, self.sums
        if counts.ndim != 1 or sums.ndim != 2 or counts.dtype != np.int64 or sums.dtype != np.int64:
            raise BadUsers("counts must be a one-dimensional and sums a two-dimensional int64 array")
        if sums.shape[0] != len(counts) or sums.shape[1] < 1:
            raise BadUsers("sums must have one row per user and at least one column")
        check_counts(counts)

    @classmethod
    def sorted(cls, pseudonyms: NDArray[np.uint64], counts: Counts, sums: Integers) -> Self:
        """Sort users that are in any order. pseudonyms: their 8 bytes as big-endian numbers."""
        order = order_of(pseudonyms, counts)
        return cls(counts[order], sums[order])

    @property
    def dimensions(self) -> int:
        """Number of dimensions, d."""
        return len(self.sums.T)

    def checked(self, upper_bound_milli: int) -> Self:
        """Return self if each user's mean lies in the ball (d = 1: in [0, U]). Raises BadUsers otherwise."""
        if self.dimensions == 1 and bool(np.any(self.sums < 0)):
            raise BadUsers("a sum is below 0")
        room = self.counts * upper_bound_milli  # below 2^62, as counts and U are below 2^31
        for column in self.sums.T:
            # Compared before the subtraction, because |-2^63| does not fit into 64 bits.
            if bool(np.any((column > room) | (column < -room))):
                raise BadUsers("a user's mean is outside the ball of the upper bound")
            room = room - np.abs(column)
        return self


@dataclass(frozen=True, slots=True)
class VectorEstimate:
    """Publishable vector estimate of a HAT."""

    raw: tuple[int, ...]  # [d] noisy value, in grid steps
    scale: float  # scale of the Laplace noise on each coordinate, in steps


@dataclass(frozen=True, slots=True)
class VectorForm:
    """sum_l v_l mu_l: v_l the public weights of a linear estimator, mu_l in R^d the mean of user l's readings.

    D_U = 2 U is the diameter of the ball, the distance of +U and -U on one axis; for d = 1 on [0, U] it is U.

    Sensitivity (replace), in l1: that of the estimator with D_U for U. A neighbour has the same counts, so the same
    weights, and one other mu_l in the ball. The value moves by v_l ||mu_l - mu_l'|| <= v_l D_U: no more than the
    estimator's own value does when that user's mean moves within [0, D_U].

    Privacy: each coordinate gets independent discrete Laplace noise of the same scale b. If the rounded value moves by
    n_i steps in coordinate i, probabilities change by a factor of at most exp(sum_i |n_i| / b). That sum is at most
    `distance` (see Grid.distance for d coordinates), and b is at least distance / eps.

    Bias, in l1: sum_l (m_l / M - v_l) mu_l is at most U sum_l |m_l / M - v_l|, reached with mu_l at +U or -U of an axis
    by the sign. The weights of either mean sum to 1, so this is 2 U sum_l (m_l / M - v_l)^+: that of the estimator with
    D_U for U.

    Array length: `minimax` trades the bias off against E||noise||, which is d scales: D_U (1 - G/M) + c d D_U m /
    (eps G). D_U cancels out, d does not: the rule gets eps / d. The same holds for `worst_case`; no other rule reads
    epsilon.
    """

    estimator: Linear
    dimensions: int

    def value(self, users: VectorUsers, parameters: Parameters) -> tuple[Fraction, ...]:
        """Return the exact value before noise [d], in milli-units. Private. Raises BadUsers, EmptyHat."""
        if users.dimensions != self.dimensions:
            raise BadUsers("users have a different number of dimensions")
        if not len(users.counts):
            raise EmptyHat
        weights, whole = self.weights(users.counts, parameters)
        sums = users.checked(parameters.upper_bound_milli).sums
        return tuple(weighted_sum(users.counts, column, weights) / whole for column in sums.T)

    def weights(self, counts: Counts, parameters: Parameters) -> tuple[Weights, int]:
        """Return v_l, as `Linear.weights`."""
        return self.estimator.weights(counts, self._scalar_parameters(parameters))

    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        """Return the l1 sensitivity of `value` to one user's sum, in milli-units. Public under `replace`."""
        return self.estimator.sensitivity(counts, self._scalar_parameters(parameters))

    def worst_case_error(self, counts: Counts, parameters: Parameters) -> WorstCaseError:
        """Return E_M in l1: the bias, and the sum of d scales.    [V, E_M]"""
        scalar = self._scalar_parameters(parameters)
        noise = self.dimensions * self.estimator.sensitivity(counts, scalar) / Fraction(parameters.epsilon)
        return WorstCaseError(self.estimator.bias(counts, scalar), noise)

    def estimate(self, users: VectorUsers, parameters: Parameters, noise: Noise) -> VectorEstimate | None:
        """Return the noisy estimate, for exactly `parameters.epsilon`; None if suppressed, without drawing noise."""
        if not len(users.counts):
            return None
        grid = parameters.grid
        distance = grid.distance(self.sensitivity(users.counts, parameters), self.dimensions)
        values = [grid.nearest(each) for each in self.value(users, parameters)]
        noisy = [noise.laplace(each, distance, parameters.epsilon) for each in values]
        return VectorEstimate(tuple(each.value for each in noisy), noisy[0].scale)

    def _scalar_parameters(self, parameters: Parameters) -> Parameters:
        """Return parameters for the estimator on [0, D_U], whose weights, sensitivity and bias hold for the vectors."""
        diameter = parameters.upper_bound_milli * (1 if self.dimensions == 1 else 2)
        return replace(parameters, upper_bound_milli=diameter, epsilon=parameters.epsilon / self.dimensions)


def vector_form(name: str, dimensions: int) -> VectorForm:
    """Return the vector form of an estimator in R^d. Raises NoVectorForm; ValueError below one dimension."""
    if name not in LINEAR:
        raise NoVectorForm(name)
    if dimensions < 1:
        raise ValueError("vectors must have at least one coordinate")
    return VectorForm(LINEAR[name], dimensions)
