"""The estimators in floating point, many runs at once. tests/unit/test_evaluate.py ties them to the exact ones."""

import math

import numpy as np

from hatcast.agents.research.evaluate.contenders import GRID, Settled
from hatcast.agents.research.evaluate.simulation import Draws, Floats, Integers
from hatcast.stream.estimators.grouping import Arrays, Counts
from hatcast.stream.estimators.levy import concentration
from hatcast.stream.estimators.quantile import QUANTILES

_STEP = float(GRID.milli)


class Lot:
    """Some runs: means [runs, L], of vectors [runs, d, L], milli-units. What several estimators need is made once."""

    def __init__(self, counts: Counts, means: Floats, upper_bound_milli: int) -> None:
        self.counts = counts
        self.means = means
        self.upper_bound_milli = upper_bound_milli
        self.target: Floats = means @ (counts / counts.sum())
        self._sorted: dict[tuple[int, int], Floats] = {}

    def sorted_array_means(self, arrays: Arrays) -> Floats:
        """[runs, K] ascending."""
        key = (arrays.split, arrays.array_length)
        if key not in self._sorted:
            self._sorted[key] = np.sort(array_means(self.means, arrays), axis=1)
        return self._sorted[key]


def array_means(means: Floats, arrays: Arrays) -> Floats:
    """[runs, K]"""
    order = np.argsort(arrays.arrays, kind="stable")
    homes = arrays.arrays[order]
    weights = arrays.places[order] / arrays.fills[homes]
    starts = np.searchsorted(homes, np.arange(arrays.number))
    return np.asarray(np.add.reduceat(means[:, arrays.users[order]] * weights, starts, axis=1), np.float64)


def raw(lot: Lot, settled: Settled, draws: Draws) -> Floats:
    """[runs], of vectors [runs, d]: what would be published, before it is cut to [0, U], in milli-units.

    NaN where the noise decides that the HAT is suppressed.
    """
    if settled.parameters.weight_threshold is not None:
        return _ratio(lot, settled, draws, settled.parameters.weight_threshold)
    share = settled.contender.estimator.shares["noise"]
    sensitivity: Floats | float
    if len(settled.contender.estimator.shares) > 1:
        values, sensitivity = _clipped(lot, settled, draws)
    else:
        values, sensitivity = value(lot, settled), float(settled.sensitivity)
    dimensions = values.shape[1] if values.ndim > 1 else 1
    distance = np.where(np.asarray(sensitivity) > 0, np.floor(np.asarray(sensitivity) / _STEP) + dimensions, 0.0)
    scales = np.broadcast_to(distance / (settled.parameters.epsilon * float(share)), values.shape)
    return np.asarray((np.rint(values / _STEP) + draws.laplace(scales)) * _STEP, np.float64)


def value(lot: Lot, settled: Settled) -> Floats:
    """[runs], of vectors [runs, d]: the value before noise of an estimator that selects nothing."""
    counts = lot.counts
    name = settled.contender.estimator.name
    if settled.weights is not None:
        return np.asarray(lot.means @ settled.weights, np.float64)
    if name == "clipped_sum":
        readings = int(counts.sum())
        middles = counts * (lot.upper_bound_milli / 2)
        halves = np.minimum(middles, float(settled.sensitivity * readings) / 2)
        clipped = np.clip(lot.means * counts, middles - halves, middles + halves)
        return np.asarray(clipped.sum(axis=1) / readings, np.float64)
    if name == "capped_ratio":
        taken = capped(lot, settled)
        return np.asarray(lot.means @ (taken / taken.sum()), np.float64)
    raise ValueError(f"{name} has no fast form: write one here")


def capped(lot: Lot, settled: Settled) -> Integers:
    """[L] readings up to the array length."""
    return np.minimum(lot.counts, int(settled.parameters.array_length or 1))


def _ratio(lot: Lot, settled: Settled, draws: Draws, threshold: float) -> Floats:
    """The capped ratio: noise on the centred sum and on the weight, half of epsilon each."""
    half = settled.parameters.epsilon / 2
    middle, weight = lot.upper_bound_milli / 2, int(capped(lot, settled).sum())
    centred = np.rint((value(lot, settled) - middle) * (weight / _STEP))
    distance = math.floor(float(settled.sensitivity) / _STEP) + 1
    numerators = centred + draws.laplace(np.full(len(centred), distance / half))
    weights = weight + draws.laplace(np.full(len(centred), int(settled.parameters.array_length or 1) / half))
    released = weights >= threshold
    ratios = np.rint(numerators / np.where(released, weights, 1) + middle / _STEP) * _STEP
    return np.where(released, ratios, np.nan)


def _clipped(lot: Lot, settled: Settled, draws: Draws) -> tuple[Floats, Floats]:
    """LEVY and QUANTILE: values and their sensitivities."""
    if settled.arrays is None:
        raise ValueError("an interval is drawn from array means")
    means = lot.sorted_array_means(settled.arrays)
    if settled.contender.estimator.name == "levy":
        low, high = _around_the_median(means, settled, draws)
    else:
        low, high = _between_quantiles(means, settled, draws)
    widest = settled.arrays.split * (high - low)
    if not settled.contender.printed:
        widest = np.minimum(widest, lot.upper_bound_milli)
    return clipped_mean(means, low, high), widest / settled.arrays.number


def clipped_mean(means: Floats, low: Floats, high: Floats) -> Floats:
    """[runs] the mean of array means, each cut to its run's [low, high]."""
    return np.asarray(np.clip(means, low[:, None], high[:, None]).mean(axis=1), np.float64)


def _around_the_median(means: Floats, settled: Settled, draws: Draws) -> tuple[Floats, Floats]:
    upper = settled.parameters.upper_bound_milli
    tau = levy_tau(settled)
    if tau >= upper:
        return np.zeros(len(means)), np.full(len(means), float(upper))
    middles = levy_middles(tau, upper)
    x = middles[draws.choose(levy_weights(means, settled))]
    return np.maximum(x - 1.5 * tau, 0), np.minimum(x + 1.5 * tau, upper)


def levy_tau(settled: Settled) -> float:
    """LEVY's tau in milli-units."""
    if settled.arrays is None:
        raise ValueError("tau is about arrays")
    return float(concentration(settled.arrays, settled.parameters.upper_bound_milli))


def levy_middles(tau: float, upper: int) -> Floats:
    """[J] midpoints of the bins, the last of them cut at U."""
    bins = int(-(-upper // tau))
    middles = (np.arange(bins) + 0.5) * tau
    middles[-1] = ((bins - 1) * tau + upper) / 2
    return np.asarray(middles, np.float64)


def levy_weights(means: Floats, settled: Settled) -> Floats:
    """[runs, J] exp(-eps (c(x) - min c) / (4 s)) of each midpoint."""
    middles = levy_middles(levy_tau(settled), settled.parameters.upper_bound_milli)
    runs, bins = len(means), len(middles)
    nearest = np.searchsorted((middles[1:] + middles[:-1]) / 2, means, side="left")  # the lower on ties
    nearest += np.arange(runs)[:, None] * bins
    numbers = np.bincount(nearest.ravel(), minlength=runs * bins).reshape(runs, bins)
    ends = np.cumsum(numbers, axis=1)
    costs = np.maximum(ends - numbers, ends[:, -1:] - ends)
    rate = settled.parameters.epsilon / (4 * settled.selection_split)
    return np.asarray(np.exp(-rate * (costs - costs.min(axis=1, keepdims=True))), np.float64)


def _between_quantiles(means: Floats, settled: Settled, draws: Draws) -> tuple[Floats, Floats]:
    borders, widths = quantile_intervals(means, settled)
    ends = []
    for rank in quantile_ranks(settled):
        drawn = draws.choose(quantile_weights(widths, rank, settled))
        rows = np.arange(len(means))
        ends.append((borders[rows, drawn] + 1 + draws.uniform(widths[rows, drawn])) * _STEP)
    return np.minimum(*ends), np.maximum(*ends)


def quantile_intervals(means: Floats, settled: Settled) -> tuple[Integers, Integers]:
    """z_0 .. z_(K+1) [runs, K + 2] in steps, from ascending means, and the widths between them [runs, K + 1]."""
    top = GRID.floor(settled.parameters.upper_bound_milli)
    borders = np.zeros((len(means), means.shape[1] + 2), np.int64)
    # First to what floats can tell apart, so that a mean between two steps goes to the even one, as exactly.
    borders[:, 1:-1] = np.minimum(np.rint(np.round(means / _STEP, 6)), top)
    borders[:, -1] = top
    return borders, np.diff(borders, axis=1)


def quantile_ranks(settled: Settled) -> tuple[int, int]:
    """Target ranks of both ends."""
    if settled.arrays is None or settled.parameters.quantiles is None:
        raise ValueError("quantiles are those of array means")
    number = settled.arrays.number
    rank = QUANTILES[settled.parameters.quantiles](number, settled.parameters.epsilon)
    return rank, number - rank


def quantile_weights(widths: Integers, rank: int, settled: Settled) -> Floats:
    """[runs, K + 1] width times exp(-eps |i - rank| / (8 s)), up to a factor for each run."""
    costs = np.abs(np.arange(widths.shape[1]) - rank) * (settled.parameters.epsilon / (8 * settled.selection_split))
    weights = widths * np.exp(-costs)
    if not np.all(weights.sum(axis=1) > 0):  # all that has a width is far from the rank
        nearest = np.where(widths > 0, costs, np.inf).min(axis=1, keepdims=True)
        weights = widths * np.exp(-np.maximum(costs - nearest, 0))
    return np.asarray(weights, np.float64)
