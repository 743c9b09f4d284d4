"""Privacy of a release against observers of releases only, with discrete noise.    [H Thm 8.1, corrected]

The Gaussian noise of all users outside a coalition hides each of them. The theorem is about continuous noise; this
module proves a bound for integers. For Laplace noise nothing is claimed beyond each user's own noise. See
docs/specification/estimators.md, section 6.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from hatcast.stream.hybrid._interface import HybridParameters
from hatcast.stream.mechanisms.gaussian import discretization_loss, epsilon_for_delta

_REJECTION_PROBABILITY: Final = 2 * math.exp(-40)  # upper bound for `accepts` and an honest report
_DIGITS: Final = 10**6


@dataclass(frozen=True, slots=True)
class Groups:
    """Public sizes of the groups in a release."""

    weight: Fraction  # w, weight of the central mean
    central: int  # number of users of the central mean
    local: int  # number of reports in the local mean, each with its own noise; 0 if w is 1
    devices: int  # number of these that devices have sent

    @property
    def reports_in_one(self) -> Fraction:
        """kappa = w local / (1 - w): number of reports with the weight of the central mean. w is below 1."""
        return self.weight * self.local / (1 - self.weight)


@lru_cache(maxsize=4096)  # the same numbers of users recur every hour
def public_epsilon(parameters: HybridParameters, groups: Groups) -> float:
    """Return the epsilon of users outside the coalition, at `parameters.delta`, against observers of the release.

    Rounded up to six digits, but never above the epsilon of a user's own noise. A larger coalition counts as one of all
    devices. Takes about 0.3 ms, and is cached.

    Proof. With Gaussian noise the blend is a function of the integer S = round(kappa (T + X)) + sum_i (v_i + X_i), T
    the central mean on the grid and X its noise, v_i reports before noise and X_i their noise. Only the h X_i outside
    the coalition count; all others may be known. A user is hidden because the noise could have moved instead:

    - A central user moves T by m, 0 < m <= d (the other direction is symmetric). Let u = ceil(t m) for any t in [0, 1].
      The neighbour's S is S with X + u for X, and with the X_i moved by k(X) = round(kappa (T + X + m)) -
      round(kappa (T + X + u)) in total, as evenly as integers allow; k is within 1 of kappa (m - u).
    - A local user moves v_i by m <= d. Let u = min(q, floor(m / kappa)) for any integer q. The neighbour's S is S with
      X + u for X, and with the X_i moved by k(X) = m - round(kappa (T + X + u)) + round(kappa (T + X)) in total, which
      is within 1 of m - kappa u; m for q = 0.

    So the neighbour is dominated by Gaussian noise on a shift of X by u, composed with one of the X_i by k(X): squares
    of r add up to u^2 / s_T^2 + (sum of squares of the parts of k) / s_L^2, and losses exceed continuous ones by at
    most 2 u / s_T^2 + 2 k / s_L^2 (see `mechanisms.gaussian`). All of these grow with u and k, so the largest u and k
    cover every m. At the optimal t and q this equals the theorem's deviation, for sensitivities w d and
    (1 - w) d / local.

    Honest reports that `accepts` rejects change the release with probability at most e = h 2 exp(-40), and delta by
    e (1 + exp(epsilon)), which is subtracted from the delta of the rest.
    """
    bounds = [(parameters.epsilon, _central_bound)] if groups.weight else []
    bounds += [(parameters.local_epsilon, _local_bound)] if groups.local else []
    delta, coalition = parameters.delta, parameters.max_coalition
    own_noise = max(epsilon for epsilon, _ in bounds)
    if delta is None or coalition is None:
        return own_noise
    hidden = groups.local - min(coalition, groups.devices)
    largest = 0.0
    for epsilon, bound in bounds:
        delta_left = delta - hidden * _REJECTION_PROBABILITY * (1 + math.exp(min(epsilon, 700.0)))
        amplified = bound(parameters, groups, hidden, delta_left) if hidden and delta_left > 0 else math.inf
        largest = max(largest, min(epsilon, amplified))
    return min(math.ceil(largest * _DIGITS) / _DIGITS, own_noise)


def _central_bound(parameters: HybridParameters, groups: Groups, hidden: int, delta: float) -> float:
    """Return the epsilon of a central user."""
    distance = parameters.grid.distance(parameters.sensitivity(groups.central))
    share = _central_share(parameters, groups, hidden)
    steps = math.ceil(share * distance)
    rest = math.floor(groups.reports_in_one * (1 - share) * distance) + 1
    return _epsilon((_central_scale(parameters, groups), steps), (parameters.local_scale, rest, hidden), delta)


def _local_bound(parameters: HybridParameters, groups: Groups, hidden: int, delta: float) -> float:
    """Return the epsilon of a local user."""
    distance, scale, kappa = parameters.local_distance, parameters.local_scale, groups.reports_in_one
    local_only = _epsilon((1.0, 0), (scale, distance, hidden), delta)
    steps = math.floor(_central_share(parameters, groups, hidden) * distance / kappa) if kappa else 0
    if not steps:
        return local_only
    rest = math.floor(max(distance - kappa * steps, kappa)) + 1
    return min(local_only, _epsilon((_central_scale(parameters, groups), steps), (scale, rest, hidden), delta))


def _central_share(parameters: HybridParameters, groups: Groups, hidden: int) -> Fraction:
    """Return the share of a shift that the central noise takes at the smallest epsilon; it need not be exact."""
    if not groups.weight:
        return Fraction(0)
    central = (float(groups.reports_in_one) * _central_scale(parameters, groups)) ** 2
    return Fraction(central / (central + hidden * parameters.local_scale**2))


def _central_scale(parameters: HybridParameters, groups: Groups) -> float:
    distance = parameters.grid.distance(parameters.sensitivity(groups.central))
    return parameters.scale_for(distance, parameters.epsilon)


def _epsilon(central: tuple[float, int], local: tuple[float, int, int], delta: float) -> float:
    """Return the epsilon of a shift of the central noise, (scale, steps), and of local noises, (scale, steps, number).

    The steps of the local noises are those of all of them together.
    """
    scale, steps = central
    local_scale, local_steps, number = local
    quotient, remainder = divmod(local_steps, number)
    squares = number * quotient**2 + remainder * (2 * quotient + 1)
    ratio = math.hypot(steps / scale, math.sqrt(squares) / local_scale)
    excess_loss = discretization_loss(steps / scale, scale) + discretization_loss(
        local_steps / local_scale, local_scale
    )
    return epsilon_for_delta(1 / ratio, delta) + excess_loss
