"""Survey statistics of one H3 resolution. Exact, not private.    [T III.A, III.B]"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

Histogram = Mapping[int, int]  # value -> number of occurrences


@dataclass(frozen=True, slots=True)
class IntegerSummary:
    """Summary of a distribution of integers. A quantile is the smallest value that this share does not exceed."""

    mean: float
    deviation: float  # standard deviation of the sample (divided by n - 1), as in the report; 0 for a single number
    minimum: int
    p25: int
    median: int
    p75: int
    p95: int
    maximum: int


@dataclass(frozen=True, slots=True)
class SlotFigures:
    """Numbers of one slot over all dates: its HATs with a reading, their users and their readings.    [T III.B]"""

    hats: int = 0
    users: int = 0
    readings: int = 0

    def plus(self, other: "SlotFigures") -> "SlotFigures":
        """Return the sum of both."""
        return SlotFigures(self.hats + other.hats, self.users + other.users, self.readings + other.readings)


@dataclass(frozen=True, slots=True)
class Resolution:
    """Statistics of recordings at one H3 resolution. Not private. HATs without a reading do not count."""

    resolution: int
    # cells, hats: number with at least one reading; a HAT is a cell, a slot and a date
    cells: int
    cell_slots: int  # number of pairs of a cell and a slot with a reading on any date: the HATs of the report
    hats: int
    # edge_km, area_km2: H3's world averages
    edge_km: float
    area_km2: float
    busy_cells: int  # number of cells whose mean of daily users is above the threshold in every slot
    users: Histogram  # histogram of users per HAT
    hat_readings: Histogram  # histogram of readings per HAT
    readings: Histogram  # histogram of readings per user and HAT
    hats_per_user_day: Histogram  # histogram of HATs per user and day with a reading
    at_bound: int  # number of users and HATs whose readings are all at the upper bound
    by_slot: Mapping[int, SlotFigures]  # figures of each slot, by its minutes since midnight

    @property
    def bound_share(self) -> float:
        """Share of users' means, one a HAT, that are at the upper bound."""
        means = sum(self.readings.values())
        return self.at_bound / means if means else 0.0

    @property
    def busy_share(self) -> float:
        """Share of busy cells among the cells with a reading."""
        return self.busy_cells / self.cells


def summarize(histogram: Histogram) -> IntegerSummary:
    """Return the summary. Raises ValueError for an empty histogram."""
    minimum, number = quantile(histogram, 0), sum(histogram.values())
    total = sum(value * times for value, times in histogram.items())
    squares = sum(value * value * times for value, times in histogram.items())
    # In integers: n times the sum of squared deviations, which floats of large sums would lose.
    scatter = number * squares - total * total
    return IntegerSummary(
        mean=total / number,
        deviation=math.sqrt(scatter / (number * (number - 1))) if number > 1 else 0.0,
        minimum=minimum,
        p25=quantile(histogram, 25),
        median=quantile(histogram, 50),
        p75=quantile(histogram, 75),
        p95=quantile(histogram, 95),
        maximum=max(histogram),
    )


def quantile(histogram: Histogram, percent: int) -> int:
    """Return the smallest value that `percent` % do not exceed. Raises ValueError for an empty histogram."""
    total, seen = sum(histogram.values()), 0
    for value in sorted(histogram):
        seen += histogram[value]
        if 100 * seen >= percent * total:
            return value
    raise ValueError("the histogram is empty")


def dropped_share(hats_per_user_day: Histogram, cap: int) -> float:
    """Return the share of all (user, HAT) pairs that max_hats_per_day = `cap` would drop; 0 without pairs."""
    total = sum(value * times for value, times in hats_per_user_day.items())
    over = sum((value - cap) * times for value, times in hats_per_user_day.items() if value > cap)
    return over / total if total else 0.0
