"""A weighted mean as a ratio of two noisy sums, so that counts are private too.    [estimators.md 5]"""

import math
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from hatcast.stream.estimators._exact import capped_weights, excess_weight, total, weighted_sum
from hatcast.stream.estimators._interface import EmptyHat, Estimate, Parameters, Users, epsilon_share
from hatcast.stream.estimators.grouping import Counts
from hatcast.stream.mechanisms import MAX_VALUE, Noise, Noisy
from hatcast.stream.mechanisms.grid import clip, tail_quantile
from hatcast.stream.policy.policy import EstimatorKeys, Relation

_HALF: Final = Fraction(1, 2)
_SCALES_TO_THRESHOLD: Final = 10


def default_threshold(array_length: int, epsilon: float) -> float:
    """20 m / epsilon: ten times the scale of the noise on W.

    There the noise on N has a scale of U/20 after the division, and an empty HAT passes once in 44,000 draws (half of
    exp(-10)).
    """
    return float(_SCALES_TO_THRESHOLD * 2 * array_length / Fraction(Decimal(repr(epsilon))))


class CappedRatio:
    """N / W + U/2, of N = sum_l w_l (mu_l - U/2) and W = sum_l w_l with noise on each, w_l = min(m_l, m).

    mu_l is the user's own mean (milli-units), m the policy's `array_length`, a constant. Without noise this is the
    `weighted_mean`. W (readings) gets noise at eps/2, and so does N (grid steps). Where noisy W is below
    `weight_threshold` the HAT is suppressed.

    Privacy (add_remove): a neighbour has one user more or less. Its w_l is an integer in [0, m], 0 where it is not in
    this HAT, and mu_l in [0, U]; the terms of all others stay as they are, since m is no function of counts.
    - W, an integer, moves by w_l <= m.
    - N moves by w_l |mu_l - U/2| <= m U/2. It is an exact fraction, rounded to steps once: d = floor(m U/2 / grid) + 1
      steps at most. Centring at U/2 halves that: sum_l w_l mu_l would move by m U.
    - Both are cut to what fits into 64 bits before the noise, which brings no two numbers further apart. So no data set
      makes a draw fail: a refusal would be an output too.
    - Distances and scales are functions of m, U, grid and eps. Both numbers are always drawn, for a HAT without users
      too. So the pair costs eps/2 + eps/2. All that is published is computed from the pair and from what is public.

    Bias: U sum_l (m_l / M - w_l / W)^+ as for WeightedMean, of the ratio without noise. Noise on W adds a bias that
    vanishes as W grows; it is covered by `interval95`.
    """

    name: Final = "capped_ratio"
    keys: Final = EstimatorKeys(
        frozenset({Relation.ADD_REMOVE}),
        MappingProxyType({"array_length": None}),
        MappingProxyType({"array_length": ()}),
        weight_threshold=default_threshold,
    )
    shares: Final = MappingProxyType({"numerator": _HALF, "denominator": _HALF})

    def value(self, users: Users, parameters: Parameters) -> Fraction:
        """sum_l w_l mu_l / W. See Estimator."""
        if not len(users.counts):
            raise EmptyHat
        weight = total(capped_weights(users.counts, _length(parameters))[0])
        return centred_sum(users, parameters) / weight + _middle(parameters)

    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        """The numerator's, m U/2, whatever the counts. That of the denominator is m readings. See Estimator."""
        return _length(parameters) * _middle(parameters)

    def bias(self, counts: Counts, parameters: Parameters) -> Fraction:
        """U sum_l (m_l / M - w_l / W)^+. See Estimator."""
        if not len(counts):
            raise EmptyHat
        weights = capped_weights(counts, _length(parameters))
        return parameters.upper_bound_milli * excess_weight(counts, weights, total(weights[0]))

    def estimate(self, users: Users, parameters: Parameters, noise: Noise) -> Estimate | None:
        """See Estimator."""
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
    """N without noise, milli-units; 0 for nobody."""
    if not len(users.counts):
        return Fraction(0)
    weights = capped_weights(users.counts, _length(parameters))
    checked = users.checked(parameters.upper_bound_milli)
    return weighted_sum(checked.counts, checked.sums, weights) - total(weights[0]) * _middle(parameters)


def min_scale(parameters: Parameters) -> int:
    """Of the noise on the two sums, whole steps or readings: a function of the policy."""
    noises = (
        (parameters.grid.distance(_length(parameters) * _middle(parameters)), "numerator"),
        (_length(parameters), "denominator"),
    )
    scales = (distance / epsilon_share(parameters.epsilon, ESTIMATOR.shares[name]) for distance, name in noises)
    return math.floor(min(scales))


def _ratio(numerator: Noisy, denominator: Noisy, parameters: Parameters) -> Estimate:
    """What is published of two noisy sums (steps, readings above 0)."""
    grid = parameters.grid
    top = grid.floor(parameters.upper_bound_milli)
    raw = grid.nearest(numerator.value * grid.milli / denominator.value + _middle(parameters))
    return Estimate(raw, None, top, _interval95(numerator, denominator, parameters, top))


def _interval95(numerator: Noisy, denominator: Noisy, parameters: Parameters, top: int) -> tuple[int, int]:
    """Around the ratio without noise in 95 of 100 draws.

    Each sum is further away than its noise's 97.5 % quantile once in 40 draws, so that both are within in 38 of 40 or
    more. N was rounded by up to half a step. The ratio is least and greatest at corners of that box; where the weight
    could be 0, nothing is known: [0, U].
    """
    n, w = numerator.value, denominator.value
    beyond_n = tail_quantile(40, numerator.scale) + _HALF
    beyond_w = tail_quantile(40, denominator.scale)
    if w <= beyond_w:
        return 0, top
    least, most = n - beyond_n, n + beyond_n
    low = least / (w + beyond_w if least > 0 else w - beyond_w)
    high = most / (w - beyond_w if most > 0 else w + beyond_w)
    grid, middle = parameters.grid, _middle(parameters)
    # Rounded outwards, so that the grid takes nothing away.
    floor, ceiling = grid.floor(low * grid.milli + middle), -grid.floor(-(high * grid.milli + middle))
    return clip(floor, top), clip(ceiling, top)


def _middle(parameters: Parameters) -> Fraction:
    """U/2, milli-units."""
    return Fraction(parameters.upper_bound_milli, 2)


def _length(parameters: Parameters) -> int:
    """The spec's m. Raises TypeError for a rule: those read counts."""
    if not isinstance(parameters.array_length, int):
        raise TypeError("under add_remove the array length is a number of places")
    return parameters.array_length


ESTIMATOR: Final = CappedRatio()
