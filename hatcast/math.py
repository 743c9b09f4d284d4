"""The mathematics of the papers on numbers of your own: estimators, array lengths, errors, the hybrid model, K-means.

    from hatcast import math

    math.worst_case_error("opt_array_averaging", [417, 46, 46, 9, 1], upper_bound=65.0, epsilon=1.0).total

Thin functions over the code that releases are made with; nothing is read and no ledger charged. Counts are readings of
each user, [L], in any order. Values, bounds and errors are floats in one unit, such as km/h; `upper_bound` is U, and a
value lies in [0, U]. Formulas: docs/specification/estimators.md and docs/hybrid.md. `estimate` and `kmeans` draw noise
for epsilon at each call; all other results of means are not private.
"""

import math as _math
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hatcast.lab.evaluate.lemmas import (
    full_lm,
    hybrid,
    improvement,
    improvement_over_the_worse,
    laplace_setting,
    lm_only,
    tcm_only,
)
from hatcast.stream.accounting import ChargeSplit, KnownCharges, composed_epsilon
from hatcast.stream.errors import HatcastError, name_fix
from hatcast.stream.estimators import ESTIMATORS, Estimator, Parameters, Users
from hatcast.stream.estimators import array_length as _lengths
from hatcast.stream.estimators._interface import MAX_UPPER_BOUND
from hatcast.stream.estimators.grouping import GROUPINGS, Arrays, Counts, places_taken
from hatcast.stream.estimators.levy import GAMMA
from hatcast.stream.estimators.vectors import worst_case_error as _worst_case_error
from hatcast.stream.hybrid import HYBRID_ESTIMATORS, Setting
from hatcast.stream.kmeans import lloyd
from hatcast.stream.kmeans.groups import Devices
from hatcast.stream.kmeans.setting import ClusteringSetting as KMeansSetting
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.mechanisms.system import SystemNoise
from hatcast.stream.units import NANO

__all__ = [
    "Error",
    "Setting",
    "array_length",
    "compose",
    "critical_share",
    "critical_users",
    "estimate",
    "full_arrays_error",
    "full_lm",
    "gain",
    "group",
    "hybrid",
    "hybrid_weight",
    "improvement",
    "improvement_over_the_worse",
    "kmeans",
    "laplace_setting",
    "lm_only",
    "mean_before_noise",
    "optimal_gain",
    "sensitivity",
    "tau",
    "tcm_only",
    "worst_case_error",
]

_MILLI: Final = 1000
_FINENESS: Final = 20  # of noise on so fine a grid that it is as good as continuous


@dataclass(frozen=True, slots=True)
class Error:
    """Worst-case error E_M, in the unit of U: an upper bound of the mean absolute error on every data set.

    bias    largest difference of the value before noise from the mean of all readings
    noise   mean of the noise's absolute value
    """

    bias: float
    noise: float

    @property
    def total(self) -> float:
        """E_M: the sum of both."""
        return self.bias + self.noise


def array_length(
    counts: ArrayLike, rule: str = "worst_case", *, epsilon: float, grouping: str | None = "bestfit"
) -> int:
    """Return the array length m of a rule: `median`, `sensitivity`, `minimax`, `worst_case`, ..."""
    rules = {**_lengths.RULES, **_lengths.PRINTED_RULES}
    _known("rule", rule, rules)
    return rules[rule](_sorted(counts), epsilon, grouping)


def group(counts: ArrayLike, array_length: int, grouping: str = "bestfit") -> Arrays:
    """Group users into arrays: `bestfit` or `wraparound`. Users are numbered by their counts, largest first."""
    _known("grouping", grouping, GROUPINGS)
    return GROUPINGS[grouping](_sorted(counts), array_length)


def gain(counts: ArrayLike, array_length: int) -> float:
    """Return the sensitivity of `baseline` over that of full arrays, m* G / (m M).    [M (5)]

    It is 1 at m* and `optimal_gain` at the least count.
    """
    ordered = _sorted(counts)
    taken = int(places_taken(ordered, np.array([array_length]))[0])
    return int(ordered[0]) * taken / (array_length * int(ordered.sum()))


def optimal_gain(counts: ArrayLike) -> float:
    """Return OPT = m* L / M. The median count has at least half of it.    [M Lemma III.2]"""
    ordered = _sorted(counts)
    return int(ordered[0]) * len(ordered) / int(ordered.sum())


def full_arrays_error(counts: ArrayLike, array_length: int, *, upper_bound: float, epsilon: float) -> Error:
    """Return U (1 - G/M) and U m / (epsilon G): the papers' error of K = G / m full arrays.    [M (11), (15)]"""
    ordered = _sorted(counts)
    taken, readings = int(places_taken(ordered, np.array([array_length]))[0]), int(ordered.sum())
    return Error(upper_bound * (1 - taken / readings), upper_bound * array_length / (epsilon * taken))


def tau(
    counts: ArrayLike, array_length: int, *, upper_bound: float, grouping: str = "bestfit", gamma: float = GAMMA
) -> float:
    """Return the width U sqrt(ln(2 K / gamma) / (2 m)) of LEVY's bins. It cuts to 3 tau.    [M (7)]

    Delta_LEVY then is `sensitivity("levy", ..., interval=(x - 1.5 * tau, x + 1.5 * tau))`.
    """
    number = group(counts, array_length, grouping).number
    return upper_bound * _math.sqrt(_math.log(2 * number / gamma) / (2 * array_length))


def sensitivity(
    estimator: str,
    counts: ArrayLike,
    *,
    upper_bound: float,
    epsilon: float,
    interval: tuple[float, float] | None = None,
    **settings: Any,
) -> float:
    """Return the sensitivity of an estimator's mean to one user, in the unit of U.

    interval   that `levy` and `quantile` cut to; [0, U] without it
    settings   keys of `[policy.estimator]`: `array_length`, `grouping`, `quantiles`, `gamma`; or the estimator's own
    """
    each, parameters = _parameters(estimator, upper_bound, epsilon, settings)
    if interval is not None:
        low, high = (min(max(Fraction(end) * _MILLI, Fraction(0)), parameters.bounds[1]) for end in interval)
        parameters = parameters.clipped_to((low, high))
    return float(each.sensitivity(_sorted(counts), parameters)) / _MILLI


def worst_case_error(
    estimator: str, counts: ArrayLike, *, upper_bound: float, epsilon: float, **settings: Any
) -> Error | None:
    """Return E_M; None for `levy`, `quantile` and `capped_ratio`, whose noise counts do not fix.    [V, E_M]"""
    each, parameters = _parameters(estimator, upper_bound, epsilon, settings)
    found = _worst_case_error(
        each, _sorted(counts), parameters.upper_bound_milli, epsilon, parameters.grouping, parameters.array_length
    )
    return None if found is None else Error(float(found.bias) / _MILLI, float(found.noise) / _MILLI)


def mean_before_noise(
    estimator: str, counts: ArrayLike, means: ArrayLike, *, upper_bound: float, epsilon: float, **settings: Any
) -> float:
    """Return an estimator's mean before its noise; `levy` and `quantile` without an interval. Not private.

    means   of each user's readings, [L], in the order of `counts`
    """
    each, parameters = _parameters(estimator, upper_bound, epsilon, settings)
    return float(each.value(_users(counts, means), parameters)) / _MILLI


def estimate(
    estimator: str,
    counts: ArrayLike,
    means: ArrayLike,
    *,
    upper_bound: float,
    epsilon: float,
    grid: float = 0.001,
    **settings: Any,
) -> tuple[float, tuple[float, float]] | None:
    """Return a noisy mean in [0, U] and its 95 % interval, or None where it would be suppressed.

    Each call draws new noise and loses epsilon again, and no ledger counts it: `hatcast.batch` releases once.
    """
    each, parameters = _parameters(estimator, upper_bound, epsilon, settings, grid)
    found = each.estimate(_users(counts, means), parameters, SystemNoise())
    if found is None:
        return None
    mean, low, high = (float(parameters.grid.text(steps)) for steps in (found.mean, *found.interval95))
    return mean, (low, high)


def hybrid_weight(estimator: str, setting: Setting) -> float:
    """Return the weight w of the central mean: of `kvh`, `pwh`, ...; its error is `hybrid(setting, w)`."""
    _known("estimator", estimator, HYBRID_ESTIMATORS)
    return float(HYBRID_ESTIMATORS[estimator].weight(setting))


def critical_share(*, upper_bound: float, epsilon: float, sigma: float) -> float:
    """Return c_crit: with a smaller share of central users `full_lm` is better than `tcm_only` at every n.

    [H Lemma 3.8], for Laplace noise and groups that are alike.
    """
    noise = (epsilon * sigma) ** 2
    return noise / (2 * upper_bound**2 + noise)


def critical_users(share: float, *, upper_bound: float, epsilon: float, sigma: float) -> float:
    """Return n_crit: above `critical_share`, `tcm_only` is better from this number of users on.    [H Lemma 3.8]"""
    room = 2 * share * upper_bound**2 - (1 - share) * (epsilon * sigma) ** 2
    return 2 * upper_bound**2 / (share * room) if room > 0 else _math.inf


def kmeans(  # noqa: PLR0913 - options by name
    central: ArrayLike,
    *,
    clusters: int,
    iterations: int,
    epsilon: float,
    upper_bound: float,
    local: ArrayLike | None = None,
    grid: float = 0.001,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Return the centres [K, d] of private K-means over vectors [n, d] in [0, U].    [H App. E, corrected]

    central, local   vectors of those who trust the operator, and of those whose devices add the noise
    seed             of the initial centres, never of noise: each call loses epsilon again
    """
    trusted = np.atleast_2d(np.asarray(central, np.float64))
    setting = KMeansSetting(trusted.shape[1], round(upper_bound / grid), clusters, iterations, epsilon, seed)
    noise = SystemNoise()
    steps = [
        np.rint(np.asarray(each, np.float64) / grid).astype(np.int64) for each in (trusted, local) if each is not None
    ]
    devices = Devices(steps[1], setting, noise) if local is not None else None
    return np.asarray(lloyd.cluster(steps[0], devices, setting, noise).centres * grid, np.float64)


def compose(epsilon: float, number: int, delta: float, estimator: str | None = None) -> float:
    """Return the epsilon, at delta, of this many releases of epsilon each.

    estimator   whose noise and selections they are, on a grid that is fine against the noise; None: of any mechanism
    """
    level, known = round(epsilon * NANO), None
    if estimator is not None:
        _known("estimator", estimator, ESTIMATORS)
        known = KnownCharges(level, number, ChargeSplit.of(ESTIMATORS[estimator].shares, _FINENESS))
    return composed_epsilon({level: number}, delta, known)


def _parameters(
    estimator: str, upper_bound: float, epsilon: float, settings: dict[str, Any], grid: float = 0.001
) -> tuple[Estimator, Parameters]:
    """Return an estimator and its parameters, with its defaults. Raises HatcastError."""
    _known("estimator", estimator, ESTIMATORS)
    each = ESTIMATORS[estimator]
    further = {"weight_threshold": each.keys.weight_threshold, "gamma": each.keys.gamma}
    allowed = [*each.keys.defaults, *(key for key, default in further.items() if default is not None)]
    for key in settings:
        if key not in allowed:
            raise HatcastError(
                f"{key}: {estimator} has no such setting; {name_fix(key, allowed) if allowed else 'leave it out'}"
            )
    upper_milli = round(upper_bound * _MILLI)
    if not 1 <= upper_milli < MAX_UPPER_BOUND:
        raise HatcastError(f"upper_bound: {upper_bound} is out of range; use a number above 0")
    chosen = {**each.keys.defaults, **settings}
    if each.keys.weight_threshold is not None:
        if "array_length" not in settings:
            raise HatcastError(f"array_length: {estimator} needs a number of places")
        chosen.setdefault("weight_threshold", each.keys.weight_threshold(chosen["array_length"], epsilon))
    parameters = Parameters(upper_milli, Grid(Decimal(str(grid))), epsilon)
    return each, replace(parameters, **chosen)


def _sorted(counts: ArrayLike) -> Counts:
    return np.sort(np.asarray(counts, np.int64).ravel())[::-1]


def _users(counts: ArrayLike, means: ArrayLike) -> Users:
    given, of_users = np.asarray(counts, np.int64).ravel(), np.asarray(means, np.float64).ravel()
    if given.shape != of_users.shape:
        raise HatcastError("means: give one for each count")
    order = np.argsort(-given, kind="stable")
    sums = np.rint(of_users * given * _MILLI).astype(np.int64)
    return Users(given[order], sums[order])


def _known(key: str, name: str, names: Any) -> None:
    if name not in names:
        raise HatcastError(f"{key}: {name!r} is none; {name_fix(name, [*names])}")
