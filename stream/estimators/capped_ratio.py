"""A weighted mean as a ratio of two noisy sums, for private counts.    [docs/specification/estimators.md, section 5]"""

import math
from decimal import Decimal
from fractions import Fraction
from typing import Final

from hatcast.stream.estimators._interface import EmptyHat, Estimate, Estimator, Parameters, Users, epsilon_share
from hatcast.stream.estimators.grouping import Counts, capped_weights, excess_weight, total, weighted_sum
from hatcast.stream.mechanisms import MAX_VALUE, Noise, Noisy
from hatcast.stream.mechanisms.grid import clip, tail_quantile
from hatcast.stream.policy.policy import EstimatorKeys, Relation

_HALF: Final = Fraction(1, 2)
_SCALES_TO_THRESHOLD: Final = 10


def default_threshold(array_length: int, epsilon: float) -> float:
    """Return 20 m / epsilon: ten times the scale of the noise on W.

    At this threshold the noise on N has a scale of U/20 after the division, and an empty HAT passes once in 44,000
    draws (half of exp(-10)).
    """
    return float(_SCALES_TO_THRESHOLD * 2 * array_length / Fraction(Decimal(repr(epsilon))))


class CappedRatio(Estimator):
    """N / W + U/2, of N = sum_l w_l (mu_l - U/2) and W = sum_l w_l with noise on each, w_l = min(m_l, m).

    mu_l is the user's own mean (milli-units), m the policy's `array_length`, a constant. Without noise this is the
    `weighted_mean`. W (readings) gets noise at eps/2, and so does N (grid steps). If noisy W is below
    `weight_threshold`, the HAT is suppressed.

    Privacy (add_remove): a neighbour has one user more or less. Its w_l is an integer in [0, m], 0 if the user is not
    in this HAT, and mu_l is in [0, U]; the terms of all other users do not change, because m does not depend on counts.
    - W, an integer, moves by w_l <= m.
    - N moves by w_l |mu_l - U/2| <= m U/2. It is an exact fraction, rounded to steps once: d = floor(m U/2 / grid) + 1
      steps at most. Centring at U/2 halves the distance: sum_l w_l mu_l would move by m U.
    - Both are clipped to 64 bits before the noise, which never increases a difference. So no data set makes a draw
      fail: an error would be an output too.
    - Distances and scales are functions of m, U, grid and eps. Both numbers are always drawn, also for a HAT without
      users. So the pair costs eps/2 + eps/2. The release is computed from the pair and public values only.

    Bias: U sum_l (m_l / M - w_l / W)^+ as for WeightedMean, of the ratio without noise. Noise on W adds a bias that
    vanishes as W grows; `interval95` covers it.
    """

    name: Final = "capped_ratio"
    keys: Final = EstimatorKeys(
        {"array_length": None},
        {"array_length": ()},
        frozenset({Relation.ADD_REMOVE}),
        weight_threshold=default_threshold,
    )
    shares: Final = {"numerator": _HALF, "denominator": _HALF}

    def value(self, users: Users, parameters: Parameters) -> Fraction:
        """Return sum_l w_l mu_l / W. See Estimator."""
        if not len(users.counts):
            raise EmptyHat
        weight = total(capped_weights(users.counts, _length(parameters))[0])
        return centred_sum(users, parameters) / weight + _middle(parameters)

    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        """Return that of the numerator, m U/2, for any counts. The denominator's is m readings. See Estimator."""
        return _length(parameters) * _middle(parameters)

    def bias(self, counts: Counts, parameters: Parameters) -> Fraction:
        """Return U sum_l (m_l / M - w_l / W)^+. See Estimator."""
        if not len(counts):
            raise EmptyHat
        weights = capped_weights(counts, _length(parameters))
        return parameters.upper_bound_milli * excess_weight(counts, weights, total(weights[0]))

    def least_users(self, _parameters: Parameters) -> int:
        """Return 0: noise is drawn whoever is there. See Estimator."""
        return 0

    def estimate(self, users: Users, parameters: Parameters, noise: Noise) -> Estimate | None:
        grid, length, threshold = parameters.grid, _length(parameters), parameters.weight_threshold
        if threshold is None:
            raise ValueError("a ratio of noisy sums needs a weight threshold")
        steps = grid.nearest(centred_sum(users, parameters))
        weight = total(capped_weights(users.counts, length)[0])
        numerator = noise.laplace(
            min(max(steps, -MAX_VALUE), MAX_VALUE),
            grid.distance(self.sensitivity(users.counts, parameters)),
            epsilon_share(parameters.epsilon, self.shares["numerator"]),
        )
        denominator = noise.laplace(
            min(weight, MAX_VALUE), length, epsilon_share(parameters.epsilon, self.shares["denominator"])
        )
        return None if denominator.value < threshold else _ratio(numerator, denominator, parameters)


def centred_sum(users: Users, parameters: Parameters) -> Fraction:
    """Return N without noise, in milli-units; 0 without users."""
    if not len(users.counts):
        return Fraction(0)
    weights = capped_weights(users.counts, _length(parameters))
    checked = users.checked(parameters.upper_bound_milli)
    return weighted_sum(checked.counts, checked.sums, weights) - total(weights[0]) * _middle(parameters)


def min_scale(parameters: Parameters) -> int:
    """Return the smaller of the two noise scales (steps, readings), rounded down: a function of the policy alone."""
    noises = (
        (parameters.grid.distance(_length(parameters) * _middle(parameters)), "numerator"),
        (_length(parameters), "denominator"),
    )
    scales = (distance / epsilon_share(parameters.epsilon, ESTIMATOR.shares[name]) for distance, name in noises)
    return math.floor(min(scales))


def _ratio(numerator: Noisy, denominator: Noisy, parameters: Parameters) -> Estimate:
    """Return the estimate from two noisy sums (steps; readings, above 0)."""
    grid = parameters.grid
    top = grid.floor(parameters.upper_bound_milli)
    raw = grid.nearest(numerator.value * grid.milli / denominator.value + _middle(parameters))
    return Estimate(raw, None, top, _interval95(numerator, denominator, parameters, top))


def _interval95(numerator: Noisy, denominator: Noisy, parameters: Parameters, top: int) -> tuple[int, int]:
    """Return an interval that contains the ratio without noise with probability 0.95 or more.

    Each noise exceeds its quantile once in 40 draws, so both are within their quantiles in 38 of 40 draws or more. N
    was rounded by up to half a step. The ratio is smallest and largest at corners of that box. If the weight could be
    0, the interval is [0, U].
    """
    n, w = numerator.value, denominator.value
    n_error = tail_quantile(40, numerator.scale) + _HALF
    w_error = tail_quantile(40, denominator.scale)
    if w <= w_error:
        return 0, top
    n_low, n_high = n - n_error, n + n_error
    low = n_low / (w + w_error if n_low > 0 else w - w_error)
    high = n_high / (w - w_error if n_high > 0 else w + w_error)
    grid, middle = parameters.grid, _middle(parameters)
    # Rounded outwards, so that rounding to the grid never narrows the interval.
    floor, ceiling = grid.floor(low * grid.milli + middle), -grid.floor(-(high * grid.milli + middle))
    return clip(floor, top), clip(ceiling, top)


def _middle(parameters: Parameters) -> Fraction:
    """Return U/2 in milli-units."""
    return Fraction(parameters.upper_bound_milli, 2)


def _length(parameters: Parameters) -> int:
    """Return m. Raises TypeError for a rule, because rules read counts."""
    if not isinstance(parameters.array_length, int):
        raise TypeError("under add_remove the array length must be a number of places")
    return parameters.array_length


ESTIMATOR: Final = CappedRatio()
