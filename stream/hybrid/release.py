"""Release of a HAT of a hybrid policy: its estimate, and the fields of its record. See docs/hybrid.md.

Privacy of the fields: target, weight, epsilons and scales follow from the policy and from the counts of the two groups.
Counts and group membership are public under `replace`.
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
    """An estimate, and the number of users of either group: c n and (1 - c) n."""

    estimate: HybridEstimate
    central: int
    local: int


def blend_of(policy: Policy, users: Users, reports: Iterable[bytes], noise: Noise) -> Blend | None:
    """Return the blend of one HAT; None if suppressed. `min_users` applies to both groups together.

    users     users that trust the operator
    reports   packed, from all partitions
    """
    parameters = HybridParameters.of(policy)
    local = reports_of(reports, parameters)
    if len(users.counts) + len(local) < policy.min_users:
        return None
    blended = estimate(HYBRID_ESTIMATORS[policy.estimator], users, local, parameters, noise)
    return None if blended is None else Blend(blended, len(users.counts), len(local))


def blend_fields(blend: Blend, policy: Policy, unit: str) -> dict[str, Any]:
    """Return the record fields of a blend. unit: the name of 1000 milli-units."""
    grid, blended = Grid(policy.grid), blend.estimate

    def number(steps: int) -> msgspec.Raw:
        return msgspec.Raw(grid.text(steps).encode())

    scales = {"central_scale": blended.central_scale, "local_scale": blended.local_scale}
    return {
        "mean": number(blended.mean),
        "raw": number(blended.raw),
        "unit": unit,
        "noise": {"kind": f"{blended.kind.value}_blend"}
        | {name: msgspec.Raw(grid.scale_text(scale).encode()) for name, scale in scales.items() if scale},
        "interval95": [number(steps) for steps in blended.interval95],
        "covers": "noise",
        "weight": msgspec.Raw(blended.weight_text.encode()),
        "users": {"central": blend.central, "local": blend.local},
        "public_epsilon": blended.public_epsilon,
    }


def device_fields(policy: Policy) -> dict[str, Any]:
    """Return the fields in every record of a hybrid policy, for any status; none for other policies."""
    if policy.hybrid is None:
        return {}
    fields: dict[str, Any] = {"target": TARGET}
    if policy.takes_reports:
        fields["device_epsilon"] = policy.hybrid.local_epsilon
    if not policy.is_pure:
        fields["delta"] = delta_per_hat(policy)
    return fields
