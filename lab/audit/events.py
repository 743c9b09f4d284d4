"""The event that best separates two neighbours: half of the samples choose it, the other half count it.

An event is {score >= t}. Scores are each published number, up and down (thresholds); for each number the log ratio of
the frequencies in its bin of a histogram; and the sum of these over all numbers, the likelihood ratio if they were
independent. A quarter of the samples makes the histograms, and the next quarter chooses score and t.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.lab.audit.bounds import Counts, epsilon_lower_bound
from hatcast.lab.audit.features import Table

Floats = NDArray[np.float64]
Sides = NDArray[np.bool_]
"""[samples]: whether a sample is of the first neighbour"""
Score = Callable[[Table], Floats]
_BINS: Final = 20
_THRESHOLDS: Final = 60


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """{score >= least}. swapped: it is more probable under the second neighbour."""

    score: Score
    least: float
    swapped: bool

    def counts(self, table: Table, sides: Sides) -> Counts:
        """Count the samples in the event, first the neighbour under which it is more probable."""
        return _counts(self.score(table) >= self.least, sides ^ self.swapped)


def bound_of(table: Table, sides: Sides, delta: float, error: float) -> float:
    """Return a lower bound of epsilon. It is above the true epsilon with probability `error` at most.

    table   [samples, columns], in the order of drawing; its columns may follow from all samples, not from the sides
    """
    half = len(table) // 2
    event = _chosen(table[:half], sides[:half], delta, error)
    return 0.0 if event is None else epsilon_lower_bound(event.counts(table[half:], sides[half:]), delta, error)


def _chosen(table: Table, sides: Sides, delta: float, error: float) -> Event | None:
    """Return the event for which the largest bound is to be expected; None if nothing that is published varies."""
    quarter = len(table) // 2
    rest, rest_sides = table[quarter:], sides[quarter:]
    best, found = -1.0, None
    for score in _scores(table[:quarter], sides[:quarter]):
        values = score(rest)
        ends = np.sort(values)[np.linspace(0, len(values) - 1, _THRESHOLDS).astype(np.int64)]
        for least in np.unique(ends).tolist():
            for swapped in (False, True):
                bound = epsilon_lower_bound(_counts(values >= least, rest_sides ^ swapped), delta, error)
                if bound > best:
                    best, found = bound, Event(score, least, swapped)
    return found


def _counts(inside: Sides, first: Sides) -> Counts:
    return Counts(int(first.sum()), int((~first).sum()), int((inside & first).sum()), int((inside & ~first).sum()))


def _scores(table: Table, sides: Sides) -> Iterator[Score]:
    ratios = [_Ratio.of(column, table[:, column], sides) for column in range(table.shape[1])]
    for column, ratio in enumerate(ratios):
        yield _Number(column, 1)
        yield _Number(column, -1)
        yield ratio
    if len(ratios) > 1:
        yield lambda rows: np.sum([ratio(rows) for ratio in ratios], axis=0)


@dataclass(frozen=True, slots=True)
class _Number:
    """A column, or its negative."""

    column: int
    sign: int

    def __call__(self, rows: Table) -> Floats:
        return self.sign * rows[:, self.column]


@dataclass(frozen=True, slots=True, eq=False)
class _Ratio:
    """Log ratio of the frequencies of the two sides in the bins of a column. edges: first number of each bin but one"""

    column: int
    edges: Floats
    ratios: Floats

    @classmethod
    def of(cls, column: int, values: Floats, sides: Sides) -> "_Ratio":
        edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1], method="higher"))
        bins = np.searchsorted(edges, values, side="right")
        one, other = (np.bincount(bins[side], minlength=len(edges) + 1) + 1.0 for side in (sides, ~sides))
        return cls(column, edges, np.log(one / one.sum()) - np.log(other / other.sum()))

    def __call__(self, rows: Table) -> Floats:
        found: Floats = self.ratios[np.searchsorted(self.edges, rows[:, self.column], side="right")]
        return found
