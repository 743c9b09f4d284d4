"""The tracker's model against a dense Kalman filter that knows nothing of its structure."""

import math
from dataclasses import dataclass, field, replace

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

CELLS, HATS = 5, 4
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
    full[range(SHARED, len(full)), range(SHARED, len(full))] = [*covariance.variance, *covariance.hats]
    dense = Dense(full)
    for cell, speed in SCHEDULED.items():  # the slope of all cells, times its own deviation, is a part of the cell
        sums = np.eye(len(full))
        sums[SHARED + cell, TIMETABLE] = deviation(speed)
        dense.covariance, dense.means = sums @ dense.covariance @ sums.T, sums @ dense.means
    return covariance, means, dense


def observation_of(random: np.random.Generator) -> Observation:
    hats = np.sort(random.choice(HATS, 2, replace=False))
    row = np.zeros(SHARED)
    row[[CITY, DAY, hour_part(int(random.integers(HOURS)))]], row[FEATURES] = 1, random.normal(size=2)
    cells = random.integers(CELLS, size=1)
    return Observation(cells, np.ones(1), row, hats, np.array([0.5, 0.5]), random.random(2), 3.0)


def full_row(observation: Observation) -> Floats:
    row = np.concatenate((observation.row, np.zeros(CELLS + HATS)))
    row[SHARED + observation.cells] = observation.shares
    row[SHARED + CELLS + observation.hats] = observation.betas
    return row


def test_without_own_deviations_the_posterior_is_that_of_the_dense_filter() -> None:
    random = np.random.default_rng(5)
    covariance, means, dense = made()
    for _ in range(60):
        given = observation_of(random)
        observation = replace(given, betas=np.zeros(2))
        value = random.normal(30, 5)
        gain = covariance.observe(observation)
        means.update(observation, gain, value - means.expected(observation, gain))
        dense.observe(full_row(observation), 3.0, value)
    cells = means.intercepts + covariance.slopes @ means.shared
    assert means.shared == pytest.approx(dense.means[:SHARED], abs=1e-9)
    assert cells == pytest.approx(dense.means[SHARED : SHARED + CELLS], abs=1e-9)
    assert covariance.shared == pytest.approx(dense.covariance[:SHARED, :SHARED], abs=1e-9)
    assert covariance.slopes @ covariance.shared == pytest.approx(
        dense.covariance[SHARED : SHARED + CELLS, :SHARED], abs=1e-9
    )
    row = np.eye(SHARED)[0]
    variances = [
        np.eye(len(dense.covariance))[0] + np.eye(len(dense.covariance))[SHARED + cell] for cell in range(CELLS)
    ]
    assert covariance.of_cells() == pytest.approx([v @ dense.covariance @ v for v in variances], abs=1e-9)
    assert covariance.variance_of(row + covariance.slopes[2], 2) == pytest.approx(covariance.of_cells()[2])


def test_the_first_observation_of_a_hat_updates_its_own_deviation_as_the_dense_filter_does() -> None:
    random = np.random.default_rng(6)
    covariance, means, dense = made()
    observation = observation_of(random)
    gain = covariance.observe(observation)
    means.update(observation, gain, 4.0)
    dense.observe(full_row(observation), 3.0, 4.0 + float(full_row(observation) @ dense.means))
    assert means.hats == pytest.approx(dense.means[SHARED + CELLS :])
    assert covariance.hats == pytest.approx(np.diag(dense.covariance)[SHARED + CELLS :])


def test_when_the_city_moves_each_cell_keeps_its_variance_and_its_covariance_with_the_shared_parts() -> None:
    random = np.random.default_rng(7)
    covariance, means, _ = made()
    for _ in range(30):
        observation = observation_of(random)
        means.update(observation, covariance.observe(observation), float(random.normal()))
    shared, cross = covariance.shared.copy(), covariance.slopes @ covariance.shared
    cells = means.intercepts + covariance.slopes @ means.shared
    own = np.einsum("ci,ij,cj->c", covariance.slopes, covariance.shared, covariance.slopes) + covariance.variance
    means.follow(covariance.advance(3.0))
    shared[0, 0] += 3 * VARIANCES.city_drift
    now = np.einsum("ci,ij,cj->c", covariance.slopes, covariance.shared, covariance.slopes) + covariance.variance
    assert covariance.shared == pytest.approx(shared)
    assert covariance.slopes @ covariance.shared == pytest.approx(cross)
    assert now == pytest.approx(own + 3 * VARIANCES.cell_drift)
    assert means.intercepts + covariance.slopes @ means.shared == pytest.approx(cells)


def learned(random: np.random.Generator) -> tuple[Covariance, Means]:
    covariance, means, _ = made()
    for _ in range(30):
        observation = observation_of(random)
        means.update(observation, covariance.observe(observation), float(random.normal()))
    return covariance, means


def test_an_observation_of_several_cells_changes_the_shared_parts_as_the_dense_filter_does_and_no_cells_rest() -> None:
    random = np.random.default_rng(8)
    covariance, means = learned(random)
    covariance.hats[:] = 0
    dense = Dense(np.eye(SHARED + CELLS + HATS))
    cross = covariance.slopes @ covariance.shared
    cells = slice(SHARED, SHARED + CELLS)
    dense.covariance[:SHARED, :SHARED], dense.covariance[cells, :SHARED] = covariance.shared, cross
    dense.covariance[:SHARED, cells], dense.covariance[SHARED + CELLS :] = cross.T, 0
    dense.covariance[cells, cells] = cross @ covariance.slopes.T + np.diag(covariance.variance)
    dense.means[:SHARED], dense.means[cells] = means.shared, means.intercepts + covariance.slopes @ means.shared
    shares, row = np.array([0.5, 0.3, 0.2]), observation_of(random).row
    pulse = Observation(np.arange(3), shares, row, np.arange(3), shares, np.zeros(3), 0.1)
    slopes, variance, intercepts = covariance.slopes.copy(), covariance.variance.copy(), means.intercepts.copy()
    gain = covariance.observe(pulse)
    means.update(pulse, gain, 25.0 - means.expected(pulse, gain))
    dense.observe(full_row(pulse), 0.1, 25.0)
    assert means.shared == pytest.approx(dense.means[:SHARED])
    assert covariance.shared == pytest.approx(dense.covariance[:SHARED, :SHARED])
    assert np.array_equal(slopes, covariance.slopes)
    assert np.array_equal(variance, covariance.variance)
    assert np.array_equal(intercepts, means.intercepts)


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
def test_how_often_a_citys_buses_send_says_nothing_of_its_speed(often: int) -> None:
    buses = np.arange(4)
    counts = [HatCounts(cell, 8, buses, often * np.array([1, 1 + cell, 2, 3])) for cell in range(3)]
    day = DayCounts(VARIANCES)
    day.add(counts)
    assert day.centre is not None
    readings = [float(hat.features[0]) for hat in day.hats]
    assert sum(readings) == pytest.approx(0)
    assert readings == pytest.approx([math.log(r / 4) - day.centre for r in (often * 7, often * 8, often * 9)])
    later = DayCounts(VARIANCES, day.centre)  # a later date keeps the centre
    later.add(counts[2:])
    assert later.hats[0].features[0] == readings[2]


def test_a_longer_pause_than_a_day_lets_the_model_forget_no_more() -> None:
    day, year = Covariance(VARIANCES), Covariance(VARIANCES)
    for covariance, hours in ((day, 24.0), (year, 8760.0)):
        covariance.add_cells(1)
        covariance.advance(hours)
    assert day.of_cells() == pytest.approx(year.of_cells())
