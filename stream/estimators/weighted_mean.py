"""The mean of users' means, weighted by their capped numbers of readings: ARRAY-AVERAGING without arrays."""

from fractions import Fraction
from typing import Final

from hatcast.stream.estimators._interface import (
    ARRAY_CHOICES,
    NOISE_ONLY,
    BeforeNoise,
    Linear,
    Parameters,
    Users,
    weighted_mean,
)
from hatcast.stream.estimators.array_averaging import length_of
from hatcast.stream.estimators.grouping import Counts, Weights, capped_weights, total
from hatcast.stream.policy.policy import EstimatorKeys


class WeightedMean(Linear):
    """sum_l w_l mu_l / W, w_l = min(m_l, m), W = sum_l w_l, mu_l the user's own mean (milli-units), m the array length.

    Sensitivity (replace): U m / W. A neighbour has the same counts, so the same m and weights, and one other mu_l in
    [0, U]; this moves the mean by at most U w_l / W, and the largest w_l is m, because no rule returns a length above
    the largest count. If all arrays of ARRAY-AVERAGING are full, K = W / m: the noise is the same.

    Bias: U sum_l (m_l / M - w_l / W)^+, as for ArrayAveraging.
    """

    name: Final = "weighted_mean"
    keys: Final = EstimatorKeys({"array_length": "median"}, ARRAY_CHOICES, several_values=True)
    shares: Final = NOISE_ONLY

    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        """Return U m / W. See Estimator."""
        length = length_of(counts, parameters)
        return Fraction(parameters.upper_bound_milli * length, total(capped_weights(counts, length)[0]))

    def weights(self, counts: Counts, parameters: Parameters) -> tuple[Weights, int]:
        """Return w_l / W."""
        weights = capped_weights(counts, length_of(counts, parameters))
        return weights, total(weights[0])

    def before_noise(self, users: Users, parameters: Parameters) -> BeforeNoise:
        """Return what `OneDraw` does; weights are computed once, also for the record's counts."""
        weights = self.weights(users.counts, parameters)
        value = weighted_mean(users, weights, parameters)
        return BeforeNoise.of(value, self.sensitivity(users.counts, parameters), parameters, weights)


ESTIMATOR: Final = WeightedMean()
