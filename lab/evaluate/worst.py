"""Worst-case errors of contenders, and array lengths by epsilon.    [V, E_M], [M V, Fig. 5]

Nothing is simulated: counts and epsilon decide. Raw counts are private under `add_remove`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final

import numpy as np

from hatcast.lab.evaluate.contenders import Contender, ResolvedContender, parse_contender
from hatcast.lab.evaluate.simulation import Floats
from hatcast.stream.estimators.array_length import RULES
from hatcast.stream.estimators.grouping import Counts, Integers, places_taken
from hatcast.stream.estimators.levy import concentration
from hatcast.stream.estimators.vectors import vector_form
from hatcast.stream.estimators.worst_case_length import bias_and_noise, lengths_to_try

STAIRCASE: Final = (0.001, 2.0, 400)  # first and last epsilon, and their number, of the papers' figure of m
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True)
class WorstCase:
    """Worst case of one contender at one epsilon, in km/h; in l1 for vectors. None: not fixed by counts, or not used.

    array_length   m; arrays: K, which is no integer for full arrays
    tau            width of LEVY's bins
    bias           largest difference of the value before noise from the mean of all readings, over all speeds
    noise          mean of the noise's absolute value, before it is widened by the grid
    """

    array_length: int | None
    arrays: float | None
    tau: float | None
    bias: float | None
    noise: float | None

    @property
    def total(self) -> float | None:
        """E_M, or None."""
        return None if self.bias is None or self.noise is None else self.bias + self.noise


WorstCases = dict[str, dict[float, WorstCase]]
"""By contender and epsilon."""


@dataclass(frozen=True, slots=True, eq=False)
class PublicHat:
    """Numbers that a worst case depends on. dimensions: of a reading."""

    counts: Counts
    upper_bound_milli: int
    dimensions: int = 1

    @property
    def diameter(self) -> float:
        """Largest distance of two readings, in km/h; in l1 for vectors."""
        return self.upper_bound_milli / _MILLI * (1 if self.dimensions == 1 else 2)


def worst_cases(hat: PublicHat, contenders: Sequence[Contender], epsilons: Sequence[float]) -> WorstCases:
    """Return the worst case of each contender at each epsilon. Raises NoVectorForm in several dimensions."""
    return {each.name: {epsilon: _worst_case(hat, each, epsilon) for epsilon in epsilons} for each in contenders}


def full_arrays(hat: PublicHat, epsilons: Sequence[float]) -> dict[float, WorstCase]:
    """Return E^(eps), the papers' bound of the best error: the minimum over m for K = G / m full arrays.    [M (15)]"""
    found = {}
    for epsilon in epsilons:
        length = RULES["minimax"](hat.counts, epsilon / hat.dimensions, None)
        taken, readings = int(places_taken(hat.counts, np.array([length]))[0]), int(hat.counts.sum())
        bias = hat.diameter * (1 - taken / readings)
        noise = hat.diameter * hat.dimensions * length / (epsilon * taken)
        found[epsilon] = WorstCase(length, taken / length, None, bias, noise)
    return found


def staircases(hat: PublicHat) -> Mapping[str, tuple[Floats, Integers]]:
    """Return (epsilons, array lengths) of `minimax` and of `worst_case` with BESTFIT.    [M Fig. 5]"""
    epsilons = np.geomspace(*STAIRCASE)
    printed = [RULES["minimax"](hat.counts, each / hat.dimensions, None) for each in epsilons.tolist()]
    # The users are grouped once for each length, not at each epsilon.
    tried = lengths_to_try(hat.counts)
    bias, noise = np.array([bias_and_noise(hat.counts, length, "bestfit") for length in tried.tolist()]).T
    least = [int(np.argmin(bias + noise * hat.dimensions / epsilon)) for epsilon in epsilons]
    return MappingProxyType(
        {"minimax": (epsilons, np.array(printed, np.int64)), "worst_case": (epsilons, tried[least])}
    )


def groupings() -> dict[str, list[Contender]]:
    """Return the contenders of the papers' comparison of groupings: estimator -> its variants.    [M Fig. 1]"""
    return {
        name: [parse_contender(f"{name}:{each}") for each in ("bestfit", "wraparound", "wraparound:printed")]
        for name in ("array_averaging", "levy", "quantile")
    }


def _worst_case(hat: PublicHat, contender: Contender, epsilon: float) -> WorstCase:
    resolved = contender.resolve(hat.counts, hat.upper_bound_milli, epsilon, hat.dimensions)
    arrays, parameters = resolved.arrays, resolved.parameters
    tau = None
    if arrays is not None and contender.estimator.name == "levy":
        tau = min(float(concentration(arrays, hat.upper_bound_milli)), hat.upper_bound_milli) / _MILLI
    bias, noise = _bias_and_noise(hat, resolved)
    length = parameters.array_length
    return WorstCase(
        min(length, int(hat.counts[0])) if isinstance(length, int) else None,
        None if arrays is None else arrays.number,
        tau,
        None if bias is None else float(bias) / _MILLI,
        None if noise is None else float(noise) / _MILLI,
    )


def _bias_and_noise(hat: PublicHat, resolved: ResolvedContender) -> tuple[Fraction | None, Fraction | None]:
    """Return both in milli-units. A contender with the papers' constants has `split` times the noise."""
    estimator, parameters = resolved.contender.estimator, resolved.parameters
    if hat.dimensions > 1:
        error = vector_form(estimator.name, hat.dimensions).worst_case_error(hat.counts, parameters)
        return error.bias, error.noise
    bias = estimator.bias(hat.counts, parameters)
    if bias is None or "noise" not in estimator.shares:
        return bias, None
    return bias, resolved.sensitivity / (Fraction(parameters.epsilon) * estimator.shares["noise"])
