"""Quantiles and what a cap drops, against sorted lists."""

from collections import Counter
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.lab.survey.figures import dropped_share, quantile, summarize
from hatcast.lab.survey.rows import minutes_of, slots_of
from tests.replayed import policy_of

values = st.lists(st.integers(1, 60), min_size=1, max_size=60)


@given(values, st.integers(1, 100))
def test_a_quantile_is_the_least_value_that_enough_do_not_exceed(given_values: list[int], percent: int) -> None:
    found = quantile(Counter(given_values), percent)
    enough = [v for v in given_values if 100 * sum(each <= v for each in given_values) >= percent * len(given_values)]
    assert found == min(enough)


@given(values)
def test_a_spread_is_that_of_all_values(given_values: list[int]) -> None:
    summary = summarize(Counter(given_values))
    assert summary.mean == pytest.approx(sum(given_values) / len(given_values))
    assert summary.maximum == max(given_values)
    assert summary.median == sorted(given_values)[(len(given_values) - 1) // 2]
    assert (summary.minimum, summary.p25) == (min(given_values), quantile(Counter(given_values), 25))
    assert (summary.p75, summary.p95) == tuple(quantile(Counter(given_values), percent) for percent in (75, 95))
    expected = stdev(given_values) if len(given_values) > 1 else 0
    assert summary.deviation == pytest.approx(expected)


def test_the_deviation_of_large_numbers_is_exact() -> None:
    assert summarize({10**9: 1, 10**9 + 2: 1}).deviation == pytest.approx(2**0.5)


@given(values, st.integers(0, 70))
def test_a_cap_drops_what_each_user_day_has_beyond_it(hats_per_user_day: list[int], cap: int) -> None:
    lost = sum(len(range(hats)[cap:]) for hats in hats_per_user_day)
    assert dropped_share(Counter(hats_per_user_day), cap) == pytest.approx(lost / sum(hats_per_user_day))


def test_of_nothing_there_is_no_quantile_and_nothing_is_dropped() -> None:
    with pytest.raises(ValueError, match="the histogram is empty"):
        quantile({}, 50)
    assert dropped_share({}, 3) == 0


@pytest.mark.parametrize(
    ("changes", "slots"),
    [
        ({"hours": [9, 21]}, [*range(9 * 60, 21 * 60, 60)]),
        ({"hours": [9, 10], "slot_length": "15m"}, [540, 555, 570, 585]),
        ({"hours": [0, 24], "slot_length": "24h"}, [0]),
        ({"hours": [1, 24], "slot_length": "24h"}, []),
    ],
)
def test_the_slots_of_the_hours_are_those_that_start_in_them(changes: dict[str, object], slots: list[int]) -> None:
    assert slots_of(policy_of(**changes)) == slots
    assert minutes_of("09:45") == 585
