"""Kind `withhold_release`: running means of users with many values, each of which has few items in the sum.

Source: George, Ramesh, Singh and Tyagi, "Continual mean estimation under user-level privacy", arXiv 2212.09980.
Differences: times of arrival are public here; streams have the k-ary trees of kind `kary`; the private median is a
noisy binary search; a group is truncated only if that reduces the noise.

A user's values are withheld until a group of 1, 1, 2, 4, ... values is complete (`_withheld`). Its sum, an item, is
added to the stream of these groups, in which each user has one item. The running sum is the sum of all streams' noisy
prefix sums, and `count` the number of values in it. For large groups items wait until there are enough of them for a
private estimate of their median (`median_bins`), and are truncated to an interval around it.

Privacy. Which users enter, and so which items complete when and how many wait, is the same for neighbours. For fixed
outputs of the searches all intervals are fixed. Then a user's item of group j changes by at most `width`, in one slot
of stream j, and moves the sums over the nodes of its tree by at most that for each node over this slot. So each stream
is private by the proof in `trees`, each search by that of `median_bins`, and `shares` adds them up.

Error. Of a user's v values, more than v / 2 are in complete groups. Let values be independent with one mean m, and let
every stream with an item have started. Let N be the number of values in the sum and M the largest number of values of a
user so far. The groups in the sum have at most M values together, and widths are O(U sqrt(s)) for a group of s. So with
a probability of at least 1 - p,

    |running mean - m| <= U sqrt(ln(4 / p) / (2 N)) + sd sqrt(2 / p) / N + truncation
    sd^2 <= (J / share / epsilon)^2 sum over streams of 2 v (h width)^2
    sd = O(U sqrt(M) log(max_slots) (log n)^1.5 / epsilon)

with J streams, h nodes over a slot, v nodes of a prefix and `share` 1, or 3/4 with truncation. That is the source's
bound O~(1 / sqrt(N) + sqrt(M) / (N epsilon)). Truncation is at most 0.01 U / sqrt(s) in the mean, s the smallest
truncated group, as E max(0, |item - s m| - d) <= OUTSIDE s U^2 / (4 d); unless a search failed (MISSED).
tests/statistics/test_withhold_release.py compares the bound with measured errors.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from hatcast.stream.continual._digits import Digits, Integers
from hatcast.stream.continual._interface import (
    Advanced,
    Mechanism,
    NoiseCalibration,
    States,
    Step,
    SumSetting,
    checked_sum,
    slot_sums,
)
from hatcast.stream.continual._withheld import STREAMS_SHARE, Group, ReleasedItems, Withheld, empty, groups, read
from hatcast.stream.continual.trees import PrefixSteps, kary_digits, placed, plan
from hatcast.stream.mechanisms import MAX_VALUE, Distances, UnsafeNoise, VectorNoise
from hatcast.stream.units import float_below

MISSED: Final = 0.05  # largest probability that a noise of a search is too large for it
_MOST_ITEMS: Final = 2**16  # of one stream in one slot, whose sum must fit into 64 bits


# Noise of kind `withhold_release`: how its streams and searches share epsilon. All public.
#
# Each of J streams has an equal part of epsilon, as in the source. With truncated groups all streams have 3/4 of it
# together, and each search an equal part of the rest. The whole is epsilon-private by adaptive composition.
@dataclass(frozen=True, slots=True)
class GroupStream:
    """Noise of one group's items."""

    group: Group
    digits: Digits  # the tree of prefixes, from the first slot with an item on
    nodes: NoiseCalibration  # noise of its nodes
    counts: NoiseCalibration  # noise of the counts of its search; not used without truncation

    @property
    def queries(self) -> int:
        """Counts that a search asks for."""
        return queries(self.group)

    @property
    def least(self) -> int:
        """Items for which a search is started: four times a bound of all its noises."""
        if not self.queries:
            return 1
        # P(|X| > x) <= exp(-floor(x) / scale), for each count
        return 4 * math.ceil(self.counts.scale * math.log(self.queries / MISSED) + 1)


def queries(group: Group) -> int:
    """Return the number of counts that a search for the median's bin asks for."""
    return (group.bins - 1).bit_length()


def streams(setting: SumSetting, groups: tuple[Group, ...]) -> tuple[GroupStream, ...]:
    """Return the noise of each group's items. Raises ValueError for Gaussian noise (`kary`)."""
    searches = sum(group.step > 0 for group in groups)
    share = STREAMS_SHARE if searches else Fraction(1)
    whole = Fraction(setting.epsilon)
    each = replace(setting, epsilon=float_below(whole * share / len(groups)))
    search = replace(setting, epsilon=float_below(whole * (1 - share) / searches)) if searches else setting
    made = []
    for group in groups:
        # One item of each user, over the slots at which there may be one.
        tree = kary_digits(replace(setting, slots=setting.slots - group.first, max_slots=1, branching=None))
        nodes, asked = tree.most_nodes(1, 1), queries(group)
        noises = NoiseCalibration(each, Distances(nodes * group.width, nodes * group.width**2))
        made.append(
            GroupStream(group, tree, noises, NoiseCalibration(search, Distances(asked, asked)) if asked else noises)
        )
    return tuple(made)


# Privacy of a median, for the truncation. N items lie in bins of one width. A binary search for the bin of the median
# asks at each step for the number of items below an edge, with noise. A change of one item moves each of these
# numbers by at most 1, whatever the answers before. So the l1 distance is at most the number of steps.
#
# If all noises are within N / 4, at least a quarter of the items are not above the bin found, and at least a quarter
# not below it: at the last edge that was found too low fewer than N / 2 + N / 4 items lie below, and so on the other
# side. If then less than a quarter of the items are further than d from s m on each side, the bin has a point within
# d of s m; so s m +- d is within 2 d of the bin (`Group.lowest`).
def median_bins(cells: list[Integers], stream: GroupStream, noise: VectorNoise) -> list[int]:
    """Return the bin of each cell's median. Each step draws the noise of all cells at once.

    cells  items of each cell
    """
    step = stream.group.step
    low = np.zeros(len(cells), np.int64)
    high = np.full(len(cells), 1 << stream.queries, np.int64)
    for _ in range(stream.queries):
        middle = (low + high) // 2
        below = [int((items < edge).sum()) for items, edge in zip(cells, (middle * step).tolist(), strict=True)]
        noisy = stream.counts.draw(np.array(below, np.int64), noise)
        upper = 2 * noisy < np.array([len(items) for items in cells], np.int64)
        low, high = np.where(upper, middle, low), np.where(upper, high, middle)
    found: list[int] = np.minimum(low, stream.group.bins - 1).tolist()
    return found


class WithholdRelease(Mechanism):
    """Withholding of users' values until groups are complete, for all cells of one setting.

    Raises ValueError for Gaussian noise, as kind `kary`, and UnsafeNoise if a group's sum does not fit into 64 bits.
    """

    def __init__(self, setting: SumSetting) -> None:
        self.setting = setting
        self.groups = groups(setting)
        if self.groups[-1].range > MAX_VALUE // _MOST_ITEMS:
            raise UnsafeNoise("the sum of a user's values does not fit into 64 bits: use a smaller range of values")
        self.streams = streams(setting, self.groups)
        self._least = [stream.least for stream in self.streams]
        self._nodes = [stream.digits.numbers for stream in self.streams]
        trees = " ".join(f"{each.digits.base} {each.digits.levels}" for each in self.streams)
        self._states = States("withhold_release", setting, f"{self.groups} {trees} {self._least}")

    def advance(self, steps: Sequence[Step], noise: VectorNoise) -> list[Advanced]:
        """As `Mechanism.advance`. Noise is drawn in a few calls for each stream."""
        slot_sums(steps, self.setting)  # checks the values
        cells = [self._read(step) for step in steps]
        indexes = [step.index for step in steps]
        for cell, step in zip(cells, steps, strict=True):
            for number, items in cell.users.enter(step.entries, self.groups).items():
                cell.streams[number].add(items, step.index, self.groups[number])
        for number, stream in enumerate(self.streams):
            released = [cell.streams[number] for cell in cells]
            self._release_waiting(number, released, indexes, noise)
            _draw(stream, released, indexes, noise)
        totals = np.array([[each.total for each in cell.streams] for cell in cells], np.int64).reshape(
            -1, len(self.groups)
        )
        checked_sum(np.zeros(len(cells), np.int64), totals.sum(axis=1))
        return [self._advanced(cell, index) for cell, index in zip(cells, indexes, strict=True)]

    def sd(self, index: int) -> float:
        """As `Mechanism.sd`: each stream starts as early as possible, with enough items."""
        return math.sqrt(
            sum(
                stream.nodes.sd**2 * int(stream.digits.numbers[max(0, index + 1 - stream.group.first)])
                for stream in self.streams
            )
        )

    def released(self, values: int) -> int:
        """Return how many of a user's first `values` values are in the sum, if each stream with an item has started."""
        return max((group.end for group in self.groups if group.end <= values), default=0)

    def _read(self, step: Step) -> Withheld:
        stored = self._states.read(step)
        return empty(len(self.streams)) if stored is None else read(stored.numbers, self._nodes)

    def _release_waiting(
        self, number: int, released: list[ReleasedItems], indexes: list[int], noise: VectorNoise
    ) -> None:
        """Search the medians of the cells that have enough items, and release these."""
        stream = self.streams[number]
        ready = [at for at, each in enumerate(released) if len(each.waiting) >= self._least[number]]
        if not ready:
            return
        found = median_bins([released[at].waiting for at in ready], stream, noise)
        for at, median_bin in zip(ready, found, strict=True):
            released[at].release_waiting(stream.group.lowest(median_bin), indexes[at], stream.group)

    def _advanced(self, cell: Withheld, index: int) -> Advanced:
        parts = list(zip(self.streams, cell.streams, strict=True))
        total = sum(each.total + int(stream.digits.nodes(each.before).signs @ each.noises) for stream, each in parts)
        unit = self.streams[0].nodes
        squares = [(stream.nodes.sd / unit.sd) ** 2 for stream in self.streams]
        weights = [square * len(each.noises) for square, each in zip(squares, cell.streams, strict=True)]
        fourths = sum(weight * square for weight, square in zip(weights, squares, strict=True))
        return Advanced(
            self._states.pack(index, cell.numbers()),
            float(total),
            unit.sd * math.sqrt(sum(weights)),
            unit.width95(sum(weights), fourths),
            sum(each.number * group.size for each, group in zip(cell.streams, self.groups, strict=True)),
        )


def _draw(stream: GroupStream, released: list[ReleasedItems], indexes: list[int], noise: VectorNoise) -> None:
    """Draw the noises that the prefixes up to the new slots need."""
    cells: dict[tuple[int, int], list[ReleasedItems]] = defaultdict(list)
    for each, index in zip(released, indexes, strict=True):
        after = each.prefix(index)
        if after:
            cells[each.before, after].append(each)
    plans: dict[tuple[int, int], PrefixSteps] = {key: plan(stream.digits, *key) for key in cells}
    needed = sum(len(plans[key].drawn_to) * len(members) for key, members in cells.items())
    drawn = stream.nodes.draw(np.zeros(needed, np.int64), noise)
    for key, members in cells.items():
        taken = len(plans[key].drawn_to) * len(members)
        noises = placed(plans[key], np.array([each.noises for each in members]), drawn[:taken])
        drawn = drawn[taken:]
        for each, row in zip(members, noises, strict=True):
            each.before, each.noises = key[1], row
