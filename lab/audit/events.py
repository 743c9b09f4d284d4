"""The event that best separates two neighbours: half of the samples choose it, the other half count it.

An event is {score >= t}. Scores are each published number, up and down (thresholds); for each number the log ratio of
the frequencies in its bin of a histogram; and the sum of these over all numbers, the likelihood ratio if they were
independent. A quarter of the samples makes the histograms, and the next quarter chooses score and t.

A sample is a row of a table: one column for each field of each record that is published.

**The bound** of epsilon, by the counts of the event.    [Clopper and Pearson 1934]
A coin decides for each sample which of two neighbours is released. Let p and q be the probabilities of an event under
the one and the other. Given that the event occurs, the sample is of the one with probability r = p / (p + q), and
samples are independent: of s samples with the event, the number of the one is binomial with s and r. Under epsilon-DP
p <= exp(epsilon) q, so epsilon >= ln(r / (1 - r)), and a lower bound of r gives one of epsilon. This is tighter than
two bounds, of p and of q.

Under (epsilon, delta)-DP p - delta <= exp(epsilon) q, so epsilon >= ln((p - delta) / q) = ln(r / (1 - r)) +
ln(1 - delta / p). So a lower bound of p is needed too. It matters little as long as delta is far below p, so it gets a
small part of the error.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

_OF_DELTA: Final = 0.1  # part of the error for the bound of p, if delta is above 0
Table = NDArray[np.float64]
"""[samples, columns]; texts are numbered in the order in which they are met, and a missing field is `MISSING`"""
MISSING: Final = -(2.0**70)  # no record has this number
_ALIKE: Final = 0.9  # correlation of ranks from which on two columns say the same, such as `raw` and `mean`
Floats = NDArray[np.float64]
Sides = NDArray[np.bool_]  # [samples]: whether a sample is of the first neighbour
Score = Callable[[Table], Floats]
_BINS: Final = 20
_THRESHOLDS: Final = 60


@dataclass(frozen=True, slots=True)
class EventCounts:
    """Samples of two neighbours, and how many of them are in an event."""

    # one, other: number of samples
    one: int
    other: int
    # one_inside, other_inside: of these, in the event
    one_inside: int
    other_inside: int


def lower_bound(successes: int, trials: int, error: float) -> float:
    """Return the Clopper-Pearson lower bound of a probability: above it with probability `error` at most."""
    return 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, error))


def epsilon_lower_bound(counts: EventCounts, delta: float, error: float) -> float:
    """Return a lower bound of epsilon at this delta, 0 or more. It is too high with probability `error` at most.

    counts   the event must not have been chosen by these samples; a fair coin must have chosen the sides
    delta    of the claim
    """
    inside = counts.one_inside + counts.other_inside
    of_delta = _OF_DELTA * error if delta else 0.0
    share = lower_bound(counts.one_inside, inside, error - of_delta) if inside else 0.0
    least = lower_bound(counts.one_inside, counts.one, of_delta) if delta else 1.0
    if not 0 < share < 1 or least <= delta:
        return 0.0
    return max(0.0, math.log(share / (1 - share)) + math.log1p(-delta / least))


def table_of(samples: Sequence[Sequence[bytes]]) -> Table:
    """Return the fields of the records of each sample; only columns that vary, none of two that say the same.

    The first half of the samples decides which these are, as it decides the event.
    """
    columns: dict[str, dict[int, float]] = {}
    texts: dict[Any, float] = {}
    for row, records in enumerate(samples):
        for number, record in enumerate(records):
            for name, value in _fields(f"{number}", msgspec.json.decode(record)):
                known = value if isinstance(value, float) else texts.setdefault(value, float(len(texts)))
                columns.setdefault(name, {})[row] = known
    found = [_column(column, len(samples)) for column in columns.values()]
    return _distinct(found, len(samples))


def _column(values: dict[int, float], rows: int) -> NDArray[np.float64]:
    column = np.full(rows, MISSING)
    column[np.fromiter(values.keys(), np.int64, len(values))] = np.fromiter(values.values(), np.float64, len(values))
    return column


def _fields(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (path, number or text) of each field of a decoded record. Of an interval, its width and its start."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _fields(f"{name}.{key}", inner)
    elif isinstance(value, list):
        if len(value) == 2 and all(isinstance(each, int | float) for each in value):
            yield f"{name}.width", float(value[1] - value[0])
        for at, inner in enumerate(value):
            yield from _fields(f"{name}.{at}", inner)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        yield name, value
    else:
        yield name, float(value)


def _distinct(columns: list[NDArray[np.float64]], rows: int) -> Table:
    """Drop each column that ranks the samples almost as another one does: it would count twice.

    Of two the one with more different numbers stays: `raw`, and not `mean`, which is clipped.
    """
    kept: list[NDArray[np.float64]] = []
    ranks: list[NDArray[np.float64]] = []
    ranked = [np.unique(column[: rows // 2], return_inverse=True)[1] for column in columns]
    for column, rank in sorted(zip(columns, ranked, strict=True), key=lambda each: -int(each[1].max())):
        if not rank.any():
            continue
        centred = rank - rank.mean()
        centred /= np.sqrt((centred**2).sum())
        if all(abs(float(centred @ each)) < _ALIKE for each in ranks):
            kept.append(column)
            ranks.append(centred)
    return np.column_stack(kept) if kept else np.empty((rows, 0))


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """{score >= least}. swapped: it is more probable under the second neighbour."""

    score: Score
    least: float
    swapped: bool

    def counts(self, table: Table, sides: Sides) -> EventCounts:
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


def _counts(inside: Sides, first: Sides) -> EventCounts:
    return EventCounts(int(first.sum()), int((~first).sum()), int((inside & first).sum()), int((inside & ~first).sum()))


def _scores(table: Table, sides: Sides) -> Iterator[Score]:
    ratios = [_ratio(column, table[:, column], sides) for column in range(table.shape[1])]
    for column, ratio in enumerate(ratios):
        yield _number(column, 1)
        yield _number(column, -1)
        yield ratio
    if len(ratios) > 1:
        yield lambda rows: np.sum([ratio(rows) for ratio in ratios], axis=0)


def _number(column: int, sign: int) -> Score:
    """Return a column, or its negative."""
    return lambda rows: sign * rows[:, column]


def _ratio(column: int, values: Floats, sides: Sides) -> Score:
    """Return the log ratio of the frequencies of the two sides in the bins of a column."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1], method="higher"))
    bins = np.searchsorted(edges, values, side="right")
    one, other = (np.bincount(bins[side], minlength=len(edges) + 1) + 1.0 for side in (sides, ~sides))
    ratios = np.log(one / one.sum()) - np.log(other / other.sum())
    return lambda rows: np.asarray(ratios[np.searchsorted(edges, rows[:, column], side="right")])
