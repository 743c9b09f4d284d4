"""Public parameters of a clustering, and the noise scales that follow from them.

One iteration of the central group costs epsilon / tau. A local device sends its vector once and its cluster in each
iteration, and each message costs epsilon / (tau + 1). In both groups a user pays epsilon in total.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.mechanisms import MAX_SCALE
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy
from hatcast.stream.units import HOUR_MS, MINUTE_MS, float_below

MIN_EPSILON: Final = 0.01
MAX_EPSILON: Final = 1000.0
MAX_CLUSTERS: Final = 100
MAX_ITERATIONS: Final = 100
MAX_DIMENSIONS: Final = 1440  # slots of a minute in a day
_MAX_SQUARED_DISTANCE: Final = 2**62  # so that it fits into 64 bits
Contributions = tuple[str, NDArray[np.uint64], Integers, Integers]
"""(slot such as "09:00", pseudonyms, counts, sums in milli-units) of some users of one HAT"""


@dataclass(frozen=True, slots=True)
class ClusteringSetting:
    """Public parameters. Raises SettingError if no clustering could satisfy them.

    The paper's m is 1: a coordinate is measured in units of its own upper bound. Counts and sums get noise of the same
    scale, so m divides epsilon between them; at m = 1 a user counts as much in a count as in a coordinate. The error of
    a mean is about b sqrt(1 + mean^2 / m^2) / N, and m = 1 is within a few percent of the optimum.
    """

    dimensions: int  # d
    top: int  # upper bound of a coordinate, in grid steps
    clusters: int  # K
    iterations: int  # tau
    epsilon: float  # of the whole clustering, for each user
    seed: int = 0  # seed of the initial centres: any integer of 64 bits

    def __post_init__(self) -> None:
        _within("dimensions", self.dimensions, 1, MAX_DIMENSIONS)
        _within("clusters", self.clusters, 1, MAX_CLUSTERS)
        _within("iterations", self.iterations, 1, MAX_ITERATIONS)
        _within("epsilon", self.epsilon, MIN_EPSILON, MAX_EPSILON)
        _within("seed", self.seed, 0, 2**64 - 1)
        if self.top < 1 or self.top**2 * self.dimensions > _MAX_SQUARED_DISTANCE or self.central_scale > MAX_SCALE:
            raise SettingError("grid", "is larger than the upper bound, or too fine", "write km/h, such as 0.001")

    @property
    def unit(self) -> int:
        """Steps that one user adds to a count: m = top / unit = 1."""
        return self.top

    @property
    def central_distance(self) -> int:
        """2 (m d + 1) units, in steps: l1 sensitivity of an iteration's counts and sums to one user (replace).

        Proof: see `tally`. The paper's (m d + 1) holds if a user is added or removed.
        """
        return 2 * (self.top * self.dimensions + self.unit)

    @property
    def central_epsilon(self) -> float:
        """Epsilon of one iteration: the largest float whose tau-fold is at most epsilon."""
        return float_below(Fraction(self.epsilon) / self.iterations)

    @property
    def central_scale(self) -> float:
        """b_T = 2 (m d + 1) tau / epsilon, in steps."""
        return self.central_distance / self.central_epsilon

    @property
    def local_distance(self) -> int:
        """m d, in steps: largest l1 distance of two vectors."""
        return self.top * self.dimensions

    @property
    def local_epsilon(self) -> float:
        """Epsilon of one message of a device: the largest float whose (tau + 1)-fold is at most epsilon."""
        return float_below(Fraction(self.epsilon) / (self.iterations + 1))

    @property
    def local_scale(self) -> float:
        """b_L = m d (tau + 1) / epsilon, in steps."""
        return self.local_distance / self.local_epsilon


def _within(key: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise SettingError(key, f"is not from {least:g} to {most:g}", "use a number in this range")


def slots_of_day(policy: Policy) -> list[str]:
    """Return the names of the slots within `hours`."""
    first, last = (hour * HOUR_MS for hour in policy.hours)
    starts = range(0, last, policy.slot_length_ms)
    return [f"{start // HOUR_MS:02}:{start % HOUR_MS // MINUTE_MS:02}" for start in starts if start >= first]


def hat_vectors(
    contributions: Iterable[Contributions], slots: Sequence[str], policy: Policy
) -> tuple[NDArray[np.uint64], Integers]:
    """Return pseudonyms [n], ascending, and vectors int64 [n, d] in grid steps.

    slots   the coordinates, in order; users without readings in any of them are included too
    A mean is rounded to the nearest step, and is at most the upper bound rounded likewise: `top_of`. A user's vector
    does not depend on other users.
    """
    axes = {slot: axis for axis, slot in enumerate(slots)}
    by_user: dict[int, list[list[int]]] = {}
    for slot, pseudonyms, counts, sums in contributions:
        axis = axes.get(slot)
        for user, count, total in zip(pseudonyms.tolist(), counts.tolist(), sums.tolist(), strict=True):
            coordinates = by_user.setdefault(user, [[0, 0] for _ in slots])
            if axis is not None:
                coordinates[axis][0] += count
                coordinates[axis][1] += total
    grid = Grid(policy.grid)
    missing = grid.nearest(Fraction(policy.upper_bound, 2))
    users = sorted(by_user)
    vectors = [
        [grid.nearest(Fraction(total, count)) if count else missing for count, total in by_user[user]] for user in users
    ]
    return np.array(users, np.uint64), np.array(vectors, np.int64).reshape(len(users), len(slots))


def top_of(policy: Policy) -> int:
    """Return the upper bound of a coordinate, in grid steps."""
    return Grid(policy.grid).nearest(Fraction(policy.upper_bound))
