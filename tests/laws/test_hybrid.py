"""Laws of every estimator of the hybrid model, with mutants that must break them."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import repeat
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.lab.evaluate.lemmas import hybrid
from hatcast.stream.estimators import Users
from hatcast.stream.estimators.grouping import Integers
from hatcast.stream.hybrid import (
    HYBRID_ESTIMATORS,
    HybridEstimator,
    HybridParameters,
    Spread,
    charge,
    estimate,
    methods,
)
from hatcast.stream.mechanisms.grid import Grid
from tests.laws.hybrid_oracle import weight_by_definition
from tests.support import GRIDS, UPPER_BOUND, Scripted, as_users, hats, moved

ROOT = Path(__file__).parents[2]
every_estimator = pytest.mark.parametrize("estimator", HYBRID_ESTIMATORS.values(), ids=attrgetter("name"))
PLAIN = HybridParameters(UPPER_BOUND, Grid(Decimal("0.001")), 1.0, 0.5, Spread(10_000, 10_000))
NOBODY = as_users([], [])
PWH, TCM_ONLY, LM_ONLY, FULL_LM = (HYBRID_ESTIMATORS[name] for name in ("pwh", "tcm_only", "lm_only", "full_lm"))

epsilons = st.sampled_from([0.1, 0.5, 1.0, 3.0])
deltas = st.sampled_from([None, 1e-8])
"""Laplace noise and Gaussian noise."""
reports_of_some = st.lists(st.integers(-1_800, 1_800), max_size=20).map(lambda found: np.array(found, np.int64))


def parameters_for(estimator: HybridEstimator) -> st.SearchStrategy[HybridParameters]:
    alike = st.integers(1, UPPER_BOUND // 2).map(lambda sigma: Spread(sigma, sigma))
    differing = st.builds(
        Spread,
        st.integers(0, UPPER_BOUND // 2),
        st.integers(1, UPPER_BOUND // 2),
        st.integers(-UPPER_BOUND, UPPER_BOUND),
    )
    return st.builds(
        HybridParameters,
        upper_bound_milli=st.just(UPPER_BOUND),
        grid=st.sampled_from(GRIDS[:4]).map(lambda text: Grid(Decimal(text))),
        epsilon=epsilons,
        local_epsilon=epsilons,
        spread=differing if estimator.name == "kvh_heterogeneous" else alike,
        delta=deltas,
    )


def silent() -> Scripted:
    """Draws 0 as often as is asked."""
    return Scripted(repeat(0))


def test_every_estimator_is_in_the_table_by_its_name() -> None:
    made = {each.name for each in vars(methods).values() if hasattr(each, "weight") and not isinstance(each, type)}
    assert made == set(HYBRID_ESTIMATORS)
    assert [each.name for each in HYBRID_ESTIMATORS.values()] == [*HYBRID_ESTIMATORS]


def test_every_estimator_has_a_row_in_the_docs() -> None:
    text = (ROOT / "docs" / "hybrid.md").read_text()
    assert [each for each in HYBRID_ESTIMATORS if f"\n| `{each}` |" not in text] == []


# Weights


@every_estimator
@given(data=st.data(), central=st.integers(1, 10**6), local=st.integers(1, 10**6))
def test_the_weight_is_exactly_that_of_the_definition(
    estimator: HybridEstimator, data: st.DataObject, central: int, local: int
) -> None:
    parameters = data.draw(parameters_for(estimator))
    weight = estimator.weight(parameters.setting(central, local))
    assert isinstance(weight, Fraction), "a release computes exactly"
    assert weight == weight_by_definition(estimator.name, central, local, parameters)
    assert 0 <= weight <= 1


@pytest.mark.parametrize("name", ["kvh", "kvh_heterogeneous"])
@given(data=st.data(), central=st.integers(1, 10**5), local=st.integers(1, 10**5), step=st.fractions("1/100", 1))
def test_with_what_is_known_no_other_weight_has_less_error(
    name: str, data: st.DataObject, central: int, local: int, step: Fraction
) -> None:
    """The error is a parabola in w: equal to both sides of its least."""
    estimator = HYBRID_ESTIMATORS[name]
    setting = data.draw(parameters_for(estimator)).setting(central, local)
    weight = estimator.weight(setting)
    assert hybrid(setting, weight - step) == hybrid(setting, weight + step) > hybrid(setting, weight)


@given(data=st.data(), central=st.integers(1, 10**5), local=st.integers(1, 10**5), step=st.fractions("1/100", 1))
def test_no_other_weight_than_that_of_pwh_has_less_noise(
    data: st.DataObject, central: int, local: int, step: Fraction
) -> None:
    setting = replace(data.draw(parameters_for(PWH)).setting(central, local), central_variance=0, local_variance=0)
    weight = PWH.weight(setting)
    assert hybrid(setting, weight - step) == hybrid(setting, weight + step) > hybrid(setting, weight)


# Privacy


def asked_of_neighbours(
    estimator: HybridEstimator, users: Users, share: Fraction, parameters: HybridParameters, user: int
) -> list[tuple[tuple[int, int, float], tuple[int, int, float]]]:
    """What noise was asked for, before and after one user's sum is replaced: (value, distance, epsilon) each."""
    reports = np.array([3, 4], np.int64)
    one, other = silent(), silent()
    first = estimate(estimator, users, reports, parameters, one)
    then = estimate(estimator, moved(users, user, share), reports, parameters, other)
    assert first is not None
    assert then is not None
    public = attrgetter("weight", "central_scale", "local_scale", "public_epsilon")
    assert public(first) == public(then)
    assert {*one.deltas, *other.deltas} <= {parameters.delta}, "the other kind of noise was asked for"
    assert len(one.deltas) == (0 if parameters.delta is None else len(one.asked))
    return list(zip(one.asked, other.asked, strict=True))


@every_estimator
@given(data=st.data(), users=hats(), share=st.sampled_from([Fraction(0), Fraction(1)]) | st.fractions(0, 1))
def test_a_replaced_central_user_moves_one_number_by_at_most_what_its_noise_is_made_for(
    estimator: HybridEstimator, data: st.DataObject, users: Users, share: Fraction
) -> None:
    parameters = data.draw(parameters_for(estimator))
    user = data.draw(st.integers(0, len(users.counts) - 1))
    spent = []
    for (value, distance, epsilon), (after, *same) in asked_of_neighbours(estimator, users, share, parameters, user):
        assert same == [distance, epsilon]
        assert abs(after - value) <= distance
        if after != value:
            spent.append(epsilon)
    assert sum(spent) in (0, charge(estimator, parameters))


def test_noise_without_the_grids_widening_would_be_found_out() -> None:
    """The mutant of the law above: floor(U / (c n grid)) alone is too little."""
    parameters = replace(PLAIN, grid=Grid(Decimal(1)))
    users = as_users([1, 1], [0, 65_000])  # their mean is 32.5 steps: one of 31 and more of them is another step
    [((value, distance, _), (after, *_))] = asked_of_neighbours(
        TCM_ONLY, Users(users.counts, np.array([2_000, 65_000], np.int64)), Fraction(1), parameters, 0
    )
    assert (abs(after - value), distance) == (31, 33)
    found = [
        asked_of_neighbours(TCM_ONLY, as_users([1] * 3, [0, 0, each]), Fraction(1), parameters, 0)[0]
        for each in range(0, 3_000, 250)
    ]
    assert any(abs(after - value) > distance - 1 for (value, distance, _), (after, *_) in found)


def test_the_sensitivity_of_the_central_mean_is_u_over_central_users() -> None:
    assert PLAIN.sensitivity(4) == Fraction(UPPER_BOUND, 4)
    noise = silent()
    estimate(PWH, as_users([3, 2, 1, 1], [0, 0, 0, 7]), np.array([1], np.int64), PLAIN, noise)
    assert noise.asked == [(2, 16_251, 1.0)]  # 7/4 milli-units are 2 steps; 65000/4 + 1


def test_full_lm_gives_each_central_user_the_noise_of_a_device() -> None:
    noise = Scripted([10, 20])
    found = estimate(FULL_LM, as_users([2, 1], [2_000, 3_000]), np.array([400], np.int64), PLAIN, noise)
    assert noise.asked == [(1_000, 65_001, 0.5), (3_000, 65_001, 0.5)]
    assert found is not None
    assert found.raw == round(Fraction(400 + 1_010 + 3_020, 3))
    assert (found.weight, found.central_scale, found.local_scale) == (Fraction(0), 0.0, 130_002.0)


def test_lm_only_reads_nothing_of_central_users_and_costs_them_nothing() -> None:
    noise = Scripted()
    found = estimate(LM_ONLY, as_users([2], [100]), np.array([5, 8], np.int64), PLAIN, noise)
    assert noise.asked == []
    assert found is not None
    assert found.raw == 6
    assert {each.name: charge(each, PLAIN) for each in HYBRID_ESTIMATORS.values()} == {
        "tcm_only": 1.0,
        "lm_only": 0.0,
        "full_lm": 0.5,
        "kvh": 1.0,
        "kvh_heterogeneous": 1.0,
        "pwh": 1.0,
    }


# The release


@every_estimator
@given(data=st.data(), users=hats() | st.just(NOBODY), reports=reports_of_some, draw=st.integers(-(10**6), 10**6))
def test_an_estimate_is_the_blend_of_the_noisy_mean_of_user_means_and_the_mean_of_reports(
    estimator: HybridEstimator, data: st.DataObject, users: Users, reports: Integers, draw: int
) -> None:
    parameters = data.draw(parameters_for(estimator))
    grid, central, local = parameters.grid, len(users.counts), len(reports)
    found = estimate(estimator, users, reports, parameters, Scripted(repeat(draw)))
    means = [Fraction(each, count) for each, count in zip(users.sums.tolist(), users.counts.tolist(), strict=True)]
    if estimator is FULL_LM:
        everyone = [*reports.tolist(), *(grid.nearest(each) + draw for each in means)]
        blend = Fraction(sum(everyone), len(everyone)) if everyone else None
    else:
        noisy = [Fraction(grid.nearest(sum(means, Fraction(0)) / central) + draw)] if means else []
        mean = [Fraction(sum(reports.tolist()), local)] if local else []
        fixed = estimator.fixed_weight
        if fixed is not None:
            blend = next(iter(noisy if fixed else mean), None)
        elif noisy and mean:
            weight = weight_by_definition(estimator.name, central, local, parameters)
            blend = weight * noisy[0] + (1 - weight) * mean[0]
            if parameters.delta is not None:  # the central mean's part is a whole number of reports
                part = (1 - weight) / local
                exact, blend = blend, part * (round(weight * noisy[0] / part) + sum(reports.tolist()))
                assert abs(blend - exact) <= Fraction(1, 2)
        else:
            blend = next(iter([*noisy, *mean]), None)
    assert (None if found is None else found.raw) == (None if blend is None else round(blend))
    if found is not None:
        assert found.top == grid.floor(UPPER_BOUND)
        assert 0 <= found.interval95[0] <= found.mean <= found.interval95[1] <= found.top


# Each group's own mean

reads_both = pytest.mark.parametrize(
    "estimator",
    [each for each in HYBRID_ESTIMATORS.values() if each.all_local or each.fixed_weight is None],
    ids=attrgetter("name"),
)


@reads_both
@given(
    data=st.data(),
    users=hats() | st.just(NOBODY),
    reports=reports_of_some,
    draws=st.lists(st.integers(-(10**6), 10**6), min_size=60, max_size=60),
    least=st.integers(1, 8),
)
def test_separate_groups_are_what_the_baselines_release_of_the_same_draws(
    estimator: HybridEstimator, data: st.DataObject, users: Users, reports: Integers, draws: list[int], least: int
) -> None:
    """So each is as private and as near as a release of that group alone, and nothing else is drawn."""
    together = data.draw(parameters_for(estimator))
    together = replace(together, max_coalition=None if together.delta is None else data.draw(st.integers(0, 30)))
    noise, other = Scripted(draws), Scripted(draws)
    plain = estimate(estimator, users, reports, together, noise)
    found = estimate(estimator, users, reports, replace(together, group_min_users=least), other)
    assert other.asked == noise.asked
    if found is None or plain is None:
        assert found is plain
        return
    sizes = [size for size in (len(users.counts), len(reports)) if size]
    if min(sizes) < least:
        assert found == plain, "the other group's mean and the blend would give that of the few"
        return
    assert found.groups is not None
    of_local = estimate(LM_ONLY, NOBODY, reports, together, Scripted())
    assert found.groups.local == of_local
    baseline = FULL_LM if estimator.all_local else TCM_ONLY
    of_central = estimate(baseline, users, reports[:0], together, Scripted(draws))
    assert found.groups.central == of_central
    public = max(each.public_epsilon for each in (of_central, of_local) if each is not None)
    assert found == replace(plain, groups=found.groups, public_epsilon=public)


@reads_both
@given(data=st.data(), users=hats(), share=st.sampled_from([Fraction(0), Fraction(1)]) | st.fractions(0, 1))
def test_a_replaced_central_user_changes_nothing_of_the_other_group(
    estimator: HybridEstimator, data: st.DataObject, users: Users, share: Fraction
) -> None:
    parameters = replace(data.draw(parameters_for(estimator)), group_min_users=1)
    user = data.draw(st.integers(0, len(users.counts) - 1))
    reports = np.array([3, 4], np.int64)
    one = estimate(estimator, users, reports, parameters, silent())
    other = estimate(estimator, moved(users, user, share), reports, parameters, silent())
    assert one is not None
    assert other is not None
    assert one.groups is not None
    assert other.groups is not None
    assert one.groups.local == other.groups.local
    assert one.groups.public_epsilon == other.groups.public_epsilon


@every_estimator
@given(data=st.data(), users=hats(), reports=reports_of_some, pushed=st.integers(0, 10**6))
def test_the_order_of_users_and_of_reports_changes_nothing(
    estimator: HybridEstimator, data: st.DataObject, users: Users, reports: Integers, pushed: int
) -> None:
    parameters = data.draw(parameters_for(estimator))
    one = estimate(estimator, users, reports, parameters, Scripted(repeat(pushed)))
    assert one == estimate(estimator, users, reports[::-1].copy(), parameters, Scripted(repeat(pushed)))
