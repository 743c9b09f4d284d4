"""A residual query: how far buses are from the prediction.    [docs/specification/tracker.md, 2]

    Y = sum_b clip(round(T a_b r_b / s_b), -Z_b, Z_b) + discrete Laplace noise of scale D = 2 z T

r_b is the difference of bus b's mean from the prediction, s_b its spread, a_b what the bus pays, z a number of spreads.
Z_b = floor(T a_b z), so the bus is charged 2 Z_b / D, rounded up: at most a_b.

Proof. Members, spreads, payments, z, D and Z_b are functions of public counts, the policy, its timetable and the scale
of the prior, which was fixed before the date. The prediction is one of numbers released before. Two neighbours with the
same released past have them in common. They differ in one bus. It has one term, in which r_b is summed over all of its
HATs before the clip, of whichever cells they are: an integer in [-Z_b, Z_b]. So Y before the noise differs by at most
2 Z_b, and the probabilities of each output by a factor of at most exp(2 Z_b / D). Floating point enters only before the
integer clip of a bus's own term.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from hatcast.stream.tracker.counts import DayCounts, Floats, Integers
from hatcast.stream.tracker.model import CITY, DAY, Covariance, Gain, Means, Observation
from hatcast.stream.units import NANO

CLIPS: Final = np.array((2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 115, 130, 150, 175, 200, 250, 300))
"""Hundredths: the grid of z."""
STEPS: Final = 1_000_000  # T: steps of one unit of payment
_GUESSED: Final = 13  # position of 1.3, the least z of a guessed prior
_PER_CLIP: Final = 2 * STEPS // 100  # D for one hundredth of z
_Z: Final = CLIPS / 100
_KEPT: Final = np.array([math.erf(z / math.sqrt(2)) for z in _Z])  # derivative of the mean clipped residual: P(|N| < z)
_CLIPPED: Final = _KEPT - _Z * np.exp(-(_Z**2) / 2) * np.sqrt(2 / np.pi) + _Z**2 * (1 - _KEPT)  # E clip(N, z)^2
_NOISE: Final = 8.0  # variance of Laplace noise of scale 2 z, for z = 1


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """Buses of a query, with the contributions that they bring. Public, as `ResidualQuery`."""

    cells: Integers  # int64 [C]  numbers of their cells: one, or that of each HAT
    contributions: Integers  # int64 [K]  numbers in `DayCounts`, ascending
    buses: Integers  # int64 [L]  each once
    of_bus: Integers  # int64 [K]  position in `buses` of each contribution
    within: Floats  # float64 [K]  share of its bus's readings; sums to 1 for each bus
    own: Floats  # float64 [L]  variance of a bus's residual that no HAT's mean explains
    spread: Floats  # float64 [L]  s_b: standard deviation of its residual
    hats: Integers  # int64 [H]  numbers of the HATs
    starts: Integers  # int64 [H]  position of each HAT's first contribution
    rows: Floats  # float64 [H, 29]  weights of the shared parts in each HAT's mean, without those of its cell
    slopes: Floats  # float64 [C, 29]  of the cells, before the query
    deviations: Floats  # float64 [H, 29]  slopes of the HATs' own deviations, before the query

    @property
    def is_of_one_cell(self) -> bool:
        """Whether all of their HATs are of one cell."""
        return len(self.cells) == 1


def members_of(contributions: Integers, day: DayCounts, covariance: Covariance) -> Members:
    """Return the members of a query of these contributions to HATs of one cell, or each of another.

    contributions   int64 [K], 1 or more, ascending
    """
    hat_column = day.hat[contributions]
    starts = np.flatnonzero(np.concatenate(([True], hat_column[1:] != hat_column[:-1])))
    hats = hat_column[starts]
    cells = day.cells[hats]
    cells = cells[:1] if len(hats) == 1 or bool((cells == cells[0]).all()) else cells
    readings = day.readings[contributions]
    buses, of_bus = _each_once(day.bus[contributions])
    total = np.asarray(np.bincount(of_bus, readings), np.float64)
    within = readings / total[of_bus]
    in_hats = np.asarray(np.bincount(of_bus, within**2), np.float64)
    variances = covariance.variances
    own = variances.bus_hat * in_hats + variances.bus + variances.reading / total
    rows, slopes = covariance.rows[hats], covariance.slopes[cells]
    of_cells = np.einsum("ci,ij,cj->c", slopes, covariance.shared, slopes) + covariance.variance[cells]
    if len(cells) > 1:  # a bus has the cells of its own HATs, each by its share
        of_cells = np.bincount(of_bus, within**2 * of_cells[np.searchsorted(hats, hat_column)])
    level = sum(float(covariance.shared[one, other]) for one in (CITY, DAY) for other in (CITY, DAY))
    spread = np.sqrt(own + of_cells + variances.hat + level)
    deviations = covariance.own.slopes[hats]
    return Members(cells, contributions, buses, of_bus, within, own, spread, hats, starts, rows, slopes, deviations)


def _each_once(numbers: Integers) -> tuple[Integers, Integers]:
    """As `np.unique` with its inverse, which takes ten times as long for the few buses of a HAT."""
    order = numbers.argsort()
    ascending = numbers[order]
    is_first = np.ones(len(numbers), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    positions = np.empty(len(numbers), np.int64)
    positions[order] = is_first.cumsum() - 1
    return ascending[is_first], positions


@dataclass(frozen=True, slots=True, eq=False)
class Designs:
    """Alternative observations of the same members, one for each payment."""

    clip: Integers  # int64 [P]  position of z in `CLIPS`
    total: Floats  # float64 [P]  W: sum of a_b / s_b
    weights: Floats  # float64 [P, H]  of each HAT; a row sums to 1
    betas: Floats  # float64 [P, H]
    rows: Floats  # float64 [P, 29]  weights of the shared parts, with those of the cells
    shared: Floats  # float64 [P, 29]  covariance of y with the shared parts
    noise: Floats  # float64 [P]  variance of y that is noise
    sampling: Floats  # float64 [P]  variance of y that is the sampling of its buses beyond the HATs' own deviations
    # float64 [P]  variance of all that is neither shared, nor the cells', nor a HAT's own deviation; of a HAT that was
    # queried before, of what is new
    rest: Floats
    variance: Floats  # float64 [P]  of y


def designs_of(members: Members, payments: Floats, day: DayCounts, covariance: Covariance) -> Designs:
    """Return the designs of queries. payments: float64 [P, L], of each bus, with a sum above 0."""
    total = payments @ (1 / members.spread)
    # Payments in proportion to each other give the same shares, whatever they are: computed once.
    relative = payments / payments[0]
    alike = relative.max(axis=1) - relative.min(axis=1) < 1e-7 * relative.max(axis=1)
    shape_of = np.where(alike, alike.argmax(), np.arange(len(payments)))
    shapes = np.flatnonzero(shape_of == np.arange(len(payments)))
    of_payment = np.searchsorted(shapes, shape_of)
    shares = payments[shapes] / members.spread / total[shapes, None]
    by_contribution = shares[:, members.of_bus] * members.within
    weights = np.add.reduceat(by_contribution, members.starts, axis=1)
    sampled = day.weight[members.contributions] * day.variance[members.contributions]
    prior = day.own[members.hats]
    of_hat = covariance.variances.hat
    common = np.add.reduceat(by_contribution * sampled, members.starts, axis=1) + weights * of_hat
    betas = common / prior
    unexplained = shares**2 @ members.own + of_hat * (weights**2).sum(axis=1) - (common**2 / prior).sum(axis=1)
    of_cells = shares_of(members, weights)
    rows = weights @ members.rows + of_cells @ members.slopes + betas @ members.deviations
    shared = rows @ covariance.shared
    explained = (rows * shared).sum(axis=1) + covariance.given_shared(members.cells, of_cells, members.hats, betas)
    spreads = (shares**2 @ members.spread**2)[of_payment]
    costs = (spreads[:, None] * _CLIPPED + _NOISE * (_Z / total[:, None]) ** 2) / _KEPT**2
    # Spreads of a guessed prior may be far too large: then a small z would count a difference up to 1 / k(z) times. Or
    # too small for buses, as those of delays are: then it takes much of what a cell differs, and the scale falls more.
    least = _GUESSED if covariance.variances.is_guess else 0
    clip = least + costs[:, least:].argmin(axis=1)
    lost = spreads * (_CLIPPED[clip] / _KEPT[clip] ** 2 - 1)
    noise = _NOISE * (_Z[clip] / (total * _KEPT[clip])) ** 2
    sampling = np.maximum(unexplained[of_payment], 0)
    rest = sampling + np.maximum(lost, 0) + noise
    if len(members.hats) == 1:
        rest = _new_part(rest, sampling, *covariance.alone[members.hats[0]].tolist())
    weights, betas, rows, shared = (each[of_payment] for each in (weights, betas, rows, shared))
    variance = explained[of_payment] + rest
    return Designs(clip, total, weights, betas, rows, shared, noise, sampling, rest, variance)


def shares_of(members: Members, weights: Floats) -> Floats:
    """Return the weight of each cell, float64 [..., C]. weights: of each HAT, float64 [..., H]."""
    return np.ones((*weights.shape[:-1], 1)) if members.is_of_one_cell else weights


def _new_part(rest: Floats, sampling: Floats, rest_before: float, sampling_before: float) -> Floats:
    """Return the variance with which another query of a HAT counts, float64 [P].

    Repeated queries have new noise, but the sampling of the same buses: together they are as good as one query with
    this sampling and the mean of their noise. So much is added to what the queries before were.
    """
    common = np.minimum(sampling, sampling_before)
    together = common + 1 / (1 / (rest_before - common) + 1 / (rest - common))
    return np.asarray(1 / (1 / together - 1 / rest_before), np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class ResidualQuery:
    """A query before its noise. Public: it does not depend on unreleased speeds."""

    members: Members
    payments: Integers  # int64 [L]  what each bus is ready to pay, 1e-9
    bounds: Integers  # int64 [L]  Z_b
    charges: Integers  # int64 [L]  what each bus pays, 1e-9: at most its payment
    scale: int  # D: scale of the discrete Laplace noise
    total: float  # W
    kept: float  # expected derivative of the sum by a shift of all residuals, over T W
    noise: float  # variance of the noise, in the policy's unit squared
    observation: Observation
    gain: Gain
    prior_scale: int  # of the model, as in `Covariance`

    @property
    def clip(self) -> float:
        """z"""
        return self.scale / (2 * STEPS)


def query_of(members: Members, payments: Integers, day: DayCounts, covariance: Covariance) -> ResidualQuery:
    """Design the query for these payments (int64 [L], 1e-9), and update the covariance with it."""
    if not payments.any():
        raise ValueError("nobody pays for the query")
    designs = designs_of(members, payments[None] / NANO, day, covariance)
    hundredths = int(CLIPS[designs.clip[0]])
    bounds = payments * hundredths // 100_000  # payments 1e-9 T z, in integers
    observation = Observation(
        members.cells,
        shares_of(members, designs.weights[0]),
        designs.weights[0] @ members.rows,
        members.hats,
        designs.weights[0],
        designs.betas[0],
        float(designs.rest[0]),
    )
    if len(members.hats) == 1:
        before = covariance.alone[members.hats[0]]
        before[:] = 1 / (1 / before[0] + 1 / designs.rest[0]), min(before[1], designs.sampling[0])
    return ResidualQuery(
        members,
        payments,
        bounds,
        charges_of(bounds, hundredths),
        _PER_CLIP * hundredths,
        float(designs.total[0]),
        float(_KEPT[designs.clip[0]]),
        float(designs.noise[0]),
        observation,
        covariance.observe(observation),
        covariance.prior_scale,
    )


def charges_of(bounds: Integers, hundredths: int) -> Integers:
    """Return the charges 2 Z_b / D in 1e-9, rounded up. hundredths: of z."""
    return -(-bounds * (2 * NANO // _PER_CLIP) // hundredths)


def noiseless_sum(query: ResidualQuery, values: Floats, means: Means) -> int:
    """Return the sum of the buses' integer terms.

    values   float64 [N], the private mean of each contribution of the day, in the policy's unit
    """
    members = query.members
    terms = np.rint(query.payments * (STEPS / NANO) * _residuals(query, values, means) / members.spread)
    return int(np.clip(terms, -query.bounds, query.bounds).astype(np.int64).sum())


def _residuals(query: ResidualQuery, values: Floats, means: Means) -> Floats:
    """Return r_b: the difference of each bus's mean from the prediction of the HATs it was in, float64 [L]."""
    members = query.members
    of_cells = members.slopes @ means.shared + means.intercepts[members.cells]
    of_hats = members.deviations @ means.shared + means.hats[members.hats]
    predicted = members.rows @ means.shared + of_cells + of_hats
    counts = np.diff(np.append(members.starts, len(members.contributions)))
    differences = values[members.contributions] - np.repeat(predicted, counts)
    return np.asarray(np.bincount(members.of_bus, members.within * differences), np.float64)
