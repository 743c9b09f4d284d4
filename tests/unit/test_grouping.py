"""BESTFIT and WRAPAROUND against their definitions, place by place."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hatcast.stream.estimators.grouping import GROUPINGS, Arrays, Counts, bestfit, wraparound
from tests.support import ITMS_LIKE, as_counts

counts_lists = st.one_of(
    st.lists(st.integers(1, 6), max_size=60),
    st.lists(st.integers(1, 60), max_size=60),
    st.lists(st.sampled_from([1, 2, 3, 5, 7, 11]), max_size=60),
)
lengths = st.integers(1, 70)
every_grouping = pytest.mark.parametrize("grouping", GROUPINGS.values(), ids=GROUPINGS)
Contents = list[dict[int, int]]
"""per array: user -> places"""


def contents(arrays: Arrays) -> Contents:
    found: Contents = [{} for _ in range(arrays.number)]
    for user, array, places in zip(arrays.users, arrays.arrays, arrays.places, strict=True):
        assert int(user) not in found[array], "a user has one part in an array"
        found[array][int(user)] = int(places)
    return found


def naive_bestfit(counts: Sequence[int], array_length: int) -> Contents:
    """[M Alg 2], one user at a time, looking at every array."""
    found: Contents = []
    for user, count in enumerate(counts):
        taken = min(count, array_length)
        fills = [sum(array.values()) for array in found]
        roomy = [array for array, fill in enumerate(fills) if array_length - fill >= taken]
        if roomy:
            best = max(roomy, key=lambda array: (fills[array], -array))
            found[best][user] = taken
        else:
            found.append({user: taken})
    return found


def naive_wraparound(counts: Sequence[int], array_length: int) -> Contents:
    """[M Alg 1], one place at a time."""
    dealt = [user for user, count in enumerate(counts) for _ in range(min(count, array_length))]
    full = [dealt[k * array_length : (k + 1) * array_length] for k in range(len(dealt) // array_length)]
    return [{user: array.count(user) for user in array} for array in full]


@given(counts_lists.map(as_counts), lengths)
@example(as_counts([]), 1)
@example(as_counts([5]), 9)
@example(as_counts([5, 5, 5, 3, 2, 2, 2, 1]), 7)
@example(as_counts([9, 7, 5, 3, 1]), 13)  # two arrays come to equal room, the later one first
def test_bestfit_equals_its_definition_on_any_counts(counts: Counts, array_length: int) -> None:
    assert contents(bestfit(counts, array_length)) == naive_bestfit(counts.tolist(), array_length)


@given(counts_lists.map(as_counts), lengths)
@example(as_counts([]), 1)
@example(as_counts([5]), 9)
@example(as_counts([5, 5, 5, 3, 2, 2, 2, 1]), 7)
def test_wraparound_equals_its_definition_on_any_counts(counts: Counts, array_length: int) -> None:
    assert contents(wraparound(counts, array_length)) == naive_wraparound(counts.tolist(), array_length)


@every_grouping
@given(counts=counts_lists.map(as_counts), array_length=lengths)
def test_fills_splits_and_equal_fills_are_as_promised(
    grouping: Callable[[Counts, int], Arrays], counts: Counts, array_length: int
) -> None:
    arrays = grouping(counts, array_length)
    found = contents(arrays)
    assert arrays.fills.tolist() == [sum(array.values()) for array in found]
    assert all(1 <= fill <= array_length for fill in arrays.fills)
    assert bool(np.all(np.diff(arrays.users) >= 0))
    fills_of_user: dict[int, list[int]] = {}
    for array, fill in zip(found, arrays.fills.tolist(), strict=True):
        for user in array:
            fills_of_user.setdefault(user, []).append(fill)
    assert all(len(fills) <= arrays.split and len(set(fills)) == 1 for fills in fills_of_user.values())


@every_grouping
@given(counts=counts_lists.map(as_counts), array_length=lengths)
def test_a_user_fills_no_more_places_than_readings_and_than_one_array(
    grouping: Callable[[Counts, int], Arrays], counts: Counts, array_length: int
) -> None:
    arrays = grouping(counts, array_length)
    places = np.zeros(len(counts), np.int64)
    np.add.at(places, arrays.users, arrays.places)
    assert bool(np.all(places <= np.minimum(counts, array_length)))


@every_grouping
@given(counts=counts_lists.map(as_counts), array_length=lengths)
def test_at_most_two_parts_of_an_array_are_not_all_readings_of_their_user(
    grouping: Callable[[Counts, int], Arrays], counts: Counts, array_length: int
) -> None:
    """Exact array means stand on it: two counts at most become a denominator."""
    arrays = grouping(counts, array_length)
    broken = arrays.arrays[arrays.places != counts[arrays.users]]
    assert np.bincount(broken, minlength=1).max() <= 2
    assert bool(np.all(np.diff(broken) >= 0)), "and they stand side by side"


def test_the_itms_counts_give_the_published_numbers_of_arrays() -> None:
    counts = as_counts(ITMS_LIKE)
    assert (wraparound(counts, 50).number, bestfit(counts, 50).number) == (160, 164)


def test_counts_near_a_thousand_million_do_not_overflow() -> None:
    counts = as_counts([10**9] * 1000 + [1])
    assert wraparound(counts, 10**9).number == 1000
    assert bestfit(counts, 10**9 - 1).number == 1001


@every_grouping
def test_an_array_without_places_is_refused(grouping: Callable[[Counts, int], Arrays]) -> None:
    with pytest.raises(ValueError, match="must be 1 or more"):
        grouping(as_counts([1]), 0)
