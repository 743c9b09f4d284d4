"""The ratio of two noisy sums as drawn: its noises and its interval. False alarms: less than 1 in 10^6 runs."""

import math
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from hatcast.stream.estimators import Estimate, Parameters
from hatcast.stream.estimators.capped_ratio import ESTIMATOR, default_threshold
from hatcast.stream.mechanisms import Noisy
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.mechanisms.system import SystemNoise
from tests.statistics.test_noise import chi_square_is_plausible
from tests.support import UPPER_BOUND, as_users

DRAWS = 2_500
FALSE_ALARM = 5e-8  # of one comparison; 17 of this file must hold, those of chi-squares included
LENGTH, EPSILON = 20, 1.0
PLAIN = Parameters(
    UPPER_BOUND,
    Grid(Decimal("0.001")),
    EPSILON,
    array_length=LENGTH,
    weight_threshold=default_threshold(LENGTH, EPSILON),
)
MANY, AT_THRESHOLD, STANDING = "200 buses", "at the threshold, all at the bound", "one that stands, no threshold"
HATS = {
    MANY: as_users([30] * 100 + [4] * 100, [30 * 21_000] * 100 + [4 * 43_210] * 100),
    AT_THRESHOLD: as_users([LENGTH] * 20, [LENGTH * UPPER_BOUND] * 20),
    STANDING: as_users([LENGTH], [0]),
}


@dataclass
class Kept(SystemNoise):
    """The system's noise, and what it drew."""

    drawn: list[tuple[int, int, float]] = field(default_factory=list)

    def laplace(self, value: int, distance: int, epsilon: float) -> Noisy:
        found = super().laplace(value, distance, epsilon)
        self.drawn.append((found.value - value, distance, found.scale))
        return found

    def gaussian(self, value: int, distance: int, epsilon: float, delta: float) -> Noisy:
        raise AssertionError


@dataclass
class Sample:
    """Draws of one HAT. noise [DRAWS, 2]: on both sums, steps and readings; value: without noise, steps."""

    noise: NDArray[np.int64]
    scales: set[tuple[int, float]]
    estimates: list[Estimate | None]
    value: Fraction


@cache
def sample(name: str) -> Sample:
    noise, users = Kept(), HATS[name]
    parameters = replace(PLAIN, weight_threshold=1.0) if name == STANDING else PLAIN
    estimates = [ESTIMATOR.estimate(users, parameters, noise) for _ in range(DRAWS)]
    return Sample(
        np.array([each for each, *_ in noise.drawn], np.int64).reshape(-1, 2),
        {(distance, scale) for _, distance, scale in noise.drawn},
        estimates,
        ESTIMATOR.value(users, parameters) / PLAIN.grid.milli,
    )


@pytest.fixture(params=HATS)
def drawn(request: pytest.FixtureRequest) -> Sample:
    return sample(request.param)


def test_both_sums_carry_the_noise_of_half_of_epsilon_and_independently(drawn: Sample) -> None:
    distance = LENGTH * UPPER_BOUND // 2 + 1
    assert drawn.scales == {(distance, 2 * distance / EPSILON), (LENGTH, 2 * LENGTH / EPSILON)}
    for noise, scale in ((drawn.noise[:, 0], 2 * distance / EPSILON), (drawn.noise[:, 1], 2 * LENGTH / EPSILON)):
        assert chi_square_is_plausible(noise, scale)
        assert not chi_square_is_plausible(noise, scale / 2), "the test has no power: noise of all of epsilon passes"
    alike = int((np.sign(drawn.noise[:, 0]) * np.sign(drawn.noise[:, 1]) > 0).sum())
    apart = int((np.sign(drawn.noise[:, 0]) * np.sign(drawn.noise[:, 1]) < 0).sum())
    assert binom.isf(1 - FALSE_ALARM, alike + apart, 0.5) <= alike <= binom.isf(FALSE_ALARM, alike + apart, 0.5)


def misses(drawn: Sample, share: Fraction = Fraction(1)) -> int:
    """How many intervals do not cover the value without noise. share: of their width, for the mutant."""
    found = 0
    for estimate in drawn.estimates:
        if estimate is not None:
            low, high = estimate.interval95
            middle, half = Fraction(low + high, 2), share * (high - low) / 2
            found += not middle - half <= drawn.value <= middle + half
    return found


def test_an_interval_misses_in_5_of_100_draws_at_most(drawn: Sample) -> None:
    most = binom.isf(FALSE_ALARM, DRAWS, 0.05)
    assert misses(drawn) <= most


def test_half_as_wide_an_interval_would_miss_too_often() -> None:
    """The mutant: without it the test above might have no power."""
    assert misses(sample(MANY), Fraction(1, 2)) > binom.isf(FALSE_ALARM, DRAWS, 0.05)


def test_a_hat_at_the_threshold_is_suppressed_in_half_of_the_draws() -> None:
    users = HATS[AT_THRESHOLD]
    assert int(users.counts.sum()) == PLAIN.weight_threshold
    passed = sum(estimate is not None for estimate in sample(AT_THRESHOLD).estimates)
    chance = 1 / (1 + math.exp(-EPSILON / (2 * LENGTH)))  # that the noise is 0 or more
    assert binom.isf(1 - FALSE_ALARM, DRAWS, chance) <= passed <= binom.isf(FALSE_ALARM, DRAWS, chance)
    assert sum(estimate is not None for estimate in sample(MANY).estimates) == DRAWS


def test_by_default_an_empty_hat_passes_once_in_44_000_draws() -> None:
    """Exactly: the chance that the noise on a weight of 0 reaches the threshold."""
    p = math.exp(-EPSILON / (2 * LENGTH))
    threshold = default_threshold(LENGTH, EPSILON)
    assert 43_000 < (1 + p) / p**threshold < 44_600
    assert default_threshold(3, 0.1) == 600
