"""`hatcast.math` computes what the code of releases computes, in the caller's unit and order."""

import inspect
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatcast import math
from hatcast.lab.evaluate.lemmas import full_lm, laplace_setting, tcm_only
from hatcast.stream.errors import HatcastError
from hatcast.stream.estimators import ESTIMATORS
from hatcast.stream.estimators.array_length import RULES
from hatcast.stream.estimators.grouping import GROUPINGS
from hatcast.stream.estimators.vectors import worst_case_error
from hatcast.stream.hybrid import HYBRID_ESTIMATORS
from tests.laws.estimator_oracle import by_definition
from tests.support import ITMS_LIKE, UPPER_BOUND, as_counts, as_users, plain_parameters

SHUFFLED = np.random.default_rng(2).permutation(ITMS_LIKE)  # simulation
counts_lists = st.lists(st.integers(1, 60), min_size=1, max_size=20)


def test_the_page_lists_every_function_and_each_is_described() -> None:
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    listed = page[page.index("functions of `hatcast.math`") : page.index("## Reference")]
    for name in math.__all__:
        assert f"`{name}`" in listed
        assert inspect.getdoc(getattr(math, name))
    for name, function in vars(math).items():
        if inspect.isfunction(function) and function.__module__ == math.__name__ and not name.startswith("_"):
            assert name in math.__all__


@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("grouping", sorted(GROUPINGS))
def test_array_lengths_are_those_of_releases_in_any_order_of_users(rule: str, grouping: str) -> None:
    expected = RULES[rule](as_counts(ITMS_LIKE), 0.5, grouping)
    assert math.array_length(SHUFFLED, rule, epsilon=0.5, grouping=grouping) == expected


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "capped_ratio"])
def test_means_sensitivities_and_worst_cases_are_those_of_the_estimators(name: str) -> None:
    means = np.linspace(5, 60, len(SHUFFLED))
    order = np.argsort(-SHUFFLED, kind="stable")
    users = as_users(SHUFFLED[order].tolist(), np.rint(means * SHUFFLED * 1000).astype(int)[order].tolist())
    rule = ESTIMATORS[name].keys.defaults.get("array_length") or "median"
    whole = plain_parameters(ESTIMATORS[name], rule=rule)
    before = math.mean_before_noise(name, SHUFFLED, means, upper_bound=65.0, epsilon=1.0)
    assert before == pytest.approx(float(by_definition(name, users, whole)) / 1000)
    moved = math.sensitivity(name, SHUFFLED, upper_bound=65.0, epsilon=1.0)
    assert moved * 1000 == pytest.approx(float(ESTIMATORS[name].sensitivity(users.counts, whole)))
    expected = worst_case_error(ESTIMATORS[name], users.counts, UPPER_BOUND, 1.0)
    found = math.worst_case_error(name, SHUFFLED, upper_bound=65.0, epsilon=1.0)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.total * 1000 == pytest.approx(float(expected.total))
    noisy = math.estimate(name, SHUFFLED, means, upper_bound=65.0, epsilon=1e6)
    assert noisy is not None
    assert noisy[1][0] <= noisy[0] <= noisy[1][1]


def test_levys_sensitivity_is_that_of_three_tau() -> None:
    width = 3 * math.tau(ITMS_LIKE, 50, upper_bound=65.0)
    found = math.sensitivity("levy", ITMS_LIKE, upper_bound=65.0, epsilon=1.0, interval=(10.0, 10.0 + width))
    assert found == pytest.approx(width / 164)
    assert math.tau(ITMS_LIKE, 50, upper_bound=65.0, gamma=0.05) > width / 3
    assert math.group(SHUFFLED, 50).number == 164


def test_a_smaller_gamma_is_a_wider_interval_in_estimates_too() -> None:
    means, counts = np.full(400, 30.0), [200] * 400
    widths = []
    for gamma in (0.9, 1e-9):
        found = math.estimate("levy", counts, means, upper_bound=65.0, epsilon=1.0, gamma=gamma)
        assert found is not None
        widths.append(found[1][1] - found[1][0])
    assert widths[1] > 1.3 * widths[0]
    with pytest.raises(HatcastError, match="gamma: 2 is out of range"):
        math.estimate("levy", counts, means, upper_bound=65.0, epsilon=1.0, gamma=2)
    with pytest.raises(HatcastError, match="gamma: quantile has no such setting"):
        math.estimate("quantile", counts, means, upper_bound=65.0, epsilon=1.0, gamma=0.1)


@given(counts_lists)
@settings(max_examples=50)
def test_the_median_has_at_least_half_of_the_best_gain_which_the_least_count_has(counts: list[int]) -> None:
    """Lemmas III.1 and III.2."""
    best = math.optimal_gain(counts)
    assert math.gain(counts, min(counts)) == pytest.approx(best)
    assert all(1 - 1e-12 <= math.gain(counts, m) <= best + 1e-12 for m in counts)
    assert math.gain(counts, sorted(counts, reverse=True)[(len(counts) + 1) // 2 - 1]) >= best / 2 - 1e-12


def test_minimax_minimises_the_error_of_full_arrays() -> None:
    for epsilon in (0.05, 0.5, 2.0):
        asked = {"upper_bound": 65.0, "epsilon": epsilon}
        chosen = math.array_length(ITMS_LIKE, "minimax", epsilon=epsilon)
        least = min(math.full_arrays_error(ITMS_LIKE, m, **asked).total for m in range(1, 418))
        assert math.full_arrays_error(ITMS_LIKE, chosen, **asked).total == pytest.approx(least)


@given(share=st.floats(0.002, 0.9), users=st.integers(1000, 10**6), sigma=st.floats(0.05, 0.5))
@settings(max_examples=60)
def test_trusted_users_alone_are_better_exactly_from_the_critical_numbers_on(
    share: float, users: int, sigma: float
) -> None:
    """Lemma 3.8."""
    asked = {"upper_bound": 1.0, "epsilon": 1.0, "sigma": sigma}
    most, least = math.critical_share(**asked), math.critical_users(share, **asked)
    if abs(share / most - 1) < 1e-6 or abs(users / least - 1) < 1e-6:
        return
    setting = laplace_setting(float(users), share, 1.0, 1.0, sigma**2)
    assert (tcm_only(setting) < full_lm(setting)) == (share > most and users > least)


def test_the_blend_is_that_of_the_estimator() -> None:
    setting = math.laplace_setting(Fraction(100), Fraction(1, 10), Fraction(1), Fraction(1), Fraction(1, 12))
    assert math.hybrid_weight("kvh", setting) == float(HYBRID_ESTIMATORS["kvh"].weight(setting))


@pytest.mark.parametrize(
    ("name", "expected"), [(None, 17.25), ("array_averaging", 16.04), ("levy", 11.81), ("quantile", 9.90)]
)
def test_forty_releases_of_one_half_compose_by_what_they_pay_for(name: str | None, expected: float) -> None:
    assert math.compose(0.5, 40, 1e-6, name) == pytest.approx(expected, abs=0.005)


def test_k_means_blends_both_groups() -> None:
    """2,000 vectors at each of two places; noise moves a centre by 5 less than once in 10^20."""
    points = np.repeat([[10.0, 20.0], [50.0, 40.0]], 2000, axis=0)
    both = math.kmeans(points, clusters=2, iterations=3, epsilon=20.0, upper_bound=65.0, local=points[::100])
    assert np.allclose(np.sort(both, axis=0), [[10, 20], [50, 40]], atol=5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: math.sensitivity("baselin", [1], upper_bound=1.0, epsilon=1.0), "estimator: 'baselin' is none"),
        (
            lambda: math.sensitivity("baseline", [1], upper_bound=1.0, epsilon=1.0, gamma=1),
            "gamma: baseline has no such",
        ),
        (lambda: math.sensitivity("baseline", [1], upper_bound=0.0, epsilon=1.0), "upper_bound: 0.0 is out of range"),
        (
            lambda: math.estimate("baseline", [1, 2], [1.0], upper_bound=1.0, epsilon=1.0),
            "means: give one for each count",
        ),
        (lambda: math.array_length([1], "longest", epsilon=1.0), "rule: 'longest' is none"),
        (lambda: math.group([1], 1, "worst"), "grouping: 'worst' is none"),
    ],
)
def test_what_is_none_is_one_line(call: object, words: str) -> None:
    assert callable(call)
    with pytest.raises(HatcastError, match=words):
        call()
