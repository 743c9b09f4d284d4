"""The tracker's model against a dense Kalman filter that knows nothing of its structure."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from hatcast.stream.tracker.model import (
    CITY,
    FEATURES,
    HOURS,
    SHARED,
    Covariance,
    Floats,
    Means,
    ModelHat,
    Observation,
    Variances,
    hour_part,
)

CELLS, HATS = 5, 4
VARIANCES = Variances()


@dataclass
class Dense:
    """Means and covariance of the shared parts, all cells and all HATs' own deviations."""

    covariance: Floats
    means: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.means = np.zeros(len(self.covariance))
        self.means[0] = 32.5

    def observe(self, row: Floats, variance: float, value: float) -> None:
        gain = self.covariance @ row / (row @ self.covariance @ row + variance)
        self.means += gain * (value - row @ self.means)
        self.covariance -= np.outer(gain, row @ self.covariance)


def made() -> tuple[Covariance, Means, Dense]:
    covariance, means = Covariance(VARIANCES), Means(32.5)
    covariance.add_cells(CELLS)
    covariance.add_hats(ModelHat(i % CELLS, i, np.zeros(2), 9.0 + i, 0.2, 3, 0) for i in range(HATS))
    means.resize(covariance)
    full = np.zeros((SHARED + CELLS + HATS,) * 2)
    full[:SHARED, :SHARED] = covariance.shared
    full[range(SHARED, len(full)), range(SHARED, len(full))] = [*covariance.variance, *covariance.hats]
    return covariance, means, Dense(full)


def observation_of(random: np.random.Generator) -> Observation:
    hats = np.sort(random.choice(HATS, 2, replace=False))
    row = np.zeros(SHARED)
    row[CITY], row[hour_part(int(random.integers(HOURS)))], row[FEATURES] = 1, 1, random.normal(size=2)
    return Observation(int(random.integers(CELLS)), row, hats, np.array([0.5, 0.5]), random.random(2), 3.0)


def full_row(observation: Observation) -> Floats:
    row = np.concatenate((observation.row, np.zeros(CELLS + HATS)))
    row[SHARED + observation.cell] = 1
    row[SHARED + CELLS + observation.hats] = observation.betas
    return row


def test_without_own_deviations_the_posterior_is_that_of_the_dense_filter() -> None:
    random = np.random.default_rng(5)
    covariance, means, dense = made()
    for _ in range(60):
        given = observation_of(random)
        observation = Observation(given.cell, given.row, given.hats, given.weights, np.zeros(2), 3.0)
        value = random.normal(30, 5)
        expected = float((observation.row + covariance.slopes[observation.cell]) @ means.shared)
        innovation = value - expected - float(means.intercepts[observation.cell])
        means.update(observation, covariance.observe(observation), innovation)
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


def test_a_longer_pause_than_a_day_lets_the_model_forget_no_more() -> None:
    day, year = Covariance(VARIANCES), Covariance(VARIANCES)
    for covariance, hours in ((day, 24.0), (year, 8760.0)):
        covariance.add_cells(1)
        covariance.advance(hours)
    assert day.of_cells() == pytest.approx(year.of_cells())
