"""A vector a user: its mean speed in each slot of the local day, over all cells of the policy.

What a user has no reading of is half of the upper bound, a public constant: a mean of the others' would be moved by one
user in all vectors at once.
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
"""Of some users of one HAT: the slot ("09:00"), pseudonyms, counts, sums in milli-units"""


def slots_of_day(policy: Policy) -> list[str]:
    """The slots within `hours`, by their names."""
    first, last = (hour * HOUR_MS for hour in policy.hours)
    starts = range(0, last, policy.slot_length_ms)
    return [f"{at // HOUR_MS:02}:{at % HOUR_MS // MINUTE_MS:02}" for at in starts if at >= first]


def hat_vectors(
    contributions: Iterable[Contributions], slots: Sequence[str], policy: Policy
) -> tuple[NDArray[np.uint64], Integers]:
    """Pseudonyms [n], ascending, and vectors int64 [n, d] in steps of the grid.

    slots   those that are coordinates, in this order. Users without a reading in any of them are there as well
    A mean is rounded to the nearest step, and is at most the upper bound rounded likewise: `top_of`. The order of users
    and each vector depend on no other user.
    """
    axis = {slot: at for at, slot in enumerate(slots)}
    known: dict[int, list[list[int]]] = {}
    for slot, pseudonyms, counts, sums in contributions:
        at = axis.get(slot)
        for user, count, total in zip(pseudonyms.tolist(), counts.tolist(), sums.tolist(), strict=True):
            mine = known.setdefault(user, [[0, 0] for _ in slots])
            if at is not None:
                mine[at][0] += count
                mine[at][1] += total
    grid = Grid(policy.grid)
    missing = grid.nearest(Fraction(policy.upper_bound, 2))
    users = sorted(known)
    vectors = [
        [grid.nearest(Fraction(total, count)) if count else missing for count, total in known[user]] for user in users
    ]
    return np.array(users, np.uint64), np.array(vectors, np.int64).reshape(len(users), len(slots))


def top_of(policy: Policy) -> int:
    """The upper bound in steps of the grid: the most that a coordinate can be."""
    return Grid(policy.grid).nearest(Fraction(policy.upper_bound))
