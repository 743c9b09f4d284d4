"""A HAT of a policy with devices: what is estimated, and what a record tells of it.    [docs/hybrid.md]

The privacy question: target, weight and epsilons follow from the policy and from the counts of the two groups, which
are public under `replace`, as is who is in which; so do the scales.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from hatcast.stream.estimators import Users
from hatcast.stream.hybrid import HYBRID_ESTIMATORS, TARGET, HybridEstimate, HybridParameters, delta_per_hat, estimate
from hatcast.stream.hybrid.report_fold import reports_of
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class Blend:
    """An estimate, and how many users of either group were there: c n and (1 - c) n."""

    estimate: HybridEstimate
    central: int
    local: int


def blend_of(policy: Policy, users: Users, reports: Iterable[bytes], noise: Noise) -> Blend | None:
    """The blend of one HAT; None: suppressed. `min_users` is about both groups together.

    users     those that trust the operator
    reports   packed, from all partitions
    """
    parameters = HybridParameters.of(policy)
    local = reports_of(reports, parameters)
    if len(users.counts) + len(local) < policy.min_users:
        return None
    found = estimate(HYBRID_ESTIMATORS[policy.estimator], users, local, parameters, noise)
    return None if found is None else Blend(found, len(users.counts), len(local))


def blend_fields(blend: Blend, policy: Policy, unit: str) -> dict[str, Any]:
    """What a record tells of a blend; `unit` is that of 1000 milli-units."""
    grid, found = Grid(policy.grid), blend.estimate

    def number(steps: int) -> msgspec.Raw:
        return msgspec.Raw(grid.text(steps).encode())

    scales = {"central_scale": found.central_scale, "local_scale": found.local_scale}
    return {
        "mean": number(found.mean),
        "raw": number(found.raw),
        "unit": unit,
        "noise": {"kind": f"{found.kind.value}_blend"}
        | {name: msgspec.Raw(grid.scale_text(scale).encode()) for name, scale in scales.items() if scale},
        "interval95": [number(steps) for steps in found.interval95],
        "covers": "noise",
        "weight": msgspec.Raw(found.weight_text.encode()),
        "users": {"central": blend.central, "local": blend.local},
        "public_epsilon": found.public_epsilon,
    }


def device_fields(policy: Policy) -> dict[str, Any]:
    """What every record of a policy with devices tells, whatever its status."""
    if policy.hybrid is None:
        return {}
    told: dict[str, Any] = {"target": TARGET}
    if policy.takes_reports:
        told["device_epsilon"] = policy.hybrid.local_epsilon
    if not policy.is_pure:
        told["delta"] = delta_per_hat(policy)
    return told
