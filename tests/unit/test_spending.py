"""What a record tells of its noise, and the day's (epsilon, delta) that follows from it."""

import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from hatcast.agents.cli.budget_explained import explanation, figures
from hatcast.agents.cli.budget_tables import today_line
from hatcast.stream.accounting import ChargeSplit, KnownCharges, composed_epsilon
from hatcast.stream.budget import day_loss
from hatcast.stream.estimators import ESTIMATOR_KEYS, ESTIMATORS, Estimate
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.packing import Row, pack
from hatcast.stream.hybrid import HYBRID_KEYS, HybridParameters
from hatcast.stream.ledger.day import Total
from hatcast.stream.ledger.summary import DaySummary
from hatcast.stream.mechanisms.gaussian import smallest_scale
from hatcast.stream.mechanisms.grid import MAX_FINENESS
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.policy.policy import HybridKeys, NoiseKind, Policy, Relation, read_policy
from hatcast.stream.release.budget_records import budget_record
from hatcast.stream.release.hats import HatChunks, Release, release_of
from hatcast.stream.release.spending import day_epsilon, fineness_of
from hatcast.stream.units import NANO

DATE = "2022-01-02"
PRIVACY = {"epsilon": 1.0, "max_hats_per_day": 40, "daily_limit": 105.0}
CELL = "87608b0d2ffffff"


def policy_of(**changes: Any) -> Policy:
    table = {
        "name": "test",
        "upper_bound": 65.0,
        "timezone": "UTC",
        "hours": [0, 24],
        "privacy": PRIVACY,
        "estimator": {"name": "baseline"},
    }
    return read_policy(table | changes, ESTIMATOR_KEYS, lambda _: f'source = "public"\n{CELL}')


def drawn(policy: Policy, users: int) -> Release:
    rows = [Row(i.to_bytes(8, "big"), 1 + i % 7, (1 + i % 7) * 30_000, 30_000, 0b11) for i in range(users)]
    chunks = [pack(rows[at : at + 200]) for at in range(0, users, 200)]
    return release_of(policy, Calendar(policy), f"{DATE}/12:00", CELL, HatChunks(chunks), SystemNoise())


def a_day(number: int, fineness: dict[int, int], cap: int = 40, others: dict[int, int] | None = None) -> DaySummary:
    """A day on which a policy of epsilon 1 has charged so many HATs, and other policies these levels."""
    own = {NANO: min(number, cap)}
    levels = Counter(own) + Counter(others or {})
    return DaySummary(
        releases=number,
        epsilon_sum=number * NANO,
        epsilon_user_day=sum(level * count for level, count in levels.items()),
        shared=others is not None,
        limit=105 * NANO,
        sequence=number,
        levels=levels,
        total=Total(),
        policy_levels=own,
        fineness=fineness,
    )


UNDER_REPLACE = [name for name, each in ESTIMATORS.items() if Relation.REPLACE in each.keys.relations]


@pytest.mark.parametrize("name", UNDER_REPLACE)
@pytest.mark.parametrize("users", [12, 300])
@pytest.mark.parametrize("grid", [0.001, 0.25, 5])
def test_a_published_record_tells_the_fineness_that_was_booked(name: str, users: int, grid: float) -> None:
    policy = policy_of(grid=grid, privacy=PRIVACY, estimator={"name": name})
    release = drawn(policy, users)
    assert isinstance(release.estimate, Estimate)
    record = json.loads(b"1".join(release.record(0)))
    assert fineness_of(policy)([record["noise"]["scale"]]) == release.fineness
    assert release.estimate.scale is not None
    assert release.fineness == 0 or release.estimate.scale == 0 or release.estimate.scale >= 2**release.fineness


@pytest.mark.parametrize("users", [0, 300])
def test_a_ratio_has_the_fineness_of_its_coarser_noise_whatever_was_drawn(users: int) -> None:
    policy = policy_of(
        cells="public.txt",
        privacy={"relation": "add_remove", "epsilon": 1.0, "max_hats_per_day": 8, "daily_limit": 8.0},
        estimator={"name": "capped_ratio", "array_length": 40},
    )
    # 40 readings at eps/2 make a scale of 80; that of the numerator, in steps, is far larger.
    assert fineness_of(policy)([None]) == drawn(policy, users).fineness == 6


@pytest.mark.parametrize(
    ("name", "plain", "finer"),
    [("array_averaging", 75.89, 65.28), ("levy", 75.89, 48.33), ("quantile", 75.89, 39.29)],
)
def test_a_day_of_one_estimator_costs_what_its_noise_and_its_selections_come_to(
    name: str, plain: float, finer: float
) -> None:
    policy = policy_of(privacy={**PRIVACY, "max_hats_per_day": 89}, estimator={"name": name})
    known = a_day(2000, {9: 1990, MAX_FINENESS: 10}, cap=89)
    assert day_epsilon(policy, known) == pytest.approx(finer, abs=0.01)
    assert day_epsilon(policy, a_day(2000, {}, cap=89)) == pytest.approx(plain, abs=0.01)


def test_the_budget_record_shows_no_less_than_was_composed_and_no_more_than_was_spent() -> None:
    policy = policy_of(privacy=PRIVACY)
    for number in (1, 2, 40, 100):
        summary = a_day(number, {9: number})
        shown = json.loads(budget_record(policy, DATE, summary))["epsilon_delta"]["epsilon"]
        known = KnownCharges(NANO, min(number, 40), ChargeSplit((Fraction(1),), (), 9))
        exact = composed_epsilon(summary.levels, policy.delta, known)
        assert exact <= shown <= min(exact + 1e-6, summary.epsilon_user_day / NANO)


def test_one_charge_of_unknown_noise_takes_the_gain_of_its_policys_day() -> None:
    policy = policy_of(privacy=PRIVACY)
    assert day_epsilon(policy, a_day(40, {9: 39, 0: 1})) == day_epsilon(policy, a_day(40, {}))


def test_what_another_policy_has_charged_counts_in_full_beside_our_noise() -> None:
    policy = policy_of(privacy=PRIVACY)
    alone, beside = day_epsilon(policy, a_day(40, {9: 40})), day_epsilon(policy, a_day(40, {9: 40}, 40, {NANO: 5}))
    unknown = day_epsilon(policy, a_day(40, {}, 40, {NANO: 5}))
    assert alone < beside < unknown < 45


# Gaussian noise


def gaussian_policy(**privacy: Any) -> Policy:
    table = {
        "name": "test",
        "upper_bound": 65.0,
        "timezone": "UTC",
        "hours": [0, 24],
        "privacy": PRIVACY | privacy,
        "estimator": {"name": "pwh", "noise": "gaussian"},
    }
    return read_policy(table, HYBRID_KEYS, lambda _: "")


def exact_gaussian(scale: float, distance: int, number: int, delta: float) -> float:
    """dp-accounting's own figure for so many discrete noises, as near as its own grid of losses lets it be."""
    from dp_accounting.pld.privacy_loss_distribution import from_discrete_gaussian_mechanism

    one = from_discrete_gaussian_mechanism(
        scale, distance, value_discretization_interval=1e-3, pessimistic_estimate=False
    )
    return float(one.self_compose(number).get_epsilon_for_delta(delta))


def test_deltas_of_a_days_hats_add_up_to_no_more_than_the_policys() -> None:
    for hats in (1, 3, 40, 89):
        policy = gaussian_policy(max_hats_per_day=hats)
        delta = HybridParameters.of(policy).delta
        assert delta is not None
        assert policy.delta * (1 - 1e-9) < Fraction(delta) * hats <= Fraction(policy.delta)
    assert HybridParameters.of(gaussian_policy()).max_coalition is None
    assert HybridParameters.of(gaussian_policy(max_coalition=7)).max_coalition == 7


@pytest.mark.parametrize("local_epsilon", [1.0, 0.4])
def test_a_day_of_gaussian_releases_costs_what_their_noise_comes_to(local_epsilon: float) -> None:
    policy = gaussian_policy(local_epsilon=local_epsilon)
    delta = HybridParameters.of(policy).delta
    assert delta is not None
    for number in (5, 40):
        for distance in (1, 12):
            scale = smallest_scale(distance, 1.0, delta)
            found = day_epsilon(policy, a_day(number, {int(math.log2(scale)): number}))
            exact = exact_gaussian(scale, distance, number, policy.delta)
            assert exact * (1 - 1e-3) <= found <= number
            assert found <= exact + 0.4 * number / distance
    fine = [day_epsilon(policy, a_day(40, each)) for each in ({9: 40}, {3: 40}, {0: 40}, {})]
    assert fine == sorted(fine)
    assert fine[0] < 10, "the sum is 40"


def test_beside_gaussian_releases_other_charges_count_in_full() -> None:
    policy = gaussian_policy()
    alone, beside = day_epsilon(policy, a_day(40, {9: 40})), day_epsilon(policy, a_day(40, {9: 40}, 40, {NANO: 5}))
    assert beside == pytest.approx(alone + 5)


def test_a_hybrid_policy_with_laplace_noise_has_a_figure_whatever_its_fineness() -> None:
    keys = gaussian_policy().keys_of(HybridKeys)
    policy = replace(gaussian_policy(), method=replace(keys, noise=NoiseKind.LAPLACE))
    assert policy.is_pure
    assert day_epsilon(policy, a_day(40, {0: 40})) == pytest.approx(
        composed_epsilon({NANO: 40}, policy.delta), abs=1e-6
    )


def test_a_policy_tells_its_delta_where_a_bound_is_not_pure() -> None:
    policy = gaussian_policy(max_hats_per_day=40, daily_limit=40.0)
    loss = day_loss(policy)
    assert loss.bound == 40 * NANO
    assert loss.epsilon_at_delta(1, policy.delta) < 40
    assert loss.epsilon_at_delta(30, policy.delta) < loss.epsilon_at_delta(60, policy.delta)
    told = figures(policy, 30, "not read")
    assert (told["hat"]["delta"], told["day"]["delta"]) == (HybridParameters.of(policy).delta, policy.delta)
    assert told["over_days"]["delta"] == 30 * policy.delta
    words = " ".join(part.text for part in explanation(policy, 30, "not read"))
    for said in (
        "delta = 1e-06",
        "but for a probability of 1e-06 for the whole day (delta)",
        "The deltas add up too: 30 x 1e-06",
    ):
        assert said in words
    assert today_line(policy, [], DATE, None).endswith(
        "can still cost 40; Gaussian noise: all of it holds with delta 1e-06"
    )
    pure = replace(policy, method=replace(policy.keys_of(HybridKeys), noise=NoiseKind.LAPLACE))
    assert today_line(pure, [], DATE, None).endswith("can still cost 40")
    assert "delta" not in figures(pure, 30, "not read")["day"]
    assert "The deltas add up too" not in " ".join(part.text for part in explanation(pure, 30, "not read"))
