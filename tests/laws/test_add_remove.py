"""Laws of every estimator for `add_remove`, each with mutants that must break it.

They look at what `estimate` asks of the noise: a law of the numbers that are really drawn for, rounding and all.
"""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import ESTIMATORS, EmptyHat, Estimate, Estimator, Parameters, Users, capped_ratio
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.mechanisms import MAX_VALUE, Noisy
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.policy import Relation
from tests.support import UPPER_BOUND, Scripted, as_users, hats, parameters_for

FOR_ADD_REMOVE = [each for each in ESTIMATORS.values() if Relation.ADD_REMOVE in each.keys.relations]
every_estimator = pytest.mark.parametrize("estimator", FOR_ADD_REMOVE, ids=attrgetter("name"))
PLAIN = Parameters(UPPER_BOUND, Grid(Decimal("0.001")), 1.0, array_length=50, weight_threshold=1000.0)
COARSE = replace(PLAIN, grid=Grid(Decimal("0.3")))
NOBODY = as_users([], [])
HUGE = 2**31 - 1

visitors = st.sampled_from([1, 2, 49, 50, 51, 10**9, HUGE]) | st.integers(1, 700)
"""Readings of the user who comes or goes."""


def joined(users: Users, count: int, total: int, at: int = 0) -> Users:
    """The neighbour with one user more, `at` among those of equal count."""
    first = int(np.searchsorted(-users.counts, -count, side="left"))
    last = int(np.searchsorted(-users.counts, -count, side="right"))
    place = min(first + at, last)
    return Users(np.insert(users.counts, place, count), np.insert(users.sums, place, total))


def asked_of(estimator: Estimator, users: Users, parameters: Parameters) -> list[tuple[int, int, float]]:
    """Each term: its value, distance (both in steps) and part of epsilon."""
    noise = Scripted([0] * len(estimator.shares))
    estimator.estimate(users, parameters, noise)
    return noise.asked


def hides(estimator: Estimator, users: Users, neighbour: Users, parameters: Parameters) -> bool:
    """The law."""
    ours, theirs = asked_of(estimator, users, parameters), asked_of(estimator, neighbour, parameters)
    return (
        len(ours) == len(theirs) == len(estimator.shares)
        and [each[1:] for each in ours] == [each[1:] for each in theirs]
        and sum(Fraction(epsilon) for _, _, epsilon in ours) <= Fraction(parameters.epsilon)
        and all(abs(a - b) <= distance for (a, distance, _), (b, _, _) in zip(ours, theirs, strict=True))
    )


EXTREMES = [
    (users, joined(users, count, share * count * UPPER_BOUND))
    for users in (
        NOBODY,
        as_users([1], [0]),
        as_users([7] * 6, [0] * 6),
        as_users([HUGE, 1, 1, 1], [HUGE * UPPER_BOUND, 0, UPPER_BOUND, 9]),
        as_users([10**9] * 4, [0, 1, 10**9 * UPPER_BOUND, 12_345]),
    )
    for count in (1, 49, 50, 51, 10**9, HUGE)
    for share in (0, 1)
]


def test_there_is_an_estimator_here() -> None:
    assert [each.name for each in FOR_ADD_REMOVE] == ["capped_ratio"]


@every_estimator
@given(data=st.data(), users=st.just(NOBODY) | hats(), count=visitors, share=st.fractions(0, 1), at=st.integers(0, 9))
def test_one_user_more_or_less_moves_no_term_by_more_than_its_distance_and_nothing_else_at_all(
    estimator: Estimator, data: st.DataObject, users: Users, count: int, share: Fraction, at: int
) -> None:
    parameters = data.draw(parameters_for(estimator))
    neighbour = joined(users, count, int(share * count * UPPER_BOUND), at)
    assert hides(estimator, users, neighbour, parameters)


@every_estimator
@pytest.mark.parametrize("length", [1, 7, 50, 10**9])
@pytest.mark.parametrize("grid", ["0.001", "0.3", "65"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 9.7])
def test_the_extreme_neighbours_are_hidden(estimator: Estimator, length: int, grid: str, epsilon: float) -> None:
    parameters = replace(PLAIN, array_length=length, grid=Grid(Decimal(grid)), epsilon=epsilon)
    assert all(hides(estimator, *pair, parameters) for pair in EXTREMES)


@every_estimator
def test_distances_of_nine_tenths_are_found_out_for_each_term(estimator: Estimator) -> None:
    pairs = [(asked_of(estimator, one, PLAIN), asked_of(estimator, other, PLAIN)) for one, other in EXTREMES]
    for term in range(len(estimator.shares)):
        assert any(10 * abs(ours[term][0] - theirs[term][0]) > 9 * ours[term][1] for ours, theirs in pairs)


def uncentred(users: Users, parameters: Parameters) -> Fraction:
    """N without - U/2: it moves twice as far."""
    weights = np.minimum(users.counts, int(parameters.array_length or 0))
    return sum(
        (
            Fraction(w * s, c)
            for w, c, s in zip(*(x.tolist() for x in (weights, users.counts, users.sums)), strict=True)
        ),
        Fraction(0),
    )


def uncapped(counts: Integers, _length: int) -> tuple[Integers, Integers]:
    return counts, np.ones(len(counts), np.int64)


def capped_by_the_median(counts: Integers, _length: int) -> tuple[Integers, Integers]:
    median = counts[len(counts) // 2] if len(counts) else 1
    return np.minimum(counts, median), np.ones(len(counts), np.int64)


@pytest.mark.parametrize(
    ("part", "mutant"),
    [("centred_sum", uncentred), ("capped_weights", uncapped), ("capped_weights", capped_by_the_median)],
)
def test_a_mutant_of_the_ratio_is_found_out(
    part: str, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capped_ratio, part, mutant)
    assert not all(hides(capped_ratio.ESTIMATOR, *pair, PLAIN) for pair in EXTREMES)


def test_a_distance_without_the_step_for_rounding_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """U/2 is 108 1/3 steps of 0.3 km/h: from a sum at 1/2 + 1/6 of a step, 109 steps away."""
    monkeypatch.setattr(Grid, "distance", Grid.floor)
    parameters = replace(COARSE, array_length=1)
    crowds = [as_users([1], [total]) for total in range(0, 600, 50)]
    pairs = [(users, joined(users, 1, share * UPPER_BOUND)) for users in crowds for share in (0, 1)]
    assert not all(hides(capped_ratio.ESTIMATOR, *pair, parameters) for pair in pairs)


def test_a_ratio_that_draws_nothing_for_nobody_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = capped_ratio.CappedRatio.estimate

    def lazy(self: capped_ratio.CappedRatio, users: Users, *rest: Any) -> Estimate | None:
        return honest(self, users, *rest) if len(users.counts) else None

    monkeypatch.setattr(capped_ratio.CappedRatio, "estimate", lazy)
    assert not all(hides(capped_ratio.ESTIMATOR, *pair, PLAIN) for pair in EXTREMES)


class Settled(Scripted):
    """Noise whose outcomes are fixed: whatever the data, these are the noisy terms."""

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        return Noisy(next(self._draws), distance / epsilon)

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        raise AssertionError


@every_estimator
@given(
    data=st.data(),
    users=st.just(NOBODY) | hats(),
    others=hats(),
    outcomes=st.lists(st.integers(-(10**7), 10**7), min_size=2, max_size=2),
)
def test_all_that_is_published_follows_from_the_noisy_terms(
    estimator: Estimator, data: st.DataObject, users: Users, others: Users, outcomes: list[int]
) -> None:
    parameters = data.draw(parameters_for(estimator))
    one = estimator.estimate(users, parameters, Settled(outcomes))
    assert one == estimator.estimate(others, parameters, Settled(outcomes))


@every_estimator
@given(
    data=st.data(), users=st.just(NOBODY) | hats(), draws=st.lists(st.integers(-(10**9), 10**9), min_size=2, max_size=2)
)
def test_the_mean_and_its_interval_are_speeds_on_the_grid_within_the_bounds(
    estimator: Estimator, data: st.DataObject, users: Users, draws: list[int]
) -> None:
    parameters = data.draw(parameters_for(estimator))
    found = estimator.estimate(users, parameters, Scripted(draws))
    if found is None:
        return
    low, high = found.interval95
    assert all(isinstance(step, int) for step in (found.raw, found.mean, low, high))
    assert 0 <= low <= found.mean <= high <= found.top == parameters.grid.floor(UPPER_BOUND)
    assert found.scale is None


@every_estimator
@given(data=st.data(), users=hats())
def test_at_a_huge_epsilon_the_estimate_is_the_value(estimator: Estimator, data: st.DataObject, users: Users) -> None:
    parameters = replace(data.draw(parameters_for(estimator)), epsilon=1e9, weight_threshold=0.5)
    found = estimator.estimate(users, parameters, SystemNoise())
    assert found is not None
    assert abs(found.raw * parameters.grid.milli - estimator.value(users, parameters)) <= parameters.grid.milli


@every_estimator
@given(data=st.data(), users=hats(), seed=st.integers(0, 2**32 - 1))
def test_the_order_in_which_users_come_moves_no_term(
    estimator: Estimator, data: st.DataObject, users: Users, seed: int
) -> None:
    parameters = data.draw(parameters_for(estimator))
    order = np.random.default_rng(seed).permutation(len(users.counts))
    pseudonyms = order.astype(np.uint64)
    other = Users.sorted(pseudonyms, users.counts[order], users.sums[order])
    assert asked_of(estimator, users, parameters) == asked_of(estimator, other, parameters)


@every_estimator
def test_nobody_is_evaluated_like_everybody_but_has_no_mean(estimator: Estimator) -> None:
    assert asked_of(estimator, NOBODY, PLAIN) == [(0, *rest) for _, *rest in asked_of(estimator, EXTREMES[5][1], PLAIN)]
    assert estimator.sensitivity(NOBODY.counts, PLAIN) == estimator.sensitivity(EXTREMES[5][1].counts, PLAIN)
    with pytest.raises(EmptyHat):
        estimator.value(NOBODY, PLAIN)
    with pytest.raises(EmptyHat):
        estimator.bias(NOBODY.counts, PLAIN)


def test_sums_beyond_64_bits_are_cut_and_never_refused() -> None:
    """A refusal would tell how many were there: only 4,000 users with most readings get so far."""
    parameters = replace(PLAIN, upper_bound_milli=HUGE, array_length=2**19, epsilon=8.0, grid=Grid(Decimal("0.001")))
    crowd = as_users([2**19] * 4_000, [2**19 * HUGE] * 4_000)
    (steps, *_), (weight, *_) = asked_of(capped_ratio.ESTIMATOR, crowd, parameters)
    assert (steps, weight) == (MAX_VALUE, 4_000 * 2**19)
    assert hides(capped_ratio.ESTIMATOR, crowd, joined(crowd, 2**19, 0), parameters)
    assert capped_ratio.ESTIMATOR.estimate(crowd, parameters, SystemNoise()) is not None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("weight_threshold", 0.0),
        ("weight_threshold", -1.0),
        ("weight_threshold", float("nan")),
        ("weight_threshold", float("inf")),
        ("array_length", "median"),
        ("array_length", None),
        ("array_length", 0),
        ("array_length", 2**60),
        ("epsilon", 0.0),
        ("epsilon", float("nan")),
        ("epsilon", float("inf")),
        ("epsilon", 1e-9),
        ("upper_bound_milli", 0),
        ("upper_bound_milli", -1),
    ],
)
def test_parameters_that_no_ratio_can_keep_are_refused(key: str, value: float) -> None:
    with pytest.raises(SettingError):
        replace(PLAIN, **{key: value})  # type: ignore[arg-type]  # the table above has the right types
