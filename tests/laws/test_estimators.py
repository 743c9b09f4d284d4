"""Laws of every estimator, and those of `replace`, with a mutant that must break them. Others: test_add_remove.py."""

import inspect
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import repeat
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.estimators import (
    ESTIMATOR_KEYS,
    ESTIMATORS,
    BadUsers,
    EmptyHat,
    Estimate,
    Estimator,
    Parameters,
    Users,
)
from hatcast.stream.estimators.array_length import RULES
from hatcast.stream.estimators.grouping import GROUPINGS, Counts
from hatcast.stream.mechanisms import Noise, Noisy
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.policy import EstimatorKeys, Relation
from tests.laws.estimator_oracle import by_definition
from tests.support import ITMS_LIKE, UPPER_BOUND, Scripted, as_users, hats, moved, parameters_for, selects

FOR_REPLACE = [each for each in ESTIMATORS.values() if Relation.REPLACE in each.keys.relations]
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=attrgetter("name"))
for_replace = pytest.mark.parametrize("estimator", FOR_REPLACE, ids=attrgetter("name"))
shares = st.sampled_from([Fraction(0), Fraction(1)]) | st.fractions(0, 1)
PLAIN = Parameters(UPPER_BOUND, Grid(Decimal("0.001")), 1.0)
ITMS = as_users(ITMS_LIKE, [count * 20_668 for count in ITMS_LIKE])
EXTREMES = [
    as_users([7] * 6, [0] * 6),
    as_users([9], [0]),
    as_users([500, 1, 1, 1], [0, 65_000, 0, 9]),
    as_users([3, 2], [0, 130_000]),
]


def chosen(estimator: Estimator, grouping: str = "bestfit", rule: str | int = "sensitivity") -> Parameters:
    """The plain parameters, with the keys that this estimator uses."""
    used = estimator.keys.defaults
    if estimator.keys.weight_threshold is not None:
        return replace(PLAIN, array_length=50, weight_threshold=1000.0)  # no rule may read counts
    return replace(
        PLAIN,
        grouping=grouping if "grouping" in used else None,
        array_length=rule if "array_length" in used else None,
        quantiles="fixed" if "quantiles" in used else None,
    )


def scripted(*draws: int, pick: int = 0) -> Scripted:
    """Noise for one estimate each; every selection takes the same."""
    return Scripted(draws, repeat(pick))


def moves_by_at_most_the_sensitivity(
    estimator: Estimator, users: Users, user: int, share: Fraction, parameters: Parameters
) -> bool:
    before, after = estimator.value(users, parameters), estimator.value(moved(users, user, share), parameters)
    return abs(after - before) <= estimator.sensitivity(users.counts, parameters)


@dataclass(frozen=True)
class TooSure:
    """The mutant: it claims nine tenths of the sensitivity."""

    honest: Estimator

    @property
    def name(self) -> str:
        return f"too sure {self.honest.name}"

    @property
    def keys(self) -> EstimatorKeys:
        return self.honest.keys

    @property
    def shares(self) -> Mapping[str, Fraction]:
        return self.honest.shares

    def value(self, users: Users, parameters: Parameters) -> Fraction:
        return self.honest.value(users, parameters)

    def sensitivity(self, counts: Counts, parameters: Parameters) -> Fraction:
        return self.honest.sensitivity(counts, parameters) * Fraction(9, 10)

    def bias(self, counts: Counts, parameters: Parameters) -> Fraction | None:
        return self.honest.bias(counts, parameters)

    def least_users(self, parameters: Parameters) -> int:
        return self.honest.least_users(parameters)

    def estimate(self, users: Users, parameters: Parameters, noise: Noise) -> Estimate | None:
        return self.honest.estimate(users, parameters, noise)


def test_every_estimator_file_is_in_the_suite() -> None:
    folder = Path(__file__).parents[2] / "stream" / "estimators"
    files = {path.stem for path in folder.glob("[!_]*.py") if "ESTIMATOR: Final" in path.read_text()}
    assert {type(each).__module__.rpartition(".")[2] for each in ESTIMATORS.values()} == files


def test_names_in_the_table_and_in_the_policy_are_the_estimators_own() -> None:
    assert [each.name for each in ESTIMATORS.values()] == [*ESTIMATORS] == [*ESTIMATOR_KEYS]


@every_estimator
def test_an_estimator_is_proved_for_some_relation_and_spends_epsilon_whole(estimator: Estimator) -> None:
    assert estimator.keys.relations
    assert sum(estimator.shares.values()) == 1


@every_estimator
def test_the_sensitivity_is_handed_counts_and_cannot_look_at_a_speed(estimator: Estimator) -> None:
    parameters = inspect.signature(estimator.sensitivity).parameters
    assert {name: each.annotation for name, each in parameters.items()} == {"counts": Counts, "parameters": Parameters}


@for_replace
@given(data=st.data(), users=hats(), share=shares)
def test_replacing_one_users_sum_moves_the_value_by_at_most_the_sensitivity(
    estimator: Estimator, data: st.DataObject, users: Users, share: Fraction
) -> None:
    parameters = data.draw(parameters_for(estimator))
    user = data.draw(st.integers(0, len(users.counts) - 1))
    assert moves_by_at_most_the_sensitivity(estimator, users, user, share, parameters)


@for_replace
@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("rule", [*RULES, 1, 7, 10_000])
def test_the_extreme_neighbours_keep_within_the_sensitivity(
    estimator: Estimator, grouping: str, rule: str | int
) -> None:
    parameters = chosen(estimator, grouping, rule)
    assert all(
        moves_by_at_most_the_sensitivity(estimator, users, user, Fraction(share), parameters)
        for users in [*EXTREMES, ITMS]
        for user in (0, len(users.counts) // 2, len(users.counts) - 1)
        for share in (0, 1)
    )


@pytest.mark.parametrize("estimator", [each for each in FOR_REPLACE if selects(each)], ids=attrgetter("name"))
def test_a_user_in_two_arrays_moves_both_from_one_end_of_the_drawn_interval_to_the_other(estimator: Estimator) -> None:
    # Three arrays of 4 places: the third user has one place in the second array and two in the third.
    parameters = replace(chosen(estimator, "wraparound", 4), interval=(Fraction(0), Fraction(UPPER_BOUND, 4)))
    users = as_users([4, 3, 3, 2], [0, 0, 0, 0])
    change = estimator.value(moved(users, 2, Fraction(1)), parameters) - estimator.value(users, parameters)
    assert change == estimator.sensitivity(users.counts, parameters) == Fraction(2 * UPPER_BOUND, 4 * 3)


@for_replace
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_a_sensitivity_of_nine_tenths_is_found_out(estimator: Estimator, grouping: str) -> None:
    mutant = TooSure(estimator)
    parameters = chosen(estimator, grouping)
    assert not all(moves_by_at_most_the_sensitivity(mutant, users, 0, Fraction(1), parameters) for users in EXTREMES)


@every_estimator
@given(data=st.data(), users=hats())
def test_the_value_is_a_speed_within_the_bounds(estimator: Estimator, data: st.DataObject, users: Users) -> None:
    assert 0 <= estimator.value(users, data.draw(parameters_for(estimator))) <= UPPER_BOUND


@for_replace
@given(data=st.data(), users=hats(), pick=st.integers(0, 50))
def test_a_neighbour_with_the_same_interval_asks_for_the_same_noise(
    estimator: Estimator, data: st.DataObject, users: Users, pick: int
) -> None:
    """Under `replace` the scale is public: it depends on counts only, and on what was selected."""
    parameters = data.draw(parameters_for(estimator))
    noise = scripted(0, 0, pick=pick)
    one = estimator.estimate(users, parameters, noise)
    other = estimator.estimate(moved(users, 0, Fraction(1)), parameters, noise)
    assert (one is None) == (other is None) == (len(users.counts) < estimator.least_users(parameters))
    if one is None or other is None:
        assert not noise.asked
        return
    (_, *asked_first), (_, *asked_then) = noise.asked
    assert asked_first == asked_then or one.interval != other.interval


@for_replace
@given(data=st.data(), users=hats(), draw=st.integers(-(10**9), 10**9), pick=st.integers(0, 10**6))
def test_an_estimate_is_the_value_on_the_grid_with_noise_for_the_sensitivity(
    estimator: Estimator, data: st.DataObject, users: Users, draw: int, pick: int
) -> None:
    parameters = replace(data.draw(parameters_for(estimator)), interval=None)
    grid = parameters.grid
    noise = scripted(draw, pick=pick)
    found = estimator.estimate(users, parameters, noise)
    if found is None:
        assert len(users.counts) < estimator.least_users(parameters)
        return
    assert (found.interval is not None) == selects(estimator)
    settled = replace(parameters, interval=found.interval)
    value = grid.nearest(estimator.value(users, settled))
    distance = grid.distance(estimator.sensitivity(users.counts, settled))
    epsilon = parameters.epsilon * float(estimator.shares["noise"])
    assert noise.asked == [(value, distance, epsilon)]
    noisy = Noisy(value + draw, distance / epsilon)
    assert found == Estimate.of_laplace(noisy, grid.floor(UPPER_BOUND), found.interval)


@for_replace
@given(data=st.data(), users=hats())
def test_at_a_huge_epsilon_the_estimate_is_the_value(estimator: Estimator, data: st.DataObject, users: Users) -> None:
    parameters = replace(data.draw(parameters_for(estimator)), epsilon=1e9)
    found = estimator.estimate(users, parameters, SystemNoise())
    assert found is not None
    value = estimator.value(users, replace(parameters, interval=found.interval))
    assert abs(found.raw * parameters.grid.milli - value) <= parameters.grid.milli


@every_estimator
@given(data=st.data(), users=hats())
def test_the_value_is_exactly_that_of_the_definition(estimator: Estimator, data: st.DataObject, users: Users) -> None:
    parameters = data.draw(parameters_for(estimator))
    assert estimator.value(users, parameters) == by_definition(estimator.name, users, parameters)


@every_estimator
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_sums_that_do_not_fit_into_64_bits_together_are_added_exactly(estimator: Estimator, grouping: str) -> None:
    bound = 2**31 - 1
    users = as_users([bound] * 9, [bound * bound] * 9)
    assert estimator.value(users, replace(chosen(estimator, grouping), upper_bound_milli=bound)) == bound


@every_estimator
@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("rule", ["median", "sensitivity", "minimax", "minimax_convex"])
def test_a_million_users_take_under_400_bytes_each(estimator: Estimator, grouping: str, rule: str) -> None:
    counts = np.sort(np.resize(np.array(ITMS_LIKE, np.int64), 10**6))[::-1].copy()
    users = Users(counts, counts * (20_668 + np.arange(len(counts)) * 7_919 % 9_973))  # no two arrays are alike
    parameters = chosen(estimator, grouping, rule)
    tracemalloc.start()
    try:
        estimator.estimate(users, parameters, SystemNoise())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 400 * 10**6


@every_estimator
@given(data=st.data(), users=hats(), seed=st.integers(0, 2**32 - 1))
def test_the_order_in_which_users_come_changes_nothing(
    estimator: Estimator, data: st.DataObject, users: Users, seed: int
) -> None:
    parameters = data.draw(parameters_for(estimator))
    random = np.random.default_rng(seed)
    pseudonyms = random.permutation(len(users.counts)).astype(np.uint64) << np.uint64(32)
    order = random.permutation(len(users.counts))
    one = Users.sorted(pseudonyms, users.counts, users.sums)
    other = Users.sorted(pseudonyms[order], users.counts[order], users.sums[order])
    assert estimator.value(one, parameters) == estimator.value(other, parameters)


@for_replace
def test_a_hat_without_users_is_suppressed_and_has_neither_value_nor_sensitivity(estimator: Estimator) -> None:
    nobody = as_users([], [])
    assert estimator.estimate(nobody, chosen(estimator), Scripted()) is None
    with pytest.raises(EmptyHat):
        estimator.value(nobody, chosen(estimator))
    with pytest.raises(EmptyHat):
        estimator.sensitivity(nobody.counts, chosen(estimator))
    with pytest.raises(EmptyHat):
        estimator.bias(nobody.counts, chosen(estimator))


@every_estimator
def test_a_mean_above_the_bound_is_refused_before_noise_is_drawn(estimator: Estimator) -> None:
    users = as_users([2, 1], [2 * UPPER_BOUND + 1, 0])
    with pytest.raises(BadUsers, match="above the upper bound"):
        estimator.estimate(users, chosen(estimator), Scripted())


def test_the_itms_like_hat_has_the_published_sensitivities() -> None:
    baseline, averaging = ESTIMATORS["baseline"], ESTIMATORS["array_averaging"]
    assert baseline.sensitivity(ITMS.counts, PLAIN) == Fraction(65_000 * 417, 17_166)
    assert averaging.sensitivity(ITMS.counts, chosen(averaging, "wraparound")) == Fraction(65_000, 160)
    assert averaging.sensitivity(ITMS.counts, chosen(averaging, "bestfit")) == Fraction(65_000, 164)


@pytest.mark.parametrize("relation", Relation)
def test_there_is_an_estimator_for_every_relation(relation: Relation) -> None:
    assert any(relation in each.keys.relations for each in ESTIMATORS.values())
