"""Laws of every estimator with a form for vectors, each with a mutant that must break it."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.estimators import ESTIMATORS, Parameters, Users
from hatcast.stream.estimators.grouping import GROUPINGS
from hatcast.stream.estimators.vectors import (
    LINEAR,
    NoVectorForm,
    VectorEstimate,
    VectorForm,
    VectorUsers,
    vector_form,
    worst_case_error,
)
from hatcast.stream.mechanisms.system import SystemNoise
from tests.laws.estimator_oracle import by_definition
from tests.support import (
    ITMS_LIKE,
    UPPER_BOUND,
    Scripted,
    Vector,
    as_counts,
    as_vectors,
    counts_lists,
    hats,
    parameters_for,
    plain_parameters,
)

every_form = pytest.mark.parametrize("name", LINEAR)
PLAIN = plain_parameters(LINEAR["baseline"])
COUNTS = [[7] * 6, [9], [500, 1, 1, 1], [3, 2], ITMS_LIKE]


@st.composite
def sums_in_the_ball(draw: st.DrawFn, count: int, dimensions: int) -> Vector:
    """A sum of `count` readings in the ball, often on its border; of one dimension in [0, count U]."""
    most = count * UPPER_BOUND
    norm = draw(st.sampled_from([0, most]) | st.integers(0, most))
    borders = sorted(draw(st.lists(st.integers(0, norm), min_size=dimensions - 1, max_size=dimensions - 1)))
    parts = [right - left for left, right in zip([0, *borders], [*borders, norm], strict=True)]
    return [part * draw(st.sampled_from([1, -1])) if dimensions > 1 else part for part in parts]


few_counts = st.integers(1, 8) | st.sampled_from([60, 500, 10**9, 2**31 - 1])


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[VectorUsers, VectorUsers]:
    """Two HATs in which one user's readings differ in any way that the ball allows."""
    counts = sorted(draw(st.lists(few_counts, min_size=1, max_size=6)), reverse=True)
    dimensions = draw(st.integers(1, 5))
    sums = [draw(sums_in_the_ball(count, dimensions)) for count in counts]
    user = draw(st.integers(0, len(counts) - 1))
    other = [*sums]
    other[user] = draw(sums_in_the_ball(counts[user], dimensions))
    return as_vectors(counts, sums), as_vectors(counts, other)


def distance_of(one: VectorUsers, other: VectorUsers, form: VectorForm, parameters: Parameters) -> Fraction:
    """How far apart the values before noise are, in l1."""
    pairs = zip(form.value(one, parameters), form.value(other, parameters), strict=True)
    return sum((abs(a - b) for a, b in pairs), Fraction(0))


class AsSpeeds(VectorForm):
    """The mutant: in any dimension, means are taken to be at most U apart."""

    def _scalar_parameters(self, parameters: Parameters) -> Parameters:
        return replace(parameters, epsilon=parameters.epsilon / self.dimensions)


# What has a form


def test_every_estimator_with_weights_has_a_form_and_no_other() -> None:
    assert {name for name, each in ESTIMATORS.items() if hasattr(each, "weights")} == set(LINEAR)
    assert set(LINEAR) == {"baseline", "array_averaging", "opt_array_averaging", "weighted_mean"}
    for name in ESTIMATORS.keys() - LINEAR.keys():
        with pytest.raises(NoVectorForm, match=f"{name} has no vector form; use baseline, "):
            vector_form(name, 2)


@every_form
@given(counts=counts_lists, data=st.data())
def test_weights_are_those_of_a_mean_and_the_largest_is_within_the_sensitivity(
    name: str, counts: list[int], data: st.DataObject
) -> None:
    parameters, ordered = data.draw(parameters_for(LINEAR[name])), as_counts(counts)
    (places, fills), whole = LINEAR[name].weights(ordered, parameters)
    weights = [Fraction(p, f * whole) for p, f in zip(places.tolist(), fills.tolist(), strict=True)]
    assert sum(weights) == 1
    assert max(weights) * UPPER_BOUND <= LINEAR[name].sensitivity(ordered, parameters)


# Sensitivity and rounding


@every_form
@given(pair=neighbours(), data=st.data())
def test_replacing_one_users_vectors_moves_the_value_by_at_most_the_sensitivity(
    name: str, pair: tuple[VectorUsers, VectorUsers], data: st.DataObject
) -> None:
    parameters = data.draw(parameters_for(LINEAR[name]))
    form = vector_form(name, pair[0].dimensions)
    assert distance_of(*pair, form, parameters) <= form.sensitivity(pair[0].counts, parameters)


@every_form
@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("dimensions", [2, 3, 5])
def test_from_plus_u_to_minus_u_on_one_axis_moves_the_value_by_all_of_the_sensitivity_and_twice_that_of_speeds(
    name: str, grouping: str, dimensions: int
) -> None:
    form, mutant = vector_form(name, dimensions), AsSpeeds(LINEAR[name], dimensions)
    rules: list[str | int] = ["median", "minimax", 1]
    for counts, rule, axis in product(COUNTS, rules, range(dimensions)):
        parameters, ordered = plain_parameters(LINEAR[name], grouping, rule), as_counts(counts)
        one, other = np.zeros((2, len(counts), dimensions), np.int64)
        one[0, axis], other[0, axis] = ordered[0] * UPPER_BOUND, -ordered[0] * UPPER_BOUND
        moved = distance_of(VectorUsers(ordered, one), VectorUsers(ordered, other), form, parameters)
        assert moved == form.sensitivity(ordered, parameters)
        assert moved > mutant.sensitivity(ordered, parameters), "the mutant goes unseen"


@every_form
@given(pair=neighbours(), data=st.data())
def test_rounded_neighbours_are_no_further_apart_than_the_noise_is_made_for(
    name: str, pair: tuple[VectorUsers, VectorUsers], data: st.DataObject
) -> None:
    parameters = data.draw(parameters_for(LINEAR[name]))
    form = vector_form(name, pair[0].dimensions)
    asked = [asked_for(form, users, parameters) for users in pair]
    (distance,) = {distance for lot in asked for _, distance, _ in lot}
    assert sum(abs(one - other) for (one, *_), (other, *_) in zip(*asked, strict=True)) <= distance


def asked_for(form: VectorForm, users: VectorUsers, parameters: Parameters) -> list[tuple[int, int, float]]:
    noise = Scripted([0] * form.dimensions)
    assert form.estimate(users, parameters, noise) is not None
    return noise.asked


def test_each_coordinate_may_be_rounded_a_step_further_away() -> None:
    """Values of (1.5, 1.5, 1.5) and (0.5, 0.5, 0.5) steps go to the even ones: 3 apart, and 6 when rounded."""
    form, parameters = vector_form("baseline", 3), replace(PLAIN, upper_bound_milli=6)
    rest = [[2, 2, 2], [2, 2, 2], [0, 0, 0]]
    one, other = as_vectors([1] * 4, [[2, 2, 2], *rest]), as_vectors([1] * 4, [[-2, -2, -2], *rest])
    assert distance_of(one, other, form, parameters) == form.sensitivity(one.counts, parameters) == 3
    asked, then = asked_for(form, one, parameters), asked_for(form, other, parameters)
    assert sum(abs(a - b) for (a, *_), (b, *_) in zip(asked, then, strict=True)) == asked[0][1] == 6
    assert asked[0][1] > parameters.grid.distance(Fraction(3)), "one step for all coordinates would be too few"


# Value, noise, error


@every_form
@given(pair=neighbours(), data=st.data())
def test_each_coordinate_is_exactly_that_of_the_definition(
    name: str, pair: tuple[VectorUsers, VectorUsers], data: st.DataObject
) -> None:
    """The definition knows sums of 0 or more: a coordinate is the difference of two of them."""
    users, parameters = pair[0], data.draw(parameters_for(LINEAR[name]))
    line = replace(parameters, epsilon=parameters.epsilon / users.dimensions)
    for coordinate, column in zip(
        vector_form(name, users.dimensions).value(users, parameters), users.sums.T, strict=True
    ):
        up, down = (by_definition(name, Users(users.counts, np.maximum(each, 0)), line) for each in (column, -column))
        assert coordinate == up - down


@every_form
@given(users=hats(), data=st.data(), draw=st.integers(-(10**6), 10**6))
def test_in_one_dimension_it_is_the_estimator_itself(name: str, users: Users, data: st.DataObject, draw: int) -> None:
    parameters = data.draw(parameters_for(LINEAR[name]))
    form, vectors = vector_form(name, 1), VectorUsers(users.counts, users.sums[:, None])
    assert form.value(vectors, parameters) == (LINEAR[name].value(users, parameters),)
    assert form.sensitivity(users.counts, parameters) == LINEAR[name].sensitivity(users.counts, parameters)
    found = form.estimate(vectors, parameters, Scripted([draw]))
    scalar = LINEAR[name].estimate(users, parameters, Scripted([draw]))
    assert found is not None
    assert scalar is not None
    assert scalar.scale is not None
    assert found == VectorEstimate((scalar.raw,), scalar.scale)
    assert form.worst_case_error(users.counts, parameters) == worst_case_error(
        LINEAR[name], users.counts, UPPER_BOUND, parameters.epsilon, parameters.grouping, parameters.array_length
    )


@every_form
@given(pair=neighbours(), data=st.data())
def test_every_coordinate_gets_noise_of_its_own_for_all_of_epsilon_and_the_whole_distance(
    name: str, pair: tuple[VectorUsers, VectorUsers], data: st.DataObject
) -> None:
    users, parameters = pair[0], data.draw(parameters_for(LINEAR[name]))
    form, grid = vector_form(name, users.dimensions), parameters.grid
    noise = Scripted(range(users.dimensions))
    found = form.estimate(users, parameters, noise)
    assert found is not None
    distance = math.floor(form.sensitivity(users.counts, parameters) / grid.milli) + users.dimensions
    values = [grid.nearest(each) for each in form.value(users, parameters)]
    assert noise.asked == [(value, distance, parameters.epsilon) for value in values]
    assert found.raw == tuple(value + draw for draw, value in enumerate(values))
    assert found.scale == distance / parameters.epsilon


def test_coordinates_do_not_share_a_draw() -> None:
    users = as_vectors([5, 5], [[0] * 8] * 2)
    found = vector_form("baseline", 8).estimate(users, plain_parameters(LINEAR["baseline"]), SystemNoise())
    assert found is not None
    assert len(set(found.raw)) > 1  # all alike with a chance below 10^-30


@every_form
@given(pair=neighbours(), data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_the_order_in_which_users_come_changes_nothing(
    name: str, pair: tuple[VectorUsers, VectorUsers], data: st.DataObject, seed: int
) -> None:
    users, parameters = pair[0], data.draw(parameters_for(LINEAR[name]))
    random = np.random.default_rng(seed)
    pseudonyms = random.permutation(len(users.counts)).astype(np.uint64) << np.uint64(32)
    order = random.permutation(len(users.counts))
    one = VectorUsers.sorted(pseudonyms, users.counts, users.sums)
    other = VectorUsers.sorted(pseudonyms[order], users.counts[order], users.sums[order])
    form = vector_form(name, users.dimensions)
    assert form.value(one, parameters) == form.value(other, parameters)


@every_form
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_sums_that_do_not_fit_into_64_bits_together_are_added_exactly(name: str, grouping: str) -> None:
    bound, count = 2**30 - 1, 2**31 - 1
    users = as_vectors([count] * 9, [[0, -count * bound, 0]] * 9)
    parameters = replace(plain_parameters(LINEAR[name], grouping), upper_bound_milli=bound)
    assert vector_form(name, 3).value(users, parameters) == (Fraction(0), Fraction(-bound), Fraction(0))
