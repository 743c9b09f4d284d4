"""Selections as drawn, against exact probabilities. This file cries wolf less than once in 10^6 runs."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from hatcast.stream.estimators.levy import median_costs
from hatcast.stream.estimators.quantile import private_quantile
from hatcast.stream.mechanisms.system import SystemNoise

DRAWS = 10_000  # each mutant below is missed less than once in 10^9 runs, but for the medians': see there
FALSE_ALARM = 1e-7  # of one test; there are fewer than ten in this file


def chances(weights: list[int], costs: list[int], rate: Fraction) -> NDArray[np.float64]:
    terms = [w * (-Decimal(rate.numerator) / rate.denominator * c).exp() for w, c in zip(weights, costs, strict=True)]
    return np.array([float(term / sum(terms)) for term in terms])


def is_plausible(drawn: list[int], expected: NDArray[np.float64]) -> bool:
    observed = np.bincount(drawn, minlength=len(expected))
    assert int(observed[expected == 0].sum()) == 0, "what has no chance was drawn"
    possible = expected > 0
    expected = expected[possible] * len(drawn)
    assert expected.min() >= 10, "chances are large enough for the approximation"
    statistic = float(((observed[possible] - expected) ** 2 / expected).sum())
    return statistic <= float(chi2.isf(FALSE_ALARM, len(expected) - 1))


# The draws that it takes to miss a rate of three quarters less than once in 10^7 runs: its chances are close by.
@pytest.mark.parametrize(("split", "draws"), [(1, 8_000), (2, 24_000)])
def test_levys_median_is_drawn_with_its_chances_ties_included(split: int, draws: int) -> None:
    numbers = [0, 3, 3, 0, 5, 1, 0, 0]
    costs = median_costs(np.array(numbers))
    assert costs.tolist() == [12, 9, 6, 6, 6, 11, 12, 12]
    rate = Fraction(1.0) / (4 * split)
    noise, ones = SystemNoise(), np.ones(8, np.int64)
    drawn = [noise.choose(ones, costs, rate) for _ in range(draws)]
    assert is_plausible(drawn, chances([1] * 8, costs.tolist(), rate))
    assert not is_plausible(drawn, chances([1] * 8, costs.tolist(), rate * Fraction(3, 4))), "the test has no power"


@pytest.mark.parametrize("rank", [0, 2, 5])
def test_a_private_quantile_is_drawn_with_its_chances_ties_and_empty_intervals_included(rank: int) -> None:
    steps, top = [0, 3, 3, 7, 12], 12
    rate = Fraction(1, 4)
    below = [sum(step < v for step in steps) for v in range(top + 1)]  # an integer's rank, by definition
    expected = chances([0] + [1] * top, [abs(each - rank) for each in below], rate)
    noise = SystemNoise()
    drawn = [private_quantile(np.array(steps), top, rank, rate, noise) for _ in range(DRAWS)]
    assert is_plausible(drawn, expected)
    assert not is_plausible([max(each - 1, 1) for each in drawn], expected), "intervals closed at the wrong end pass"


def test_an_integer_is_drawn_uniformly() -> None:
    noise = SystemNoise()
    drawn = [noise.uniform(48) for _ in range(DRAWS)]
    assert is_plausible(drawn, np.full(48, 1 / 48))
    assert not is_plausible(drawn, np.concatenate((np.full(16, 2 / 64), np.full(32, 1 / 64)))), "a remainder passes"
