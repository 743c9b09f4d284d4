"""Contenders of a comparison: an estimator with settings, or its variant with the papers' printed constants."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final

import numpy as np

from hatcast.lab.evaluate.simulation import Draws, Floats, Integers
from hatcast.stream.errors import HatcastError, name_fix
from hatcast.stream.estimators import ESTIMATORS, Estimator, Parameters
from hatcast.stream.estimators.array_averaging import arrays_of
from hatcast.stream.estimators.array_length import PRINTED_RULES, RULES
from hatcast.stream.estimators.grouping import GROUPINGS, Arrays, Counts
from hatcast.stream.estimators.levy import concentration
from hatcast.stream.estimators.quantile import QUANTILES, SMOOTHED, smoothed_costs
from hatcast.stream.estimators.vectors import LINEAR, vector_form
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.policy.policy import Relation

DEFAULT: Final = (
    "baseline",
    "array_averaging",
    "array_averaging:sensitivity",
    "opt_array_averaging",
    "levy",
    "quantile",
    "quantile:epsilon_dependent",
    "clipped_sum",
    "weighted_mean",
    "capped_ratio",
)
PRINTED: Final = "printed"  # the papers' own constants for WRAPAROUND
GRID: Final = Grid(Decimal("0.001"))
_RULES: Final = {**RULES, **PRINTED_RULES}
_LENGTH: Final = re.compile(r"[1-9][0-9]{0,8}")
_GAMMA: Final = re.compile(r"gamma=(0?\.[0-9]{1,9}|1)")
_DEFAULT_LENGTH: Final = "median"  # for estimators whose policy needs a number: as if that had been chosen well
_HAS_ARRAYS: Final = ("array_averaging", "opt_array_averaging", "levy", "quantile")
_STEP = float(GRID.milli)


class BadContender(HatcastError):
    """A name in `--estimators` is invalid."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One row of the comparison."""

    name: str  # as written: `estimator[:setting]..`
    estimator: Estimator
    grouping: str | None
    array_length: str | int | None
    quantiles: str | None
    # use the papers' constants for WRAPAROUND: 2 U/K or 2 (b - a)/K, selections with s = 1. The selections then cost up
    # to twice their share of epsilon: for reproduction only
    printed: bool = False
    gamma: float | None = None  # of `levy`; None: the default

    def resolve(
        self, counts: Counts, upper_bound_milli: int, epsilon: float, dimensions: int = 1
    ) -> "ResolvedContender":
        """Resolve the settings that depend on counts and epsilon: array length, threshold, sensitivity.

        Raises NoVectorForm in more than one dimension.
        """
        length = self.array_length
        if isinstance(length, str):
            # VectorForm has the reason for the division.
            length = _RULES[length](counts, epsilon / dimensions, self.grouping)
        parameters = Parameters(
            upper_bound_milli, GRID, epsilon, self.grouping, length, self.quantiles, gamma=self.gamma
        )
        threshold = self.estimator.keys.weight_threshold
        if threshold is not None and isinstance(length, int):
            parameters = replace(parameters, weight_threshold=threshold(length, epsilon))
        name, weights = self.estimator.name, None
        if dimensions > 1 or name in LINEAR:
            form = vector_form(name, dimensions)
            sensitivity = form.sensitivity(counts, parameters)
            (places, fills), whole = form.weights(counts, parameters)
            weights = np.asarray(places / fills / whole, np.float64)
        else:
            sensitivity = self.estimator.sensitivity(counts, parameters)
        if name not in _HAS_ARRAYS:
            return ResolvedContender(self, parameters, sensitivity, weights)
        arrays = arrays_of(counts, parameters)
        return ResolvedContender(self, parameters, sensitivity * (arrays.split if self.printed else 1), weights, arrays)


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedContender:
    """A contender with all settings resolved, for one epsilon."""

    contender: Contender
    parameters: Parameters
    sensitivity: Fraction  # before an interval is drawn; in l1 for vectors
    weights: Floats | None  # [L] weights of users' means, if the value is a weighted mean of them
    arrays: Arrays | None = None

    @property
    def selection_split(self) -> int:
        """s of the selection (docs/specification/estimators.md, section 4): arrays that one user may influence."""
        return 1 if self.contender.printed or self.arrays is None else self.arrays.split


def hides_presence(name: str) -> bool:
    """Return whether a contender is for `add_remove`. name: `estimator[:setting]..`."""
    return Relation.ADD_REMOVE in ESTIMATORS[name.split(":", maxsplit=1)[0]].keys.relations


def default_estimators(dimensions: int) -> str:
    """Return the default of `--estimators`: all of `DEFAULT`; in several dimensions those with a vector form."""
    return ",".join(name for name in DEFAULT if dimensions == 1 or name.split(":")[0] in LINEAR)


def parse_contender(text: str) -> Contender:
    """Parse an estimator and its settings, in any order: `levy:wraparound:gamma=0.05`, `quantile:epsilon_dependent:20`.

    Raises BadContender.
    """
    name, *settings = text.strip().split(":")
    if name not in ESTIMATORS:
        raise BadContender(f"--estimators: {name!r} is not an estimator; {name_fix(name, ESTIMATORS)}")
    keys = ESTIMATORS[name].keys.defaults
    length = keys["array_length"] or _DEFAULT_LENGTH if "array_length" in keys else None
    parsed = Contender(text.strip(), ESTIMATORS[name], keys.get("grouping"), length, keys.get("quantiles"))
    used = {*keys, *(["gamma"] if ESTIMATORS[name].keys.gamma is not None else [])}
    for setting in settings:
        change = next((change for key, fits, change in _SETTINGS if key in used and fits(setting)), None)
        if change is None:
            raise BadContender(f"--estimators: {setting!r} is not a setting of {name}; see docs/estimators.md")
        parsed = change(parsed, setting)
    if parsed.printed and parsed.grouping != "wraparound":
        raise BadContender(f"--estimators: {text!r}: 'printed' needs wraparound; write {name}:wraparound:printed")
    return parsed


_SETTINGS: Final[tuple[tuple[str, Callable[[str], bool], Callable[[Contender, str], Contender]], ...]] = (
    ("grouping", GROUPINGS.__contains__, lambda contender, text: replace(contender, grouping=text)),
    ("grouping", PRINTED.__eq__, lambda contender, _: replace(contender, printed=True)),
    ("array_length", _RULES.__contains__, lambda contender, text: replace(contender, array_length=text)),
    (
        "array_length",
        lambda text: _LENGTH.fullmatch(text) is not None,
        lambda contender, text: replace(contender, array_length=int(text)),
    ),
    ("quantiles", QUANTILES.__contains__, lambda contender, text: replace(contender, quantiles=text)),
    (
        "gamma",
        lambda text: _GAMMA.fullmatch(text) is not None and float(text[6:]) > 0,
        lambda contender, text: replace(contender, gamma=float(text[6:])),
    ),
)


class RunBatch:
    """Batch of runs, with values that several estimators share. means: [runs, L] milli-units; vectors [runs, d, L]."""

    def __init__(self, counts: Counts, means: Floats, upper_bound_milli: int) -> None:
        self.counts = counts
        self.means = means
        self.upper_bound_milli = upper_bound_milli
        self.target: Floats = means @ (counts / counts.sum())
        self._sorted: dict[tuple[int, int], Floats] = {}

    def sorted_array_means(self, arrays: Arrays) -> Floats:
        """Return the array means [runs, K], ascending."""
        key = (arrays.split, arrays.array_length)
        if key not in self._sorted:
            self._sorted[key] = np.sort(array_means(self.means, arrays), axis=1)
        return self._sorted[key]


def array_means(means: Floats, arrays: Arrays) -> Floats:
    """Return the array means [runs, K]."""
    order = np.argsort(arrays.arrays, kind="stable")
    homes = arrays.arrays[order]
    weights = arrays.places[order] / arrays.fills[homes]
    starts = np.searchsorted(homes, np.arange(arrays.number))
    return np.asarray(np.add.reduceat(means[:, arrays.users[order]] * weights, starts, axis=1), np.float64)


def raw(batch: RunBatch, resolved: ResolvedContender, draws: Draws) -> Floats:
    """Return the noisy values before they are clipped to [0, U], in milli-units: [runs]; vectors [runs, d].

    NaN where noise suppresses the HAT.
    """
    if resolved.parameters.weight_threshold is not None:
        return _ratio(batch, resolved, draws, resolved.parameters.weight_threshold)
    share = resolved.contender.estimator.shares["noise"]
    sensitivity: Floats | float
    if len(resolved.contender.estimator.shares) > 1:
        values, sensitivity = _clipped(batch, resolved, draws)
    else:
        values, sensitivity = value(batch, resolved), float(resolved.sensitivity)
    dimensions = values.shape[1] if values.ndim > 1 else 1
    distance = np.where(np.asarray(sensitivity) > 0, np.floor(np.asarray(sensitivity) / _STEP) + dimensions, 0.0)
    scales = np.broadcast_to(distance / (resolved.parameters.epsilon * float(share)), values.shape)
    return np.asarray((np.rint(values / _STEP) + draws.laplace(scales)) * _STEP, np.float64)


def value(batch: RunBatch, resolved: ResolvedContender) -> Floats:
    """Return the values before noise of an estimator without selection: [runs]; vectors [runs, d]."""
    counts = batch.counts
    name = resolved.contender.estimator.name
    if resolved.weights is not None:
        return np.asarray(batch.means @ resolved.weights, np.float64)
    if name == "clipped_sum":
        readings = int(counts.sum())
        middles = counts * (batch.upper_bound_milli / 2)
        halves = np.minimum(middles, float(resolved.sensitivity * readings) / 2)
        clipped = np.clip(batch.means * counts, middles - halves, middles + halves)
        return np.asarray(clipped.sum(axis=1) / readings, np.float64)
    if name == "capped_ratio":
        taken = capped(batch, resolved)
        return np.asarray(batch.means @ (taken / taken.sum()), np.float64)
    raise ValueError(f"{name} has no floating-point form: add it here")


def capped(batch: RunBatch, resolved: ResolvedContender) -> Integers:
    """Return [L] counts, capped at the array length."""
    return np.minimum(batch.counts, int(resolved.parameters.array_length or 1))


def _ratio(batch: RunBatch, resolved: ResolvedContender, draws: Draws, threshold: float) -> Floats:
    """Return the capped ratio, with noise on the centred sum and on the weight, half of epsilon each."""
    half = resolved.parameters.epsilon / 2
    middle, weight = batch.upper_bound_milli / 2, int(capped(batch, resolved).sum())
    centred = np.rint((value(batch, resolved) - middle) * (weight / _STEP))
    distance = math.floor(float(resolved.sensitivity) / _STEP) + 1
    numerators = centred + draws.laplace(np.full(len(centred), distance / half))
    weights = weight + draws.laplace(np.full(len(centred), int(resolved.parameters.array_length or 1) / half))
    released = weights >= threshold
    ratios = np.rint(numerators / np.where(released, weights, 1) + middle / _STEP) * _STEP
    return np.where(released, ratios, np.nan)


def _clipped(batch: RunBatch, resolved: ResolvedContender, draws: Draws) -> tuple[Floats, Floats]:
    """Return the values of LEVY or QUANTILE before noise, and their sensitivities."""
    if resolved.arrays is None:
        raise ValueError("intervals need arrays")
    means = batch.sorted_array_means(resolved.arrays)
    if resolved.contender.estimator.name == "levy":
        low, high = _around_the_median(means, resolved, draws)
    else:
        low, high = _between_quantiles(means, resolved, draws)
    widest = resolved.arrays.split * (high - low)
    if not resolved.contender.printed:
        widest = np.minimum(widest, batch.upper_bound_milli)
    return clipped_mean(means, low, high), widest / resolved.arrays.number


def clipped_mean(means: Floats, low: Floats, high: Floats) -> Floats:
    """Return [runs] the mean of array means, clipped to each run's [low, high]."""
    return np.asarray(np.clip(means, low[:, None], high[:, None]).mean(axis=1), np.float64)


def _around_the_median(means: Floats, resolved: ResolvedContender, draws: Draws) -> tuple[Floats, Floats]:
    upper = resolved.parameters.upper_bound_milli
    tau = levy_tau(resolved)
    if tau >= upper:
        return np.zeros(len(means)), np.full(len(means), float(upper))
    middles = levy_middles(tau, upper)
    x = middles[draws.choose(levy_weights(means, resolved))]
    return np.maximum(x - 1.5 * tau, 0), np.minimum(x + 1.5 * tau, upper)


def levy_tau(resolved: ResolvedContender) -> float:
    """Return LEVY's tau in milli-units."""
    if resolved.arrays is None:
        raise ValueError("tau needs arrays")
    return float(concentration(resolved.arrays, resolved.parameters.upper_bound_milli, resolved.parameters.gamma))


def levy_middles(tau: float, upper: int) -> Floats:
    """Return [J] midpoints of the bins, the last one cut at U."""
    bins = int(-(-upper // tau))
    middles = (np.arange(bins) + 0.5) * tau
    middles[-1] = ((bins - 1) * tau + upper) / 2
    return np.asarray(middles, np.float64)


def levy_weights(means: Floats, resolved: ResolvedContender) -> Floats:
    """Return [runs, J] exp(-eps (c(x) - min c) / (4 s)) of each midpoint."""
    middles = levy_middles(levy_tau(resolved), resolved.parameters.upper_bound_milli)
    runs, bins = len(means), len(middles)
    nearest = np.searchsorted((middles[1:] + middles[:-1]) / 2, means, side="left")  # the lower on ties
    nearest += np.arange(runs)[:, None] * bins
    numbers = np.bincount(nearest.ravel(), minlength=runs * bins).reshape(runs, bins)
    ends = np.cumsum(numbers, axis=1)
    costs = np.maximum(ends - numbers, ends[:, -1:] - ends)
    rate = resolved.parameters.epsilon / (4 * resolved.selection_split)
    return np.asarray(np.exp(-rate * (costs - costs.min(axis=1, keepdims=True))), np.float64)


def _between_quantiles(means: Floats, resolved: ResolvedContender, draws: Draws) -> tuple[Floats, Floats]:
    ends, rows = [], np.arange(len(means))
    smoothed = resolved.parameters.quantiles == SMOOTHED
    borders, widths = quantile_intervals(means, resolved)
    for rank in quantile_ranks(resolved):
        if smoothed:
            borders, weights = smoothed_weights(means, rank, resolved)
            widths = np.diff(borders, axis=1)
        else:
            weights = quantile_weights(widths, rank, resolved)
        drawn = draws.choose(weights)
        ends.append((borders[rows, drawn] + (not smoothed) + draws.uniform(widths[rows, drawn])) * _STEP)
    return np.minimum(*ends), np.maximum(*ends)


def smoothed_weights(means: Floats, rank: int, resolved: ResolvedContender) -> tuple[Integers, Floats]:
    """Return borders [runs, 2 K + 2] and [runs, 2 K + 1] width times exp(-eps cost / (8 s)), up to a factor a run."""
    steps = quantile_intervals(means, resolved)[0]
    found = [smoothed_costs(row[1:-1], int(row[-1]), rank) for row in steps]
    borders, costs = (np.array(each, np.int64) for each in zip(*found, strict=True))
    return borders, _weights(np.diff(borders, axis=1), costs, resolved)


def quantile_intervals(means: Floats, resolved: ResolvedContender) -> tuple[Integers, Integers]:
    """Return z_0 .. z_(K+1) [runs, K + 2] in steps, from ascending means, and their differences [runs, K + 1]."""
    top = GRID.floor(resolved.parameters.upper_bound_milli)
    borders = np.zeros((len(means), means.shape[1] + 2), np.int64)
    # Rounding to 6 digits first removes float error, so that a mean halfway rounds to even, as the exact one does.
    borders[:, 1:-1] = np.minimum(np.rint(np.round(means / _STEP, 6)), top)
    borders[:, -1] = top
    return borders, np.diff(borders, axis=1)


def quantile_ranks(resolved: ResolvedContender) -> tuple[int, int]:
    """Return the target ranks of both ends."""
    if resolved.arrays is None or resolved.parameters.quantiles is None:
        raise ValueError("quantiles need arrays")
    number = resolved.arrays.number
    rank = QUANTILES[resolved.parameters.quantiles](number, resolved.parameters.epsilon)
    return rank, number - rank


def quantile_weights(widths: Integers, rank: int, resolved: ResolvedContender) -> Floats:
    """Return [runs, K + 1] width times exp(-eps |i - rank| / (8 s)), up to a factor for each run."""
    return _weights(widths, np.abs(np.arange(widths.shape[1]) - rank), resolved)


def _weights(widths: Integers, steps: Integers, resolved: ResolvedContender) -> Floats:
    costs = steps * (resolved.parameters.epsilon / (8 * resolved.selection_split))
    weights = widths * np.exp(-costs)
    if not np.all(weights.sum(axis=1) > 0):  # intervals far from the rank underflow
        nearest = np.where(widths > 0, costs, np.inf).min(axis=1, keepdims=True)
        weights = widths * np.exp(-np.maximum(costs - nearest, 0))
    return np.asarray(weights, np.float64)
