"""The tracker's model against a dense Kalman filter that knows nothing of its structure."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from hatcast.stream.tracker.counts import DayCounts, Floats, HatCounts, ModelHat
from hatcast.stream.tracker.model import (
    CITY,
    DAY,
    FEATURES,
    HOURS,
    SHARED,
    TIMETABLE,
    Covariance,
    Means,
    Observation,
    hour_part,
    prior_means,
)
from hatcast.stream.tracker.prior import Prior, Variances
from hatcast.stream.tracker.timetable import deviation

CELLS, HATS = 5, 12
VARIANCES = Variances()
PRIOR = prior_means(Prior.of(65.0))


@dataclass
class Dense:
    """Means and covariance of the shared parts, all cells and all HATs' own deviations."""

    covariance: Floats
    means: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.means = np.zeros(len(self.covariance))
        self.means[:SHARED] = PRIOR

    def observe(self, row: Floats, variance: float, value: float) -> None:
        gain = self.covariance @ row / (row @ self.covariance @ row + variance)
        self.means += gain * (value - row @ self.means)
        self.covariance -= np.outer(gain, row @ self.covariance)


SCHEDULED = {0: 190, 3: 402}
"""cells with a scheduled speed, 0.1 km/h"""


def made() -> tuple[Covariance, Means, Dense]:
    covariance, means = Covariance(VARIANCES), Means(PRIOR)
    covariance.add_cells(CELLS)
    covariance.add_scheduled(SCHEDULED)
    covariance.add_hats(ModelHat(i % CELLS, i, np.zeros(2), 9.0 + i, 0.2, 3, 0) for i in range(HATS))
    means.resize(covariance)
    full = np.zeros((SHARED + CELLS + HATS,) * 2)
    full[:SHARED, :SHARED] = covariance.shared
    full[range(SHARED, len(full)), range(SHARED, len(full))] = [
        *covariance.variance,
        *covariance.own.variance(np.arange(HATS)),
    ]
    dense = Dense(full)
    for cell, speed in SCHEDULED.items():  # the slope of all cells, times its own deviation, is a part of the cell
        sums = np.eye(len(full))
        sums[SHARED + cell, TIMETABLE] = deviation(speed)
        dense.covariance, dense.means = sums @ dense.covariance @ sums.T, sums @ dense.means
    return covariance, means, dense


def observation_of(random: np.random.Generator) -> Observation:
    cells = random.integers(CELLS, size=1)
    hats = np.arange(int(cells[0]), HATS, CELLS)[:2]
    row = np.zeros(SHARED)
    row[[CITY, DAY, hour_part(int(random.integers(HOURS)))]], row[FEATURES] = 1, random.normal(size=2)
    return Observation(cells, np.ones(1), row, hats, np.array([0.5, 0.5]), random.random(2), 3.0)


def joint(covariance: Covariance, means: Means) -> Dense:
    """Return what the model knows of all of its parts together."""
    own = covariance.own
    of_shared = np.concatenate((np.eye(SHARED), covariance.slopes, own.slopes))
    found = Dense(of_shared @ covariance.shared @ of_shared.T)
    found.means = of_shared @ means.shared + np.concatenate((np.zeros(SHARED), means.intercepts, means.hats))
    for cell in range(CELLS):
        hats = own.numbers(cell)
        parts = np.concatenate(([SHARED + cell], SHARED + CELLS + hats))
        block = np.zeros((len(parts),) * 2)
        block[0, 0], block[1:, 1:] = covariance.variance[cell], own.among(hats, hats)
        block[0, 1:] = block[1:, 0] = own.with_cell[hats]
        found.covariance[np.ix_(parts, parts)] += block
    return found


def full_row(observation: Observation) -> Floats:
    row = np.concatenate((observation.row, np.zeros(CELLS + HATS)))
    row[SHARED + observation.cells] = observation.shares
    row[SHARED + CELLS + observation.hats] = observation.betas
    return row


def test_the_posterior_is_that_of_the_dense_filter_also_of_hats_that_are_asked_again() -> None:
    random = np.random.default_rng(5)
    covariance, means, dense = made()
    for _ in range(60):
        observation, value = observation_of(random), random.normal(30, 5)
        gain = covariance.observe(observation)
        means.update(observation, gain, value - means.expected(observation, gain))
        dense.observe(full_row(observation), 3.0, value)
    found = joint(covariance, means)
    assert found.means == pytest.approx(dense.means, abs=1e-9)
    assert found.covariance == pytest.approx(dense.covariance, abs=1e-9)
    ones = np.eye(len(dense.covariance))
    variances = [ones[0] + ones[SHARED + cell] for cell in range(CELLS)]
    assert covariance.of_cells() == pytest.approx([v @ dense.covariance @ v for v in variances], abs=1e-9)


def test_when_the_city_moves_cells_and_own_deviations_keep_their_variances_and_covariances_with_the_shared_parts() -> (
    None
):
    covariance, means = learned(np.random.default_rng(7))
    before = joint(covariance, means)
    means.follow(covariance.advance(3.0))
    before.covariance[CITY, CITY] += 3 * VARIANCES.city_drift
    cells = range(SHARED, SHARED + CELLS)
    before.covariance[cells, cells] += 3 * VARIANCES.cell_drift
    after = joint(covariance, means)
    assert_equal_but_for_what_cells_have_in_common(after, before, covariance)


def assert_equal_but_for_what_cells_have_in_common(found: Dense, expected: Dense, covariance: Covariance) -> None:
    """Means and shared parts; and of each cell its variance, and those and the covariances of its own deviations."""
    assert found.means == pytest.approx(expected.means)
    assert found.covariance[:SHARED] == pytest.approx(expected.covariance[:SHARED])
    for cell in range(CELLS):
        parts = np.ix_(*[[SHARED + cell, *(SHARED + CELLS + covariance.own.numbers(cell))]] * 2)
        assert found.covariance[parts] == pytest.approx(expected.covariance[parts])


def learned(random: np.random.Generator) -> tuple[Covariance, Means]:
    covariance, means, _ = made()
    for _ in range(30):
        observation = observation_of(random)
        means.update(observation, covariance.observe(observation), float(random.normal()))
    return covariance, means


def test_an_observation_of_several_cells_tells_of_each_part_what_the_dense_filter_says_and_ties_no_cells() -> None:
    random = np.random.default_rng(8)
    covariance, means = learned(random)
    dense = joint(covariance, means)
    cells, shares = np.arange(3), np.array([0.5, 0.3, 0.2])
    pulse = Observation(
        cells, shares, observation_of(random).row, cells + CELLS, shares, np.array([0.2, 0.4, 0.1]), 0.1
    )
    gain = covariance.observe(pulse)
    means.update(pulse, gain, 25.0 - means.expected(pulse, gain))
    dense.observe(full_row(pulse), 0.1, 25.0)
    found = joint(covariance, means)
    assert_equal_but_for_what_cells_have_in_common(found, dense, covariance)
    untied = covariance.slopes @ covariance.shared @ covariance.slopes.T
    assert found.covariance[SHARED, SHARED + 1] == pytest.approx(untied[0, 1])


def test_when_a_date_begins_its_shift_is_new_and_each_cell_keeps_its_mean_variance_and_covariance_with_the_rest() -> (
    None
):
    covariance, means = learned(np.random.default_rng(9))
    rest = np.arange(SHARED) != DAY
    shared, cross = covariance.shared.copy(), covariance.slopes @ covariance.shared
    cells, own = means.intercepts + covariance.slopes @ means.shared, np.diag(cross @ covariance.slopes.T)
    own = own + covariance.variance
    assert abs(covariance.slopes[:, DAY]).max() > 0.01
    assert means.shared[DAY] != 0
    means.begin_day(covariance.begin_day())
    assert covariance.shared[np.ix_(rest, rest)] == pytest.approx(shared[np.ix_(rest, rest)])
    assert covariance.shared[DAY].tolist() == (np.eye(SHARED)[DAY] * VARIANCES.day).tolist()
    assert means.shared[DAY] == 0
    now = covariance.slopes @ covariance.shared
    assert now[:, rest] == pytest.approx(cross[:, rest])
    assert now[:, DAY] == pytest.approx(0)
    assert means.intercepts + covariance.slopes @ means.shared == pytest.approx(cells)
    assert np.diag(now @ covariance.slopes.T) + covariance.variance == pytest.approx(own)
    state = covariance.shared.tobytes(), covariance.slopes.tobytes(), means.intercepts.tobytes()
    means.begin_day(covariance.begin_day())  # again, as after a restart
    assert state == (covariance.shared.tobytes(), covariance.slopes.tobytes(), means.intercepts.tobytes())


def test_only_of_speeds_it_is_known_beforehand_that_many_readings_and_buses_are_slow() -> None:
    assert prior_means(Prior.of(130.0))[FEATURES].tolist() == [-6.0, -1.4]
    assert prior_means(Prior.of(130.0, speed="journey"))[FEATURES].tolist() == [-20.0, 0.0]
    assert prior_means(Prior.of(130.0, value="load"))[FEATURES].tolist() == [0.0, 0.0]


def test_a_city_is_expected_at_half_the_bound_a_journey_below_a_third_and_a_value_of_both_signs_at_zero() -> None:
    assert Prior.of(65.0).city == 32.5
    assert Prior.of(65.0, speed="journey").city == 20
    assert Prior.of(500.0, value="pm25").city == 250
    assert Prior.of(4200.0, value="delay", lower=-600.0).city == 600
    assert Prior.of(80.0, value="temperature", lower=5.0).city == 40


@pytest.mark.parametrize("often", [1, 30])
def test_how_often_the_buses_of_a_slot_send_says_nothing_of_its_speed(often: int) -> None:
    buses = np.arange(4)
    day = DayCounts(VARIANCES)
    day.add([HatCounts(cell, 7, buses, np.array([1, 1, 2, 3])) for cell in range(2)])
    slot = day.add([HatCounts(cell, 8, buses, often * np.array([1, 1 + cell, 2, 3])) for cell in range(3)])
    readings = [float(day.hats[number].features[0]) for number in slot]
    centre = math.log(often * 7 / 4) / 3 + math.log(often * 8 / 4) / 3 + math.log(often * 9 / 4) / 3
    assert readings == pytest.approx([math.log(r / 4) - centre for r in (often * 7, often * 8, often * 9)])


def test_a_longer_pause_than_a_day_lets_the_model_forget_no_more() -> None:
    day, year = Covariance(VARIANCES), Covariance(VARIANCES)
    for covariance, hours in ((day, 24.0), (year, 8760.0)):
        covariance.add_cells(1)
        covariance.advance(hours)
    assert day.of_cells() == pytest.approx(year.of_cells())
