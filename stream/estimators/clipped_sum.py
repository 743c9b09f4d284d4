"""The mean of all readings, with users' sums clipped optimally for the worst case.    [V, E_M]

See docs/specification/estimators.md, section 4.
"""

from fractions import Fraction
from typing import Final

import numpy as np

from hatcast.stream.estimators._interface import NOISE_ONLY, EmptyHat, OneDraw, Parameters, Users
from hatcast.stream.estimators.grouping import Counts, Integers, ceil_2_over, total
from hatcast.stream.policy.policy import EstimatorKeys


class ClippedSum(OneDraw):
    """sum_l clip(s_l) / M (milli-units): the sum s_l of user l is clipped to an interval of width w_l = min(U m_l, D).

    The interval lies in the middle of [0, U m_l]. D = U times the ceil(2/eps)-th largest count; with fewer users D = 0:
    the value would be U/2 for all data, so nothing is drawn and the HAT is suppressed. Only counts and epsilon decide.

    Sensitivity (replace): D / M. A neighbour has the same counts, so the same M, D and intervals, and one other sum;
    clipped, this sum moves by at most w_l <= D, and by D for a user with U m_l >= D.

    Bias: a clipped sum is off by at most (U m_l - D)^+ / 2, on either side, and all can be so at once:
    sum_l (U m_l - D)^+ / (2 M). Bias plus E|noise| = D / (eps M) is smallest for this D and these intervals: see
    docs/proofs.md, "The best clipping in the worst case".
    """

    name: Final = "clipped_sum"
    keys: Final = EstimatorKeys(several_values=True)
    shares: Final = NOISE_ONLY

    def value(self, users: Users, parameters: Parameters) -> Fraction:
        """Return sum_l clip(s_l) / M. See Estimator."""
        upper = parameters.upper_bound_milli
        widths = np.minimum(users.counts * upper, _widest(users.counts, parameters))
        sums, middles = users.checked(upper).sums, users.counts * upper
        # Everything is doubled, so that middles are integers: below 2^63, because U and counts are below 2^31.
        return Fraction(total(np.clip(2 * sums, middles - widths, middles + widths)), 2 * total(users.counts))

    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        """Return D / M. See Estimator."""
        return Fraction(_widest(counts, parameters), total(counts))

    def bias(self, counts: Counts, parameters: Parameters) -> Fraction:
        """Return sum_l (U m_l - D)^+ / (2 M). See Estimator."""
        lost: Integers = np.maximum(counts * parameters.upper_bound_milli - _widest(counts, parameters), 0)
        return Fraction(total(lost), 2 * total(counts))

    def least_users(self, parameters: Parameters) -> int:
        """Return ceil(2/eps). See Estimator."""
        return ceil_2_over(parameters.epsilon)


def _widest(counts: Counts, parameters: Parameters) -> int:
    """Return D in milli-units. Raises EmptyHat."""
    if not len(counts):
        raise EmptyHat
    rank = ESTIMATOR.least_users(parameters)
    return parameters.upper_bound_milli * int(counts[rank - 1]) if rank <= len(counts) else 0


ESTIMATOR: Final = ClippedSum()
