"""What a release hides from those who see nothing else, with discrete noise.    [H Thm 8.1, corrected; estimators.md 6]

Everybody's Gaussian noise hides everybody, but for that of a coalition. The theorem is about continuous noise; here is
what is proved of integers. Of Laplace noise nothing is claimed beyond each user's own.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from hatcast.stream.hybrid._interface import HybridParameters
from hatcast.stream.mechanisms.gaussian import discretization_loss, epsilon_for_delta

_REFUSED: Final = 2 * math.exp(-40)  # the chance that `accepts` refuses an honest report, at most
_DIGITS: Final = 10**6


@dataclass(frozen=True, slots=True)
class Groups:
    """Public: whose values a release is made of.

    weight    w, of the central mean
    central   users of the central mean
    local     numbers in the local mean, each with its own noise; 0 where w is 1
    devices   how many of them devices have sent
    """

    weight: Fraction
    central: int
    local: int
    devices: int

    @property
    def reports_in_one(self) -> Fraction:
        """kappa = w local / (1 - w): how many reports the central mean counts for, w below 1."""
        return self.weight * self.local / (1 - self.weight)


@lru_cache(maxsize=4096)  # counts of users come again every hour
def public_epsilon(parameters: HybridParameters, groups: Groups) -> float:
    """The epsilon of everybody outside the coalition, with `parameters.delta`, against those who see the release.

    It is never above that of a user's own noise, and to six digits, upwards. A coalition of all devices or more is all
    of them. About 0.3 ms, then from memory.

    Proof. With Gaussian noise the blend is a function of the integer S = round(kappa (T + X)) + sum_i (v_i + X_i), T
    the central mean on the grid and X its noise, v_i reports before noise and X_i theirs. Of X_i only those outside the
    coalition count, h of them; all others may be known. What hides a user is that noise may as well have moved:

    - A central user moves T by m, 0 < m <= d (the other way is the same, mirrored). Let u = ceil(t m) for any t in
      [0, 1]. Then S is that of X + u and of X_i moved by k(X) = round(kappa (T + X + m)) - round(kappa (T + X + u)) in
      sum, as evenly as integers can; k is within 1 of kappa (m - u).
    - A local user moves v_i by m <= d. With u = min(q, floor(m / kappa)) for any integer q, S is that of X + u and of
      X_i moved by k(X) = m - round(kappa (T + X + u)) + round(kappa (T + X)), within 1 of m - kappa u; m for q = 0.

    So the neighbour is dominated by Gaussian noise on a move of X by u, and then of the X_i by k(X), together: squares
    of r add up to u^2 / s_T^2 + (sum of squares of the parts of k) / s_L^2, and losses are at most 2 u / s_T^2 +
    2 k / s_L^2 above continuous ones (see `mechanisms.gaussian`). All of these grow with u and k, so the largest do for
    every m. Where t and q are best this comes to the theorem's deviation, for sensitivities w d and (1 - w) d / local.

    Honest reports that `accepts` refuses change the release with a chance of at most e = h 2 exp(-40), and delta by
    e (1 + exp(epsilon)): so much less is left for the rest.
    """
    used = [(parameters.epsilon, _central)] if groups.weight else []
    used += [(parameters.local_epsilon, _local)] if groups.local else []
    delta, coalition = parameters.delta, parameters.max_coalition
    own = max(epsilon for epsilon, _ in used)
    if delta is None or coalition is None:
        return own
    hidden = groups.local - min(coalition, groups.devices)
    found = 0.0
    for epsilon, moves in used:
        left = delta - hidden * _REFUSED * (1 + math.exp(min(epsilon, 700.0)))
        amplified = moves(parameters, groups, hidden, left) if hidden and left > 0 else math.inf
        found = max(found, min(epsilon, amplified))
    return min(math.ceil(found * _DIGITS) / _DIGITS, own)


def _central(parameters: HybridParameters, groups: Groups, hidden: int, delta: float) -> float:
    distance = parameters.grid.distance(parameters.sensitivity(groups.central))
    share = _share(parameters, groups, hidden)
    steps = math.ceil(share * distance)
    rest = math.floor(groups.reports_in_one * (1 - share) * distance) + 1
    return _epsilon((_central_scale(parameters, groups), steps), (parameters.local_scale, rest, hidden), delta)


def _local(parameters: HybridParameters, groups: Groups, hidden: int, delta: float) -> float:
    distance, scale, kappa = parameters.local_distance, parameters.local_scale, groups.reports_in_one
    alone = _epsilon((1.0, 0), (scale, distance, hidden), delta)
    steps = math.floor(_share(parameters, groups, hidden) * distance / kappa) if kappa else 0
    if not steps:
        return alone
    rest = math.floor(max(distance - kappa * steps, kappa)) + 1
    return min(alone, _epsilon((_central_scale(parameters, groups), steps), (scale, rest, hidden), delta))


def _share(parameters: HybridParameters, groups: Groups, hidden: int) -> Fraction:
    """Of a move, what the central noise takes where it costs least; nothing depends on its being exact."""
    if not groups.weight:
        return Fraction(0)
    central = (float(groups.reports_in_one) * _central_scale(parameters, groups)) ** 2
    return Fraction(central / (central + hidden * parameters.local_scale**2))


def _central_scale(parameters: HybridParameters, groups: Groups) -> float:
    distance = parameters.grid.distance(parameters.sensitivity(groups.central))
    return parameters.scale_for(distance, parameters.epsilon)


def _epsilon(central: tuple[float, int], local: tuple[float, int, int], delta: float) -> float:
    """Of a move of the central noise, (scale, steps), and of the local ones together, (scale, steps, how many)."""
    scale, steps = central
    others, moved, number = local
    each, more = divmod(moved, number)
    squares = number * each**2 + more * (2 * each + 1)
    ratio = math.hypot(steps / scale, math.sqrt(squares) / others)
    above = discretization_loss(steps / scale, scale) + discretization_loss(moved / others, others)
    return epsilon_for_delta(1 / ratio, delta) + above
