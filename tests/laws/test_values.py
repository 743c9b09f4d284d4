"""Laws of several values that are released together, by every estimator that can, and a mutant that breaks them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.estimators import ESTIMATORS, Parameters, Users
from hatcast.stream.estimators._interface import epsilon_share
from hatcast.stream.estimators.grouping import Counts
from hatcast.stream.estimators.values import VALUE_ESTIMATORS, Axis, ValuesForm
from hatcast.stream.estimators.vectors import LINEAR, VectorUsers, vector_form, worst_case_error
from hatcast.stream.mechanisms.grid import Grid
from tests.support import ITMS_LIKE, Scripted, Vector, as_counts, as_vectors, plain_parameters

every_estimator = pytest.mark.parametrize("name", VALUE_ESTIMATORS)
WIDTHS = (65_000, 4_200_000, 1_000, 7)
LOWERS = (0, -600_000, 250, -3)
GRIDS = ("0.001", "1", "0.01", "0.002")
COUNTS = [[7] * 6, [9], [500, 1, 1, 1], [3, 2], [4] * 30, ITMS_LIKE]


@dataclass(frozen=True, slots=True)
class Case:
    """A form, its epsilon, and two HATs in which one user's sums differ in any way that the box allows."""

    form: ValuesForm
    epsilon: float
    users: VectorUsers
    other: VectorUsers


def form_of(name: str, dimensions: int, epsilon: float, rule: str | int = "median") -> ValuesForm:
    """A form as a policy makes it, on the first axes of WIDTHS."""
    whole = plain_parameters(VALUE_ESTIMATORS[name], "bestfit", rule)
    share = epsilon_share(epsilon, Fraction(1, dimensions))
    return ValuesForm(
        VALUE_ESTIMATORS[name],
        tuple(
            Axis(lower, replace(whole, upper_bound_milli=width, grid=Grid(Decimal(grid)), epsilon=share))
            for lower, width, grid in list(zip(LOWERS, WIDTHS, GRIDS, strict=True))[:dimensions]
        ),
    )


class Forgetful(ValuesForm):
    """The mutant: each value gets the noise of a value that is released alone, so all together cost d epsilon."""

    def estimate(self, users: VectorUsers, noise: Scripted) -> None:  # type: ignore[override]  # its draws are read
        whole = [
            replace(axis, parameters=replace(axis.parameters, epsilon=axis.parameters.epsilon * len(self.axes)))
            for axis in self.axes
        ]
        ValuesForm(self.estimator, tuple(whole)).estimate(users, noise)


def sums_in_the_box(draw: st.DrawFn, count: int, dimensions: int) -> Vector:
    """Often a corner of the box."""
    tops = [count * width for width in WIDTHS[:dimensions]]
    return [draw(st.sampled_from([0, top]) | st.integers(0, top)) for top in tops]


@st.composite
def cases(draw: st.DrawFn, name: str) -> Case:
    counts = sorted(
        draw(st.lists(st.integers(1, 8) | st.sampled_from([60, 500]), min_size=1, max_size=6)), reverse=True
    )
    dimensions, epsilon = draw(st.integers(2, 4)), draw(st.sampled_from([0.5, 1.0, 3.0, 40.0]))
    sums = [sums_in_the_box(draw, count, dimensions) for count in counts]
    user = draw(st.integers(0, len(counts) - 1))
    other = [*sums]
    other[user] = sums_in_the_box(draw, counts[user], dimensions)
    rules: list[str | int] = ["median", "minimax", 1]
    form = form_of(name, dimensions, epsilon, draw(st.sampled_from(rules)))
    return Case(form, epsilon, as_vectors(counts, sums), as_vectors(counts, other))


Asked = list[tuple[int, int, float]]
"""Of each axis: the rounded value, what it can move by, and its part of epsilon"""


def asked_for(form: ValuesForm, users: VectorUsers) -> Asked:
    noise = Scripted([0] * len(form.axes))
    form.estimate(users, noise)
    return noise.asked


def loss(form: ValuesForm, users: VectorUsers, other: VectorUsers) -> Fraction:
    return loss_between(asked_for(form, users), asked_for(form, other))


def loss_between(asked: Asked, other: Asked) -> Fraction:
    """The most that the logarithm of an output's probability can differ by: steps moved over scales, summed."""
    total = Fraction(0)
    for (one, distance, epsilon), (two, same, equal) in zip(asked, other, strict=True):
        assert (distance, epsilon) == (same, equal), "the noise depends on sums"
        if one != two:
            total += abs(one - two) * Fraction(epsilon) / distance
    return total


def test_the_estimators_of_several_values_are_the_linear_ones_and_clipped_sum() -> None:
    assert set(VALUE_ESTIMATORS) == {*LINEAR, "clipped_sum"}
    assert all(ESTIMATORS[name].keys.several_values for name in VALUE_ESTIMATORS)


@every_estimator
@given(data=st.data())
def test_another_users_readings_change_the_probability_of_no_output_by_more_than_epsilon(
    name: str, data: st.DataObject
) -> None:
    case = data.draw(cases(name))
    assert loss(case.form, case.users, case.other) <= Fraction(case.epsilon)
    for moved, most in zip(
        (abs(a - b) for a, b in zip(case.form.value(case.users), case.form.value(case.other), strict=True)),
        case.form.sensitivity(case.users.counts),
        strict=True,
    ):
        assert moved <= most


@every_estimator
@pytest.mark.parametrize("dimensions", [2, 3, 4])
def test_from_corner_to_corner_of_the_box_costs_nearly_epsilon_and_a_forgotten_factor_d_is_seen(
    name: str, dimensions: int
) -> None:
    for counts, epsilon in product(COUNTS, [1.0, 4.0]):
        ordered, form = as_counts(counts), form_of(name, dimensions, epsilon)
        one = np.zeros((len(counts), dimensions), np.int64)
        other = one.copy()
        other[0] = ordered[0] * np.array(WIDTHS[:dimensions])
        users = VectorUsers(ordered, one), VectorUsers(ordered, other)
        spent = loss(form, *users)
        assert spent <= Fraction(epsilon)
        if not any(form.sensitivity(ordered)):
            assert spent == 0  # `clipped_sum` of few users uses no data
            continue
        assert spent > Fraction(epsilon) * Fraction(3, 10), "the noise is for more than one user"
        mutant = Forgetful(form.estimator, form.axes)
        assert loss(mutant, *users) > Fraction(epsilon), "the mutant goes unseen"


def every_hat(counts: Sequence[int], widths: Sequence[int]) -> list[VectorUsers]:
    """All HATs of these users whose sums have any integers of a tiny box."""
    each = [product(*(range(count * width + 1) for width in widths)) for count in counts]
    return [as_vectors(counts, [list(of) for of in sums]) for sums in product(*each)]


@every_estimator
def test_of_all_neighbours_of_a_tiny_box_none_loses_more_than_epsilon(name: str) -> None:
    """Brute force: two users with two and one readings, values of 0 to 2 and 0 to 1 milli-units, steps of a third."""
    whole = plain_parameters(VALUE_ESTIMATORS[name], "bestfit", 1)
    widths, grid = (2, 1), Grid(Decimal("0.0003"))
    axes = tuple(Axis(0, replace(whole, upper_bound_milli=width, grid=grid, epsilon=1.5)) for width in widths)
    form, most = ValuesForm(VALUE_ESTIMATORS[name], axes), Fraction(0)
    hats = [(users.sums, asked_for(form, users)) for users in every_hat([2, 1], widths)]
    for (sums, asked), (others, other) in product(hats, hats):
        if int((sums != others).any(axis=1).sum()) == 1:
            most = max(most, loss_between(asked, other))
    assert Fraction(1, 2) < most <= 3


@every_estimator
@given(data=st.data())
def test_a_value_and_its_noise_are_those_of_the_estimator_alone_with_the_range_for_u_and_a_part_of_epsilon(
    name: str, data: st.DataObject
) -> None:
    case = data.draw(cases(name))
    estimator = VALUE_ESTIMATORS[name]
    for axis, value, column in zip(case.form.axes, case.form.value(case.users), case.users.sums.T, strict=True):
        alone = Users(case.users.counts, np.ascontiguousarray(column))
        assert value == axis.lower + estimator.value(alone, axis.parameters)
        low, high = axis.lower, axis.lower + axis.parameters.upper_bound_milli
        assert low <= value <= high


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("dimensions", [2, 3])
def test_the_sensitivity_in_widths_is_that_of_the_vector_form_in_the_ball_of_radius_half_d(
    name: str, dimensions: int
) -> None:
    """In units of widths the box lies in the l1 ball of radius d/2: so D_U is d."""
    for counts in COUNTS:
        ordered, form = as_counts(counts), form_of(name, dimensions, 1.0)
        moved = sum(
            sensitivity / axis.parameters.upper_bound_milli
            for sensitivity, axis in zip(form.sensitivity(ordered), form.axes, strict=True)
        )
        ball = replace(plain_parameters(LINEAR[name], "bestfit", "median"), upper_bound_milli=dimensions * 1000)
        assert moved == vector_form(name, dimensions).sensitivity(ordered, ball) / 2000


def test_clipped_sum_of_several_values_has_the_least_worst_case_error_of_them_all() -> None:
    """In units of widths, summed over the axes; the mean noise is that of each axis at epsilon / d."""
    for counts, dimensions in product(COUNTS, [2, 3]):
        ordered = as_counts(counts)
        found = {}
        for name in VALUE_ESTIMATORS:
            errors = [error_in_widths(name, ordered, axis.parameters) for axis in form_of(name, dimensions, 1.0).axes]
            assert len(set(errors)) == 1, "the axes differ in more than their unit"
            found[name] = sum(errors, Fraction(0))
        assert min(found, key=lambda name: (found[name], name != "clipped_sum")) == "clipped_sum"


def error_in_widths(name: str, counts: Counts, parameters: Parameters) -> Fraction:
    width = parameters.upper_bound_milli
    error = worst_case_error(
        VALUE_ESTIMATORS[name], counts, width, parameters.epsilon, parameters.grouping, parameters.array_length
    )
    assert error is not None
    return (error.bias + error.noise) / width


def test_published_numbers_are_on_the_grid_and_within_the_range() -> None:
    axis = form_of("baseline", 2, 1.0).axes[1]
    form = ValuesForm(VALUE_ESTIMATORS["baseline"], (replace(axis, lower=-600_500),))
    assert form.axes[0].bounds == (-600, 3599)
    users = as_vectors([1] * 4, [[600_500]] * 4)
    for draw, mean in ((0, 0), (-700, -600), (5000, 3599)):
        (estimate,) = form.estimate(users, Scripted([draw])) or ()
        assert (estimate.raw, estimate.mean) == (draw, mean)
        low, high = estimate.interval95
        assert -600 <= low <= mean <= high <= 3599
