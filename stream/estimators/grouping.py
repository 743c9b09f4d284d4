"""Users' readings dealt into arrays of equal length, the papers' pseudo-users.    [estimators.md, section 2]

A user with m_l readings fills r_l = min(m_l, array_length) places, each with the user's own mean. Both groupings read
counts only, so under `replace` neighbours have the same arrays.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
"""[L] readings per user, largest first, ties by pseudonym, so that no speed orders them"""
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Arrays:
    """K arrays and the parts of users in them. The mean of array k is sum(places * mean of user) / fills[k].

    array_length  places in one array
    fills         [K] places taken; 1 to array_length
    users         [P] whose part it is: index into counts; ascending
    arrays        [P] the array it lies in
    places        [P] how many places it takes
    split         most arrays that one user is part of: 1 for BESTFIT, 2 for WRAPAROUND (the spec's s)

    A user in two arrays is so only where arrays are filled to the end: all arrays of one user have equal fills. Of the
    parts in one array, at most two are not all readings of their user: WRAPAROUND splits users only at an array's ends,
    and whoever has more readings than places fills an array alone unless it is split.
    """

    array_length: int
    fills: Integers
    users: Integers
    arrays: Integers
    places: Integers
    split: int

    @property
    def number(self) -> int:
        """K, all that a sensitivity needs to know."""
        return len(self.fills)


Grouping = Callable[[Counts, int], Arrays]
"""(counts, array_length >= 1) -> arrays. No users give no arrays."""


def wraparound(counts: Counts, array_length: int) -> Arrays:
    """Deal the users' places in order, splitting a user over two arrays where one ends; keep the full ones.  [M Alg 1]

    K = floor(sum_l min(counts_l, array_length) / array_length). O(L).
    """
    _check(array_length)
    taken = np.minimum(counts, array_length)
    ends = np.cumsum(taken)
    number = int(ends[-1]) // array_length if len(ends) else 0
    starts = ends - taken
    first = starts // array_length
    parts = 1 + ((ends - 1) // array_length > first)
    users = np.repeat(np.arange(len(counts)), parts)
    second = np.zeros(len(users), np.int64)  # 1 at the second part of a split user
    second[1:] = users[1:] == users[:-1]
    arrays = first[users] + second
    # Within an array a part goes from where its user, or the array, begins to where the one or the other ends.
    places = np.minimum(ends[users], (arrays + 1) * array_length) - np.maximum(starts[users], arrays * array_length)
    kept = arrays < number
    fills = np.full(number, array_length, np.int64)
    return Arrays(array_length, fills, users[kept], arrays[kept], places[kept], split=2)


def bestfit(counts: Counts, array_length: int) -> Arrays:
    """Each user, in order, goes whole into the fullest array with room (least index on ties), else a new one. [M Alg 2]

    Users that take equally many places come in runs, and arrays with equal room behave alike: a run goes through the
    rooms, smallest first, filling each array as often as it can. What is left is too small for the run and at most half
    of what was, so that there are O(L log m) steps at most, each of them on whole slices.
    """
    _check(array_length)
    taken = np.minimum(counts, array_length)
    arrays = np.empty(len(counts), np.int64)
    rooms = _Rooms()
    number = 0
    borders = np.flatnonzero(np.diff(taken)) + 1
    for start, stop in pairwise((0, *borders.tolist(), len(taken)) if len(taken) else ()):
        size = int(taken[start])
        at = start
        rooms.allow(size)
        while at < stop:
            if not rooms.any():
                new = -((at - stop) // (array_length // size))
                rooms.add(array_length, np.arange(number, number + new))
                number += new
            at += rooms.fill(arrays[at:stop])
    fills = np.full(number, array_length, np.int64)
    rooms.subtract(fills)
    return Arrays(array_length, fills, np.arange(len(counts)), arrays, taken, split=1)


class _Rooms:
    """Arrays by how many places they have left; full ones are forgotten.

    Users take ever fewer places. So a room that is too small waits until they take few enough, once, and the smallest
    room that will do is the top of a heap.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, list[Integers]] = {}  # by room
        self._size = 0  # places that users take now
        self._fitting: list[int] = []  # a heap of the rooms of that size or more
        self._too_small: list[int] = []  # a heap of the others, negative: largest first

    def allow(self, size: int) -> None:
        """From now on users take `size` places: no more than before."""
        self._size = size
        while self._too_small and -self._too_small[0] >= size:
            heappush(self._fitting, -heappop(self._too_small))

    def any(self) -> bool:
        """Whether an array has room for a user."""
        return bool(self._fitting)

    def add(self, room: int, arrays: Integers) -> None:
        """Arrays with that room."""
        if room == 0 or not len(arrays):
            return
        if room not in self._arrays:
            self._arrays[room] = []
            if room >= self._size:
                heappush(self._fitting, room)
            else:
                heappush(self._too_small, -room)
        self._arrays[room].append(arrays)

    def fill(self, users: Integers) -> int:
        """Put users into the arrays with the least room that fits, in order; `users` takes the arrays' indexes.

        Returns how many users found place.
        """
        room, size = heappop(self._fitting), self._size
        each = room // size
        chunks = self._arrays.pop(room)
        arrays = chunks[0] if len(chunks) == 1 else np.sort(np.concatenate(chunks))
        placed = min(len(users), len(arrays) * each)
        full, rest = divmod(placed, each)
        begun = full + (rest > 0)
        users[:placed] = np.repeat(arrays[:begun], min(each, placed))[:placed]  # one array may have room for 10^9
        self.add(room - each * size, arrays[:full])
        if rest:
            self.add(room - rest * size, arrays[full:begun])
        self.add(room, arrays[begun:])
        return placed

    def subtract(self, fills: Integers) -> None:
        """Take what every array has left off its fill."""
        for room, chunks in self._arrays.items():
            for arrays in chunks:
                fills[arrays] -= room


def _check(array_length: int) -> None:
    if array_length < 1:
        raise ValueError("an array has 1 or more places")


GROUPINGS: Final[Mapping[str, Grouping]] = MappingProxyType({"bestfit": bestfit, "wraparound": wraparound})
