"""The capped ratio: both sums without noise, threshold, interval.    [docs/specification/estimators.md, section 5]"""

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.estimators import Parameters, Users
from hatcast.stream.estimators.capped_ratio import ESTIMATOR, centred_sum, default_threshold
from hatcast.stream.estimators.weighted_mean import ESTIMATOR as WEIGHTED_MEAN
from hatcast.stream.mechanisms.grid import Grid, tail_quantile
from tests.support import ITMS_LIKE, UPPER_BOUND, Scripted, as_users, hats

PLAIN = Parameters(UPPER_BOUND, Grid(Decimal("0.001")), 1.0, array_length=50, weight_threshold=20.0)
ITMS = as_users(ITMS_LIKE, [count * 20_668 for count in ITMS_LIKE])
lengths = st.integers(1, 600)


def test_a_small_hat_by_hand() -> None:
    """Users with 90, 4 and 1 readings at 10, 50 and 65 km/h, m = 50: weights 50, 4 and 1."""
    users = as_users([90, 4, 1], [90 * 10_000, 4 * 50_000, 65_000])
    centred = 50 * (10_000 - 32_500) + 4 * (50_000 - 32_500) + 1 * (65_000 - 32_500)
    assert centred_sum(users, PLAIN) == centred
    assert ESTIMATOR.value(users, PLAIN) == Fraction(centred, 55) + 32_500
    noise = Scripted([1_000, 5])
    found = ESTIMATOR.estimate(users, PLAIN, noise)
    assert noise.asked == [(centred, 50 * 32_500 + 1, 0.5), (55, 50, 0.5)]
    assert found is not None
    assert found.raw == round(Fraction(centred + 1_000, 60)) + 32_500


@given(hats(), lengths, st.data())
def test_a_user_who_goes_moves_the_exact_sum_by_at_most_its_sensitivity(
    users: Users, length: int, data: st.DataObject
) -> None:
    parameters = replace(PLAIN, array_length=length)
    gone = data.draw(st.integers(0, len(users.counts) - 1))
    left = Users(np.delete(users.counts, gone), np.delete(users.sums, gone))
    moved = abs(centred_sum(users, parameters) - centred_sum(left, parameters))
    assert moved <= ESTIMATOR.sensitivity(users.counts, parameters)


def test_the_exact_sum_reaches_its_sensitivity() -> None:
    for share in (0, 1):
        alone = as_users([50], [50 * share * UPPER_BOUND])
        assert abs(centred_sum(alone, PLAIN)) == ESTIMATOR.sensitivity(alone.counts, PLAIN) == 50 * 32_500


@given(hats(), lengths)
def test_without_noise_it_is_the_weighted_mean(users: Users, length: int) -> None:
    parameters = replace(PLAIN, array_length=length)
    assert ESTIMATOR.value(users, parameters) == WEIGHTED_MEAN.value(users, parameters)
    assert ESTIMATOR.bias(ITMS.counts, parameters) == WEIGHTED_MEAN.bias(ITMS.counts, parameters)


@pytest.mark.parametrize(("threshold", "weight", "released"), [(20.0, 20, True), (20.0, 19, False), (19.5, 19, False)])
def test_a_noisy_weight_below_the_threshold_is_suppressed(threshold: float, weight: int, *, released: bool) -> None:
    parameters = replace(PLAIN, weight_threshold=threshold)
    users = as_users([30], [30 * 20_000])
    noise = Scripted([0, weight - 30])
    assert (ESTIMATOR.estimate(users, parameters, noise) is not None) == released
    assert len(noise.asked) == 2


def test_a_ratio_beyond_the_bounds_is_cut_and_raw_is_not() -> None:
    found = ESTIMATOR.estimate(as_users([30], [30 * 60_000]), PLAIN, Scripted([10**6, -5]))
    assert found is not None
    assert found.raw > 65_000 == found.mean == found.interval95[1]


@given(
    st.integers(-(10**8), 10**8), st.integers(1, 10**5), st.sampled_from([0.1, 1.0, 1e3]), st.sampled_from([1, 7, 50])
)
def test_the_interval_is_the_range_of_the_ratio_over_all_that_both_noises_leave_open(
    numerator: int, weight: int, epsilon: float, length: int
) -> None:
    parameters = replace(PLAIN, epsilon=epsilon, array_length=length, weight_threshold=1.0)
    found = ESTIMATOR.estimate(as_users([], []), parameters, Scripted([numerator, weight]))
    assert found is not None
    scale, weights_scale = 2 * (length * 32_500 + 1) / epsilon, 2 * length / epsilon
    beyond, weights_beyond = tail_quantile(40, scale) + Fraction(1, 2), tail_quantile(40, weights_scale)
    if weight <= weights_beyond:
        assert found.interval95 == (0, 65_000)
        return
    corners = [
        n / (weight + w) + 32_500
        for n, w in product((numerator - beyond, numerator + beyond), (-weights_beyond, weights_beyond))
    ]
    expected = math.floor(min(corners)), math.ceil(max(corners))
    assert found.interval95 == (min(max(expected[0], 0), 65_000), min(max(expected[1], 0), 65_000))


def test_where_the_noise_on_the_weight_reaches_down_to_0_nothing_is_known() -> None:
    beyond = tail_quantile(40, 100.0)
    parameters = replace(PLAIN, weight_threshold=1.0)
    for weight, known in ((beyond - 1, False), (beyond, False), (beyond + 10**5, True)):
        found = ESTIMATOR.estimate(as_users([], []), parameters, Scripted([0, weight]))
        assert found is not None
        assert (found.interval95 != (0, 65_000)) == known


@pytest.mark.parametrize(
    ("length", "epsilon", "threshold"), [(50, 1.0, 1000.0), (7, 0.1, 1400.0), (1, 3.0, 20 / 3), (10**9, 10.0, 2e9)]
)
def test_the_default_threshold_is_ten_scales_of_the_noise_on_the_weight(
    length: int, epsilon: float, threshold: float
) -> None:
    assert default_threshold(length, epsilon) == threshold


def test_a_rule_that_reads_counts_is_no_array_length_here() -> None:
    parameters = replace(PLAIN, array_length="median", weight_threshold=None)
    with pytest.raises(TypeError, match="a number of places"):
        ESTIMATOR.estimate(ITMS, parameters, Scripted())
    with pytest.raises(ValueError, match="weight threshold"):
        ESTIMATOR.estimate(ITMS, replace(PLAIN, weight_threshold=None), Scripted())
