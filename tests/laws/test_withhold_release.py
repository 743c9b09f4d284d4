"""Laws of kind `withhold_release`: what is released is that of complete groups, and one user moves one item a stream.

Each law is broken by a mutant.
"""

from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatcast.stream.continual import Entries, Step, SumSetting
from hatcast.stream.continual._digits import Integers
from hatcast.stream.continual._interface import BadState
from hatcast.stream.continual._withheld import Group, HorizonUsers, ReleasedItems, groups
from hatcast.stream.continual.withhold_release import WithholdRelease
from hatcast.stream.mechanisms import UnsafeNoise
from hatcast.stream.policy.method import NoiseKind
from tests.laws.withheld_streams import BOUND, Slots, Table, arrivals, each_value, entries, setting, states, sums


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(1, [1]), (2, [1, 1]), (3, [1, 1, 1]), (7, [1, 1, 2, 3]), (8, [1, 1, 2, 4]), (24, [1, 1, 2, 4, 8, 8])],
)
def test_groups_double_and_the_last_has_the_rest(most: int, sizes: list[int]) -> None:
    made = groups(setting(100, most, 3))
    assert [group.size for group in made] == sizes
    assert [group.end for group in made] == np.cumsum(sizes).tolist()
    assert [group.first for group in made] == [3 * (end - 1) for end in np.cumsum(sizes).tolist()]
    assert [group.width for group in made] == [BOUND * size for size in sizes]


@pytest.mark.parametrize("most", [1, 3, 100, 260, 500, 4096])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.3, 7.7])
def test_the_parts_of_epsilon_are_together_at_most_epsilon(most: int, epsilon: float) -> None:
    streams = WithholdRelease(setting(max(most, 500), most, epsilon=epsilon)).streams
    parts = [Fraction(stream.nodes.setting.epsilon) for stream in streams]
    parts += [Fraction(stream.counts.setting.epsilon) for stream in streams if stream.queries]
    assert Fraction(epsilon) * (1 - Fraction(1, 10**12)) < sum(parts) <= Fraction(epsilon)


@settings(deadline=None)
@given(arrivals, st.integers(0, 2**32 - 1))
def test_the_sum_without_noise_is_that_of_complete_groups(users: list[set[int]], seed: int) -> None:
    mechanism = WithholdRelease(setting(12, 7))
    rng = np.random.default_rng(seed)
    slots: Slots = {}
    for index in range(12):
        present = {user: int(rng.integers(0, BOUND + 1)) for user, mine in enumerate(users) if index in mine}
        if present:
            slots[index] = present
    mine: dict[int, list[int]] = defaultdict(list)
    state: bytes | None = None
    for index, values in slots.items():
        (advanced,) = mechanism.advance([Step(state, index, entries(values))], Table(mechanism))
        state = advanced.state
        for user, value in values.items():
            mine[user].append(value)
        complete = [values[: mechanism.released(len(values))] for values in mine.values()]
        assert advanced.total == sum(map(sum, complete))
        assert advanced.count == sum(map(len, complete))
        assert all(2 * len(done) > len(values) for done, values in zip(complete, mine.values(), strict=True))


def crowd(most: int, users: int, seed: int = 3) -> Slots:
    """Users with values around 600 in most slots, user 7 in each, none in more than `most`."""
    rng = np.random.default_rng(seed)
    left = dict.fromkeys(range(users), most)
    slots: Slots = {}
    for index in range(most):
        present = [user for user in range(users) if (rng.random() < 0.97 or user == 7) and left[user]]
        slots[index] = {user: int(rng.integers(200, BOUND + 1)) for user in present}
        for user in present:
            left[user] -= 1
    return slots


MOST: Final = 270  # groups of 64 and 128 values are truncated


def check_that_a_user_moves_one_item_of_each_stream() -> None:
    """For equal answers of all searches: the stated distances, in the sums and in the counts."""
    mechanism = WithholdRelease(setting(MOST, MOST, epsilon=40.0))
    assert [group.size for group in mechanism.groups if group.step] == [64, 128]
    crowded = crowd(MOST, 40)
    slots, changed = (
        {index: {**values, 7: value} if 7 in values else values for index, values in crowded.items()}
        for value in (0, BOUND)
    )
    first = Table(mechanism)
    mine = states(mechanism, slots, first)
    assert all(each.lowest >= 0 for each, group in zip(mine[-1].streams, mechanism.groups, strict=True) if group.step)
    second = Table(mechanism, first.given)
    difference = sums(states(mechanism, changed, second)) - sums(mine)
    assert np.all((difference != 0).sum(axis=0) <= 1)
    assert np.all(np.abs(difference).sum(axis=0) <= [group.width for group in mechanism.groups])
    moved = [int(np.abs(ours - theirs).sum()) for ours, theirs in zip(first.asked, second.asked, strict=True)]
    queries = [stream.queries for stream in mechanism.streams if stream.queries]
    assert len(moved) == sum(queries)
    assert max(moved) == 1
    assert [stream.counts.distances.l1 for stream in mechanism.streams if stream.queries] == queries
    distances = [stream.nodes.distances.l1 for stream in mechanism.streams]
    assert distances == [stream.digits.most_nodes(1, 1) * stream.group.width for stream in mechanism.streams]


def test_a_user_moves_one_item_of_each_stream() -> None:
    check_that_a_user_moves_one_item_of_each_stream()


def unclipped(self: ReleasedItems, items: Integers, index: int, group: Group) -> None:
    """A mutant: items are released as they are."""
    if group.step and self.lowest < 0:
        self.waiting = np.concatenate([self.waiting, items])
        return
    self.start = index if self.start < 0 else self.start
    self.number += len(items)
    self.total += int(items.sum())


MUTANTS: Final[dict[str, tuple[Any, str, Callable[..., Any]]]] = {
    "items are not truncated": (ReleasedItems, "add", unclipped),
    "values are not withheld": (HorizonUsers, "enter", each_value),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[name])
    with pytest.raises(AssertionError):
        check_that_a_user_moves_one_item_of_each_stream()


def test_a_narrower_width_than_the_interval_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interval of five steps whose items are claimed to differ by three."""
    monkeypatch.setattr(
        ReleasedItems,
        "add",
        lambda self, items, index, group: unclipped(
            self, np.clip(items, self.lowest, self.lowest + 2 * group.width) if group.step else items, index, group
        ),
    )
    with pytest.raises(AssertionError):
        check_that_a_user_moves_one_item_of_each_stream()


def test_an_interval_contains_the_mean_of_the_items() -> None:
    mechanism = WithholdRelease(setting(MOST, MOST, epsilon=40.0))
    cell = states(mechanism, crowd(MOST, 40), Table(mechanism))[-1]
    for each, group in zip(cell.streams, mechanism.groups, strict=True):
        if group.step:
            assert each.lowest < 600 * group.size < each.lowest + group.width
            assert each.total / each.number == pytest.approx(600 * group.size, rel=0.02)


def test_items_wait_until_there_are_enough_for_a_median() -> None:
    mechanism = WithholdRelease(setting(MOST, MOST, epsilon=40.0))
    number, stream = next((at, each) for at, each in enumerate(mechanism.streams) if each.queries)
    few = states(mechanism, crowd(MOST, stream.least - 1), Table(mechanism))[-1].streams[number]
    assert (few.number, len(few.waiting)) == (0, stream.least - 1)
    many = states(mechanism, crowd(MOST, stream.least), Table(mechanism))[-1].streams[number]
    assert (many.number, len(many.waiting)) == (stream.least, 0)


def test_a_user_beyond_its_slots_or_twice_in_one_or_outside_its_bounds_is_an_error() -> None:
    mechanism = WithholdRelease(setting(10, 2))
    noise = Table(mechanism)
    state = None
    for index in (0, 1):
        state = mechanism.advance([Step(state, index, entries({1: 5}))], noise)[0].state
    with pytest.raises(ValueError, match="declared"):
        mechanism.advance([Step(state, 2, entries({1: 5}))], noise)
    twice = Entries(np.array([1, 1], np.uint64), np.array([5, 5]))
    with pytest.raises(ValueError, match="two values"):
        mechanism.advance([Step(None, 0, twice)], noise)
    with pytest.raises(ValueError, match="bound"):
        mechanism.advance([Step(None, 0, entries({1: BOUND + 1}))], noise)
    with pytest.raises(UnsafeNoise):
        WithholdRelease(SumSetting(1000, 1000, 1, 2**40, 1.0, 0.0, NoiseKind.LAPLACE))


def test_a_state_of_other_lengths_is_rejected() -> None:
    mechanism = WithholdRelease(setting(10, 4))
    state = mechanism.advance([Step(None, 0, entries({1: 5, 2: 7}))], Table(mechanism))[0].state
    numbers = mechanism._states.unpack(state, 1).numbers
    for broken in (numbers[:-1], np.append(numbers, 0), numbers[:3], np.concatenate([[-1], numbers[1:]])):
        with pytest.raises(BadState):
            mechanism.advance([Step(mechanism._states.pack(0, broken), 1, entries({}))], Table(mechanism))


def test_the_state_of_a_user_takes_24_bytes_and_a_stream_little() -> None:
    mechanism = WithholdRelease(setting(168, 24))
    slots: Slots = {index: dict.fromkeys(range(100), 500) for index in range(24)}
    state: bytes | None = None
    for index, values in slots.items():
        state = mechanism.advance([Step(state, index, entries(values))], Table(mechanism))[0].state
        assert len(state) <= 24 * 100 + len(mechanism.streams) * 8 * (6 + 18) + 30
