"""Running sums with one noise for each node of a tree: kinds `tree` and `kary`.

The running sum after t slots is A x + L z: x the slots' sums, A x their exact prefix sums, z one noise for each node
and L the signs of the nodes of each prefix (`_digits`). A = L R with R the sums over nodes, so A x + L z = L (R x + z):
the signed sum of noisy nodes. A node that reaches beyond t contributes its noise alone: its later slots cancel.

Privacy. Let x and x' be neighbours; their slots may follow from the outputs before them. R (x - x') is at most
`distances` in its norms, whatever the outputs are.
- Laplace noise: for fixed outputs o both streams are fixed, and z gives o for x if and only if z + R (x - x') gives o
  for x'. Both have probabilities that differ by a factor of at most exp(epsilon). A sum over all z gives that of o.
- Gaussian noise, and only for nodes that lie within the prefixes that have them (`tree`): the numbers R x + z are asked
  for one after the other, and o follows from them. So the lemma on vectors in `mechanisms.gaussian` holds.
Each node's noise is drawn when a released prefix first has the node, and stored. This is the same z.

Slots before a cell's first one are empty for neighbours too. So prefixes are counted from it: the stream is that of a
shorter horizon, and the sensitivity for n slots is an upper bound.

State: the cell's first slot, the exact prefix sum and the noises of the nodes in use, as many as the prefix has.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import isqrt
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np

from hatcast.stream.continual._digits import Digits, Integers
from hatcast.stream.continual._interface import (
    DAMAGED,
    Advanced,
    BadState,
    Mechanism,
    NoiseCalibration,
    States,
    Step,
    SumSetting,
    checked_sum,
    slot_sums,
)
from hatcast.stream.mechanisms import Distances, VectorNoise
from hatcast.stream.policy.method import NoiseKind

_PLANS: Final = 4096  # an hour's cells have few different first and last slots
_FIELDS: Final = 2  # before the noises
_NO_KEY: Final = -1  # of a node


def distances(digits: Digits, setting: SumSetting) -> Distances:
    """Return the sensitivity of the sums over nodes, in milli-units."""
    k, b = setting.participations, setting.min_separation
    return Distances(digits.most_nodes(k, b) * setting.bound, digits.most_squares(k, b) * setting.bound**2)


class PrefixSteps(NamedTuple):
    """Steps from the noises of one prefix to those of a later one."""

    # kept_from, kept_to: int64 [K]: places of the nodes of both, in the earlier and in the later prefix
    kept_from: Integers
    kept_to: Integers
    drawn_to: Integers  # int64 [D]: places of the nodes that have no noise yet, in the later prefix
    signs: Integers  # int64 [N]: of the later prefix's nodes


def plan(digits: Digits, before: int, after: int) -> PrefixSteps:
    """Return the plan from a prefix of `before` slots to one of `after` slots. before 0: nothing was drawn yet."""
    old, new = digits.nodes(before), digits.nodes(after)
    # By their order: numpy's operations on sets of any order take five times as long for so few nodes.
    places = np.searchsorted(old.keys, new.keys)
    is_kept = np.append(old.keys, _NO_KEY)[places] == new.keys
    kept_to = np.flatnonzero(is_kept)
    return PrefixSteps(places[kept_to], kept_to, np.flatnonzero(~is_kept), new.signs)


class PrefixNoise(Mechanism):
    """One noise for each node, for all cells of one setting."""

    def __init__(self, kind: str, setting: SumSetting, digits: Digits) -> None:
        self.setting = setting
        self.digits = digits
        self.calibration = NoiseCalibration(setting, distances(digits, setting))
        self._states = States(kind, setting, f"{digits.base} {digits.levels}")
        self._plan = lru_cache(maxsize=_PLANS)(lambda before, after: plan(digits, before, after))

    def advance(self, steps: Sequence[Step], noise: VectorNoise) -> list[Advanced]:
        stored = [self._read(step) for step in steps]
        before = np.array([each.total for each in stored], np.int64)
        sums = checked_sum(before, slot_sums(steps, self.setting))
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, (step, each) in enumerate(zip(steps, stored, strict=True)):
            groups[each.prefix, step.index - each.first + 1].append(number)
        plans = {key: self._plan(*key) for key in groups}
        needed = sum(len(plans[key].drawn_to) * len(members) for key, members in groups.items())
        drawn = self.calibration.draw(np.zeros(needed, np.int64), noise)
        advanced: list[Advanced | None] = [None] * len(steps)
        for key, members in groups.items():
            taken = len(plans[key].drawn_to) * len(members)
            noises = placed(plans[key], np.array([stored[number].noises for number in members]), drawn[:taken])
            drawn = drawn[taken:]
            totals = (noises @ plans[key].signs + sums[members]).tolist()
            for number, row, total in zip(members, noises, totals, strict=True):
                state = _StoredNodes(stored[number].first, key[1], int(sums[number]), row)
                advanced[number] = self._advanced(state, total)
        return [each for each in advanced if each is not None]

    def sd(self, index: int) -> float:
        return self.calibration.sd * math.sqrt(int(self.digits.numbers[index + 1]))

    def _read(self, step: Step) -> "_StoredNodes":
        stored = self._states.read(step)
        if stored is None:
            return _StoredNodes(step.index, 0, 0, np.zeros(0, np.int64))
        index, numbers = stored
        if len(numbers) < _FIELDS or not 0 <= numbers[0] <= index:
            raise BadState(DAMAGED)
        first, total = numbers[:_FIELDS].tolist()
        prefix = index - first + 1
        if len(numbers) != _FIELDS + int(self.digits.numbers[prefix]):
            raise BadState(DAMAGED)
        return _StoredNodes(first, prefix, total, numbers[_FIELDS:])

    def _advanced(self, after: "_StoredNodes", total: int) -> Advanced:
        nodes, index = len(after.noises), after.first + after.prefix - 1
        state = self._states.pack(index, np.concatenate([[after.first, after.total], after.noises]))
        return Advanced(state, float(total), self.sd(after.prefix - 1), self.calibration.width95(nodes, nodes))


class _StoredNodes(NamedTuple):
    """State of one cell."""

    first: int  # index of its first slot
    prefix: int  # slots from there on
    total: int  # their exact sum
    noises: Integers  # int64: of the prefix's nodes


def placed(plan: PrefixSteps, stored: Integers, drawn: Integers) -> Integers:
    """Return the noises of the later prefix's nodes, for cells with the same plan.

    stored  [cells, nodes of the earlier prefix]
    drawn   for all these cells
    """
    noises = np.empty((len(stored), len(plan.signs)), np.int64)
    noises[:, plan.kept_to] = stored[:, plan.kept_from]
    noises[:, plan.drawn_to] = drawn.reshape(len(stored), len(plan.drawn_to))
    return noises


def kary(setting: SumSetting) -> PrefixNoise:
    """Return the k-ary tree mechanism of a setting. Without a branching it has the one of the least maximum error.

    Trees have many children for each node, and negative digits. A running sum after t slots adds and subtracts noisy
    nodes: with B children for each node (odd), at most (B - 1) / 2 of each level. Laplace noise grows in proportion to
    the number of levels, so few levels with many nodes are better than a binary tree. State: O(B log_B n) numbers.
    Source: Andersson, Pagh and Torkamani 2024, arXiv 2408.07021.

    Raises ValueError for a branching that is even or below 3, and for Gaussian noise: a node's noise may be in a sum
    before its last slot, and for streams that react to sums the proof above is for Laplace noise alone.
    """
    return PrefixNoise("kary", setting, kary_digits(setting))


class _ShapeError(NamedTuple):
    """Integers that order shapes by their errors, the same on every machine."""

    largest: int  # proportional to the largest variance of a running sum
    mean: int  # to the mean one
    branching: int
    levels: int


def kary_digits(setting: SumSetting) -> Digits:
    """Return the branching and number of levels of the least maximum error; ties by the mean error, then the smallest.

    Shapes are tried in the order of a lower bound of their errors, until it exceeds the best error.
    Raises ValueError as `kary`.
    """
    if setting.noise is not NoiseKind.LAPLACE:
        raise ValueError("trees with negative digits have Laplace noise")
    k, b = setting.participations, setting.min_separation
    shapes = [(_error(digits, digits.nodes_of_even_slots(k, b)), digits) for digits in _shapes(setting)]
    best: tuple[_ShapeError, Digits] | None = None
    for bound, digits in sorted(shapes, key=itemgetter(0)):
        if best is not None and bound.largest > best[0].largest:
            break
        error = _error(digits, digits.most_nodes(k, b))
        if best is None or error < best[0]:
            best = error, digits
    if best is None:
        raise AssertionError("each setting has a shape")
    return best[1]


def _shapes(setting: SumSetting) -> Iterator[Digits]:
    """Yield the trees to choose from. One level is noise for each slot, so it is left out where two are possible."""
    n = setting.slots
    widest = 4 * isqrt(n) + 3  # a tree of two levels is best near the square root of 2 n
    for base in range(3, widest + 1, 2) if setting.branching is None else (setting.branching,):
        levels = 2 if base < 2 * n else 1
        while levels <= 2 or base ** (levels - 1) < 2 * n:
            yield Digits(n, base, levels, balanced=True)
            levels += 1


def _error(digits: Digits, nodes: int) -> _ShapeError:
    """Return the error of a shape whose sensitivity is `nodes`, or is at least that."""
    squared, numbers = nodes**2, digits.numbers
    return _ShapeError(squared * int(numbers.max()), squared * int(numbers.sum()), digits.base, digits.levels)


def tree(setting: SumSetting) -> PrefixNoise:
    """Return the binary tree mechanism of a setting.

    A running sum after t slots is the sum of as many noisy nodes as the binary number t has ones. A node is used only
    if it is the left child of its parent. So a user in one slot moves at most floor(log2 n) + 1 nodes, and a user in
    every slot half as many a slot: the sensitivity is the exact maximum over the declared participation. State:
    O(log n) numbers. Sources: Dwork, Naor, Pitassi and Rothblum (2010); Chan, Shi and Song (2011).
    """
    return PrefixNoise("tree", setting, Digits(setting.slots, 2, setting.slots.bit_length(), balanced=False))
