"""Release of a HAT of a hybrid policy: its estimate, and the fields of its record. See docs/hybrid.md.

Privacy of the fields: target, weight, epsilons and scales follow from the policy and from the counts of the two groups.
Counts and group membership are public under `replace`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from hatcast.stream.estimators import Users
from hatcast.stream.hybrid import HYBRID_ESTIMATORS
from hatcast.stream.hybrid._blend import TARGET, GroupEstimates, HybridEstimate, estimate
from hatcast.stream.hybrid._interface import HybridParameters, charge, delta_per_hat
from hatcast.stream.hybrid.report_fold import reports_of
from hatcast.stream.mechanisms import Noise
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import HybridKeys, Policy


@dataclass(frozen=True, slots=True)
class BlendedEstimate:
    """An estimate, and the number of users of either group: c n and (1 - c) n."""

    estimate: HybridEstimate
    central: int
    local: int


def blend_of(policy: Policy, users: Users, reports: Iterable[bytes], noise: Noise) -> BlendedEstimate | None:
    """Return the blend of one HAT; None if suppressed. `min_users` applies to both groups together.

    A group's own mean needs `min_users` of that group, and the other one too, unless it has no users.

    users     users that trust the operator
    reports   packed, from all partitions
    """
    parameters = HybridParameters.of(policy)
    local = reports_of(reports, parameters)
    if len(users.counts) + len(local) < policy.min_users:
        return None
    blended = estimate(HYBRID_ESTIMATORS[policy.estimator], users, local, parameters, noise)
    return None if blended is None else BlendedEstimate(blended, len(users.counts), len(local))


def blend_fields(blend: BlendedEstimate, policy: Policy, unit: str) -> dict[str, Any]:
    """Return the record fields of a blend. unit: the name of 1000 milli-units."""
    blended = blend.estimate
    mean, rest = _value_fields(blended, Grid(policy.grid, policy.lower))
    return {
        **mean,
        "unit": unit,
        **rest,
        "covers": "noise",
        "weight": msgspec.Raw(blended.weight_text.encode()),
        "users": {"central": blend.central, "local": blend.local},
        "public_epsilon": blended.public_epsilon,
        **({} if blended.groups is None else {"groups": _groups_field(blend, blended.groups, policy)}),
    }


def _value_fields(found: HybridEstimate, grid: Grid) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of an estimate that are before the unit, and those after it."""
    scales = {"central_scale": found.central_scale, "local_scale": found.local_scale}
    noise = {"kind": f"{found.kind.value}_blend"} | {
        name: grid.scale_json(scale) for name, scale in scales.items() if scale
    }
    return (
        {"mean": grid.json(found.mean), "raw": grid.json(found.raw)},
        {"noise": noise, "interval95": [*map(grid.json, found.interval95)]},
    )


def _groups_field(blend: BlendedEstimate, groups: GroupEstimates, policy: Policy) -> dict[str, Any]:
    """Return each group's own mean, if it has users."""
    parameters, grid = HybridParameters.of(policy), Grid(policy.grid, policy.lower)
    of_central = charge(HYBRID_ESTIMATORS[policy.estimator], parameters)
    each = {
        "central": (groups.central, blend.central, of_central),
        "local": (groups.local, blend.local, parameters.local_epsilon),
    }
    fields = {}
    for name, (found, users, epsilon) in each.items():
        if found is not None:
            mean, rest = _value_fields(found, grid)
            privacy = {"epsilon": epsilon, "public_epsilon": found.public_epsilon}
            fields[name] = {**mean, **rest, "users": users, **privacy}
    return fields


def device_fields(policy: Policy) -> dict[str, Any]:
    """Return the fields in every record of a hybrid policy, for any status; none for other policies."""
    keys = policy.method
    if not isinstance(keys, HybridKeys):
        return {}
    fields: dict[str, Any] = {"target": TARGET}
    if keys.takes_reports:
        fields["device_epsilon"] = keys.local_epsilon
    if not keys.is_pure:
        fields["delta"] = delta_per_hat(policy)
    return fields
