"""Private state of one cell for kind `withhold_release`: incomplete groups of users, waiting items, sums of streams."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.continual._digits import Integers
from hatcast.stream.continual._groups import Group
from hatcast.stream.continual._interface import BadState, Entries

_FIELDS: Final = 6  # of a stream, before its noises
_DAMAGED: Final = "the state of a running sum is damaged"


@dataclass(slots=True)
class Users:
    """Users of the horizon in ascending order of pseudonyms.

    counts   int64 [N]: values that each has entered
    sums     int64 [N]: of the values of its incomplete group
    """

    pseudonyms: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    counts: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
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
        completed = {j: sums[counts == group.end] for j, group in enumerate(groups)}
        ends = np.array([group.end for group in groups])
        sums[np.isin(counts, ends)] = 0
        self.counts[places], self.sums[places] = counts, sums
        return {j: items for j, items in completed.items() if len(items)}

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
class Released:
    """Items of one stream.

    start    index of the slot of the first released item; -1: none yet
    lowest   lower end of the interval of items; -1: not yet estimated
    number   of released items
    total    sum of the released items after truncation, milli-units
    before   slots in the prefix that `noises` are of
    waiting  int64: items that wait for the interval
    noises   int64: of the prefix's nodes
    """

    start: int = -1
    lowest: int = -1
    number: int = 0
    total: int = 0
    before: int = 0
    waiting: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    noises: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

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

    users: Users
    streams: list[Released]

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
    return Withheld(Users(), [Released() for _ in range(streams)])


def read(numbers: Integers, nodes: list[Integers]) -> Withheld:
    """Return the state of the given integers: users, fields of the streams, then arrays.

    nodes  of each stream, the number of nodes of each prefix
    Raises BadState if the lengths do not match.
    """
    fields = 1 + _FIELDS * len(nodes)
    if len(numbers) < fields or numbers[0] < 0:
        raise BadState(_DAMAGED)
    number = int(numbers[0])
    rows = numbers[1:fields].reshape(len(nodes), _FIELDS)
    if np.any(rows[:, 4] < 0) or np.any(rows[:, 5] < 0) or np.any(rows[:, 4] >= [len(each) for each in nodes]):
        raise BadState(_DAMAGED)
    noises = [int(each[row[4]]) for each, row in zip(nodes, rows, strict=True)]
    lengths = [number] * 3 + [
        length for row, drawn in zip(rows, noises, strict=True) for length in (int(row[5]), drawn)
    ]
    if sum(lengths) != len(numbers) - fields:
        raise BadState(_DAMAGED)
    pseudonyms, counts, sums, *arrays = np.split(numbers[fields:], np.cumsum(lengths)[:-1])
    streams = [
        Released(start, lowest, released, total, before, waiting, drawn)
        for (start, lowest, released, total, before, _), waiting, drawn in zip(
            rows.tolist(), arrays[::2], arrays[1::2], strict=True
        )
    ]
    return Withheld(Users(pseudonyms.view(np.uint64), counts.copy(), sums.copy()), streams)
