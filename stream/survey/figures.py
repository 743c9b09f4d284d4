"""Survey statistics of one H3 resolution. Exact, not private.    [T III.A]"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

Histogram = Mapping[int, int]
"""value -> number of occurrences"""


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of a distribution of integers. A quantile is the smallest value that this share does not exceed."""

    mean: float
    median: int
    p95: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """Statistics of recordings at one H3 resolution. Not private. HATs without a reading do not count.

    cells, hats         number with at least one reading
    edge_km, area_km2   H3's world averages
    busy_cells          number of cells whose mean of daily users is above the threshold in every slot
    users               histogram of users per HAT
    readings            histogram of readings per user and HAT
    hats_per_user_day   histogram of HATs per user and day with a reading
    """

    resolution: int
    cells: int
    hats: int
    edge_km: float
    area_km2: float
    busy_cells: int
    users: Histogram
    readings: Histogram
    hats_per_user_day: Histogram

    def dropped_shares(self) -> dict[int, float]:
        """Return the share that K at the median, 95 % quantile and maximum of HATs per user-day would drop, by K."""
        summary = summarize(self.hats_per_user_day)
        caps = (summary.median, summary.p95, summary.maximum)
        return {cap: dropped_share(self.hats_per_user_day, cap) for cap in caps}


def summarize(histogram: Histogram) -> Summary:
    """Return mean, median, 95 % quantile and maximum. Raises ValueError for an empty histogram."""
    return Summary(
        mean=sum(value * times for value, times in histogram.items()) / sum(histogram.values()),
        median=quantile(histogram, 50),
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


def merge(one: Histogram, other: Histogram) -> Histogram:
    """Return the sum of two histograms."""
    return Counter(one) + Counter(other)
