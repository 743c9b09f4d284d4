"""Errors of published values against the mean of all readings, over the HATs of whole days."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from hatcast.lab.days import RecordedDay
from hatcast.lab.evaluate.simulation import Floats, Integers
from hatcast.stream.tracker.tracker import HatUsers

MANY_USERS: Final = 10
"""a HAT with so many users counts as a large one"""
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Scored HATs, in the order of release.

    means   float64 [H]  of all readings, in the policy's unit
    users   int64 [H]
    cells   int64 [H]  number of each HAT's cell
    """

    means: Floats
    users: Integers
    cells: Integers

    @classmethod
    def of(cls, days: Sequence[RecordedDay]) -> Self:
        """Return the truth of all HATs of these days."""
        hats = hats_of(days)
        _, cells = np.unique([hat.cell for hat in hats], return_inverse=True)
        return cls(
            np.array([hat.sums.sum() / hat.counts.sum() / _MILLI for hat in hats]),
            np.array([len(hat.counts) for hat in hats], np.int64),
            cells.astype(np.int64),
        )


@dataclass(frozen=True, slots=True, eq=False)
class PublishedRuns:
    """Values of each HAT as published, in several runs.

    means       float64 [R, H]  within [0, U], in the policy's unit
    low, high   float64 [R, H]  ends of 95 % intervals, within [0, U]; NaN where nothing was released
    """

    means: Floats
    low: Floats
    high: Floats

    @property
    def released(self) -> float:
        """Share of the HATs of which something was released."""
        return float(1 - np.isnan(self.low).mean())


@dataclass(frozen=True, slots=True)
class Score:
    """One column of a result: its mean over runs, and the standard error of that mean; None for one run."""

    value: float
    standard_error: float | None


Scores = dict[str, Score]
"""By column, as `scores_of` names them; only columns that have a value"""


def hats_of(days: Sequence[RecordedDay]) -> list[HatUsers]:
    """Return all HATs, in the order of release."""
    return [hat for day in days for slot in day.slots for hat in slot.hats]


def scores_of(published: PublishedRuns, truth: Truth) -> Scores:
    """Score published values.

    mae          mean absolute error, each HAT alike
    by_users     the same, each HAT weighted by its users
    ge10         the same, over HATs of `MANY_USERS` users or more
    coverage     share of the HATs with an interval whose interval has the mean of all readings
    half_width   mean half width of the intervals
    """
    columns = _errors(published.means, truth)
    has_interval = ~np.isnan(published.low)
    if has_interval.any(axis=1).all():
        inside = (published.low <= truth.means) & (truth.means <= published.high)
        half_widths = (published.high - published.low) / 2
        columns["coverage"] = np.mean(inside, axis=1, where=has_interval)
        columns["half_width"] = np.mean(half_widths, axis=1, where=has_interval)
    return {name: _score(runs) for name, runs in columns.items()}


def constant_scores(truth: Truth, upper_bound: float) -> dict[str, Scores]:
    """Score constants that cost nothing: U/2, and two that are known only afterwards.

    city   the mean of all scored HATs' means
    cell   for each cell, the mean of its HATs' means over all days
    """
    by_cell = np.bincount(truth.cells, truth.means) / np.bincount(truth.cells)
    constants = {
        "half_bound": np.full(len(truth.means), upper_bound / 2),
        "city": np.full(len(truth.means), truth.means.mean()),
        "cell": by_cell[truth.cells],
    }
    return {
        name: {column: _score(runs) for column, runs in _errors(values[None], truth).items()}
        for name, values in constants.items()
    }


def _errors(means: Floats, truth: Truth) -> dict[str, Floats]:
    """Return [R] errors by column."""
    errors = np.abs(means - truth.means)
    columns = {"mae": errors.mean(axis=1), "by_users": errors @ (truth.users / truth.users.sum())}
    large: NDArray[np.bool_] = truth.users >= MANY_USERS
    if large.any():
        columns["ge10"] = errors[:, large].mean(axis=1)
    return columns


def _score(runs: Floats) -> Score:
    spread = float(runs.std(ddof=1)) / len(runs) ** 0.5 if len(runs) > 1 else None
    return Score(float(runs.mean()), spread)
