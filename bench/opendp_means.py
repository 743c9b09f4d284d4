"""The obvious alternative to a tracker: OpenDP's noisy sum over a noisy count of each hexagon and hour. No services.

A day's readings are grouped by hexagon and hour. Each bus keeps K of its day's groups, drawn at random, with the mean
of its readings in each, so a bus-day moves K sums by at most U/2 (means are taken around U/2) and K counts by 1.
OpenDP's Laplace measurement of vectors adds the noise to all of a day's sums, and to its counts, and its map confirms
epsilon. Where there is a choice, it is made for OpenDP:

- a bus-day that is added or removed: to replace one, which the tracker's total is about, costs twice as much;
- K and the share of epsilon for the counts are those with the least error, known afterwards, for each total;
- which groups there are is public, and a mean is clipped to [0, U] and drawn to U/2 where the count is small;
- beside it, the counts are public and exact, as they are for the tracker, and all of epsilon is for the sums.
"""

from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple

import click
import numpy as np
import opendp.prelude as dp
from numpy.typing import NDArray

from bench.figures import middle, say, show
from tests.statistics.five_days import POLICY, days

_UPPER_BOUND: Final = POLICY.upper_bound / 1000
_CAPS: Final = (1, 2, 4, 10, 20, 40)
_SHARES: Final = {"noisy": (0.01, 0.03, 0.1), "public": (0.0,)}  # of epsilon, for the counts
_TRIED: Final = 2  # runs of each choice
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class _Day(NamedTuple):
    """One day: of each bus in each group its mean; of each group the mean of all readings, which is wanted.

    group, bus   int64 [N]
    mean         float64 [N], km/h
    wanted       float64 [G], km/h
    """

    group: Integers
    bus: Integers
    mean: Floats
    wanted: Floats


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One flat JSON object.")
@click.option("--totals", default="2,5,10", show_default=True, help="Epsilons of a bus and day.")
@click.option("--runs", default=16, show_default=True, type=click.IntRange(2, 1000), help="Sequences of noise.")
@click.option("--seed", default=0, show_default=True, help="Of the choice of groups; noise has no seed.")
def command(as_json: bool, totals: str, runs: int, seed: int) -> int:  # noqa: FBT001 - click's way
    """Measure the error of OpenDP's noisy sums over noisy counts on five days of Capital Metro."""
    dp.enable_features("contrib")
    random = np.random.default_rng(seed)
    recorded = list(_recorded())
    figures = []
    for total, (counts, shares) in product(map(float, totals.split(",")), _SHARES.items()):
        tried = {
            (cap, share): np.mean([_error(recorded, total, cap, share, random) for _ in range(_TRIED)])
            for cap, share in product(_CAPS, shares)
        }
        cap, share = min(tried, key=tried.__getitem__)
        say(f"total {total:g}, {counts} counts: K = {cap}, {share:.0%} of epsilon for the counts")
        errors = [_error(recorded, total, cap, share, random) for _ in range(runs)]
        figures += [middle(f"error_at_{total:g}_{counts}_counts", errors, "km/h")]
    return show("OpenDP: noisy sum over count", figures, as_json=as_json)


def _recorded() -> Iterator[_Day]:
    for day in days():
        hats = [hat for slot in day.slots for hat in slot.hats]
        buses = np.unique(np.concatenate([hat.pseudonyms for hat in hats]), return_inverse=True)[1]
        yield _Day(
            np.repeat(np.arange(len(hats)), [len(hat.counts) for hat in hats]),
            buses,
            np.concatenate([hat.sums / hat.counts / 1000 for hat in hats]),
            np.array([hat.sums.sum() / hat.counts.sum() / 1000 for hat in hats]),
        )


def _error(recorded: list[_Day], total: float, cap: int, share: float, random: np.random.Generator) -> float:
    """Return the mean absolute error over all groups of all days, km/h."""
    errors = [np.abs(_means(day, total, cap, share, random) - day.wanted) for day in recorded]
    return float(np.concatenate(errors).mean())


def _means(day: _Day, total: float, cap: int, share: float, random: np.random.Generator) -> Floats:
    """Return the private mean of each group, float64 [G]."""
    middle_of, groups = _UPPER_BOUND / 2, len(day.wanted)
    kept = _bounded(day.bus, cap, random)
    centred = np.clip(day.mean[kept], 0, _UPPER_BOUND) - middle_of
    sums = np.asarray(np.bincount(day.group[kept], centred, groups), np.float64)
    counts = np.bincount(day.group[kept], minlength=groups).astype(np.float64)
    noisy_sums = _released(sums, cap * middle_of, total * (1 - share))
    if share > 0:
        counts = _released(counts, float(cap), total * share)
    return np.asarray(np.clip(middle_of + noisy_sums / np.maximum(counts, 1), 0, _UPPER_BOUND))


def _bounded(bus: Integers, cap: int, random: np.random.Generator) -> Integers:
    """Return the positions of at most `cap` contributions of each bus, drawn at random."""
    order = np.lexsort((random.random(len(bus)), bus))
    starts = np.flatnonzero(np.diff(bus[order], prepend=-1))
    within = np.arange(len(bus)) - np.repeat(starts, np.diff(np.append(starts, len(bus))))
    return np.asarray(order[within < cap])


def _released(exact: Floats, sensitivity: float, epsilon: float) -> Floats:
    """Return the values with OpenDP's noise, for a bus-day that moves them by `sensitivity` in l1."""
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)
    measurement = dp.binary_search_chain(lambda scale: dp.m.make_laplace(*space, scale), sensitivity, epsilon)
    return np.array(measurement(exact.tolist()))
