"""One vector per user: its mean speed in each slot of the local day, over all cells of the policy.

A coordinate without readings is half of the upper bound, a public constant. With a mean of other users instead, one
user would move all vectors at once.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Policy
from hatcast.stream.units import HOUR_MS, MINUTE_MS

Contributions = tuple[str, NDArray[np.uint64], Integers, Integers]
"""(slot such as "09:00", pseudonyms, counts, sums in milli-units) of some users of one HAT"""


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
