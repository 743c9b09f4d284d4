"""Time and memory of every estimator by the number of users. No services."""

import json
import math
import time
import tracemalloc
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Final

import click
import numpy as np

from bench.figures import Figure, say, show
from stream.estimators import ESTIMATORS, Estimator, Parameters, Users
from stream.mechanisms.grid import Grid
from stream.mechanisms.system import SystemNoise

COUNTS: Final = Path(__file__).parents[1] / "tests" / "data" / "itms_like_counts.json"
UPPER_BOUND: Final = 65_000
PLACES: Final = 50  # of an array, where no rule may read counts
MOST_SECONDS: Final = 1.0  # of a million users
MOST_BYTES: Final = 400.0  # a user


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--most", default=6, show_default=True, type=click.IntRange(4, 6), help="Up to 10^N users.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
def command(as_json: bool, most: int, rounds: int) -> int:  # noqa: FBT001 - click's way
    """Seconds and peak memory of grouping, estimate and noise for 10^3 users and more, and how time grows."""
    figures = [figure for name in ESTIMATORS for figure in _figures(name, most, rounds)]
    return show(f"estimators: up to 10^{most} users, {rounds} rounds", figures, as_json=as_json)


def _figures(name: str, most: int, rounds: int) -> list[Figure]:
    estimator = ESTIMATORS[name]
    sizes = [10**power for power in range(3, most + 1)]
    seconds = []
    for size in sizes:
        users = users_like_itms(size)
        seconds.append(min(_seconds(estimator, users) for _ in range(rounds)))
        say(f"{name}, {size:,} users: {seconds[-1]:.4f} s")
    # Below 10^4 users what is the same for any number of them takes most of the time.
    growth = np.polyfit(np.log(sizes[1:]), np.log(seconds[1:]), 1)[0]
    return [
        *(Figure(f"{name}_10e{round(math.log10(n))}_s", t, "CPU s") for n, t in zip(sizes[:-1], seconds, strict=False)),
        Figure(f"{name}_10e{most}_s", seconds[-1], "CPU s", most=MOST_SECONDS),
        Figure(f"{name}_growth", float(growth), "exponent of L"),
        Figure(f"{name}_bytes_per_user", _peak(estimator, users_like_itms(sizes[-1])), "bytes", most=MOST_BYTES),
    ]


def users_like_itms(size: int) -> Users:
    """The counts of the ITMS-like HAT repeated, any sums."""
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


def _seconds(estimator: Estimator, users: Users) -> float:
    """CPU seconds: on a busy machine, far steadier than the time on the wall."""
    parameters, noise = _parameters(estimator), SystemNoise()
    begun = time.process_time_ns()
    estimator.estimate(users, parameters, noise)
    return (time.process_time_ns() - begun) / 1e9


def _peak(estimator: Estimator, users: Users) -> float:
    """Bytes a user that are held at once, without the users themselves."""
    parameters, noise = _parameters(estimator), SystemNoise()
    tracemalloc.start()
    try:
        estimator.estimate(users, parameters, noise)
        return tracemalloc.get_traced_memory()[1] / len(users.counts)
    finally:
        tracemalloc.stop()
