"""Groups of users' values for kind `withhold_release`, and the private state of one cell.

A user's values in a cell form groups of 1, 1, 2, 4, 8, ... in the order of slots; the last has what `max_slots` leaves.
The sum of a group is an item. Items of the j-th groups of all users form stream j, in which each user has one item.
Sizes of groups and ranges of their sums are public. The state has incomplete groups, waiting items, sums of streams.

An item of s values is in [0, s U]. If all values are independent with the mean m, an item is within d = U sqrt(s
ln(2 / OUTSIDE) / 2) of s m with a probability of at least 1 - OUTSIDE [Hoeffding 1963]. So if s is large, items may be
truncated to an interval of width 5 d around a private estimate of s m (`withhold_release.median_bins`).
"""

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.continual._digits import Integers
from hatcast.stream.continual._interface import DAMAGED, BadState, Entries, SumSetting

OUTSIDE: Final = 0.05  # largest probability that an item of independent values is more than d from its mean
_INTERVAL: Final = 5  # steps d: a bin, and two on each side
STREAMS_SHARE: Final = Fraction(3, 4)
"""of epsilon, for the streams if items are truncated; the rest is for the estimates"""
_FIELDS: Final = 6  # of a stream, before its noises


@dataclass(frozen=True, slots=True)
class Group:
    """One group of a user's values."""

    size: int  # s, of values
    end: int  # values that a user has entered when the group is complete
    first: int  # index of the first slot at which it may be complete
    range: int  # milli-units: an item is in [0, range]
    step: int = 0  # milli-units: d, if items are truncated; else 0

    @property
    def width(self) -> int:
        """The largest difference of two items after truncation, milli-units."""
        return _INTERVAL * self.step if self.step else self.range

    @property
    def bins(self) -> int:
        """Bins of width `step` that cover the range; 1 without truncation."""
        return -(-self.range // self.step) if self.step else 1

    def lowest(self, median_bin: int) -> int:
        """Return the lower end of the interval around a bin, within the range."""
        return max(0, min((median_bin - 2) * self.step, self.range - self.width))


def groups(setting: SumSetting) -> tuple[Group, ...]:
    """Return the groups of a user. Large ones are truncated if that makes the sum of the streams' variances smaller."""
    plain = _untruncated(setting)
    logarithm = math.log(2 / OUTSIDE) / 2
    steps = [math.ceil(setting.bound * math.sqrt(group.size * logarithm)) for group in plain]
    choices = [plain]
    for size in sorted({group.size for group in plain}):
        truncated = [
            group.size >= size and _INTERVAL * step < group.range for group, step in zip(plain, steps, strict=True)
        ]
        choices.append(
            tuple(
                replace(group, step=step) if chosen else group
                for group, step, chosen in zip(plain, steps, truncated, strict=True)
            )
        )
    return min(choices, key=_cost)


def _cost(chosen: tuple[Group, ...]) -> Fraction:
    """Return a number in proportion to the sum of the streams' variances."""
    share = STREAMS_SHARE if any(group.step for group in chosen) else Fraction(1)
    return sum(group.width**2 for group in chosen) / share**2


def _untruncated(setting: SumSetting) -> tuple[Group, ...]:
    most, separation = setting.participations, setting.min_separation
    made: list[Group] = []
    end = 0
    while end < most:
        size = min(max(end, 1), most - end)
        end += size
        made.append(Group(size, end, (end - 1) * separation, size * setting.bound))
    return tuple(made)


@dataclass(slots=True)
class HorizonUsers:
    """Users of the horizon in ascending order of pseudonyms."""

    pseudonyms: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    counts: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # int64 [N]: values that each has entered
    # int64 [N]: of the values of its incomplete group
    sums: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    def enter(self, entries: Entries, groups: tuple[Group, ...]) -> dict[int, Integers]:
        """Add one slot's values. Return the completed items of each stream, in the order of pseudonyms.

        Raises ValueError if a user is in the slot twice, or in more slots than declared.
        """
        order = np.argsort(entries.pseudonyms)
        entered = entries.pseudonyms[order]
        if np.any(entered[1:] == entered[:-1]):
            raise ValueError("a user has two values in one slot")
        self._admit(entered)
        places = np.searchsorted(self.pseudonyms, entered)
        counts = self.counts[places] + 1
        if len(counts) and int(counts.max()) > groups[-1].end:
            raise ValueError("a user is in more slots than declared")
        sums = self.sums[places] + entries.values[order]
        completed: dict[int, Integers] = {}
        for j, group in enumerate(groups):
            is_complete = counts == group.end
            if is_complete.any():
                completed[j], sums[is_complete] = sums[is_complete], 0
        self.counts[places], self.sums[places] = counts, sums
        return completed

    def _admit(self, entered: NDArray[np.uint64]) -> None:
        """Add the users that are new."""
        known = self.pseudonyms
        merged = np.union1d(known, entered)
        if len(merged) == len(known):
            return
        places = np.searchsorted(merged, known)
        counts, sums = np.zeros(len(merged), np.int64), np.zeros(len(merged), np.int64)
        counts[places], sums[places] = self.counts, self.sums
        self.pseudonyms, self.counts, self.sums = merged, counts, sums


@dataclass(slots=True)
class ReleasedItems:
    """Items of one stream."""

    start: int = -1  # index of the slot of the first released item; -1: none yet
    lowest: int = -1  # lower end of the interval of items; -1: not yet estimated
    number: int = 0  # of released items
    total: int = 0  # sum of the released items after truncation, milli-units
    before: int = 0  # slots in the prefix that `noises` are of
    waiting: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # int64: items that wait for the interval
    noises: Integers = field(default_factory=lambda: np.zeros(0, np.int64))  # int64: of the prefix's nodes

    def prefix(self, index: int) -> int:
        """Return the number of slots from the first released item to slot `index`; 0 if there is none."""
        return index - self.start + 1 if self.start >= 0 else 0

    def add(self, items: Integers, index: int, group: Group) -> None:
        """Add items at slot `index`, if the interval is known; else they wait."""
        if group.step and self.lowest < 0:
            self.waiting = np.concatenate([self.waiting, items])
            return
        if group.step:
            items = np.clip(items, self.lowest, self.lowest + group.width)
        if self.start < 0:
            self.start = index
        self.number += len(items)
        self.total += int(items.sum())

    def release_waiting(self, lowest: int, index: int, group: Group) -> None:
        """Add the waiting items, with the interval that is now known."""
        self.lowest, items, self.waiting = lowest, self.waiting, np.zeros(0, np.int64)
        self.add(items, index, group)


@dataclass(slots=True)
class Withheld:
    """State of one cell."""

    users: HorizonUsers
    streams: list[ReleasedItems]

    def numbers(self) -> Integers:
        """Return the state as 64-bit integers: see `read`."""
        rows = [
            (each.start, each.lowest, each.number, each.total, each.before, len(each.waiting)) for each in self.streams
        ]
        users = self.users
        return np.concatenate(
            [
                np.array([len(users.counts), *(number for row in rows for number in row)], np.int64),
                users.pseudonyms.view(np.int64),
                users.counts,
                users.sums,
                *(numbers for each in self.streams for numbers in (each.waiting, each.noises)),
            ]
        )


def empty(streams: int) -> Withheld:
    """Return the state of a cell without values."""
    return Withheld(HorizonUsers(), [ReleasedItems() for _ in range(streams)])


def read(numbers: Integers, nodes: list[Integers]) -> Withheld:
    """Return the state of the given integers: users, fields of the streams, then arrays.

    nodes  of each stream, the number of nodes of each prefix
    Raises BadState if the lengths do not match.
    """
    fields = 1 + _FIELDS * len(nodes)
    if len(numbers) < fields or numbers[0] < 0:
        raise BadState(DAMAGED)
    number = int(numbers[0])
    rows = numbers[1:fields].reshape(len(nodes), _FIELDS)
    if np.any(rows[:, 4] < 0) or np.any(rows[:, 5] < 0) or np.any(rows[:, 4] >= [len(each) for each in nodes]):
        raise BadState(DAMAGED)
    noises = [int(each[row[4]]) for each, row in zip(nodes, rows, strict=True)]
    lengths = [number] * 3 + [
        length for row, drawn in zip(rows, noises, strict=True) for length in (int(row[5]), drawn)
    ]
    if sum(lengths) != len(numbers) - fields:
        raise BadState(DAMAGED)
    pseudonyms, counts, sums, *arrays = np.split(numbers[fields:], np.cumsum(lengths)[:-1])
    streams = [
        ReleasedItems(start, lowest, released, total, before, waiting, drawn)
        for (start, lowest, released, total, before, _), waiting, drawn in zip(
            rows.tolist(), arrays[::2], arrays[1::2], strict=True
        )
    ]
    return Withheld(HorizonUsers(pseudonyms.view(np.uint64), counts.copy(), sums.copy()), streams)
