"""A day's charges composed to (epsilon, delta), by the mechanisms that they paid for.

Needs only the noise fields of the published records, so a ledger restored from the output topics reports the same.
"""

import math
from collections.abc import Callable, Sequence

from hatcast.stream.accounting.composition import ChargeSplit, KnownCharges, composed_epsilon
from hatcast.stream.estimators import ESTIMATORS, NOISES, Parameters, capped_ratio
from hatcast.stream.estimators.values import noise_shares
from hatcast.stream.hybrid import gaussian_epsilon
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.mechanisms.grid import Grid, fineness
from hatcast.stream.policy.policy import Policy
from hatcast.stream.units import NANO

Fineness = Callable[[Sequence[float | None]], int]
"""Function from the published scales of a record's noise to their least fineness (`mechanisms.grid`)."""


def fineness_of(policy: Policy) -> Fineness:
    """Return the function from a record's `noise.scale` to the fineness of its noise.

    The scale is in the value's unit, None without one; with several values there is one of each, in the policy's order.
    A ratio publishes no scale; its fineness is a function of the policy alone.
    """
    grid, ratio_fineness = Grid(policy.grid), 0
    if policy.values:
        grids = [Grid(value.grid) for value in policy.values]
        return lambda scales: min(
            (each.fineness(scale) for each, scale in zip(grids, scales, strict=False) if scale is not None), default=0
        )
    if policy.tracker is not None or policy.continual is not None:
        return lambda _: 0  # its releases charge nothing but its reservation
    if policy.hybrid is not None:
        return lambda _: 0  # two groups, two scales: the record does not determine either fineness
    if policy.estimator == capped_ratio.ESTIMATOR.name:
        ratio_fineness = fineness(capped_ratio.min_scale(Parameters.of(policy)))
    return lambda scales: ratio_fineness if scales[0] is None else grid.fineness(scales[0])


def day_epsilon(policy: Policy, summary: DaySummary) -> float:
    """Return the day's epsilon at the policy's delta, rounded up to six digits, but not above the plain sum.

    The mechanisms of other policies' charges are not known here. With Gaussian noise the plain sum holds at that delta
    too; beside another policy with Gaussian noise, the result holds at the sum of their deltas.
    """
    plain_sum = summary.epsilon_user_day / NANO
    if not policy.is_pure:
        return min(math.ceil(_gaussian_day_epsilon(policy, summary) * 1e6) / 1e6, plain_sum)
    known = None
    if policy.hybrid is None and (least := summary.least_fineness) is not None:
        shares = ESTIMATORS[policy.estimator].shares
        noises = tuple(share for name, share in shares.items() if name in NOISES)
        if policy.values:
            noises = tuple(noise_shares(policy))
        selections = tuple(share for name, share in shares.items() if name not in NOISES)
        ((level, count),) = summary.policy_levels.items()
        known = KnownCharges(level, count, ChargeSplit(noises, selections, least))
    composed = composed_epsilon(summary.levels, policy.delta, known)
    return min(math.ceil(composed * 1e6) / 1e6, plain_sum)


def _gaussian_day_epsilon(policy: Policy, summary: DaySummary) -> float:
    """Return the epsilon of the composed Gaussian releases, plus all other charges."""
    if policy.continual is not None:  # each cell's delta is used up: the plain sum holds at their sum
        return summary.epsilon_user_day / NANO
    policy_cost = sum(level * count for level, count in summary.policy_levels.items())
    least = 0 if summary.least_fineness is None else summary.least_fineness
    releases = sum(summary.policy_levels.values())
    # Several charges on one place share a level, so their number is not known.
    if set(summary.policy_levels) - {policy.epsilon_nano}:
        return summary.epsilon_user_day / NANO
    composed = gaussian_epsilon(policy, releases, policy.delta, 2.0**least if least else 0.0)
    return composed + (summary.epsilon_user_day - policy_cost) / NANO
