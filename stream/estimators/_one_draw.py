"""Base of the estimators that add one draw of Laplace noise to an exact value: the estimate before its noise."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from hatcast.stream.estimators._exact import Weights
from hatcast.stream.estimators._interface import NOISE_ONLY, Estimate, Parameters, Users
from hatcast.stream.estimators.grouping import Counts
from hatcast.stream.mechanisms import Noise, Noisy


@dataclass(frozen=True, slots=True)
class BeforeNoise:
    """An estimate before its one draw, which all of epsilon pays for. Private: it has the exact value.

    value       rounded to the grid, in steps
    distance    of the values of neighbours, in steps, at most. As public as the counts
    parameters  of the estimate
    weights     of `Linear.weights`, if they were computed on the way
    """

    value: int
    distance: int
    parameters: Parameters
    weights: tuple[Weights, int] | None = None

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


class OneDraw(ABC):
    """An estimator whose estimate is its value, with noise for its sensitivity."""

    @abstractmethod
    def value(self, users: Users, parameters: Parameters) -> Fraction:
        """See Estimator."""

    @abstractmethod
    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        """See Estimator."""

    def least_users(self, _parameters: Parameters) -> int:
        """Return 1. See Estimator."""
        return 1

    def before_noise(self, users: Users, parameters: Parameters) -> BeforeNoise:
        """Return the estimate before its noise. Raises BadUsers, EmptyHat."""
        return BeforeNoise.of(self.value(users, parameters), self.sensitivity(users.counts, parameters), parameters)

    def estimate(self, users: Users, parameters: Parameters, noise: Noise) -> Estimate | None:
        """See Estimator."""
        if len(users.counts) < self.least_users(parameters):
            return None
        before = self.before_noise(users, parameters)
        return before.estimate(noise.laplace(before.value, before.distance, before.epsilon))
