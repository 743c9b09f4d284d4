"""Time and memory of every estimator by number of users. No services."""

import json
import math
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Final

import click
import numpy as np

from bench.figures import Figure, say, show
from hatcast.stream.estimators import ESTIMATORS, Estimator, Parameters, Users
from hatcast.stream.estimators.array_length import RULES
from hatcast.stream.estimators.grouping import GROUPINGS, bestfit
from hatcast.stream.mechanisms.grid import Grid
from hatcast.stream.mechanisms.system import SystemNoise

COUNTS: Final = Path(__file__).parents[1] / "tests" / "data" / "itms_like_counts.json"
UPPER_BOUND: Final = 65_000
PLACES: Final = 50  # array length of estimators that may not choose it by counts
MOST_SECONDS: Final = 1.0  # of a million users
MOST_BYTES: Final = 400.0  # per user
MOST_GROWTH: Final = 1.35  # exponent of L; L log L gives 1.1 from 10^4 to 10^5, L^2 gives 2


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--most", default=6, show_default=True, type=click.IntRange(4, 6), help="Up to 10^N users.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
def command(as_json: bool, most: int, rounds: int) -> int:  # noqa: FBT001 - click's way
    """Measure seconds and peak memory of grouping, estimate and noise from 10^3 users on, and the growth of time."""
    figures = [
        figure for name, each, settled in _contenders() for figure in _figures(name, each, settled, most, rounds)
    ]
    figures += [*_rules(most, rounds), *_unlike_counts(rounds), _choice(rounds)]
    return show(f"estimators: up to 10^{most} users, {rounds} rounds", figures, as_json=as_json)


def _contenders() -> Iterator[tuple[str, Estimator, Parameters]]:
    """Yield every estimator with its defaults, and with each grouping if it has one."""
    for name, estimator in ESTIMATORS.items():
        parameters = _parameters(estimator)
        if parameters.grouping is None:
            yield name, estimator, parameters
            continue
        for grouping in GROUPINGS:
            yield f"{name}_{grouping}", estimator, replace(parameters, grouping=grouping)


def _figures(name: str, estimator: Estimator, parameters: Parameters, most: int, rounds: int) -> list[Figure]:
    sizes = [10**power for power in range(3, most + 1)]
    seconds = []
    for size in sizes:
        users = users_like_itms(size)
        seconds.append(_least(partial(estimator.estimate, users, parameters, SystemNoise()), rounds))
        say(f"{name}, {size:,} users: {seconds[-1]:.4f} s")
    return [
        *(Figure(f"{name}_10e{round(math.log10(n))}_s", t, "CPU s") for n, t in zip(sizes[:-1], seconds, strict=False)),
        Figure(f"{name}_10e{most}_s", seconds[-1], "CPU s", most=MOST_SECONDS),
        # Below 10^4 users constant costs dominate.
        Figure(f"{name}_growth", _growth(sizes[1:], seconds[1:]), "exponent of L"),
        Figure(
            f"{name}_bytes_per_user",
            _peak(estimator, parameters, users_like_itms(sizes[-1])),
            "bytes",
            most=MOST_BYTES,
        ),
    ]


def _rules(most: int, rounds: int) -> Iterator[Figure]:
    """Yield the time of each array length rule alone."""
    counts = users_like_itms(10**most).counts
    for name, rule in RULES.items():
        seconds = _least(partial(rule, counts, 1.0, "bestfit"), rounds)
        yield Figure(f"rule_{name}_10e{most}_s", seconds, "CPU s", most=MOST_SECONDS)


def _unlike_counts(rounds: int) -> list[Figure]:
    """Measure BESTFIT without equal counts, so that no users are placed in runs."""
    sizes = [10_000, 30_000, 100_000]
    seconds = []
    for size in sizes:
        counts = np.arange(size, 0, -1).astype(np.int64)
        seconds.append(_least(partial(bestfit, counts, size), rounds))
        say(f"bestfit, {size:,} users with {size:,} counts: {seconds[-1]:.4f} s")
    return [
        Figure("bestfit_unlike_counts_10e5_s", seconds[-1], "CPU s", most=MOST_SECONDS),
        Figure("bestfit_unlike_counts_growth", _growth(sizes, seconds), "exponent of L", most=MOST_GROWTH),
    ]


def _choice(rounds: int) -> Figure:
    """Measure one exact selection among 10^5 candidates."""
    costs, weights = np.abs(np.arange(100_000) - 10_000), np.full(100_000, 3)
    seconds = max(
        _least(partial(SystemNoise().choose, weights, costs, rate), rounds)
        for rate in (Fraction(1, 8), Fraction(1, 8000))
    )
    return Figure("choice_10e5_s", seconds, "CPU s", most=MOST_SECONDS)


def users_like_itms(size: int) -> Users:
    """Return users with the counts of the ITMS-like HAT, repeated, and random sums."""
    counts = np.sort(np.resize(np.array(json.loads(COUNTS.read_text())["counts"], np.int64), size))[::-1].copy()
    return Users(counts, np.random.default_rng(1).integers(0, counts * UPPER_BOUND, endpoint=True))


def _parameters(estimator: Estimator) -> Parameters:
    keys = estimator.keys.defaults
    plain = Parameters(UPPER_BOUND, Grid(Decimal("0.001")), 1.0)
    threshold = estimator.keys.weight_threshold
    if threshold is not None:
        return replace(plain, array_length=PLACES, weight_threshold=threshold(PLACES, plain.epsilon))
    return replace(
        plain,
        grouping=keys.get("grouping"),
        array_length=keys.get("array_length"),
        quantiles=keys.get("quantiles"),
    )


def _growth(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of log(seconds) over log(sizes)."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def _least(work: Callable[[], object], rounds: int) -> float:
    """Return the least CPU seconds: on a busy machine far steadier than wall time."""

    def once() -> float:
        begun = time.process_time_ns()
        work()
        return (time.process_time_ns() - begun) / 1e9

    return min(once() for _ in range(rounds))


def _peak(estimator: Estimator, parameters: Parameters, users: Users) -> float:
    """Return peak memory in bytes per user, without the users themselves."""
    tracemalloc.start()
    try:
        estimator.estimate(users, parameters, SystemNoise())
        return tracemalloc.get_traced_memory()[1] / len(users.counts)
    finally:
        tracemalloc.stop()
