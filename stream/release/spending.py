"""How a policy's charges are spent, and what a day of them comes to as (epsilon, delta).    [design 4, Budget]

What a record tells of its noise is enough, so a ledger that is rebuilt from the output topics reports the same.
"""

import math
from collections.abc import Callable

from hatcast.stream.accounting.composition import ChargeSplit, KnownCharges, composed_epsilon
from hatcast.stream.accounting.ledger import DaySummary
from hatcast.stream.estimators import ESTIMATORS, NOISES, Parameters, capped_ratio
from hatcast.stream.hybrid import gaussian_epsilon
from hatcast.stream.mechanisms.grid import Grid, fineness
from hatcast.stream.policy.policy import Policy
from hatcast.stream.units import NANO


def fineness_of(policy: Policy) -> Callable[[float | None], int]:
    """Tells from a record's `noise.scale` (km/h) how fine its noise was, in the sense of `mechanisms.grid.fineness`.

    A ratio publishes no scale: then it is a function of the policy alone.
    """
    grid, without = Grid(policy.grid), 0
    if policy.hybrid is not None:
        return lambda _: 0  # two scales, for two groups: of neither is enough told
    if policy.estimator == capped_ratio.ESTIMATOR.name:
        without = fineness(capped_ratio.min_scale(Parameters.of(policy)))
    return lambda scale: without if scale is None else grid.fineness(scale)


def day_epsilon(policy: Policy, summary: DaySummary) -> float:
    """The day's epsilon for the policy's delta, to six digits: upwards, but not above the plain sum.

    Of the charges of other policies it is not known here how they were spent. With Gaussian noise the plain sum, too,
    holds for that delta; beside another policy with Gaussian noise any figure does for the sum of their deltas.
    """
    plain = summary.epsilon_user_day / NANO
    if not policy.is_pure:
        return min(math.ceil(_gaussian(policy, summary) * 1e6) / 1e6, plain)
    known = None
    if policy.hybrid is None and (least := summary.least_fineness) is not None:
        shares = ESTIMATORS[policy.estimator].shares
        noises = tuple(share for name, share in shares.items() if name in NOISES)
        selections = tuple(share for name, share in shares.items() if name not in NOISES)
        ((level, count),) = summary.policy_levels.items()
        known = KnownCharges(level, count, ChargeSplit(noises, selections, least))
    finer = composed_epsilon(summary.levels, policy.delta, known)
    return min(math.ceil(finer * 1e6) / 1e6, plain)


def _gaussian(policy: Policy, summary: DaySummary) -> float:
    """Gaussian releases composed, and all other charges added to them."""
    own = sum(level * count for level, count in summary.policy_levels.items())
    least = 0 if summary.least_fineness is None else summary.least_fineness
    releases = sum(summary.policy_levels.values())
    # Booked twice on one place, as one level: by how many it is not known.
    if set(summary.policy_levels) - {policy.epsilon_nano}:
        return summary.epsilon_user_day / NANO
    found = gaussian_epsilon(policy, releases, policy.delta, 2.0**least if least else 0.0)
    return found + (summary.epsilon_user_day - own) / NANO
