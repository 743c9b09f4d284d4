"""Composition of a user's day of Gaussian releases, without amplification. See docs/proofs.md."""

from typing import Final

from hatcast.stream.hybrid._interface import HybridParameters
from hatcast.stream.mechanisms.gaussian import composed_epsilon, deviation_for, discretization_loss
from hatcast.stream.policy.policy import HybridKeys, Policy

_ROUNDED: Final = 1 + 1e-12  # factor of ratios, above their floating-point error


def gaussian_epsilon(policy: Policy, releases: int, delta: float, min_scale: float = 0.0) -> float:
    """Return the epsilon, at `delta`, of this many composed Gaussian releases, for a user of either group.

    delta       of the composition; it need not equal the delta that each release was calibrated for
    min_scale   lower bound of the scales of central noise, steps; 0 if not known
    A scale is never below the deviation for sensitivity 1, times a distance of at least 1 step.
    Raises ValueError for a policy without Gaussian noise.
    """
    keys, parameters = policy.keys_of(HybridKeys), HybridParameters.of(policy)
    if parameters.delta is None:
        raise ValueError(f"{policy.name} has no Gaussian noise")
    if not releases:
        return 0.0
    groups = [(parameters.epsilon, 1, min_scale)] if keys.use.central and not keys.use.all_local else []
    if keys.use.local or keys.use.all_local:
        groups.append((parameters.local_epsilon, parameters.local_distance, 0.0))
    largest = 0.0
    for epsilon, distance, group_min_scale in groups:
        deviation = deviation_for(epsilon, parameters.delta)
        ratio = _ROUNDED / deviation
        excess_loss = discretization_loss(ratio, max(group_min_scale, deviation * distance))
        largest = max(largest, composed_epsilon(ratio, excess_loss, releases, delta))
    return largest
