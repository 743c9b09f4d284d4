"""What goes into an estimator and what comes out: order and bounds of users, parameters, what is published."""

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import BadUsers, Estimate, Parameters, Users
from hatcast.stream.estimators._interface import epsilon_share
from hatcast.stream.mechanisms import Noisy
from hatcast.stream.mechanisms.grid import Grid
from tests.support import UPPER_BOUND

PLAIN = Parameters(UPPER_BOUND, Grid(Decimal("0.001")), 1.0)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2**64 - 1)), unique_by=lambda each: each[1], min_size=1))
def test_users_of_equal_counts_stand_by_pseudonym_whatever_their_speed(known: list[tuple[int, int]]) -> None:
    counts = np.array([count for count, _ in known], np.int64)
    pseudonyms = np.array([pseudonym for _, pseudonym in known], np.uint64)
    place = np.arange(len(known), dtype=np.int64)
    expected = sorted(place.tolist(), key=lambda i: (-known[i][0], known[i][1].to_bytes(8, "big")))
    for sums in (place, place[::-1].copy()):  # the sums tell who is who
        assert Users.sorted(pseudonyms, counts, sums).sums.tolist() == sums[expected].tolist()


@pytest.mark.parametrize(
    ("counts", "sums"),
    [
        ([1, 2], [0, 0]),
        ([1, 0], [0, 0]),
        ([1, -1], [0, 0]),
        ([1], [-1]),
        ([1], [0, 0]),
        ([2**31], [0]),
        ([1.0], [0]),
        ([1], [float("nan")]),
        ([[1]], [[0]]),
    ],
)
def test_users_that_break_the_promises_of_the_fold_are_refused(counts: list[int], sums: list[int]) -> None:
    with pytest.raises(BadUsers):
        Users(np.array(counts), np.array(sums))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("upper_bound_milli", 0),
        ("upper_bound_milli", -1),
        ("upper_bound_milli", 2**31),
        ("epsilon", 0.0),
        ("epsilon", -1.0),
        ("epsilon", float("nan")),
        ("epsilon", float("inf")),
        ("epsilon", 1e-11),
    ],
)
def test_parameters_that_no_estimate_can_keep_are_refused(key: str, value: float) -> None:
    with pytest.raises(SettingError):
        replace(PLAIN, **{key: value})  # type: ignore[arg-type]  # the table above has the right types


def test_a_grid_without_a_step_within_the_bound_is_refused() -> None:
    with pytest.raises(SettingError, match=r"policy\.grid"):
        replace(PLAIN, grid=Grid(Decimal("65.5")))


@given(st.floats(1e-6, 1e6), st.fractions(Fraction(1, 100), 1))
def test_a_part_of_epsilon_is_never_more_than_its_share(epsilon: float, share: Fraction) -> None:
    part = epsilon_share(epsilon, share)
    assert Fraction(part) <= Fraction(epsilon) * share < Fraction(math.nextafter(part, math.inf))


def test_what_is_published_is_cut_to_the_bounds_and_its_interval_after_widening() -> None:
    def published(raw: int, scale: float) -> tuple[int, tuple[int, int]]:
        estimate = Estimate.of_laplace(Noisy(raw, scale), 65_000)
        return estimate.mean, estimate.interval95

    assert published(21_314, 545.0) == (21_314, (19_681, 22_947))
    assert published(-9, 545.0) == (0, (0, 1_624))
    assert published(90_000, 1.0) == (65_000, (65_000, 65_000))
