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
cells then have in common beyond the shared parts. So does an observation of several cells: each of them learns what it
tells of it, but not that if one of them is faster, another one is slower. The own deviations e_h of the day are
regressions on the shared parts, too, and given these each cell's are correlated with it and with each other.

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

HOURS: Final = 24  # of the local clock
CITY: Final = 0
"""Number of the shared part of the city. The hours follow, `hour_part`, then the features' coefficients, `FEATURES`."""
FEATURES: Final = slice(1 + HOURS, 1 + HOURS + 2)
DAY: Final = FEATURES.stop  # number of the shift of the present date
TIMETABLE: Final = DAY + 1  # number of the slope of cells on the deviation of their scheduled speed
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
    """

    cells: Integers  # int64 [C]  numbers of the cells, each once
    shares: Floats  # float64 [C]  weight of each; their sum is 1
    row: Floats  # float64 [29]  weights of the shared parts
    hats: Integers  # int64 [H]  numbers of the HATs, each once
    weights: Floats  # float64 [H]  of each HAT; their sum is 1
    betas: Floats  # float64 [H]  regression of y on each HAT's own deviation e_h
    variance: float  # of all other parts of y: sampling, clipping and noise

    @property
    def is_of_one_cell(self) -> bool:
        """Whether all of its HATs are of one cell."""
        return len(self.cells) == 1


@dataclass(frozen=True, slots=True, eq=False)
class Gain:
    """Kalman gain of an observation, with the variance of its innovation."""

    shared: Floats  # float64 [29]
    cells: Floats  # float64 [C]  of the intercepts
    numbers: Integers  # int64 [N]  of all HATs of the cells
    hats: Floats  # float64 [N]  of the intercepts of their own deviations
    row: Floats  # float64 [29]  weights of the shared parts, with the slopes of cells and own deviations, before it
    own: Floats  # float64 [H, 29]  slopes of the own deviations of the observation's HATs, before it
    variance: float  # of the innovation


@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """Change of the regressions when the city moves or a date begins: slopes fall by the outer product with the row."""

    by_cell: Floats  # float64 [C]
    by_hat: Floats  # float64 [H]
    row: Floats  # float64 [29]


@dataclass(frozen=True, slots=True, eq=False)
class Rescaled:
    """Change of a covariance that took another scale of its prior."""

    shared: Floats  # float64 [29, 29]  covariance of the shared parts, after
    before: Floats  # float64 [29, 29]  its inverse, before
    told: Floats  # float64 [C, 29]  slopes of the cells over their variances
    more: Floats  # float64 [C]  by how much more what is known of a cell tells of the shared parts
    variance: Floats  # float64 [C]  of the cells, after, without their drift; shrunk: over that before
    shrunk: Floats


class OwnDeviations:
    """Own deviations e_h of the HATs of the present day, each a regression on the shared parts, as a cell is.

    Given the shared parts they depend on their cell and on those of its other HATs: what a query tells of a block of
    HATs is less of each, the more is known of the cell.

    slopes      float64 [H, 29]
    with_cell   float64 [H]  covariance with the cell, given the shared parts
    """

    def __init__(self) -> None:
        self.slopes = np.empty((0, SHARED))
        self.with_cell = np.empty(0)
        self._of_cell: dict[int, list[int]] = {}
        self._position = np.empty(0, np.int64)  # of each HAT among those of its cell
        self._among = np.empty((0, 0))  # [H, D]: given the shared parts, with the HATs of its cell by their positions

    def __len__(self) -> int:
        return len(self._position)

    def numbers(self, cell: int) -> Integers:
        """Return the numbers of a cell's HATs, ascending."""
        return np.array(self._of_cell.get(cell, ()), np.int64)

    def variance(self, hats: Integers) -> Floats:
        """Return the variances of these HATs given the shared parts."""
        return np.asarray(self._among[hats, self._position[hats]])

    def among(self, some: Integers, others: Integers) -> Floats:
        """Return the covariance of HATs of one cell given the shared parts, float64 [some, others]."""
        return np.asarray(self._among[some[:, None], self._position[others]])

    def add(self, hats: Sequence[ModelHat]) -> None:
        """Add HATs, of which nothing is known yet."""
        first = len(self)
        for number, hat in enumerate(hats, first):
            self._of_cell.setdefault(hat.cell, []).append(number)
        new = np.array([self._of_cell[hat.cell].index(number) for number, hat in enumerate(hats, first)], np.int64)
        known = self._among.shape[1]
        among = np.zeros((first + len(hats), max(known, int(new.max(initial=-1)) + 1)))
        among[:first, :known] = self._among
        among[np.arange(first, len(among)), new] = [hat.variance for hat in hats]
        self._among, self._position = among, np.concatenate((self._position, new))
        self.slopes = np.concatenate((self.slopes, np.zeros((len(hats), SHARED))))
        self.with_cell = np.concatenate((self.with_cell, np.zeros(len(hats))))

    def learn(self, numbers: Integers, of_hats: Floats, of_cell: float, variance: float) -> None:
        """Update with an observation. of_hats, of_cell: its covariance with a cell's HATs, and with the cell."""
        self.with_cell[numbers] -= of_hats * (of_cell / variance)
        self._among[numbers, : len(numbers)] -= np.outer(of_hats / variance, of_hats)

    def follow(self, drift: "Drift", variance: float) -> None:
        """Add the drift of the city. variance: of what it adds to a deviation with a slope of 1 on the city."""
        for cell, of_cell in self._of_cell.items():
            numbers = np.array(of_cell)
            by_hat = variance * drift.by_hat[numbers]
            self.with_cell[numbers] += by_hat * drift.by_cell[cell]
            self._among[numbers, : len(numbers)] += np.outer(by_hat, drift.by_hat[numbers])
        self.slopes -= np.outer(drift.by_hat, drift.row)


class Covariance:
    """Covariance of the model's parts. A function of public counts, the policy, timetables and scales.

    variances  of the parts, at the present scale of the prior
    prior_scale   n: a guessed prior's standard deviations are multiplied by 2^(n/4); 0 of any other
    shared     float64 [29, 29]
    slopes     float64 [C, 29]
    variance   float64 [C]  of each cell, given the shared parts
    drifted    float64 [C]  of it, what drift has added since the cell's last observation
    own        of the HATs of the present day
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
        self.own = OwnDeviations()
        self.rows, self.alone = _of_no_hats()

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
        self.own.add(new)
        self.rows = np.concatenate((self.rows, shared_rows(new)))
        self.alone = np.concatenate((self.alone, np.full((len(new), 2), np.inf)))

    def begin_day(self) -> Drift:
        """Forget the HATs and the shift of the day before. Returns the change that the means have to follow."""
        self.own = OwnDeviations()
        self.rows, self.alone = _of_no_hats()
        # What a cell has in common with the old shift becomes slopes on the other shared parts, from which the shift
        # differs by something of variance 1 / (P^-1)_dd, and what is left its own variance.
        row = np.linalg.solve(self.shared, _DAY_ROW)
        drift = Drift(self.slopes[:, DAY].copy(), np.empty(0), row / row[DAY])
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
        drift = Drift(self.slopes[:, CITY].copy(), self.own.slopes[:, CITY].copy(), row)
        rest = added * (1 - row[CITY])
        self._drift(drift.by_cell**2 * rest + self.variances.cell_drift * hours)
        self.own.follow(drift, rest)
        self.slopes -= np.outer(drift.by_cell, row)
        return drift

    def _drift(self, added: Floats) -> None:
        self.variance += added
        self.drifted += added

    def rescale(self, prior_scale: int) -> "Rescaled":
        """Change the scale of a guessed prior, keep the evidence of all queries, and return the change of the means.

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
        cells, hats, betas, own = observation.cells, observation.hats, observation.betas, self.own
        slopes = own.slopes[hats]
        row = observation.row + observation.shares @ self.slopes[cells] + betas @ slopes
        shared = self.shared @ row
        given_shared = float(self.given_shared(cells, observation.shares, hats, betas)) + observation.variance
        variance = float(row @ shared) + given_shared
        of_cells, of_hats = self._given_shared(observation)
        numbers = [own.numbers(cell) for cell in cells.tolist()]
        gain = Gain(
            shared / variance,
            of_cells / given_shared,
            np.concatenate(numbers),
            np.concatenate(of_hats) / given_shared,
            row,
            slopes,
            variance,
        )
        self.shared -= np.outer(shared, gain.shared)
        self.slopes[cells] -= np.outer(gain.cells, row)
        self.variance[cells] -= gain.cells * of_cells
        self.drifted[cells] = 0
        own.slopes[gain.numbers] -= np.outer(gain.hats, row)
        for some, of_some, of_cell in zip(numbers, of_hats, of_cells.tolist(), strict=True):
            own.learn(some, of_some, of_cell, given_shared)
        return gain

    def given_shared(self, cells: Integers, shares: Floats, hats: Integers, betas: Floats) -> Floats:
        """Return the variance of what observations have of cells and own deviations, given the shared parts.

        cells, hats     as in `Observation`
        shares, betas   float64 [..., C], [..., H]: of each observation
        """
        own = self.own
        with_cell = own.with_cell[hats]
        if len(cells) > 1:
            of_hats = 2 * (shares * betas) @ with_cell + betas**2 @ own.variance(hats)
        else:
            of_hats = 2 * betas @ with_cell + ((betas @ own.among(hats, hats)) * betas).sum(axis=-1)
        return np.asarray(shares**2 @ self.variance[cells] + of_hats)

    def _given_shared(self, observation: Observation) -> tuple[Floats, list[Floats]]:
        """Return the covariance of an observation with each cell, and with all of its HATs, given the shared parts."""
        own, of_cells, of_hats = self.own, observation.shares * self.variance[observation.cells], []
        for number, (cell, share) in enumerate(zip(observation.cells.tolist(), observation.shares, strict=True)):
            mine = slice(None) if observation.is_of_one_cell else slice(number, number + 1)
            hats, betas, all_hats = observation.hats[mine], observation.betas[mine], own.numbers(cell)
            of_cells[number] += own.with_cell[hats] @ betas
            of_hats.append(share * own.with_cell[all_hats] + own.among(all_hats, hats) @ betas)
        return of_cells, of_hats

    def of_cells(self) -> Floats:
        """Return the variance of city + cell, float64 [C]."""
        rows = self.city_rows()
        return np.asarray(np.einsum("ci,ij,cj->c", rows, self.shared, rows) + self.variance)


class Means:
    """Means of the model's parts: a function of public counts and released numbers.

    shared       float64 [29]
    intercepts   float64 [C]
    hats         float64 [H]  intercepts of the own deviations of the HATs of the present day
    """

    def __init__(self, prior: Floats) -> None:
        """prior: of the shared parts, float64 [29]."""
        self.shared = prior.copy()
        self.intercepts = np.empty(0)
        self.hats = np.empty(0)

    def resize(self, covariance: Covariance) -> None:
        """Add the cells and HATs that the covariance has already."""
        self.intercepts = np.concatenate((self.intercepts, np.zeros(covariance.cells - len(self.intercepts))))
        self.hats = np.concatenate((self.hats, np.zeros(len(covariance.own) - len(self.hats))))

    def begin_day(self, drift: Drift) -> None:
        """Forget the HATs and the shift of the day before. drift: as `Covariance.begin_day` returned it."""
        self.follow(drift)
        self.hats = np.empty(0)
        self.shared[DAY] = 0

    def follow(self, drift: Drift) -> None:
        """Follow the regressions of the cells when they are carried over to other shared parts."""
        moved = float(drift.row @ self.shared)
        self.intercepts[: len(drift.by_cell)] += drift.by_cell * moved
        self.hats[: len(drift.by_hat)] += drift.by_hat * moved

    def rescale(self, change: "Rescaled", prior: Floats) -> None:
        """Follow the covariance to another scale. prior: means of the shared parts, float64 [29]."""
        data = self.intercepts * change.shrunk
        of_cells = data / change.variance
        told = change.before @ (self.shared - prior) - (change.more * (of_cells + change.told @ prior)) @ change.told
        self.shared, self.intercepts = prior + change.shared @ told, data

    def expected(self, observation: Observation, gain: Gain) -> float:
        """Return the mean of an observation."""
        cells = observation.shares @ self.intercepts[observation.cells]
        return float(gain.row @ self.shared + cells + observation.betas @ self.hats[observation.hats])

    def update(self, observation: Observation, gain: Gain, innovation: float) -> None:
        """Update with an observation. innovation: its difference from the prediction."""
        # These gains are those given the shared parts, so they see the innovation around their old means.
        given_shared = innovation + float(gain.row @ self.shared)
        self.intercepts[observation.cells] += gain.cells * given_shared
        self.hats[gain.numbers] += gain.hats * given_shared
        self.shared += gain.shared * innovation


def _of_no_hats() -> tuple[Floats, Floats]:
    return np.empty((0, SHARED)), np.empty((0, 2))


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
