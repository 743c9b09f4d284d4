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
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from hatcast.stream.continual._calibration import Calibration
from hatcast.stream.continual._digits import Digits, Integers
from hatcast.stream.continual._entries import checked_sum, slot_sums
from hatcast.stream.continual._interface import Advanced, BadState, Setting, Step
from hatcast.stream.continual._state import check_index, fingerprint, pack, unpack
from hatcast.stream.mechanisms import Distances, VectorNoise

_PLANS: Final = 4096  # an hour's cells have few different first and last slots
_FIELDS: Final = 2  # before the noises
_DAMAGED: Final = "the state of a running sum is damaged"


def distances(digits: Digits, setting: Setting) -> Distances:
    """Return the sensitivity of the sums over nodes, in milli-units."""
    k, b = setting.participations, setting.min_separation
    return Distances(digits.most_nodes(k, b) * setting.bound, digits.most_squares(k, b) * setting.bound**2)


class Plan(NamedTuple):
    """Steps from the noises of one prefix to those of a later one.

    kept_from, kept_to  int64 [K]: places of the nodes of both, in the earlier and in the later prefix
    drawn_to            int64 [D]: places of the nodes that have no noise yet, in the later prefix
    signs               int64 [N]: of the later prefix's nodes
    """

    kept_from: Integers
    kept_to: Integers
    drawn_to: Integers
    signs: Integers


def plan(digits: Digits, before: int, after: int) -> Plan:
    """Return the plan from a prefix of `before` slots to one of `after` slots. before 0: nothing was drawn yet."""
    old, new = digits.nodes(before), digits.nodes(after)
    _, kept_from, kept_to = np.intersect1d(old.keys, new.keys, assume_unique=True, return_indices=True)
    return Plan(kept_from, kept_to, np.setdiff1d(np.arange(len(new.keys)), kept_to), new.signs)


class PrefixNoise:
    """One noise for each node, for all cells of one setting. See `Mechanism`."""

    def __init__(self, kind: str, setting: Setting, digits: Digits) -> None:
        self.setting = setting
        self.digits = digits
        self.calibration = Calibration(setting, distances(digits, setting))
        self._fingerprint = fingerprint(kind, setting, f"{digits.base} {digits.levels}")
        self._plan = lru_cache(maxsize=_PLANS)(lambda before, after: plan(digits, before, after))

    def advance(self, steps: Sequence[Step], noise: VectorNoise) -> list[Advanced]:
        """See `Mechanism.advance`."""
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
                state = _Stored(stored[number].first, key[1], int(sums[number]), row)
                advanced[number] = self._advanced(state, total)
        return [each for each in advanced if each is not None]

    def sd(self, index: int) -> float:
        """See `Mechanism.sd`."""
        return self.calibration.sd * math.sqrt(int(self.digits.numbers[index + 1]))

    def _read(self, step: Step) -> "_Stored":
        check_index(step.index, self.setting)
        if step.state is None:
            return _Stored(step.index, 0, 0, np.zeros(0, np.int64))
        index, numbers = unpack(step.state, self._fingerprint, step.index)
        if len(numbers) < _FIELDS or not 0 <= numbers[0] <= index:
            raise BadState(_DAMAGED)
        first, total = numbers[:_FIELDS].tolist()
        prefix = index - first + 1
        if len(numbers) != _FIELDS + int(self.digits.numbers[prefix]):
            raise BadState(_DAMAGED)
        return _Stored(first, prefix, total, numbers[_FIELDS:])

    def _advanced(self, after: "_Stored", total: int) -> Advanced:
        nodes, index = len(after.noises), after.first + after.prefix - 1
        state = pack(self._fingerprint, index, np.concatenate([[after.first, after.total], after.noises]))
        return Advanced(state, float(total), self.sd(after.prefix - 1), self.calibration.width95(nodes, nodes))


class _Stored(NamedTuple):
    """State of one cell.

    first   index of its first slot
    prefix  slots from there on
    total   their exact sum
    noises  int64: of the prefix's nodes
    """

    first: int
    prefix: int
    total: int
    noises: Integers


def placed(plan: Plan, stored: Integers, drawn: Integers) -> Integers:
    """Return the noises of the later prefix's nodes, for cells with the same plan.

    stored  [cells, nodes of the earlier prefix]
    drawn   for all these cells
    """
    noises = np.empty((len(stored), len(plan.signs)), np.int64)
    noises[:, plan.kept_to] = stored[:, plan.kept_from]
    noises[:, plan.drawn_to] = drawn.reshape(len(stored), len(plan.drawn_to))
    return noises
