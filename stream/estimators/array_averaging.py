"""ARRAY-AVERAGING: the mean of array means, so no user has more weight than an array.    [M III.C]"""

from fractions import Fraction
from typing import Final

from hatcast.stream.estimators._interface import (
    ARRAY_CHOICES,
    NOISE_ONLY,
    BeforeNoise,
    EmptyHat,
    Linear,
    Parameters,
    Users,
    weighted_mean,
)
from hatcast.stream.estimators.array_length import array_length
from hatcast.stream.estimators.grouping import (
    GROUPINGS,
    Arrays,
    Counts,
    Weights,
    weights_in,
)
from hatcast.stream.policy.policy import EstimatorKeys


class ArrayAveraging(Linear):
    """(1/K) sum_k A_k; A_k is the mean of the occupied places of array k, each with its user's own mean (milli-units).

    Sensitivity (replace): U / K for both groupings. A neighbour has the same counts, so the same arrays; one user's
    mean moves by at most U. BESTFIT: the user is in one array, whose mean moves by at most U. WRAPAROUND: the user has
    q <= m places, all in full arrays, and each moves its array's mean by at most U / m: q U / m <= U in total. (The
    papers print 2 U / K for WRAPAROUND, which is valid but twice too large.)

    Bias: each user's mean has weight v_l = (1/K) sum_k places_lk / fill_k instead of m_l / M. Both sum to 1, so the
    worst case has mu_l = U exactly where m_l / M > v_l: U sum_l (m_l / M - v_l)^+.
    """

    name: str = "array_averaging"
    keys: EstimatorKeys = EstimatorKeys(
        {"grouping": "bestfit", "array_length": "median"}, ARRAY_CHOICES, several_values=True
    )
    shares: Final = NOISE_ONLY

    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        """Return U / K. See Estimator."""
        return _sensitivity(arrays_of(counts, parameters), parameters)

    def weights(self, counts: Counts, parameters: Parameters) -> tuple[Weights, int]:
        """Return v_l."""
        arrays = arrays_of(counts, parameters)
        return weights_in(counts, arrays), arrays.number

    def before_noise(self, users: Users, parameters: Parameters) -> BeforeNoise:
        """Return what `OneDraw` does; users are grouped once, for value, sensitivity and the record's counts."""
        arrays = arrays_of(users.counts, parameters)
        weights = weights_in(users.counts, arrays), arrays.number
        value = weighted_mean(users, weights, parameters)
        return BeforeNoise.of(value, _sensitivity(arrays, parameters), parameters, weights)


def arrays_of(counts: Counts, parameters: Parameters) -> Arrays:
    """Group the users into one or more arrays. Raises EmptyHat.

    There is at least one: no rule returns a length above the largest count, so the user with this count fills an array.
    """
    if parameters.grouping is None:
        raise ValueError("an estimator with arrays needs a grouping")
    return GROUPINGS[parameters.grouping](counts, length_of(counts, parameters))


def length_of(counts: Counts, parameters: Parameters) -> int:
    """Return the array length by the rule or number of the parameters. Raises EmptyHat."""
    if parameters.array_length is None:
        raise ValueError("an estimator with arrays needs an array length")
    if not len(counts):
        raise EmptyHat
    return array_length(parameters.array_length, counts, parameters.epsilon, parameters.grouping)


def _sensitivity(arrays: Arrays, parameters: Parameters) -> Fraction:
    return Fraction(parameters.upper_bound_milli, arrays.number)


ESTIMATOR: Final = ArrayAveraging()


class OptArrayAveraging(ArrayAveraging):
    """ArrayAveraging with another default array length. Formula, sensitivity (replace: U / K), bias and proof stay.

    `worst_case` minimises the worst-case error E_M = bias + E|noise| of this very estimator, with the arrays that its
    grouping makes. `minimax` is the papers' rule. It minimises the same sum as if all arrays were full; as they are
    not, its true E_M is larger (docs/specification/estimators.md, section 3). `minimax_convex` minimises a convex
    surrogate. The length depends on counts and epsilon, which are public. On the ITMS-like counts at epsilon 1 the true
    E_M of `minimax` is 2.686 km/h, above BASELINE's 1.579, which the estimator is meant to beat; of `worst_case` 1.660.
    """

    name = "opt_array_averaging"
    keys = EstimatorKeys({"grouping": "bestfit", "array_length": "worst_case"}, ARRAY_CHOICES, several_values=True)


OPT_ESTIMATOR: Final = OptArrayAveraging()
