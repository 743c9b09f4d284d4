"""The system's noise, as drawn, against its own distribution. This file cries wolf less than once in 10^6 runs."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, chi2, norm

from hatcast.stream.mechanisms.gaussian import smallest_scale
from hatcast.stream.mechanisms.grid import quantile95
from hatcast.stream.mechanisms.system import SystemNoise

FALSE_ALARM = 5e-8  # of one comparison; there are fewer than twenty in this file
BINS = 40


def one_by_one(value: int, distance: int, epsilon: float, draws: int) -> NDArray[np.int64]:
    """The noise alone, each number asked for by itself, at 0.3 ms."""
    noise = SystemNoise()
    return np.array([noise.laplace(value, distance, epsilon).value - value for _ in range(draws)], np.int64)


def all_at_once(value: int, distance: int, epsilon: float, draws: int) -> NDArray[np.int64]:
    """The noise alone, of as many coordinates."""
    noisy = SystemNoise().laplace_many(np.full(draws, value, np.int64), distance, epsilon)
    return np.asarray(noisy.values) - value


def below(scale: float) -> Callable[[int], float]:
    """P(X <= x) of the discrete Laplace."""
    p = math.exp(-1 / scale)

    def at(x: int) -> float:
        return p**-x / (1 + p) if x < 0 else 1 - p ** (x + 1) / (1 + p)

    return at


def edges(scale: float) -> list[int]:
    """Ends of bins of about equal chance, each end once."""
    p = math.exp(-1 / scale)
    found = set()
    for i in range(1, BINS):
        u = i / BINS
        tail = min(u, 1 - u)
        x = math.floor(math.log(tail * (1 + p)) / math.log(p))
        found.add(-x if u < 0.5 else x - 1)
    return sorted(found)


def chi_square_is_plausible(drawn: NDArray[np.int64], scale: float) -> bool:
    return fits(drawn, edges(scale), below(scale))


def magnitudes_are_plausible(drawn: NDArray[np.int64], scale: float) -> bool:
    """|X| has mean 2 p / (1 - p^2) and mean square 2 p / (1 - p)^2, p = exp(-1 / scale); a sum of many is normal."""
    p = math.exp(-1 / scale)
    mean = 2 * p / (1 - p**2)
    spread = math.sqrt((2 * p / (1 - p) ** 2 - mean**2) / len(drawn))
    return abs(float(np.abs(drawn).mean()) - mean) <= float(norm.isf(FALSE_ALARM / 2)) * spread


def fits(drawn: NDArray[np.int64], ends: list[int], cumulative: Callable[[int], float]) -> bool:
    chances = np.diff([0.0, *map(cumulative, ends), 1.0])
    observed = np.bincount(np.searchsorted(ends, drawn, side="left"), minlength=len(ends) + 1)
    expected = chances * len(drawn)
    assert expected.min() >= 10, "bins are wide enough for the approximation"
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return statistic <= float(chi2.isf(FALSE_ALARM, len(ends)))


# How many numbers, and the wrong scale that is told apart then, by the magnitudes, whose mean is the most efficient
# estimate, and by the bins: either misses it less than once in 10^8 runs, and a shift by a quarter of the scale, too.
WAYS = [pytest.param(one_by_one, 8_000, 0.85, id="one by one"), pytest.param(all_at_once, 100_000, 0.95, id="at once")]


@pytest.mark.parametrize(
    ("value", "distance", "epsilon"), [(2**59, 1, 0.5), (21_314, 1579, 1.0)], ids=["narrow and far", "usual"]
)
@pytest.mark.parametrize(("ask", "draws", "wrong"), WAYS)
def test_noise_is_distributed_as_the_discrete_laplace_and_its_quantile_covers_95_percent(
    ask: Callable[[int, int, float, int], NDArray[np.int64]],
    draws: int,
    wrong: float,
    value: int,
    distance: int,
    epsilon: float,
) -> None:
    drawn = ask(value, distance, epsilon, draws)
    scale = distance / epsilon
    assert chi_square_is_plausible(drawn, scale)
    assert magnitudes_are_plausible(drawn, scale)
    assert not magnitudes_are_plausible(drawn, scale * wrong), "no power: a wrong scale passes"
    assert not chi_square_is_plausible(drawn, scale * wrong), "no power: a wrong scale passes"
    assert not chi_square_is_plausible(drawn + max(1, round(scale / 4)), scale), "a shift passes"
    q = quantile95(scale)
    cumulative = below(scale)
    for spread in (q, q - 1):
        covered = int((np.abs(drawn) <= spread).sum())
        chance = cumulative(spread) - cumulative(-spread - 1)
        assert binom.isf(1 - FALSE_ALARM, draws, chance) <= covered <= binom.isf(FALSE_ALARM, draws, chance)
    assert cumulative(q) - cumulative(-q - 1) >= 0.95 > cumulative(q - 1) - cumulative(-q)


# Gaussian noise

GAUSSIAN_DRAWS = 8_000


def gaussian_fits(drawn: NDArray[np.int64], scale: float) -> bool:
    """Against the discrete Gaussian's chances, term by term."""
    furthest = math.ceil(12 * scale)
    terms = np.exp(-0.5 * (np.arange(-furthest, furthest + 1) / scale) ** 2)
    cumulative = np.cumsum(terms / terms.sum())
    ends = sorted({int(np.searchsorted(cumulative, i / BINS)) - furthest for i in range(1, BINS)})
    return fits(drawn, ends, lambda x: float(cumulative[x + furthest]))


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("value", "distance"), [(2**59, 1), (21_314, 1579)], ids=["narrow and far", "usual"])
def test_gaussian_noise_is_distributed_as_the_discrete_gaussian(value: int, distance: int) -> None:
    noise = SystemNoise()
    drawn = [noise.gaussian(value, distance, 1.0, 1e-6) for _ in range(GAUSSIAN_DRAWS)]
    off, scale = np.array([each.value - value for each in drawn], np.int64), drawn[0].scale
    assert {each.scale for each in drawn} == {smallest_scale(distance, 1.0, 1e-6)}
    assert gaussian_fits(off, scale)
    assert not gaussian_fits(off, scale * 0.9), "the test has no power: a wrong scale passes"
    assert not gaussian_fits(off + max(1, round(scale / 4)), scale), "a shift passes"


@pytest.mark.parametrize(("distance", "epsilon"), [(3, 2.0), (3, 1.0), (6, 1.0)])
def test_noise_whose_scale_is_a_simple_fraction_is_not_biased(distance: int, epsilon: float) -> None:
    # OpenDP up to 0.14.1 divided fractions wrongly where they can be cancelled (its issue 2638): decision 58.
    drawn = SystemNoise().laplace_many(np.zeros(100_000, np.int64), distance, epsilon)
    assert drawn.scale == distance / epsilon
    assert chi_square_is_plausible(np.asarray(drawn.values), drawn.scale)
