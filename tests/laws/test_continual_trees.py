"""Laws of trees: prefixes are signed sums of nodes, one user moves no more of them than claimed, none is drawn twice.

Each law is broken by a mutant.
"""

import gc
import weakref
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

import numpy as np
import pytest

from hatcast.stream.continual import KINDS, Entries, Step, SumSetting
from hatcast.stream.continual import trees as prefixes
from hatcast.stream.continual._digits import Digits, Integers
from hatcast.stream.continual.trees import PrefixNoise
from hatcast.stream.mechanisms import Distances, NoisyVector, UnsafeNoise, laplace
from hatcast.stream.policy.continual_keys import ContinualKind
from hatcast.stream.policy.method import NoiseKind
from tests.laws.continual_streams import patterns

BOUND: Final = 1000
SHAPES: Final = [(2, 5, False), (3, 1, True), (3, 2, True), (3, 3, True), (3, 5, True), (5, 2, True), (7, 2, True)]
"""base, levels, balanced"""
PARTICIPATIONS: Final = [(1, 1), (2, 1), (3, 1), (11, 1), (2, 2), (3, 3), (6, 2), (3, 5)]
"""max_slots, min_separation"""


def test_the_arrays_of_a_tree_that_nobody_uses_are_freed_at_once() -> None:
    """A cycle of references would keep them until a collection, which arrays do not bring about."""
    digits = Digits(50, 3, 4, balanced=True)
    digits.nodes(7)
    gone = weakref.ref(digits)
    gc.disable()
    try:
        del digits
        assert gone() is None
    finally:
        gc.enable()


def trees(slots: int) -> Iterator[Digits]:
    for base, levels, balanced in SHAPES:
        yield Digits(slots, base, levels, balanced=balanced)


def signs(digits: Digits) -> tuple[Integers, Integers]:
    """L: the sign of each node in each prefix, [prefixes, nodes]; and the nodes' keys."""
    keys = np.unique(np.concatenate([digits.nodes(prefix).keys for prefix in range(1, digits.slots + 1)]))
    rows = np.zeros((digits.slots, len(keys)), np.int64)
    for prefix in range(1, digits.slots + 1):
        nodes = digits.nodes(prefix)
        rows[prefix - 1, np.searchsorted(keys, nodes.keys)] = nodes.signs
    return rows, keys


def sums(digits: Digits, keys: Integers) -> Integers:
    """R: the slots of each node, [nodes, slots]."""
    levels, places = np.divmod(keys, 1 << 40)
    sizes = np.array([digits.base**level for level in levels.tolist()])[:, None]
    slots = np.arange(digits.slots)
    covers: Integers = ((places[:, None] * sizes <= slots) & (slots < (places[:, None] + 1) * sizes)).astype(np.int64)
    return covers


@pytest.mark.parametrize("slots", [1, 2, 3, 7, 8, 13, 40])
def test_each_prefix_is_the_signed_sum_of_its_nodes(slots: int) -> None:
    for digits in trees(slots):
        rows, keys = signs(digits)
        assert np.array_equal(rows @ sums(digits, keys), np.tril(np.ones((slots, slots), np.int64)))
        assert np.array_equal(np.abs(rows).sum(axis=1), digits.numbers[1:])


def test_a_node_is_in_consecutive_prefixes_so_its_noise_is_not_needed_after_it_is_dropped() -> None:
    for digits in trees(60):
        rows, _ = signs(digits)
        used = np.abs(rows).T
        assert all(np.all(np.diff(np.flatnonzero(row)) == 1) for row in used)
        assert np.all(used.any(axis=1))


def test_the_sensitivity_is_the_largest_change_of_all_sums_by_one_user() -> None:
    for slots, (most, separation) in product([1, 4, 7, 11], PARTICIPATIONS):
        for digits in trees(slots):
            _, keys = signs(digits)
            moved = sums(digits, keys)
            changes = [moved[:, pattern] for pattern in patterns(slots, most, separation)]
            if not changes:
                continue
            fits = min(most, (slots - 1) // separation + 1)
            l1 = max(int(change.sum()) for change in changes)
            squared = max(int((change.sum(axis=1) ** 2).sum()) for change in changes)
            assert digits.nodes_of_even_slots(fits, separation) <= digits.most_nodes(fits, separation) == l1
            assert squared <= digits.most_squares(fits, separation) <= 2 * squared


def test_changes_in_different_directions_move_the_sums_by_less() -> None:
    changes = np.array(list(product([-1, 0, 1], repeat=7)), np.int64).T
    most = np.abs(changes).sum(axis=0)
    for digits in trees(7):
        _, keys = signs(digits)
        moved = sums(digits, keys) @ changes
        for number in range(1, 8):
            with_number = moved[:, most == number]
            assert np.abs(with_number).sum(axis=0).max() == digits.most_nodes(number, 1)
            assert (with_number**2).sum(axis=0).max() <= digits.most_squares(number, 1)


class OfNodes:
    """A noise that gives each node of each stream its number in a table. Fails if a node's noise is drawn twice.

    keys    of the nodes, ascending
    table   int64 [streams, nodes]
    """

    def __init__(self, mechanism: PrefixNoise, keys: Integers, table: Integers) -> None:
        self.mechanism, self.keys, self.table = mechanism, keys, table
        self.next: list[int] = []
        self.drawn: set[int] = set()

    def expect(self, before: int, after: int) -> None:
        """The nodes that the next draw is for, of all streams."""
        plan = prefixes.plan(self.mechanism.digits, before, after)
        self.next = self.mechanism.digits.nodes(after).keys[plan.drawn_to].tolist()

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        assert (distance, epsilon) == (self.mechanism.calibration.distances.l1, self.mechanism.setting.epsilon)
        assert not self.drawn & set(self.next), "a node's noise was drawn twice"
        self.drawn |= set(self.next)
        noises = self.table[:, np.searchsorted(self.keys, self.next)].ravel()
        return NoisyVector(values + noises, laplace.smallest_scale(distance, epsilon))

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        raise AssertionError


def totals(noise: OfNodes, slots: dict[int, list[list[int]]]) -> list[list[float]]:
    """The running sums of each stream after each slot, through `advance`. slots: index -> values of each stream."""
    states: list[bytes | None] = [None] * len(noise.table)
    before, released, first = 0, [], min(slots)
    for index, streams in slots.items():
        noise.expect(before, index - first + 1)
        entries = [Entries(np.arange(len(values), dtype=np.uint64), np.array(values, np.int64)) for values in streams]
        steps = [Step(state, index, of_slot) for state, of_slot in zip(states, entries, strict=True)]
        advanced = noise.mechanism.advance(steps, noise)
        states, before = [each.state for each in advanced], index - first + 1
        released.append([each.total for each in advanced])
    return released


def setting(slots: int, most: int, separation: int, branching: int | None = None) -> SumSetting:
    return SumSetting(slots, most, separation, BOUND, 1.0, 0.0, NoiseKind.LAPLACE, branching)


def mechanisms(slots: int, most: int, separation: int) -> Iterator[PrefixNoise]:
    for kind, branching in [(ContinualKind.TREE, None), (ContinualKind.KARY, None), (ContinualKind.KARY, 3)]:
        mechanism = KINDS[kind](setting(slots, most, separation, branching))
        assert isinstance(mechanism, PrefixNoise)
        yield mechanism


SLOTS: Final = 8


def check_that_shifted_noise_hides_a_user() -> None:
    """For each pattern of a user: noises shifted by a claimed distance give a neighbour the same outputs.

    Patterns are streams side by side: what one costs is for most of them the same.
    """
    for (most, separation), skipped in product([(1, 1), (3, 2), (SLOTS, 1)], [set(), {0, 1, 5}]):
        rng = np.random.default_rng(7)
        for mechanism in mechanisms(SLOTS, most, separation):
            digits = mechanism.digits
            _, keys = signs(digits)
            others = rng.integers(0, BOUND + 1, SLOTS).tolist()
            # A slot with a user in it is released.
            found = [each for each in patterns(SLOTS, most, separation) if not skipped & set(each)]
            noises = rng.integers(-5000, 5000, (len(found), len(keys)))
            mine, yours = np.zeros((2, len(found), SLOTS), np.int64)
            for stream, pattern in enumerate(found):
                mine[stream, list(pattern)] = BOUND
                yours[stream, list(pattern[1::2])] = BOUND // 3
            first = min(set(range(SLOTS)) - skipped)  # trees begin there
            shift = (mine - yours)[:, first:] @ sums(digits, keys)[:, : SLOTS - first].T
            assert np.abs(shift).sum(axis=1).max() <= mechanism.calibration.distances.l1
            indexes = [index for index in range(SLOTS) if index not in skipped]
            released = [
                totals(
                    OfNodes(mechanism, keys, table),
                    {
                        i: [
                            [others[i], int(own[i])] if i in pattern else [others[i]]
                            for pattern, own in zip(found, values, strict=True)
                        ]
                        for i in indexes
                    },
                )
                for values, table in ((mine, noises), (yours, noises + shift))
            ]
            assert released[0] == released[1]


def test_shifted_noise_hides_a_user() -> None:
    check_that_shifted_noise_hides_a_user()


def without_kept_noises(digits: Digits, before: int, after: int) -> prefixes.PrefixSteps:
    """A mutant's plan: each released prefix has new noise in all of its nodes."""
    return PLAN(digits, 0, after)


PLAN: Final = prefixes.plan
MUTANTS: Final[dict[str, tuple[Any, str, Callable[..., Any]]]] = {
    "the sensitivity is that of one slot": (Digits, "most_nodes", lambda self, *_: int(self.nodes_over().max())),
    "the sensitivity has one slot of each node": (Digits, "most_nodes", lambda self, k, _: self.levels + k - 1),
    "noises are drawn again": (prefixes, "plan", without_kept_noises),
    "a node's sign is forgotten": (
        prefixes,
        "plan",
        lambda *arguments: (made := PLAN(*arguments))._replace(signs=np.abs(made.signs)),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[name])
    with pytest.raises(AssertionError):
        check_that_shifted_noise_hides_a_user()


@pytest.mark.parametrize("kind", [ContinualKind.TREE, ContinualKind.KARY])
def test_a_value_outside_its_bounds_is_rejected(kind: ContinualKind) -> None:
    mechanism = KINDS[kind](setting(4, 1, 1))
    for value in (-1, BOUND + 1):
        with pytest.raises(ValueError, match="bound"):
            mechanism.advance([Step(None, 0, Entries(np.zeros(1, np.uint64), np.array([value])))], Zero())


def test_a_sum_that_may_not_fit_with_its_noise_is_rejected() -> None:
    mechanism = KINDS[ContinualKind.TREE](SumSetting(4, 1, 1, 2**59, 1e12, 0.0, NoiseKind.LAPLACE))
    entries = Entries(np.arange(3, dtype=np.uint64), np.full(3, 2**59))
    with pytest.raises(UnsafeNoise):
        mechanism.advance([Step(None, 0, entries)], Zero())


class Zero:
    """Noise of zero."""

    def laplace_many(self, values: Integers, distance: int, epsilon: float) -> NoisyVector:
        return NoisyVector(values, 0.0)

    def gaussian_many(self, values: Integers, distances: Distances, epsilon: float, delta: float) -> NoisyVector:
        return NoisyVector(values, 0.0)


def test_a_binary_tree_stores_as_many_noises_as_levels_and_a_wide_tree_few_a_level() -> None:
    nobody = Entries(np.zeros(0, np.uint64), np.zeros(0, np.int64))
    for slots, kind, most in [(8760, ContinualKind.TREE, 14), (8760, ContinualKind.KARY, 3 * 13)]:
        mechanism = KINDS[kind](setting(slots, 24, 1))
        first = mechanism.advance([Step(None, 0, nobody)], Zero())[0].state
        sizes = [len(mechanism.advance([Step(first, index, nobody)], Zero())[0].state) for index in range(1, slots, 7)]
        assert max(sizes) <= 8 * (2 + most) + 13


@pytest.mark.parametrize("branching", [1, 2, 4])
def test_balanced_digits_need_an_odd_base(branching: int) -> None:
    with pytest.raises(ValueError, match="odd"):
        KINDS[ContinualKind.KARY](setting(24, 1, 1, branching))


@pytest.mark.parametrize("kind", [ContinualKind.KARY, ContinualKind.WITHHOLD_RELEASE])
def test_nodes_whose_noise_is_used_before_they_end_have_no_gaussian_noise(kind: ContinualKind) -> None:
    """Their shift may depend on a part of their noise: the lemma for Gaussian noise does not cover it."""
    with pytest.raises(ValueError, match="Laplace"):
        KINDS[kind](SumSetting(24, 1, 1, BOUND, 1.0, 1e-6, NoiseKind.GAUSSIAN))


def test_nodes_of_a_binary_tree_lie_within_the_prefixes_that_have_them() -> None:
    for slots in (1, 6, 40):
        digits = Digits(slots, 2, slots.bit_length(), balanced=False)
        rows, keys = signs(digits)
        ends = [int(np.flatnonzero(row)[-1]) for row in sums(digits, keys)]
        assert all(prefix > end for row, end in zip(rows.T, ends, strict=True) for prefix in np.flatnonzero(row) + 1)
        assert np.all(rows >= 0)
