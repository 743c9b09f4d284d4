"""The rules for the array length against their definitions.
Array means as exact fractions, against one fraction at a time; also where products leave 64 bits.
"""

import math
from collections.abc import Callable, Iterable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hatcast.stream.estimators import array_length as rules
from hatcast.stream.estimators._array_means import ArrayMeans
from hatcast.stream.estimators.array_length import PRINTED_RULES, RULES, array_length
from hatcast.stream.estimators.grouping import GROUPINGS, Arrays
from hatcast.stream.mechanisms.grid import Grid
from tests.support import GRIDS, ITMS_LIKE, UPPER_BOUND, as_counts, as_users, hats

counts_lists = st.lists(st.integers(1, 40), min_size=1, max_size=30)
epsilons = st.sampled_from([0.01, 0.1, 0.5, 1.0, 2.0]) | st.floats(1e-3, 1e3)


@given(counts_lists)
def test_sensitivity_is_the_smallest_of_all_lengths_with_the_largest_score(counts: list[int]) -> None:
    def score(m: int) -> Fraction:
        return Fraction(sum(min(count, m) for count in counts) ** 2, m)

    expected = max(range(min(counts), max(counts) + 1), key=lambda m: (score(m), -m))
    assert array_length("sensitivity", as_counts(counts), 1.0, None) == expected


@given(counts_lists)
def test_median_is_the_count_in_the_middle_from_above(counts: list[int]) -> None:
    assert (
        array_length("median", as_counts(counts), 1.0, None)
        == sorted(counts, reverse=True)[math.ceil(len(counts) / 2) - 1]
    )


@given(counts_lists, st.integers(1, 100))
def test_a_fixed_length_is_no_longer_than_the_largest_count(counts: list[int], fixed: int) -> None:
    assert array_length(fixed, as_counts(counts), 1.0, None) == min(fixed, max(counts))


def test_the_itms_counts_give_the_published_lengths() -> None:
    counts = as_counts(ITMS_LIKE)
    assert (RULES["median"](counts, 1.0, None), RULES["sensitivity"](counts, 1.0, None)) == (46, 50)


def test_of_equal_scores_the_shorter_length_is_taken() -> None:
    counts = as_counts([4, 1, 1])  # 3^2 / 1 = 6^2 / 4
    assert array_length("sensitivity", counts, 1.0, None) == 1


def test_scores_beyond_the_precision_of_floats_are_compared_as_integers() -> None:
    n = 2**58  # (3n)^2 / n = (6n)^2 / 4n; one reading more or less is below the last digit of a float
    assert array_length("sensitivity", as_counts([4 * n, n, n]), 1.0, None) == n
    assert array_length("sensitivity", as_counts([4 * n + 1, n, n]), 1.0, None) == 4 * n + 1
    assert array_length("sensitivity", as_counts([4 * n - 1, n, n]), 1.0, None) == n
    # Of these two the larger score is the smaller float.
    longest, shortest = 576460752303424450, 144115188075856110
    assert (longest + 2 * shortest) ** 2 * shortest > (3 * shortest) ** 2 * longest
    assert array_length("sensitivity", as_counts([longest, shortest, shortest]), 1.0, None) == longest


def taken(counts: list[int], m: int) -> int:
    return sum(min(count, m) for count in counts)


def least(candidates: Iterable[int], score: Callable[[int], Fraction | Decimal]) -> int:
    return min(candidates, key=lambda m: (score(m), m))


@given(counts_lists, epsilons)
def test_minimax_is_the_smallest_count_with_the_least_clipping_and_noise(counts: list[int], epsilon: float) -> None:
    def error(m: int) -> Fraction:
        return 1 - Fraction(taken(counts, m), sum(counts)) + m / (Fraction(epsilon) * taken(counts, m))

    assert array_length("minimax", as_counts(counts), epsilon, None) == least(counts, error)


@given(counts_lists, epsilons)
def test_minimax_with_the_square_root_of_two_weighs_the_noise_by_its_deviation(
    counts: list[int], epsilon: float
) -> None:
    def error(m: int) -> Decimal:
        noise = Decimal(2).sqrt() * m / (Decimal(epsilon) * taken(counts, m))
        return 1 - Decimal(taken(counts, m)) / sum(counts) + noise

    with localcontext(Context(prec=200)):
        expected = least(counts, error)
    assert array_length("minimax_sqrt2", as_counts(counts), epsilon, None) == expected


@pytest.mark.parametrize(("rule", "c"), [("minimax", 1.0), ("minimax_sqrt2", math.sqrt(2))])
@given(counts=counts_lists, one=epsilons, other=epsilons)
def test_minimax_does_not_fall_as_epsilon_grows_and_has_the_papers_limits(
    rule: str, c: float, counts: list[int], one: float, other: float
) -> None:
    def at(epsilon: float) -> int:
        return array_length(rule, as_counts(counts), epsilon, None)

    assert at(min(one, other)) <= at(max(one, other))
    users, readings, least_count = len(counts), sum(counts), min(counts)
    assert at(c * least_count / (users * readings) * 0.999) == least_count
    assert at(c * (readings / (users * least_count)) ** 2 * 1.001) == max(counts)


def test_minimax_of_equal_errors_is_the_shorter() -> None:
    # 1 - 2/6 + 1/(2 eps) = 0 + 5/(6 eps) at eps = 1/2
    assert [array_length("minimax", as_counts([5, 1]), each, None) for each in (0.4999, 0.5, 0.5001)] == [1, 1, 5]


def test_minimax_tells_errors_apart_that_floats_cannot() -> None:
    counts = as_counts([5 * 2**28, 2**28])  # as [5, 1]: a tie at epsilon 1/2
    assert array_length("minimax", counts, 0.5, None) == 2**28
    assert array_length("minimax", counts, math.nextafter(0.5, 1), None) == 5 * 2**28
    assert array_length("minimax", counts, math.nextafter(0.5, 0), None) == 2**28


@given(counts_lists)
def test_minimax_convex_is_the_smallest_of_the_integers_named_with_the_least_value(counts: list[int]) -> None:
    mean = Fraction(sum(counts), len(counts))

    def value(m: int) -> Fraction:
        return 1 - Fraction(taken(counts, m), sum(counts)) + max(Fraction(m), mean) / max(counts)

    found = array_length("minimax_convex", as_counts(counts), 1.0, None)
    assert found == least([*counts, math.floor(mean), math.ceil(mean)], value)
    assert value(found) == min(value(m) for m in range(min(counts), max(counts) + 1)), "no integer is better"


def test_minimax_convex_of_the_itms_counts_is_120_where_the_paper_would_take_an_end() -> None:
    counts = as_counts(ITMS_LIKE)
    found = RULES["minimax_convex"](counts, 1.0, None)
    value = 1 - taken(ITMS_LIKE, found) / 17_166 + max(found, 17_166 / 217) / 417
    assert (found, round(value, 4)) == (120, 0.5765)
    assert PRINTED_RULES["minimax_convex_printed"](counts, 1.0, None) in (1, 417)


@pytest.mark.parametrize(
    ("counts", "printed"),
    [([4, 4, 4], 4), ([4, 3, 1], 3), ([4, 2, 1, 1], 2), ([6, 1, 1, 1], 1), ([3, 3, 2], 3)],
)
def test_the_printed_rule_is_that_of_the_paper(counts: list[int], printed: int) -> None:
    """q = M/m*: 3, 2, 2, and twice no integer, so that the better end is taken."""
    assert PRINTED_RULES["minimax_convex_printed"](as_counts(counts), 1.0, None) == printed


def worst_case_error_by_hand(counts: list[int], m: int, epsilon: float, grouping: str | None) -> Fraction:
    """E_M / U, with a user's weight added up place by place."""
    if grouping is None:
        weights = [Fraction(min(count, m), taken(counts, m)) for count in counts]
        noise = Fraction(m, taken(counts, m))
    else:
        arrays = GROUPINGS[grouping](as_counts(counts), m)
        weights = [Fraction(0)] * len(counts)
        for user, array, places in zip(
            arrays.users.tolist(), arrays.arrays.tolist(), arrays.places.tolist(), strict=True
        ):
            weights[user] += Fraction(places, int(arrays.fills[array]) * arrays.number)
        noise = Fraction(1, arrays.number)
    plain = [Fraction(count, sum(counts)) for count in sorted(counts, reverse=True)]
    bias = sum((max(a - b, Fraction(0)) for a, b in zip(plain, weights, strict=True)), Fraction(0))
    return bias + noise / Fraction(epsilon)


@pytest.mark.parametrize("grouping", [*GROUPINGS, None])
@given(counts=counts_lists, epsilon=epsilons)
def test_worst_case_is_the_smallest_of_all_lengths_with_the_least_worst_case_error(
    grouping: str | None, counts: list[int], epsilon: float
) -> None:
    ordered = sorted(counts, reverse=True)
    expected = min(
        range(1, max(counts) + 1), key=lambda m: (worst_case_error_by_hand(ordered, m, epsilon, grouping), m)
    )
    assert array_length("worst_case", as_counts(counts), epsilon, grouping) == expected


@st.composite
def large_counts(draw: st.DrawFn) -> list[int]:
    """Counts with more lengths than are tried: busy users beside many small ones, or users of all sizes."""
    busy = draw(st.lists(st.integers(4_097, 5_000), min_size=1, max_size=4))
    small = draw(st.sampled_from([2, 40, 300, 5_000]))
    return busy + draw(st.lists(st.integers(1, small), max_size=60))


@pytest.mark.parametrize("grouping", [*GROUPINGS, None])
@given(counts=large_counts(), epsilon=st.sampled_from([0.02, 0.1, 0.5, 1.0, 2.0]))
@example([7_200, 7_200] + 100 * [1], 0.02)
@settings(max_examples=3)  # each takes 5,000 groupings
def test_above_4096_readings_no_length_of_all_has_a_worst_case_error_5_percent_below_that_of_worst_case(
    grouping: str | None, counts: list[int], epsilon: float
) -> None:
    ordered = as_counts(counts)
    bias, noise = np.array([rules.bias_and_noise(ordered, length, grouping) for length in range(1, max(counts) + 1)]).T
    scores = bias + noise / epsilon
    found = array_length("worst_case", ordered, epsilon, grouping)
    assert scores[found - 1] <= 1.05 * scores.min()
    assert scores[found - 1] <= (1 + 1e-12) * scores[array_length("minimax", ordered, epsilon, grouping) - 1]


@pytest.mark.parametrize("grouping", [*GROUPINGS, None])
def test_a_user_with_a_million_readings_hides_no_length_that_the_other_rules_would_find(grouping: str | None) -> None:
    ordered = as_counts([10**6] + 50 * [100])
    for epsilon in (0.01, 0.02, 0.1, 1.0):
        found, *others = (
            bias + noise / epsilon
            for rule in ("worst_case", "median", "sensitivity", "minimax")
            for length in [RULES[rule](ordered, epsilon, grouping)]
            for bias, noise in [rules.bias_and_noise(ordered, length, grouping)]
        )
        assert found <= min(others)


def test_of_more_than_4096_different_counts_as_many_are_tried_and_both_ends() -> None:
    counts = as_counts(list(range(3, 9_003)))
    tried = rules.lengths_to_try(counts)
    assert {1, 9_002} <= set(tried.tolist())
    assert len(tried) <= 2 * 4_096 + 1


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("counts", [[10**9], [10**6] * 20, [10**9, 5, 5, 4, 3]])
def test_lengths_that_give_the_same_weights_are_scored_once(
    grouping: str, counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[object] = []

    def counted(whole: Callable[..., object], *given: object) -> object:
        scored.append(given)
        return whole(*given)

    for name in ("_bias_and_noise", "_exact_score"):
        monkeypatch.setattr(rules, name, partial(counted, getattr(rules, name)))
    array_length("worst_case", as_counts(counts), 1.0, grouping)
    assert len(scored) < 10, "of 4096 lengths"


def test_what_is_only_printed_is_no_rule_for_a_policy() -> None:
    assert not PRINTED_RULES.keys() & RULES.keys()


def test_an_unknown_rule_is_an_error() -> None:
    with pytest.raises(KeyError):
        array_length("longest", as_counts([1]), 1.0, None)


grids = st.sampled_from(GRIDS).map(lambda text: Grid(Decimal(text)))
lengths = st.integers(1, 12) | st.integers(1, 500) | st.integers(1, 2**31 - 1)
Known = tuple[ArrayMeans, list[Fraction]]


def one_at_a_time(counts: list[int], sums: list[int], arrays: Arrays) -> list[Fraction]:
    found = [Fraction(0)] * arrays.number
    for user, array, places in zip(arrays.users.tolist(), arrays.arrays.tolist(), arrays.places.tolist(), strict=True):
        found[array] += Fraction(places * sums[user], counts[user] * int(arrays.fills[array]))
    return found


@st.composite
def known(draw: st.DrawFn) -> Known:
    users = draw(hats())
    length = min(draw(lengths), int(users.counts[0]))
    arrays = GROUPINGS[draw(st.sampled_from(sorted(GROUPINGS)))](users.counts, length)
    means = ArrayMeans.of(users.counts, users.sums, arrays, UPPER_BOUND)
    return means, one_at_a_time(users.counts.tolist(), users.sums.tolist(), arrays)


@given(known(), grids)
def test_means_are_rounded_as_the_grid_rounds_values(known: Known, grid: Grid) -> None:
    means, exact = known
    assert means.nearest(grid.milli).tolist() == [grid.nearest(mean) for mean in exact]


@given(known(), st.fractions(Fraction(1, 1000), UPPER_BOUND, max_denominator=1000))
def test_steps_that_reach_a_mean_are_counted_exactly(known: Known, step: Fraction) -> None:
    means, exact = known
    assert means.ceilings(step).tolist() == [-(-mean // step) for mean in exact]


@given(known(), st.data())
def test_means_are_compared_and_added_exactly(known: Known, data: st.DataObject) -> None:
    means, exact = known
    bound = data.draw(st.sampled_from(exact) | st.fractions(0, UPPER_BOUND, max_denominator=4000))
    assert means.above(bound).tolist() == [mean > bound for mean in exact]
    assert means.below(bound).tolist() == [mean < bound for mean in exact]
    assert means.total(means.above(bound)) == sum(mean for mean in exact if mean > bound)


@pytest.mark.parametrize(("count", "kind"), [(400, np.dtype(np.int64)), (2**31 - 1, np.dtype(object))])
def test_products_that_could_leave_64_bits_are_pythons_integers(count: int, kind: np.dtype[np.generic]) -> None:
    counts, sums = [count, count, count - 1], [7, count * UPPER_BOUND, count]
    users = as_users(counts, sums)
    arrays = GROUPINGS["wraparound"](users.counts, count - 2)
    means = ArrayMeans.of(users.counts, users.sums, arrays, UPPER_BOUND)
    assert means.numerators.dtype == means.denominators.dtype == kind
    exact = one_at_a_time(counts, sums, arrays)
    assert means.nearest(Fraction(1)).tolist() == [round(mean) for mean in exact]
    assert means.total(np.ones(len(exact), np.bool_)) == sum(exact)
