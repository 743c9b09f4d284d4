"""Array means as exact fractions, against one fraction at a time; also where products leave 64 bits."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.estimators._array_means import ArrayMeans
from hatcast.stream.estimators.grouping import GROUPINGS, Arrays
from hatcast.stream.mechanisms.grid import Grid
from tests.support import GRIDS, UPPER_BOUND, as_users, hats

grids = st.sampled_from(GRIDS).map(lambda text: Grid(Decimal(text)))
lengths = st.integers(1, 12) | st.integers(1, 500) | st.integers(1, 2**31 - 1)
Known = tuple[ArrayMeans, list[Fraction]]


def one_at_a_time(counts: list[int], sums: list[int], arrays: Arrays) -> list[Fraction]:
    found = [Fraction(0)] * arrays.number
    for user, array, places in zip(arrays.users.tolist(), arrays.arrays.tolist(), arrays.places.tolist(), strict=True):
        found[array] += Fraction(places * sums[user], counts[user] * int(arrays.fills[array]))
    return found


@st.composite
def known(draw: st.DrawFn) -> Known:
    users = draw(hats())
    length = min(draw(lengths), int(users.counts[0]))
    arrays = GROUPINGS[draw(st.sampled_from(sorted(GROUPINGS)))](users.counts, length)
    means = ArrayMeans.of(users.counts, users.sums, arrays, UPPER_BOUND)
    return means, one_at_a_time(users.counts.tolist(), users.sums.tolist(), arrays)


@given(known(), grids)
def test_means_are_rounded_as_the_grid_rounds_values(known: Known, grid: Grid) -> None:
    means, exact = known
    assert means.nearest(grid.milli).tolist() == [grid.nearest(mean) for mean in exact]


@given(known(), st.fractions(Fraction(1, 1000), UPPER_BOUND, max_denominator=1000))
def test_steps_that_reach_a_mean_are_counted_exactly(known: Known, step: Fraction) -> None:
    means, exact = known
    assert means.ceilings(step).tolist() == [-(-mean // step) for mean in exact]


@given(known(), st.data())
def test_means_are_compared_and_added_exactly(known: Known, data: st.DataObject) -> None:
    means, exact = known
    bound = data.draw(st.sampled_from(exact) | st.fractions(0, UPPER_BOUND, max_denominator=4000))
    assert means.above(bound).tolist() == [mean > bound for mean in exact]
    assert means.below(bound).tolist() == [mean < bound for mean in exact]
    assert means.total(means.above(bound)) == sum(mean for mean in exact if mean > bound)


@pytest.mark.parametrize(("count", "kind"), [(400, np.dtype(np.int64)), (2**31 - 1, np.dtype(object))])
def test_products_that_could_leave_64_bits_are_pythons_integers(count: int, kind: np.dtype[np.generic]) -> None:
    counts, sums = [count, count, count - 1], [7, count * UPPER_BOUND, count]
    users = as_users(counts, sums)
    arrays = GROUPINGS["wraparound"](users.counts, count - 2)
    means = ArrayMeans.of(users.counts, users.sums, arrays, UPPER_BOUND)
    assert means.numerators.dtype == means.denominators.dtype == kind
    exact = one_at_a_time(counts, sums, arrays)
    assert means.nearest(Fraction(1)).tolist() == [round(mean) for mean in exact]
    assert means.total(np.ones(len(exact), np.bool_)) == sum(exact)
