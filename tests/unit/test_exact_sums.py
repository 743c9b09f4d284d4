"""Exact sums over few users, which are added one by one, and over many, which are added in runs: the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.estimators import grouping as exact
from hatcast.stream.estimators.grouping import FEW, GROUPINGS, capped_weights, excess_weight, total, weights_in
from tests.support import as_counts, counts_lists


@given(numbers=st.lists(st.integers(-(2**62), 2**62), max_size=2 * FEW))
def test_a_total_is_that_of_integers_without_a_limit(numbers: list[int]) -> None:
    assert total(np.array(numbers, np.int64)) == sum(numbers)


@pytest.mark.parametrize("number", [0, 1, FEW, FEW + 1, 5_000])
def test_a_total_that_exceeds_64_bits_is_exact(number: int) -> None:
    assert total(np.full(number, 2**62, np.int64)) == number * 2**62


@pytest.mark.parametrize("grouping", [None, *GROUPINGS])
@given(counts=counts_lists, data=st.data())
def test_the_excess_of_few_users_is_that_of_runs_of_users(
    grouping: str | None, counts: list[int], data: st.DataObject
) -> None:
    ordered = as_counts(counts)
    length = data.draw(st.integers(1, max(counts)))
    if grouping is None:
        weights = capped_weights(ordered, length)
        whole = total(weights[0])
    else:
        arrays = GROUPINGS[grouping](ordered, length)
        weights, whole = weights_in(ordered, arrays), arrays.number
    found = excess_weight(ordered, weights, whole)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exact, "FEW", 0)
        assert excess_weight(ordered, weights, whole) == found
