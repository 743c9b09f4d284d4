"""Prefixes of a stream as signed sums of tree nodes, and the sensitivity of the nodes. Nothing here is private.

Node (i, j) of a tree with base B covers the B^i slots from j B^i on. Level i of a prefix of t slots ends at slot
p_i(t) B^i, where p_0(t) = t and above the highest level p = 0. Between the ends of two levels lie nodes of the lower:

- plain digits: p_i(t) = floor(t / B^i). The prefix is the sum of the nodes B p_(i+1), ..., p_i - 1 of each level i: the
  digits of t, and with B = 2 the binary tree (Dwork, Naor, Pitassi and Rothblum 2010; Chan, Shi and Song 2011).
- balanced digits, B odd: p_i(t) = t / B^i rounded to the nearest integer. If p_i is below B p_(i+1), the nodes between
  are subtracted. So a level has at most (B - 1) / 2 nodes of a prefix, each with one sign (Andersson, Pagh and
  Torkamani 2024, arXiv 2408.07021). The middle child of a node is in no prefix.

With A the prefix sums, R the sums over nodes and L these signs: A = L R.

Each node is in consecutive prefixes: the nodes of a level between B p_(i+1) and p_i grow or shrink by one node at a
time until p_(i+1) changes; then they are others. So the nodes in use at t are all that a later prefix shares with an
earlier one.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_LEVEL: Final = 1 << 40  # of a node's key: keys sort by level, then by place


class Nodes(NamedTuple):
    """Nodes of one prefix, in ascending order of their keys."""

    keys: Integers  # int64 [N], different for all nodes of the tree
    signs: Integers  # int64 [N], 1 or -1


class Digits:
    """The nodes of each prefix of `slots` slots. Raises ValueError for a base that is too small or not odd."""

    def __init__(self, slots: int, base: int, levels: int, *, balanced: bool) -> None:
        if base < 2 + balanced or (balanced and base % 2 == 0):
            raise ValueError("a tree needs at least two children for each node, and balanced digits an odd number")
        self.slots, self.base, self.levels = slots, base, levels
        prefixes = np.arange(slots + 1, dtype=np.int64)
        shift = 1 if balanced else 0
        self._ends = [(prefixes + shift * (base**i - 1) // 2) // base**i for i in range(levels)]
        """for each level, int64 [slots + 1]: p_i of each prefix"""
        self._starts = [base * end for end in self._ends[1:]] + [np.zeros_like(prefixes)]
        numbers = [np.abs(end - start) for end, start in zip(self._ends, self._starts, strict=True)]
        self.numbers: Integers = np.sum(numbers, axis=0, dtype=np.int64)
        """int64 [slots + 1]: nodes of each prefix"""
        self._nodes: dict[int, Nodes] = {}  # lru_cache of a method would keep the arrays until a collection

    def nodes(self, prefix: int) -> Nodes:
        """Return the nodes of the prefix of this number of slots. Each prefix is computed once."""
        if prefix not in self._nodes:
            self._nodes[prefix] = self._computed(prefix)
        return self._nodes[prefix]

    def _computed(self, prefix: int) -> Nodes:
        keys, signs = [], []
        for level, (ends, starts) in enumerate(zip(self._ends, self._starts, strict=True)):
            end, start = int(ends[prefix]), int(starts[prefix])
            keys.append(level * _LEVEL + np.arange(min(start, end), max(start, end), dtype=np.int64))
            signs.append(np.full(abs(end - start), 1 if end > start else -1, np.int64))
        return Nodes(np.concatenate(keys), np.concatenate(signs))

    def used(self, level: int) -> NDArray[np.bool_]:
        """Return, for each node of a level that covers a slot, whether some prefix has it. Order: by slot."""
        ends, starts = self._ends[level], self._starts[level]
        size = self.base**level
        covering = -(-self.slots // size)
        steps = np.zeros(max(covering, int(ends.max()), int(starts.max())) + 1, np.int64)
        np.add.at(steps, np.minimum(ends, starts), 1)
        np.add.at(steps, np.maximum(ends, starts), -1)
        return np.cumsum(steps)[:covering] > 0

    def nodes_over(self) -> Integers:
        """Return, for each slot, the number of used nodes that cover it: int64 [slots]."""
        slots = np.arange(self.slots)
        over = np.zeros(self.slots, np.int64)
        for level in range(self.levels):
            over += self.used(level)[slots // self.base**level]
        return over

    def most_nodes(self, participations: int, separation: int) -> int:
        """Return the l1 sensitivity of the sums over used nodes, for values that differ by at most 1.

        A user that is in a set of slots moves these sums by at most the sum of `nodes_over` over the set, and by as
        much if all its values move in the same direction. This is the maximum over all sets of at most
        `participations` slots that are at least `separation` apart: exact.
        """
        over = self.nodes_over()
        if separation == 1:
            return int(np.sort(over)[::-1][:participations].sum())
        best = np.zeros((separation, participations + 1), np.int64)  # of the last slots, cyclic; by slots taken
        latest = best[0].copy()
        for slot, weight in enumerate(over.tolist()):
            row = best[slot % separation]  # of the sets that end `separation` slots earlier or before
            np.maximum(latest[1:], row[:-1] + weight, out=latest[1:])
            row[:] = latest
        return int(latest[-1])

    def nodes_of_even_slots(self, participations: int, separation: int) -> int:
        """Return a lower bound of `most_nodes`: sets of slots whose distances are multiples of `separation`."""
        over = self.nodes_over()
        sets = (np.sort(over[offset::separation])[::-1] for offset in range(min(separation, self.slots)))
        return max(int(slots[:participations].sum()) for slots in sets)

    def most_squares(self, participations: int, separation: int) -> int:
        """Return an upper bound of the squared l2 sensitivity of the sums over used nodes.

        A user is in at most ceil(size / separation) slots of a node. So the squares of one level sum up to at most that
        of as many full nodes as its slots suffice for, and of one node with the rest. Levels are added up, as if one
        set of slots were the worst for each.
        """
        total = 0
        for level in range(self.levels):
            most = min(participations, -(-(self.base**level) // separation))
            full = min(int(self.used(level).sum()), participations // most)
            rest = participations - full * most if full < int(self.used(level).sum()) else 0
            total += full * most**2 + rest**2
        return total
