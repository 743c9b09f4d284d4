"""Noise for tests of the audit: as the system's, but fast and with a seed; and mutants of it."""

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np

from hatcast.agents.config.settings import load_settings
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.mechanisms import Distances, Noisy, NoisyVector
from hatcast.stream.mechanisms.gaussian import smallest_scale, smallest_vector_scale
from hatcast.stream.policy.policy import Policy

ROOT: Final = Path(__file__).parents[1]
SHIPPED: Final = [
    ROOT / "hatcast.toml",
    *sorted((ROOT / "examples").glob("*.toml")),
    *sorted((ROOT / "examples" / "audit").glob("*.toml")),
]
"""The policies that scripts/nightly audits."""
CLUSTERED: Final = ROOT / "examples" / "audit" / "baseline.toml"
"""The one under which it audits clusterings."""


def shipped(name: str) -> Policy:
    """Of examples/audit."""
    return load_settings(ROOT / "examples" / "audit" / f"{name}.toml").policy


@dataclass
class FastNoise:
    """Discrete Laplace noise of numpy, in OpenDP's place: a hundred times as fast. It states what was asked for.

    width        of the noise, as a part of what was asked for
    step         draws are multiples of it
    sensitivity  the requested distance is divided by it
    """

    seed: int = 1
    width: float = 1.0
    step: int = 1
    sensitivity: float = 1.0
    chance: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.chance = np.random.default_rng(self.seed)

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        distance = int(distance / self.sensitivity)
        if distance == 0:
            return Noisy(value, 0.0)
        p = -np.expm1(-epsilon / (distance * self.width))
        drawn = int(self.chance.geometric(p)) - int(self.chance.geometric(p))
        return Noisy(value + drawn // self.step * self.step, distance / epsilon)

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        scale = smallest_scale(distance, epsilon, delta)
        return Noisy(value + round(self.chance.normal(0, scale * self.width)), scale)

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        drawn = [self.laplace(value, distance, epsilon).value for value in values.tolist()]
        return NoisyVector(np.array(drawn, np.int64), distance / epsilon)

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        scale = smallest_vector_scale(distances, epsilon, delta)
        drawn = np.rint(self.chance.normal(0, scale * self.width, len(values))).astype(np.int64)
        return NoisyVector(values + drawn, scale)

    def choose(self, weights: Integers, costs: Integers, rate: Fraction) -> int:
        chances = weights * np.exp(-float(rate) * (costs - costs.min()) / self.width)
        return int(self.chance.choice(len(weights), p=chances / chances.sum()))

    def uniform(self, number: int) -> int:
        return int(self.chance.integers(0, number))
