"""State-space model of a city's speeds, updated by a Kalman filter.    [docs/specification/tracker.md, section 1]

    f_h = city(t) + hour[local hour] + coefficients . features_h + cell[c] + e_h        for the HAT h = (c, t)

The city, the 24 hours and the two coefficients are *shared* parts: 27 numbers. Given the shared parts, cells are
independent of each other as long as each observation is of one cell, and the city stands still. So each cell is stored
as a regression on the shared parts,

    cell[c] = intercept_c + slopes_c . shared + rest_c,        var(rest_c) = variance_c

and an observation changes the shared parts and one cell: its cost does not depend on the number of cells. When the city
moves, the slopes refer to the city of before; they are carried over by regression on the new one, which keeps each
cell's own variance and its covariance with the shared parts exact, and leaves out what two cells then have in common
beyond the shared parts.

Covariances depend on public counts only (`Covariance`); means also on released numbers (`Means`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from hatcast.stream.tracker.contributions import Floats, Hat, Integers
from hatcast.stream.tracker.setting import Variances

HOURS: Final = 24
"""of the local clock"""
SHARED: Final = 1 + HOURS + 2
"""number of shared parts: the city, 24 hours, 2 coefficients of features"""
_HOUR_LAG: Final = 3.0  # hours after which the correlation of two hours of the day has fallen to 1/e
_HOURS_MAX: Final = 24  # a longer pause does not make the model forget more


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """A number that is released about HATs of one cell, as the model sees it.

    y = row . shared + cell + sum of betas e_h + noise

    cell       number of the cell
    row        float64 [27]  weights of the shared parts
    hats       int64 [H]  numbers of the HATs, each once
    weights    float64 [H]  of each HAT; their sum is 1
    betas      float64 [H]  regression of y on each HAT's own deviation e_h
    variance   of all other parts of y: sampling, clipping and noise
    """

    cell: int
    row: Floats
    hats: Integers
    weights: Floats
    betas: Floats
    variance: float


@dataclass(frozen=True, slots=True, eq=False)
class Gain:
    """Kalman gain of an observation, with the variance of its innovation.

    shared, cell, hats   float64 [27], a number, float64 [H]: gains; of the cell, that of its intercept
    slopes               float64 [27]  of the cell, before the observation
    row                  float64 [27]  `Observation.row` plus the slopes
    variance             of the innovation
    """

    shared: Floats
    cell: float
    hats: Floats
    slopes: Floats
    row: Floats
    variance: float


@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """Change of the cells' regressions when the city moves: slopes fall by the outer product of both.

    by_cell   float64 [C]
    row       float64 [27]
    """

    by_cell: Floats
    row: Floats


class Covariance:
    """Covariance of the model's parts. A function of public counts and the policy.

    shared     float64 [27, 27]
    slopes     float64 [C, 27]
    variance   float64 [C]  of each cell, given the shared parts
    hats       float64 [H]  of each HAT's own deviation, for the HATs of the present day
    alone      float64 [H, 2]  of all queries of each HAT alone, together: `Observation.variance`, and the part of it
               that is the sampling of their buses; infinite if there was none
    """

    def __init__(self, variances: Variances) -> None:
        self._variances = variances
        self.shared = _prior(variances)
        self.slopes = np.empty((0, SHARED))
        self.variance = np.empty(0)
        self.hats = np.empty(0)
        self.alone = np.empty((0, 2))

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.variance)

    def add_cells(self, number: int) -> None:
        """Add cells that were never seen."""
        self.slopes = np.concatenate((self.slopes, np.zeros((number, SHARED))))
        self.variance = np.concatenate((self.variance, np.full(number, self._variances.cell)))

    def add_hats(self, hats: Iterable[Hat]) -> None:
        """Add HATs of the day that are new."""
        added = np.array([hat.variance for hat in hats])
        self.hats = np.concatenate((self.hats, added))
        self.alone = np.concatenate((self.alone, np.full((len(added), 2), np.inf)))

    def begin_day(self) -> None:
        """Forget the HATs of the day before."""
        self.hats = np.empty(0)
        self.alone = np.empty((0, 2))

    def advance(self, hours: float) -> Drift:
        """Add the drift of a number of hours. Returns the change that the means have to follow."""
        hours = min(max(hours, 0.0), _HOURS_MAX)  # never back: variances would fall below what was learned
        added = self._variances.city_drift * hours
        self.shared[0, 0] += added
        # P' = P + q e e'. Slopes on the old city become slopes on the new one: B' = B - q B_0 (P'^-1)_0.
        row = added * np.linalg.solve(self.shared, np.eye(SHARED)[0])
        drift = Drift(self.slopes[:, 0].copy(), row)
        self.variance += drift.by_cell**2 * added * (1 - row[0]) + self._variances.cell_drift * hours
        self.slopes -= np.outer(drift.by_cell, row)
        return drift

    def row_of(self, cell: int, hour: int, features: Floats) -> Floats:
        """Return the weights of the shared parts in a HAT's mean, float64 [27], with those of its cell."""
        row: Floats = self.slopes[cell].copy()
        row[0] += 1
        row[1 + hour] += 1
        row[25:] += features
        return row

    def observe(self, observation: Observation) -> Gain:
        """Update with an observation. Returns the gains."""
        cell, hats, betas = observation.cell, observation.hats, observation.betas
        slopes = self.slopes[cell].copy()
        row = observation.row + slopes
        shared = self.shared @ row
        own = self.hats[hats]
        without_cell = float(betas**2 @ own) + observation.variance
        given_shared = float(self.variance[cell]) + without_cell
        variance = float(row @ shared) + given_shared
        gain = Gain(
            shared / variance,
            float(self.variance[cell]) / given_shared,
            betas * own / variance,
            slopes,
            row,
            variance,
        )
        self.shared -= np.outer(shared, gain.shared)
        self.slopes[cell] -= gain.cell * row
        self.variance[cell] *= 1 - gain.cell
        self.hats[hats] = own * (1 - betas * gain.hats)
        return gain

    def variance_of(self, row: Floats, cell: int) -> float:
        """Return the variance of a HAT's mean without its own deviation. row: as `row_of` returns it."""
        return float(row @ self.shared @ row) + float(self.variance[cell])

    def of_cells(self) -> Floats:
        """Return the variance of city + cell, float64 [C]."""
        rows = self.slopes + np.eye(SHARED)[0]
        return np.asarray(np.einsum("ci,ij,cj->c", rows, self.shared, rows) + self.variance)


class Means:
    """Means of the model's parts: a function of public counts and released numbers.

    shared       float64 [27]
    intercepts   float64 [C]
    hats         float64 [H]  of each HAT's own deviation, for the HATs of the present day
    """

    def __init__(self, centre: float) -> None:
        """centre: the prior mean of the city."""
        self.shared = np.zeros(SHARED)
        self.shared[0] = centre
        self.intercepts = np.empty(0)
        self.hats = np.empty(0)

    def resize(self, covariance: Covariance) -> None:
        """Add the cells and HATs that the covariance has already."""
        self.intercepts = np.concatenate((self.intercepts, np.zeros(covariance.cells - len(self.intercepts))))
        self.hats = np.concatenate((self.hats, np.zeros(len(covariance.hats) - len(self.hats))))

    def begin_day(self) -> None:
        """Forget the HATs of the day before."""
        self.hats = np.empty(0)

    def follow(self, drift: Drift) -> None:
        """Follow the regressions of the cells when the city moves."""
        self.intercepts[: len(drift.by_cell)] += drift.by_cell * float(drift.row @ self.shared)

    def predict(self, row: Floats, cell: int) -> float:
        """Return the mean of a HAT without its own deviation. row: as `Covariance.row_of` returns it."""
        return float(row @ self.shared) + float(self.intercepts[cell])

    def update(self, observation: Observation, gain: Gain, innovation: float) -> None:
        """Update with an observation. innovation: its difference from the prediction."""
        cell = observation.cell
        # The intercept's gain is that given the shared parts, so it sees the innovation around their old means.
        self.intercepts[cell] += gain.cell * (innovation + float(gain.row @ self.shared))
        self.shared += gain.shared * innovation
        self.hats[observation.hats] += gain.hats * innovation


def _prior(variances: Variances) -> Floats:
    """Return the prior covariance of the shared parts, float64 [27, 27]."""
    prior = np.zeros((SHARED, SHARED))
    prior[0, 0] = variances.city
    lag = np.abs(np.subtract.outer(np.arange(24), np.arange(24)))
    prior[1:25, 1:25] = variances.hour * np.exp(-np.minimum(lag, 24 - lag) / _HOUR_LAG)
    prior[25, 25] = prior[26, 26] = variances.coefficient
    return prior
