"""What is public of a clustering: its size, its epsilon, and what both make of the noise.

One iteration of the central group costs epsilon / tau. A local device sends its vector once and its cluster in each
iteration, and pays epsilon / (tau + 1) for each of these. Either way a user pays epsilon in all.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from hatcast.stream.errors import SettingError
from hatcast.stream.mechanisms import MAX_SCALE

MIN_EPSILON: Final = 0.01
MAX_EPSILON: Final = 1000.0
MAX_CLUSTERS: Final = 100
MAX_ITERATIONS: Final = 100
MAX_DIMENSIONS: Final = 1440  # slots of a minute in a day
_LARGEST: Final = 2**62  # of a squared distance, so that it fits into 64 bits


@dataclass(frozen=True, slots=True)
class Setting:
    """All that is public. Raises SettingError where a promise could not be kept.

    dimensions   d
    top          the most that a coordinate can be, in steps of the grid
    clusters     K
    iterations   tau
    epsilon      of the whole clustering, for each user
    seed         of where clusters start: any integer of 64 bits

    The paper's m is 1: a coordinate is measured in units of its own upper bound. Counts and sums get noise of the same
    scale, so m says how much of epsilon is for either; at 1 a user weighs in a count as much as in a coordinate. The
    error of a mean is about b sqrt(1 + mean^2 / m^2) / N, and m = 1 is within a few percent of the best.
    """

    dimensions: int
    top: int
    clusters: int
    iterations: int
    epsilon: float
    seed: int = 0

    def __post_init__(self) -> None:
        _within("dimensions", self.dimensions, 1, MAX_DIMENSIONS)
        _within("clusters", self.clusters, 1, MAX_CLUSTERS)
        _within("iterations", self.iterations, 1, MAX_ITERATIONS)
        _within("epsilon", self.epsilon, MIN_EPSILON, MAX_EPSILON)
        _within("seed", self.seed, 0, 2**64 - 1)
        if self.top < 1 or self.top**2 * self.dimensions > _LARGEST or self.central_scale > MAX_SCALE:
            raise SettingError("grid", "has no step within the upper bound, or too many", "write km/h, such as 0.001")

    @property
    def unit(self) -> int:
        """The steps that one user counts as, on the grid of the sums: m = top / unit = 1."""
        return self.top

    @property
    def central_distance(self) -> int:
        """2 (m d + 1) users, in steps: most that one user can move counts and sums of an iteration (replace, l1).

        The proof: `tally`. The paper's (m d + 1) holds where one is added or removed.
        """
        return 2 * (self.top * self.dimensions + self.unit)

    @property
    def central_epsilon(self) -> float:
        """Of one iteration: the largest float of which tau are at most epsilon."""
        return _part(self.epsilon, self.iterations)

    @property
    def central_scale(self) -> float:
        """b_T = 2 (m d + 1) tau / epsilon, in steps."""
        return self.central_distance / self.central_epsilon

    @property
    def local_distance(self) -> int:
        """m d, in steps: how far apart two vectors can be (l1)."""
        return self.top * self.dimensions

    @property
    def local_epsilon(self) -> float:
        """Of one message of a device: the largest float of which tau + 1 are at most epsilon."""
        return _part(self.epsilon, self.iterations + 1)

    @property
    def local_scale(self) -> float:
        """b_L = m d (tau + 1) / epsilon, in steps."""
        return self.local_distance / self.local_epsilon


def _part(epsilon: float, parts: int) -> float:
    part = epsilon / parts
    while Fraction(part) * parts > Fraction(epsilon):
        part = math.nextafter(part, 0.0)
    return part


def _within(key: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise SettingError(key, f"is not from {least:g} to {most:g}", "use a number within")
