"""A day's charges composed to (epsilon, delta), by the mechanisms that they paid for.

Needs only the noise fields of the published records, so a ledger restored from the output topics reports the same.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

from hatcast.stream.accounting import ChargeSplit, KnownCharges, composed_epsilon
from hatcast.stream.estimators import ESTIMATORS, Parameters, capped_ratio
from hatcast.stream.hybrid import gaussian_epsilon
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.mechanisms.grid import Grid, fineness
from hatcast.stream.policy.policy import MeansKeys, Policy, ValuesKeys
from hatcast.stream.units import NANO

_USUAL_FINENESS: Final = 8
_USUAL_ARRAYS: Final = 200

Fineness = Callable[[Sequence[float | None]], int]
"""Function from the published scales of a record's noise to their least fineness (`mechanisms.grid`)."""


def fineness_of(policy: Policy) -> Fineness:
    """Return the function from a record's `noise.scale` to the fineness of its noise.

    The scale is in the value's unit, None without one; with several values there is one of each, in the policy's order.
    A ratio publishes no scale; its fineness is a function of the policy alone.
    """
    if not isinstance(policy.method, MeansKeys):
        # A tracker and running sums charge nothing but their reservation. Two groups have two scales, and the record
        # determines neither fineness.
        return lambda _: 0
    grids, otherwise = [Grid(value.grid) for value in policy.released_values], 0
    if policy.estimator == capped_ratio.ESTIMATOR.name:
        otherwise = fineness(capped_ratio.min_scale(Parameters.of(policy)))
    return lambda scales: min(
        (each.fineness(scale) for each, scale in zip(grids, scales, strict=False) if scale is not None),
        default=otherwise,
    )


def charge_split(policy: Policy, least: int) -> ChargeSplit | None:
    """Return how the charge of a release is split over noise and selections; None if the estimator does not say.

    least   fineness of all noise, at least
    """
    if not isinstance(policy.method, MeansKeys):
        return None
    if isinstance(policy.method, ValuesKeys):
        number = len(policy.released_values)
        return ChargeSplit((Fraction(1, number),) * number, (), least)
    return ChargeSplit.of(ESTIMATORS[policy.estimator].shares, least)


def usual_fineness(policy: Policy) -> int:
    """Return the least fineness that noise has before any is drawn, unless a HAT has very many users.

    It is that of 256 steps, or that of a two-hundredth of the range if the grid is coarse: at epsilon 1 no noise of a
    HAT with fewer than 200 arrays is narrower. That of a ratio follows from the policy, as with a composed limit.
    """
    if policy.composed_limit is not None:
        return policy.composed_limit.fineness
    if policy.estimator == capped_ratio.ESTIMATOR.name:
        return fineness_of(policy)([None])
    steps = (int(value.width / _USUAL_ARRAYS / Grid(value.grid).milli) for value in policy.released_values)
    return min(_USUAL_FINENESS, *map(fineness, steps))


def day_epsilon(policy: Policy, summary: DaySummary) -> float:
    """Return the day's epsilon at the policy's delta, rounded up to six digits, but not above the plain sum.

    The mechanisms of other policies' charges are not known here. With Gaussian noise the plain sum holds at that delta
    too; beside another policy with Gaussian noise, the result holds at the sum of their deltas.
    """
    plain_sum = summary.epsilon_user_day / NANO
    if not policy.is_pure:
        return min(math.ceil(_gaussian_day_epsilon(policy, summary) * 1e6) / 1e6, plain_sum)
    known = None
    least = summary.least_fineness
    if least is not None and (split := charge_split(policy, least)) is not None:
        ((level, count),) = summary.policy_levels.items()
        known = KnownCharges(level, count, split)
    composed = composed_epsilon(summary.levels, policy.delta, known)
    return min(math.ceil(composed * 1e6) / 1e6, plain_sum)


def _gaussian_day_epsilon(policy: Policy, summary: DaySummary) -> float:
    """Return the epsilon of the composed Gaussian releases, plus all other charges."""
    if policy.method.has_horizons:  # each cell's delta is used up: the plain sum holds at their sum
        return summary.epsilon_user_day / NANO
    policy_cost = sum(level * count for level, count in summary.policy_levels.items())
    least = 0 if summary.least_fineness is None else summary.least_fineness
    releases = sum(summary.policy_levels.values())
    # Several charges on one place share a level, so their number is not known.
    if set(summary.policy_levels) - {policy.epsilon_nano}:
        return summary.epsilon_user_day / NANO
    composed = gaussian_epsilon(policy, releases, policy.delta, 2.0**least if least else 0.0)
    return composed + (summary.epsilon_user_day - policy_cost) / NANO
