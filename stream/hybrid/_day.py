"""What a user's day of Gaussian releases comes to, without amplification.    [docs/privacy.md]"""

from typing import Final

from hatcast.stream.hybrid._interface import HybridParameters
from hatcast.stream.mechanisms.gaussian import composed_epsilon, deviation_for, discretization_loss
from hatcast.stream.policy.policy import Policy

_ROUNDED: Final = 1 + 1e-12  # of ratios: floating point loses less


def gaussian_epsilon(policy: Policy, releases: int, delta: float, min_scale: float = 0.0) -> float:
    """The epsilon of (epsilon, delta) of so many releases with Gaussian noise, for a user of either group.

    delta         of all of them together, whatever each was calibrated for
    min_scale   none of the scales of central noise was below it, steps; 0: not known
    A scale is never below the deviation for a move by 1, times a distance of 1 step or more.
    Raises ValueError for a policy without Gaussian noise.
    """
    keys, parameters = policy.hybrid, HybridParameters.of(policy)
    if keys is None or parameters.delta is None:
        raise ValueError(f"{policy.name} has no Gaussian noise")
    if not releases:
        return 0.0
    used = [(parameters.epsilon, 1, min_scale)] if keys.use.central and not keys.use.all_local else []
    if keys.use.local or keys.use.all_local:
        used.append((parameters.local_epsilon, parameters.local_distance, 0.0))
    found = 0.0
    for epsilon, distance, least in used:
        deviation = deviation_for(epsilon, parameters.delta)
        ratio = _ROUNDED / deviation
        above = discretization_loss(ratio, max(least, deviation * distance))
        found = max(found, composed_epsilon(ratio, above, releases, delta))
    return found
