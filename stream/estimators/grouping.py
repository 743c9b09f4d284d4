"""Grouping of users into arrays of equal length, the papers' pseudo-users, and exact sums of what each group has.

A user with m_l readings occupies r_l = min(m_l, array_length) places, each with the user's own mean. Both groupings
read counts only, so under `replace` neighbours have the same arrays. See docs/specification/estimators.md, section 2.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
"""[L] readings per user, largest first, ties by pseudonym: an order that does not depend on speeds"""
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Arrays:
    """K arrays and the P parts of users in them. The mean of array k is sum(places * mean of user) / fills[k].

    A user is in two arrays only if arrays are full, so all arrays of one user have equal fills. At most two parts of an
    array are not all readings of their user: WRAPAROUND splits users only at the ends of an array, and a user with more
    readings than places fills an array alone unless it is split.
    """

    array_length: int  # places in one array
    fills: Integers  # [K] occupied places; 1 to array_length
    users: Integers  # [P] user of the part: index into counts; ascending
    arrays: Integers  # [P] array of the part
    places: Integers  # [P] number of places of the part
    split: int  # largest number of arrays of one user, s: 1 for BESTFIT, 2 for WRAPAROUND

    @property
    def number(self) -> int:
        """K, the only property that sensitivities depend on besides `split`."""
        return len(self.fills)


Grouping = Callable[[Counts, int], Arrays]  # (counts, array_length >= 1) -> arrays; none without users


def order_of(pseudonyms: NDArray[np.uint64], counts: Counts) -> Integers:
    """Return the order of users that are in any order: largest count first, ties by pseudonym.

    Counts below 2**15, the usual ones, are sorted as 16-bit numbers, for which numpy's stable sort is a radix sort.
    """
    by_pseudonym = np.argsort(pseudonyms)
    counts = counts[by_pseudonym]
    small = len(counts) > 0 and counts.max() < 2**15 and counts.min() >= 0
    descending = -counts.astype(np.int16) if small else -counts
    order: Integers = by_pseudonym[np.argsort(descending, kind="stable")]
    return order


def wraparound(counts: Counts, array_length: int) -> Arrays:
    """Fill arrays with the users in order, splitting a user where an array ends; drop a last partial array.  [M Alg 1]

    K = floor(sum_l min(counts_l, array_length) / array_length). O(L).
    """
    _check(array_length)
    occupied = np.minimum(counts, array_length)
    ends = np.cumsum(occupied)
    number = int(ends[-1]) // array_length if len(ends) else 0
    starts = ends - occupied
    first = starts // array_length
    parts = 1 + ((ends - 1) // array_length > first)
    users = np.repeat(np.arange(len(counts)), parts)
    second = np.zeros(len(users), np.int64)  # 1 at the second part of a split user
    second[1:] = users[1:] == users[:-1]
    arrays = first[users] + second
    # A part starts where its user or its array starts, whichever is later, and ends where the first of them ends.
    places = np.minimum(ends[users], (arrays + 1) * array_length) - np.maximum(starts[users], arrays * array_length)
    kept = arrays < number
    fills = np.full(number, array_length, np.int64)
    return Arrays(array_length, fills, users[kept], arrays[kept], places[kept], split=2)


def bestfit(counts: Counts, array_length: int) -> Arrays:
    """Put each user, in order, whole into the fullest array with room (ties: least index), else a new one.  [M Alg 2]

    Users with equally many places come in runs, and arrays with equally many free places are interchangeable. A run
    visits the arrays by free places, fewest first, and fills each as often as possible. The remainder is too small for
    the run and at most half of the free places, so there are at most O(L log m) steps, each on whole slices.
    """
    _check(array_length)
    occupied = np.minimum(counts, array_length)
    arrays = np.empty(len(counts), np.int64)
    open_arrays = _OpenArrays()
    number = 0
    borders = np.flatnonzero(np.diff(occupied)) + 1
    for start, stop in pairwise((0, *borders.tolist(), len(occupied)) if len(occupied) else ()):
        size = int(occupied[start])
        position = start
        open_arrays.set_size(size)
        while position < stop:
            if not open_arrays.fits():
                new = -((position - stop) // (array_length // size))
                open_arrays.add(array_length, np.arange(number, number + new))
                number += new
            position += open_arrays.fill(arrays[position:stop])
    fills = np.full(number, array_length, np.int64)
    open_arrays.subtract_free(fills)
    return Arrays(array_length, fills, np.arange(len(counts)), arrays, occupied, split=1)


def places_taken(counts: Counts, lengths: Integers) -> Integers:
    """Return G = sum_l min(counts_l, m) of each array length m."""
    ascending = counts[::-1]
    below = np.searchsorted(ascending, lengths)
    shorter: Integers = np.concatenate(([0], np.cumsum(ascending)))[below]
    return shorter + (len(counts) - below) * lengths


class _OpenArrays:
    """Arrays that are not full, by their number of free places.

    Users need ever fewer places. So each number of free places moves at most once from the heap of too small ones to
    the heap of fitting ones, and the smallest fitting one is the top of that heap.
    """

    def __init__(self) -> None:
        self._arrays: dict[int, list[Integers]] = {}  # by free places
        self._size = 0  # places that a user needs now
        self._fitting: list[int] = []  # heap of the numbers of free places >= size
        self._too_small: list[int] = []  # heap of the others, negated: largest first

    def set_size(self, size: int) -> None:
        """Set the number of places that the next users need; it never grows."""
        self._size = size
        while self._too_small and -self._too_small[0] >= size:
            heappush(self._fitting, -heappop(self._too_small))

    def fits(self) -> bool:
        """Return whether some array has room for a user."""
        return bool(self._fitting)

    def add(self, free: int, arrays: Integers) -> None:
        """Add arrays with this number of free places; full ones are dropped."""
        if free == 0 or not len(arrays):
            return
        if free not in self._arrays:
            self._arrays[free] = []
            if free >= self._size:
                heappush(self._fitting, free)
            else:
                heappush(self._too_small, -free)
        self._arrays[free].append(arrays)

    def fill(self, users: Integers) -> int:
        """Put users, in order, into the arrays with the fewest fitting free places; return how many were placed.

        The arrays' indexes are written to `users`.
        """
        free, size = heappop(self._fitting), self._size
        capacity = free // size
        chunks = self._arrays.pop(free)
        arrays = chunks[0] if len(chunks) == 1 else np.sort(np.concatenate(chunks))
        placed = min(len(users), len(arrays) * capacity)
        full, rest = divmod(placed, capacity)
        used = full + (rest > 0)
        # min(): one array may have room for 10^9 users.
        users[:placed] = np.repeat(arrays[:used], min(capacity, placed))[:placed]
        self.add(free - capacity * size, arrays[:full])
        if rest:
            self.add(free - rest * size, arrays[full:used])
        self.add(free, arrays[used:])
        return placed

    def subtract_free(self, fills: Integers) -> None:
        """Subtract each array's number of free places from its fill."""
        for free, chunks in self._arrays.items():
            for arrays in chunks:
                fills[arrays] -= free


def _check(array_length: int) -> None:
    if array_length < 1:
        raise ValueError("the array length must be 1 or more")


GROUPINGS: Final[Mapping[str, Grouping]] = {"bestfit": bestfit, "wraparound": wraparound}

FEW: Final = 64  # so many numbers are added faster one by one, as Python's integers
_FEW_DENOMINATORS: Final = 512  # so many have a common multiple with few enough digits to compute with


def total(numbers: Integers) -> int:
    """Return the exact sum, even if it overflows 64 bits."""
    return sums_of_runs(numbers, np.zeros(1, np.int64))[0] if len(numbers) > FEW else sum(numbers.tolist())


Weights = tuple[Integers, Integers]  # (places, fills), [L] each: a user's mean has weight places / fills


def weights_in(counts: Counts, arrays: Arrays) -> Weights:
    """Return the users' weights in the sum of all array means: q / f for q places in arrays of fill f."""
    places = np.zeros(len(counts), np.int64)
    np.add.at(places, arrays.users, arrays.places)
    fills = np.ones(len(counts), np.int64)
    fills[arrays.users] = arrays.fills[arrays.arrays]
    return places, fills


def capped_weights(counts: Counts, length: int) -> Weights:
    """Return min(m_l, m) as weights: a user's number of readings m_l, capped at the length m."""
    return np.minimum(counts, length), np.ones(len(counts), np.int64)


def weighted_sum(counts: Counts, sums: Integers, weights: Weights) -> Fraction:
    """Return the sum of weight times mean over all users, in milli-units. `sums` may be negative (vector coordinates).

    A user adds q s_l / (m_l f). In lowest terms q / (m_l f) is 1 / f or 1 / m_l for each user that lies whole in its
    arrays, so there are few different denominators.
    """
    places, fills = weights
    starts = _starts_of_runs(counts, places, fills)
    numerators, denominators = _lowest_terms(places[starts], counts[starts], fills[starts])
    by_denominator: dict[int, int] = {}
    for each, numerator, denominator in zip(
        sums_of_runs(sums, starts), numerators.tolist(), denominators.tolist(), strict=True
    ):
        by_denominator[denominator] = by_denominator.get(denominator, 0) + each * numerator
    return sum_of_fractions(by_denominator)


def excess_weight(counts: Counts, weights: Weights, sum_of_weights: int) -> Fraction:
    """Return sum_l (m_l / M - v_l)^+, v_l = weight / sum_of_weights: weight that the plain mean has in excess of v."""
    places, fills = weights
    readings = total(counts)
    users = [1] * len(counts)
    if len(counts) > FEW:
        starts = _starts_of_runs(counts, places, fills)
        users = np.diff(np.append(starts, len(counts))).tolist()
        counts, places, fills = counts[starts], places[starts], fills[starts]
    plain = 0
    by_fill: dict[int, int] = {1: 0}
    for number, count, place, fill in zip(users, counts.tolist(), places.tolist(), fills.tolist(), strict=True):
        if count * fill * sum_of_weights > place * readings:
            plain += number * count
            by_fill[fill] = by_fill.get(fill, 0) + number * place
    return Fraction(plain, readings) - sum_of_fractions(by_fill) / sum_of_weights


def ceil_2_over(epsilon: float) -> int:
    """Return ceil(2 / epsilon), with epsilon as its decimal text: 2 / 0.1 is 20."""
    return math.ceil(2 / Fraction(Decimal(repr(epsilon))))


def _starts_of_runs(*columns: Integers) -> Integers:
    """Return the indexes at which any of the columns changes."""
    changed = np.zeros(len(columns[0]), np.bool_)
    changed[:1] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def _lowest_terms(places: Integers, counts: Integers, fills: Integers) -> tuple[Integers, Integers]:
    """Reduce places / (counts fills). Counts are below 2**31 (see Users), so the product fits into 64 bits."""
    common = np.gcd(places, fills)
    places, fills = places // common, fills // common
    common = np.gcd(places, counts)
    return places // common, counts // common * fills


def sums_of_runs(numbers: Integers, starts: Integers) -> list[int]:
    """Return the sum of each run. The 32-bit halves are added separately, because a sum of many may overflow.

    The high half is rounded down, so the low half is 0 or more also for negative numbers.
    """
    high = np.add.reduceat(numbers >> 32, starts).tolist()
    low = np.add.reduceat(numbers & 0xFFFFFFFF, starts).tolist()
    return [(h << 32) + each for h, each in zip(high, low, strict=True)]


def sum_of_fractions(numerators: Mapping[int, int]) -> Fraction:
    """Return the sum of numerator / denominator over a table denominator -> numerator.

    Few denominators are replaced by their least common multiple, so that one fraction is reduced. Many are added in
    pairs: with thousands of them a running sum would take quadratic time.
    """
    if len(numerators) <= _FEW_DENOMINATORS:
        common = math.lcm(*numerators)
        return Fraction(sum(each * (common // denominator) for denominator, each in numerators.items()), common)
    summands = [Fraction(numerator, denominator) for denominator, numerator in sorted(numerators.items())]
    while len(summands) > 1:
        odd = summands[len(summands) & ~1 :]
        summands = [a + b for a, b in zip(summands[::2], summands[1::2], strict=False)] + odd
    return summands[0]
