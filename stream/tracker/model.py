"""State-space model of a city's speeds, updated by a Kalman filter.    [docs/specification/tracker.md, section 1]

    f_h = city(t) + day + hour[local hour] + coefficients . features_h + cell[c] + e_h        for the HAT h = (c, t)

The city, the 24 hours, the two coefficients, the date's own shift and the slope on a timetable are *shared* parts: 29
numbers. The last one is in no HAT by itself: a cell with a scheduled speed enters with a slope on it. Given the shared
parts, cells are independent of each other as long as each observation is of one cell, and the city stands still. So
each cell is stored as a regression on the shared parts,

    cell[c] = intercept_c + slopes_c . shared + rest_c,        var(rest_c) = variance_c

and an observation changes the shared parts and one cell: its cost does not depend on the number of cells. When the city
moves, or a date's shift is replaced, the slopes refer to those of before; they are carried over by regression on the
new ones, which keeps each cell's own variance and its covariance with the shared parts exact, and leaves out what two
cells then have in common beyond the shared parts. An observation of several cells changes the shared parts alone, and
cells only as far as their slopes say: what it tells of each cell beyond that is little, and would tie them together.

Covariances depend on public counts only (`Covariance`); means also on released numbers (`Means`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hatcast.stream.policy.tracker_keys import TIMETABLE_PRIOR
from hatcast.stream.tracker.counts import Floats, Integers, ModelHat
from hatcast.stream.tracker.prior import Prior, Variances
from hatcast.stream.tracker.timetable import deviation

HOURS: Final = 24
"""of the local clock"""
CITY: Final = 0
"""Number of the shared part of the city. The hours follow, `hour_part`, then the features' coefficients, `FEATURES`."""
FEATURES: Final = slice(1 + HOURS, 1 + HOURS + 2)
DAY: Final = FEATURES.stop
"""Number of the shift of the present date"""
TIMETABLE: Final = DAY + 1
"""Number of the slope of cells on the deviation of their scheduled speed"""
SHARED: Final = TIMETABLE + 1
"""Number of shared parts: the city, 24 hours, 2 coefficients of features, the date's shift, the timetable's slope"""
_HOUR_PARTS: Final = slice(1, 1 + HOURS)
_HOUR_LAG: Final = 3.0  # hours after which the correlation of two hours of the day has fallen to 1/e
_HOURS_MAX: Final = 24  # a longer pause does not make the model forget more


_CITY_ROW, _DAY_ROW = np.eye(SHARED)[[CITY, DAY]]


def hour_part(hour: int) -> int:
    """Return the number of an hour's shared part. hour: of the local clock, 0 to 23."""
    return _HOUR_PARTS.start + hour


def shared_rows(hats: Sequence[ModelHat]) -> Floats:
    """Return the weights of the shared parts in the mean of each HAT, without those of its cell, float64 [H, 29]."""
    rows = np.zeros((len(hats), SHARED))
    rows[:, [CITY, DAY]] = 1
    rows[np.arange(len(hats)), np.array([hour_part(hat.hour) for hat in hats], np.int64)] = 1
    rows[:, FEATURES] = np.array([hat.features for hat in hats]).reshape(len(hats), 2)
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """A number that is released about HATs, as the model sees it: of one cell, or each of another.

    y = row . shared + sum of shares cell + sum of betas e_h + noise

    cells      int64 [C]  numbers of the cells, each once
    shares     float64 [C]  weight of each; their sum is 1
    row        float64 [29]  weights of the shared parts
    hats       int64 [H]  numbers of the HATs, each once
    weights    float64 [H]  of each HAT; their sum is 1
    betas      float64 [H]  regression of y on each HAT's own deviation e_h
    variance   of all other parts of y: sampling, clipping and noise
    """

    cells: Integers
    shares: Floats
    row: Floats
    hats: Integers
    weights: Floats
    betas: Floats
    variance: float

    @property
    def is_of_one_cell(self) -> bool:
        """Whether all of its HATs are of one cell."""
        return len(self.cells) == 1


@dataclass(frozen=True, slots=True, eq=False)
class Gain:
    """Kalman gain of an observation, with the variance of its innovation.

    shared, cell, hats   float64 [29], a number, float64 [H]: gains; of the cell, that of its intercept; 0 for several
    row                  float64 [29]  `Observation.row` plus the slopes of the cells, before the observation
    variance             of the innovation
    """

    shared: Floats
    cell: float
    hats: Floats
    row: Floats
    variance: float


@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """Change of the cells' regressions when the city moves or a date begins: slopes fall by the outer product of both.

    by_cell   float64 [C]
    row       float64 [29]
    """

    by_cell: Floats
    row: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Rescaled:
    """Change of a covariance that took another scale of its prior.

    shared     float64 [29, 29]  covariance of the shared parts, after
    before     float64 [29, 29]  its inverse, before
    told       float64 [C, 29]  slopes of the cells over their variances
    more       float64 [C]  by how much more what is known of a cell tells of the shared parts
    variance   float64 [C]  of the cells, after, without their drift; shrunk: over that before
    """

    shared: Floats
    before: Floats
    told: Floats
    more: Floats
    variance: Floats
    shrunk: Floats


class Covariance:
    """Covariance of the model's parts. A function of public counts, the policy, timetables and scales.

    variances  of the parts, at the present scale of the prior
    prior_scale   n: a guessed prior's standard deviations are multiplied by 2^(n/4); 0 of any other
    shared     float64 [29, 29]
    slopes     float64 [C, 29]
    variance   float64 [C]  of each cell, given the shared parts
    drifted    float64 [C]  of it, what drift has added since the cell's last observation
    hats       float64 [H]  of each HAT's own deviation, for the HATs of the present day
    rows       float64 [H, 29]  weights of the shared parts in their means, without those of their cells
    alone      float64 [H, 2]  of all queries of each HAT alone, together: `Observation.variance`, and the part of it
               that is the sampling of their buses; infinite if there was none
    """

    def __init__(self, variances: Variances) -> None:
        """variances: at a scale of 0."""
        self._unscaled = self.variances = variances
        self.prior_scale = 0
        self.shared = _prior(variances)
        self.slopes = np.empty((0, SHARED))
        self.variance, self.drifted = np.empty((2, 0))
        self.hats, self.rows, self.alone = _of_no_hats()

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.variance)

    def add_cells(self, number: int) -> None:
        """Add cells that were never seen."""
        self.slopes = np.concatenate((self.slopes, np.zeros((number, SHARED))))
        self.variance = np.concatenate((self.variance, np.full(number, self.variances.cell)))
        self.drifted = np.concatenate((self.drifted, np.zeros(number)))

    def add_scheduled(self, speeds: Mapping[int, int]) -> None:
        """Give cells of which nothing is known yet the prior of their scheduled speeds, 0.1 km/h."""
        for cell, speed in speeds.items():
            if not self.slopes[cell].any():
                self.slopes[cell, TIMETABLE] = deviation(speed)
                self.variance[cell] = self.variances.scheduled

    def add_hats(self, hats: Iterable[ModelHat]) -> None:
        """Add HATs of the day that are new."""
        new = list(hats)
        added = np.array([hat.variance for hat in new])
        self.hats = np.concatenate((self.hats, added))
        self.rows = np.concatenate((self.rows, shared_rows(new)))
        self.alone = np.concatenate((self.alone, np.full((len(added), 2), np.inf)))

    def begin_day(self) -> Drift:
        """Forget the HATs and the shift of the day before. Returns the change that the means have to follow."""
        self.hats, self.rows, self.alone = _of_no_hats()
        # What a cell has in common with the old shift becomes slopes on the other shared parts, from which the shift
        # differs by something of variance 1 / (P^-1)_dd, and what is left its own variance.
        row = np.linalg.solve(self.shared, _DAY_ROW)
        drift = Drift(self.slopes[:, DAY].copy(), row / row[DAY])
        self._drift(drift.by_cell**2 / row[DAY])
        self.slopes -= np.outer(drift.by_cell, drift.row)
        self.shared[DAY] = self.shared[:, DAY] = 0
        self.shared[DAY, DAY] = self.variances.day
        return drift

    def advance(self, hours: float) -> Drift:
        """Add the drift of a number of hours. Returns the change that the means have to follow."""
        hours = min(max(hours, 0.0), _HOURS_MAX)  # never back: variances would fall below what was learned
        added = self.variances.city_drift * hours
        self.shared[CITY, CITY] += added
        # P' = P + q e e'. Slopes on the old city become slopes on the new one: B' = B - q B_0 (P'^-1)_0.
        row = added * np.linalg.solve(self.shared, _CITY_ROW)
        drift = Drift(self.slopes[:, CITY].copy(), row)
        self._drift(drift.by_cell**2 * added * (1 - row[CITY]) + self.variances.cell_drift * hours)
        self.slopes -= np.outer(drift.by_cell, row)
        return drift

    def _drift(self, added: Floats) -> None:
        self.variance += added
        self.drifted += added

    def rescale(self, prior_scale: int) -> "Rescaled":
        """Change the scale of a guessed prior without losing what was learnt, and return the change of the means.

        What is known beyond the prior is the precision, 1 / variance, less that of the prior: without the drift since a
        cell's last observation, which comes on top again. Numbers about a cell tell of the shared parts as well, and
        the more, the less cells differ. Exact for a city that stands still while it is observed.
        """
        before, unshared = self.variances.cell, np.asarray(np.linalg.inv(self.shared), np.float64)
        learnt = unshared - np.linalg.inv(_prior(self.variances))
        self.prior_scale, self.variances = prior_scale, self._unscaled.at(prior_scale)
        after, prior = self.variances.cell, _prior(self.variances)
        still = self.variance - self.drifted
        known = np.maximum(1 / still - 1 / before, 0)
        told = self.slopes / still[:, None]
        more = (before - after) / ((1 + known * before) * (1 + known * after))
        learnt += (told * more[:, None]).T @ told
        variance = 1 / (1 / after + known)
        self.slopes = told * variance[:, None]
        self.drifted *= after / before
        self.variance = variance + self.drifted
        shared = np.linalg.inv(_without_drift(learnt, prior) + np.linalg.inv(prior))
        self.shared = (shared + shared.T) / 2
        return Rescaled(self.shared, unshared, told, more, variance, variance / still)

    def row_of(self, cell: int, hour: int, features: Floats) -> Floats:
        """Return the weights of the shared parts in a HAT's mean, float64 [29], with those of its cell."""
        row = self.city_row(cell)
        row[hour_part(hour)] += 1
        row[DAY] += 1
        row[FEATURES] += features
        return row

    def city_row(self, cell: int) -> Floats:
        """Return the weights of the shared parts in city + cell, float64 [29]."""
        row: Floats = self.slopes[cell].copy()
        row[CITY] += 1
        return row

    def city_rows(self) -> Floats:
        """Return the weights of the shared parts in city + cell, of all cells, float64 [C, 29]."""
        return np.asarray(self.slopes + _CITY_ROW)

    def observe(self, observation: Observation) -> Gain:
        """Update with an observation. Returns the gains."""
        cells, hats, betas = observation.cells, observation.hats, observation.betas
        row = observation.row + observation.shares @ self.slopes[cells]
        shared = self.shared @ row
        own = self.hats[hats]
        of_cells = float(observation.shares**2 @ self.variance[cells])
        given_shared = of_cells + float(betas**2 @ own) + observation.variance
        variance = float(row @ shared) + given_shared
        of_cell = of_cells / given_shared if observation.is_of_one_cell else 0.0
        gain = Gain(shared / variance, of_cell, betas * own / variance, row, variance)
        self.shared -= np.outer(shared, gain.shared)
        if observation.is_of_one_cell:
            self.slopes[cells] -= gain.cell * row
            self.variance[cells] *= 1 - gain.cell
            self.drifted[cells] = 0
        self.hats[hats] = own * (1 - betas * gain.hats)
        return gain

    def variance_of(self, row: Floats, cell: int) -> float:
        """Return the variance of a HAT's mean without its own deviation. row: as `row_of` returns it."""
        return float(row @ self.shared @ row) + float(self.variance[cell])

    def of_cells(self) -> Floats:
        """Return the variance of city + cell, float64 [C]."""
        rows = self.city_rows()
        return np.asarray(np.einsum("ci,ij,cj->c", rows, self.shared, rows) + self.variance)


class Means:
    """Means of the model's parts: a function of public counts and released numbers.

    shared       float64 [29]
    intercepts   float64 [C]
    hats         float64 [H]  of each HAT's own deviation, for the HATs of the present day
    """

    def __init__(self, prior: Floats) -> None:
        """prior: of the shared parts, float64 [29]."""
        self.shared = prior.copy()
        self.intercepts = np.empty(0)
        self.hats = np.empty(0)

    def resize(self, covariance: Covariance) -> None:
        """Add the cells and HATs that the covariance has already."""
        self.intercepts = np.concatenate((self.intercepts, np.zeros(covariance.cells - len(self.intercepts))))
        self.hats = np.concatenate((self.hats, np.zeros(len(covariance.hats) - len(self.hats))))

    def begin_day(self, drift: Drift) -> None:
        """Forget the HATs and the shift of the day before. drift: as `Covariance.begin_day` returned it."""
        self.follow(drift)
        self.hats = np.empty(0)
        self.shared[DAY] = 0

    def follow(self, drift: Drift) -> None:
        """Follow the regressions of the cells when they are carried over to other shared parts."""
        self.intercepts[: len(drift.by_cell)] += drift.by_cell * float(drift.row @ self.shared)

    def rescale(self, change: "Rescaled", prior: Floats) -> None:
        """Follow the covariance to another scale. prior: means of the shared parts, float64 [29]."""
        data = self.intercepts * change.shrunk
        of_cells = data / change.variance
        told = change.before @ (self.shared - prior) - (change.more * (of_cells + change.told @ prior)) @ change.told
        self.shared, self.intercepts = prior + change.shared @ told, data

    def predict(self, row: Floats, cell: int) -> float:
        """Return the mean of a HAT without its own deviation. row: as `Covariance.row_of` returns it."""
        return float(row @ self.shared) + float(self.intercepts[cell])

    def expected(self, observation: Observation, gain: Gain) -> float:
        """Return the mean of an observation without the HATs' own deviations."""
        return float(gain.row @ self.shared) + float(observation.shares @ self.intercepts[observation.cells])

    def update(self, observation: Observation, gain: Gain, innovation: float) -> None:
        """Update with an observation. innovation: its difference from the prediction."""
        if observation.is_of_one_cell:
            # The intercept's gain is that given the shared parts, so it sees the innovation around their old means.
            self.intercepts[observation.cells] += gain.cell * (innovation + float(gain.row @ self.shared))
        self.shared += gain.shared * innovation
        self.hats[observation.hats] += gain.hats * innovation


def _of_no_hats() -> tuple[Floats, Floats, Floats]:
    return np.empty(0), np.empty((0, SHARED)), np.empty((0, 2))


def _prior(variances: Variances) -> Floats:
    """Return the prior covariance of the shared parts, float64 [29, 29]."""
    prior = np.zeros((SHARED, SHARED))
    prior[CITY, CITY] = variances.city
    lag = np.abs(np.subtract.outer(np.arange(HOURS), np.arange(HOURS)))
    prior[_HOUR_PARTS, _HOUR_PARTS] = variances.hour * np.exp(-np.minimum(lag, HOURS - lag) / _HOUR_LAG)
    prior[FEATURES, FEATURES] = variances.coefficient * np.eye(2)
    prior[DAY, DAY] = variances.day
    prior[TIMETABLE, TIMETABLE] = TIMETABLE_PRIOR.slope_sd**2  # km/h per km/h: whatever the range
    return prior


def _without_drift(learnt: Floats, prior: Floats) -> Floats:
    """Return a precision without directions in which drift left less known than the prior knows."""
    root = np.linalg.cholesky(prior)
    parts, turned = np.linalg.eigh(root.T @ learnt @ root)
    back = np.linalg.solve(root.T, turned)
    return np.asarray((back * np.maximum(parts, 0)) @ back.T)


def prior_means(prior: Prior) -> Floats:
    """Return the prior means of the shared parts, float64 [29]."""
    means = np.zeros(SHARED)
    means[CITY] = prior.city
    means[FEATURES] = prior.coefficients
    means[TIMETABLE] = TIMETABLE_PRIOR.slope
    return means


def bytes_of(numbers: Floats) -> bytes:
    """Return the bytes of an array in a stored state: little-endian, row by row."""
    return numbers.astype("<f8").tobytes()


def floats_of(stored: bytes, *shape: int) -> Floats:
    """Return the array, float64 of this shape, that may be written to."""
    return np.frombuffer(stored, "<f8").astype(np.float64).reshape(shape)
