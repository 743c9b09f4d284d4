"""Running sums with one noise for each node of a tree: kinds `tree` and `kary`.

The running sum after t slots is A x + L z: x the slots' sums, A x their exact prefix sums, z one noise for each node
and L the signs of the nodes of each prefix (`_digits`). A = L R with R the sums over nodes, so A x + L z = L (R x + z):
the signed sum of noisy nodes. A node that reaches beyond t contributes its noise alone: its later slots cancel.

Privacy. Let x and x' be neighbours; their slots may follow from the outputs before them. For fixed outputs o both are
fixed, and z gives o for x if and only if z + R (x - x') gives o for x'. R (x - x') is at most `distances` in its norms,
whatever o is. So the probabilities of o differ as those of z and z + R (x - x') do, and these as `mechanisms` proves.
Each node's noise is drawn when a released prefix first has the node, and stored. This is the same z.

State: the exact prefix sum and the noises of the nodes in use, at most as many as a prefix has.
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

_PLANS: Final = 4096  # an hour's cells have few different last slots


def distances(digits: Digits, setting: Setting) -> Distances:
    """Return the sensitivity of the sums over nodes, in milli-units."""
    k, b = setting.participations, setting.min_separation
    return Distances(digits.most_nodes(k, b) * setting.bound, digits.most_squares(k, b) * setting.bound**2)


class Plan(NamedTuple):
    """How the noises of one prefix follow from those of an earlier one.

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
        sums = checked_sum(np.array([numbers[0] for _, numbers in stored], np.int64), slot_sums(steps, self.setting))
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, (step, (before, _)) in enumerate(zip(steps, stored, strict=True)):
            groups[before, step.index + 1].append(number)
        plans = {key: self._plan(*key) for key in groups}
        needed = sum(len(plans[key].drawn_to) * len(members) for key, members in groups.items())
        drawn = self.calibration.draw(np.zeros(needed, np.int64), noise)
        advanced: list[Advanced | None] = [None] * len(steps)
        for key, members in groups.items():
            taken = len(plans[key].drawn_to) * len(members)
            noises = placed(plans[key], np.array([stored[number][1][1:] for number in members]), drawn[:taken])
            drawn = drawn[taken:]
            numbers = np.column_stack([sums[members], noises])
            for number, row, total in zip(members, numbers, noises @ plans[key].signs + sums[members], strict=True):
                advanced[number] = self._advanced(key[1], row, float(total))
        return [each for each in advanced if each is not None]

    def sd(self, index: int) -> float:
        """See `Mechanism.sd`."""
        return self.calibration.sd * math.sqrt(int(self.digits.numbers[index + 1]))

    def _read(self, step: Step) -> tuple[int, Integers]:
        """Return the number of slots in the state, and its numbers: the prefix sum, then the noises of its nodes."""
        check_index(step.index, self.setting)
        if step.state is None:
            return 0, np.zeros(1, np.int64)
        index, numbers = unpack(step.state, self._fingerprint, step.index)
        if len(numbers) != 1 + int(self.digits.numbers[index + 1]):
            raise BadState("the state of a running sum is damaged")
        return index + 1, numbers

    def _advanced(self, prefix: int, numbers: Integers, total: float) -> Advanced:
        nodes = int(self.digits.numbers[prefix])
        state = pack(self._fingerprint, prefix - 1, numbers)
        return Advanced(state, total, self.sd(prefix - 1), self.calibration.width95(nodes, nodes))


def placed(plan: Plan, stored: Integers, drawn: Integers) -> Integers:
    """Return the noises of the later prefix's nodes, for cells with the same plan.

    stored  [cells, nodes of the earlier prefix]
    drawn   for all these cells
    """
    noises = np.empty((len(stored), len(plan.signs)), np.int64)
    noises[:, plan.kept_to] = stored[:, plan.kept_from]
    noises[:, plan.drawn_to] = drawn.reshape(len(stored), len(plan.drawn_to))
    return noises
