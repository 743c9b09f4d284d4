"""Bias and noise in the worst case, against brute force and a linear program."""

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from hatcast.stream.estimators import ESTIMATORS, EmptyHat, Parameters
from hatcast.stream.estimators.array_length import RULES
from hatcast.stream.estimators.grouping import GROUPINGS
from hatcast.stream.estimators.vectors import worst_case_error
from hatcast.stream.mechanisms.grid import Grid
from tests.support import ITMS_LIKE, UPPER_BOUND, as_counts, as_users, examples

ITMS = as_counts(ITMS_LIKE)
FIXED = {name: each for name, each in ESTIMATORS.items() if set(each.shares) == {"noise"}}
BIASED = [*FIXED, "capped_ratio"]
counts_lists = st.lists(st.integers(1, 9), min_size=1, max_size=6)
epsilons = st.sampled_from([0.1, 0.3, 0.5, 1.0, 2.0, 5.0])


@pytest.mark.parametrize("name", BIASED)
@given(
    counts=counts_lists,
    epsilon=epsilons,
    grouping=st.sampled_from(sorted(GROUPINGS)),
    length=st.sampled_from(sorted(RULES)) | st.integers(1, 9),
)
@settings(max_examples=examples(40))
def test_the_bias_is_the_largest_difference_over_all_sums(
    name: str, counts: list[int], epsilon: float, grouping: str, length: str | int
) -> None:
    """The difference is convex in the sums, so that it is largest where every user is at 0 or U."""
    estimator = ESTIMATORS[name]
    used = estimator.keys.defaults
    parameters = Parameters(UPPER_BOUND, Grid(Decimal(1)), epsilon)
    if "array_length" in used:
        parameters = replace(parameters, array_length=length if estimator.keys.choices["array_length"] else 3)
    if "grouping" in used:
        parameters = replace(parameters, grouping=grouping)
    ordered = as_counts(counts)
    largest = max(
        abs(estimator.value(users, parameters) - Fraction(int(users.sums.sum()), sum(counts)))
        for ends in product((0, UPPER_BOUND), repeat=len(counts))
        for users in [as_users(ordered.tolist(), (ordered * ends).tolist())]
    )
    assert estimator.bias(ordered, parameters) == largest


def test_the_noise_is_the_scale_before_the_grid_widens_it() -> None:
    found = worst_case_error(ESTIMATORS["baseline"], ITMS, UPPER_BOUND, 1.0)
    assert found is not None
    assert (found.bias, found.noise) == (Fraction(0), Fraction(65_000 * 417, 17_166))
    assert round(float(found.total) / 1000, 4) == 1.5790
    half = worst_case_error(ESTIMATORS["baseline"], ITMS, UPPER_BOUND, 0.5)
    assert half is not None
    assert half.noise == 2 * found.noise


@cache
def averaged_over_arrays(m: int, grouping: str) -> tuple[float, float]:
    """Bias and noise of array averaging on the ITMS-like counts at epsilon 1, km/h."""
    found = worst_case_error(ESTIMATORS["array_averaging"], ITMS, UPPER_BOUND, 1.0, grouping, m)
    assert found is not None
    return float(found.bias) / 1000, float(found.noise) / 1000


def total_of(name: str, epsilon: float, rule: str | int | None = None, grouping: str | None = None) -> float:
    """E_M on the ITMS-like counts, km/h."""
    found = worst_case_error(ESTIMATORS[name], ITMS, UPPER_BOUND, epsilon, grouping, rule)
    assert found is not None
    return float(found.total) / 1000


@pytest.mark.parametrize("grouping", sorted(GROUPINGS))
@pytest.mark.parametrize("epsilon", [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0, 5.0, 20.0])
def test_opt_array_averaging_has_the_least_worst_case_error_of_all_array_lengths(epsilon: float, grouping: str) -> None:
    found = total_of("opt_array_averaging", epsilon, grouping=grouping)
    for rule in RULES:
        assert found <= total_of("array_averaging", epsilon, rule, grouping)
    every = [averaged_over_arrays(m, grouping) for m in range(1, 418)]
    assert math.isclose(found, min(bias + noise / epsilon for bias, noise in every), rel_tol=1e-12)
    # BASELINE's is inversely proportional to epsilon; that of arrays is not, because the arrays are never all full.
    assert (found < total_of("baseline", epsilon)) == (epsilon <= 0.2)
    assert total_of("clipped_sum", epsilon) <= min(found, total_of("baseline", epsilon))


def test_the_papers_rule_minimises_a_formula_for_full_arrays_and_so_misses_the_least_error() -> None:
    assert [round(total_of("opt_array_averaging", 1.0, rule), 3) for rule in ("minimax", "worst_case")] == [
        2.686,
        1.660,
    ]
    assert round(total_of("baseline", 1.0), 3) == 1.579


def test_user_scaling_multiplies_the_number_of_full_arrays_only_up_to_the_last_partial_one() -> None:
    """Lemma IV.2 prints equality: docs/specification/estimators.md, section 8."""
    for times, full in ((1, 160), (2, 321), (10, 1609)):
        counts = np.repeat(ITMS, times)
        assert RULES["sensitivity"](counts, 1.0, None) == 50
        assert GROUPINGS["wraparound"](counts, 50).number == full
        assert GROUPINGS["bestfit"](counts, 50).number == 164 * times
    for times, arrays in ((1, 2), (2, 3)):
        counts = np.repeat(as_counts([8, 4]), times)
        assert RULES["sensitivity"](counts, 1.0, None) == 8
        assert GROUPINGS["bestfit"](counts, 8).number == arrays


def test_settings_stand_in_for_defaults() -> None:
    averaging = ESTIMATORS["array_averaging"]
    plain = worst_case_error(averaging, ITMS, UPPER_BOUND, 1.0)
    found = worst_case_error(averaging, ITMS, UPPER_BOUND, 1.0, "wraparound", "sensitivity")
    assert plain is not None
    assert found is not None
    assert found.noise == Fraction(65_000, 160) != plain.noise


@pytest.mark.parametrize(("name", "length"), [("levy", None), ("quantile", None), ("capped_ratio", 50)])
def test_an_estimator_without_a_fixed_noise_on_its_value_has_no_fixed_worst_case(name: str, length: int | None) -> None:
    assert worst_case_error(ESTIMATORS[name], ITMS, UPPER_BOUND, 1.0, array_length=length) is None


def test_every_other_estimator_has_a_worst_case() -> None:
    assert ESTIMATORS.keys() - FIXED.keys() == {"levy", "quantile", "capped_ratio"}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_hat_without_users_has_no_error(name: str) -> None:
    with pytest.raises(EmptyHat):
        worst_case_error(ESTIMATORS[name], as_counts([]), UPPER_BOUND, 1.0)


def linear_program(counts: list[int], epsilon: float) -> float:
    """The least max(sum of a, sum of (m - b)) + D / eps over a <= b in [0, m] and b - a <= D, with U = M = 1.

    Sums are cut to [a, b]: all users at 0 are off by the sum of a, all at U by that of m - b.
    """
    n, m = len(counts), np.array(counts, float)
    eye, zero, one = np.eye(n), np.zeros((n, 1)), np.ones((n, 1))
    # variables: a, b, D, bias
    rows = np.block(
        [
            [eye, -eye, zero, zero],
            [-eye, eye, -one, zero],
            [np.ones((1, n)), np.zeros((1, n)), 0, -1],
            [np.zeros((1, n)), -np.ones((1, n)), 0, -1],
        ]
    )
    limits = np.concatenate((np.zeros(2 * n + 1), [-m.sum()]))
    bounds = [(0.0, count) for count in counts] * 2 + [(0.0, None)] * 2
    goal = np.concatenate((np.zeros(2 * n), [1 / epsilon, 1]))
    found = linprog(goal, A_ub=rows, b_ub=limits, bounds=bounds, method="highs")
    assert found.status == 0
    return float(found.fun)


def test_the_clipped_sum_is_as_good_as_a_linear_program_on_200_random_hats() -> None:
    random = np.random.default_rng(4)
    for _ in range(200):
        counts = random.integers(1, random.integers(2, 500), random.integers(1, 40)).tolist()
        epsilon = float(random.choice([0.05, 0.1, 0.5, 1.0, 1.7, 3.0]))
        found = worst_case_error(ESTIMATORS["clipped_sum"], as_counts(counts), UPPER_BOUND, epsilon)
        assert found is not None
        assert math.isclose(
            found.total * sum(counts) / UPPER_BOUND, linear_program(counts, epsilon), rel_tol=1e-9, abs_tol=1e-9
        )


def test_with_fewer_users_than_two_over_epsilon_the_clipped_sum_is_half_of_u_and_uses_no_data() -> None:
    estimator, parameters = ESTIMATORS["clipped_sum"], Parameters(UPPER_BOUND, Grid(Decimal("0.001")), 0.5)
    for users, width in ((3, 0), (4, UPPER_BOUND)):
        counts = [1] * users
        assert estimator.sensitivity(as_counts(counts), parameters) == Fraction(width, users)
    for sums in ([0, 0, 0], [0, 7, 65_000]):
        assert estimator.value(as_users([1, 1, 1], sums), parameters) == Fraction(UPPER_BOUND, 2)
