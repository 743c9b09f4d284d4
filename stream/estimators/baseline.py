"""BASELINE: the plain mean of all readings, with noise for the largest count of a user.    [M III.B]"""

from fractions import Fraction
from typing import Final

import numpy as np

from hatcast.stream.estimators._interface import NOISE_ONLY, EmptyHat, Linear, Parameters, Users
from hatcast.stream.estimators.grouping import Counts, Weights, total
from hatcast.stream.policy.policy import EstimatorKeys


class Baseline(Linear):
    """f = sum_l s_l / M, with M = sum_l m_l, s_l the sum of user l's readings in milli-units.

    Sensitivity (replace): U m* / M, m* the largest count. A neighbour has the same counts, so the same M, and another
    value in [0, m_l U] for one s_l; this moves f by at most m_l U / M.
    """

    name: Final = "baseline"
    keys: Final = EstimatorKeys(several_values=True)
    shares: Final = NOISE_ONLY

    def value(self, users: Users, parameters: Parameters) -> Fraction:
        """Return f. See Estimator."""
        if not len(users.counts):
            raise EmptyHat
        return Fraction(total(users.checked(parameters.upper_bound_milli).sums), total(users.counts))

    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        """Return U m* / M. See Estimator."""
        if not len(counts):
            raise EmptyHat
        return Fraction(parameters.upper_bound_milli * int(counts[0]), total(counts))

    def bias(self, counts: Counts, _parameters: Parameters) -> Fraction:
        """Return 0: f is the mean of all readings. See Estimator."""
        if not len(counts):
            raise EmptyHat
        return Fraction(0)

    def weights(self, counts: Counts, _parameters: Parameters) -> tuple[Weights, int]:
        """Return m_l / M."""
        if not len(counts):
            raise EmptyHat
        return (counts, np.ones(len(counts), np.int64)), total(counts)


ESTIMATOR: Final = Baseline()
