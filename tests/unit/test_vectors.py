"""Vectors: the array length and the worst error in more dimensions, and what is refused."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import BadUsers, EmptyHat
from hatcast.stream.estimators.array_length import RULES, array_length
from hatcast.stream.estimators.grouping import GROUPINGS
from hatcast.stream.estimators.vectors import LINEAR, VectorUsers, vector_form
from tests.support import UPPER_BOUND, Scripted, Vector, as_counts, as_vectors, plain_parameters

every_form = pytest.mark.parametrize("name", LINEAR)
PLAIN = plain_parameters(LINEAR["baseline"])


@pytest.mark.parametrize("rule", ["minimax", "minimax_sqrt2"])
@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=15),
    epsilon=st.sampled_from([0.25, 0.5, 1.0, 4.0]),
    dimensions=st.sampled_from([2, 4]),
)
def test_the_minimax_length_is_best_for_the_bias_in_the_ball_and_the_noise_of_all_coordinates(
    rule: str, counts: list[int], epsilon: float, dimensions: int
) -> None:
    c = 1.0 if rule == "minimax" else math.sqrt(2)

    def error(m: int) -> float:
        taken = sum(min(count, m) for count in counts)
        diameter = 2 * UPPER_BOUND
        return diameter * (1 - taken / sum(counts)) + dimensions * c * diameter * m / (epsilon * taken)

    parameters = replace(plain_parameters(LINEAR["weighted_mean"], rule=rule), epsilon=epsilon)
    ordered = as_counts(counts)
    sensitivity = vector_form("weighted_mean", dimensions).sensitivity(ordered, parameters)
    best = min(error(m) for m in counts)
    assert any(
        sensitivity == Fraction(2 * UPPER_BOUND * m, sum(min(count, m) for count in counts))
        for m in counts
        if math.isclose(error(m), best, rel_tol=1e-12)
    )


def test_with_more_coordinates_the_noise_weighs_more_and_arrays_get_shorter() -> None:
    counts, parameters = as_counts([5, 1]), plain_parameters(LINEAR["weighted_mean"], rule="minimax")
    assert (
        array_length("minimax", counts, 1.0, None) == 5
    )  # of speeds; a tie at epsilon 1/2, where the shorter is taken
    assert vector_form("weighted_mean", 1).sensitivity(counts, parameters) == Fraction(5 * UPPER_BOUND, 6)
    assert vector_form("weighted_mean", 2).sensitivity(counts, parameters) == Fraction(2 * UPPER_BOUND, 2)


@every_form
@given(
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    epsilon=st.sampled_from([0.3, 1.0, 5.0]),
    grouping=st.sampled_from(sorted(GROUPINGS)),
    rule=st.sampled_from(sorted(RULES)) | st.integers(1, 9),
)
@settings(max_examples=30)
def test_the_worst_bias_is_the_largest_difference_over_all_vectors_in_the_ball(
    name: str, counts: list[int], epsilon: float, grouping: str, rule: str | int
) -> None:
    """The difference is convex in the sums, so that it is largest where each user is at a corner of the ball."""
    form, ordered = vector_form(name, 2), as_counts(counts)
    parameters = replace(plain_parameters(LINEAR[name], grouping, rule), epsilon=epsilon)
    corners = [(UPPER_BOUND, 0), (-UPPER_BOUND, 0), (0, UPPER_BOUND), (0, -UPPER_BOUND)]
    largest = Fraction(0)
    for ends in product(corners, repeat=len(counts)):
        users = VectorUsers(ordered, ordered[:, None] * np.array(ends, np.int64))
        plain = [Fraction(int(each), sum(counts)) for each in users.sums.sum(axis=0)]
        value = form.value(users, parameters)
        largest = max(largest, sum((abs(a - b) for a, b in zip(value, plain, strict=True)), Fraction(0)))
    found = form.worst_case_error(ordered, parameters)
    assert found.bias == largest
    assert found.noise == 2 * form.sensitivity(ordered, parameters) / Fraction(epsilon)


# What is refused


@every_form
def test_a_hat_without_users_is_suppressed_and_has_neither_value_nor_sensitivity(name: str) -> None:
    nobody, form = VectorUsers(as_counts([]), np.zeros((0, 3), np.int64)), vector_form(name, 3)
    assert form.estimate(nobody, plain_parameters(LINEAR[name]), Scripted()) is None
    with pytest.raises(EmptyHat):
        form.value(nobody, plain_parameters(LINEAR[name]))
    with pytest.raises(EmptyHat):
        form.sensitivity(nobody.counts, plain_parameters(LINEAR[name]))
    with pytest.raises(EmptyHat):
        form.worst_case_error(nobody.counts, plain_parameters(LINEAR[name]))


@pytest.mark.parametrize(
    "sums",
    [[[UPPER_BOUND, 1]], [[-UPPER_BOUND, 1]], [[0, UPPER_BOUND + 1]], [[1, -(2**63)]], [[2**63 - 1] * 5], [[-1]]],
    ids=["sum of both", "and below 0", "one", "the least number", "five of the greatest", "below 0 on a line"],
)
def test_a_mean_outside_the_ball_is_refused_before_noise_is_drawn(sums: list[Vector]) -> None:
    users = as_vectors([1], sums)
    with pytest.raises(BadUsers):
        vector_form("baseline", users.dimensions).estimate(users, plain_parameters(LINEAR["baseline"]), Scripted())


@pytest.mark.parametrize(
    ("counts", "sums"),
    [
        ([1, 2], [[0], [0]]),
        ([1, 0], [[0], [0]]),
        ([1], [0]),
        ([1], [[0], [0]]),
        ([2**31], [[0]]),
        ([1.0], [[0]]),
        ([1], [[math.nan, 0.0]]),
        ([1], [[math.inf, 0.0]]),
        ([[1]], [[0]]),
        ([1], [[]]),
    ],
)
def test_users_that_break_the_promises_of_the_fold_are_refused(counts: list[int], sums: list[Vector]) -> None:
    with pytest.raises(BadUsers):
        VectorUsers(np.array(counts), np.array(sums, np.array(sums).dtype if sums != [[]] else np.int64))


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(BadUsers, match="dimensions"):
        vector_form("baseline", 2).value(as_vectors([1], [[0, 0, 0]]), PLAIN)
    with pytest.raises(ValueError, match="at least one coordinate"):
        vector_form("baseline", 0)
    with pytest.raises(SettingError, match="upper_bound"):  # 2 U is beyond
        vector_form("baseline", 2).sensitivity(as_counts([1]), replace(PLAIN, upper_bound_milli=2**30))
