"""What the survey tells of a resolution. Exact, and not private.    [T III.A]"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

Histogram = Mapping[int, int]
"""value -> how often"""


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution of whole numbers. A quantile is the least value that so many do not exceed."""

    mean: float
    median: int
    p95: int
    most: int


@dataclass(frozen=True, slots=True)
class Resolution:
    """What recordings come to at one H3 resolution. Not private. HATs without a reading are no part of it.

    cells, hats         with a reading
    edge_km, area_km2   averages of H3 over the world
    busy_cells          with more than the wanted mean of daily users in every slot
    users               users of each HAT
    readings            readings of each user in each HAT
    hats_per_user_day   HATs of each user on each day that it was seen
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

    def dropped(self) -> dict[int, float]:
        """What a cap K at the median, the 95 % quantile and the maximum of HATs per user-day would drop."""
        spread = spread_of(self.hats_per_user_day)
        return {cap: dropped(self.hats_per_user_day, cap) for cap in (spread.median, spread.p95, spread.most)}


def spread_of(histogram: Histogram) -> Spread:
    """Mean, median, 95 % quantile and maximum. Raises ValueError for an empty histogram."""
    return Spread(
        mean=sum(value * times for value, times in histogram.items()) / sum(histogram.values()),
        median=quantile(histogram, 50),
        p95=quantile(histogram, 95),
        most=max(histogram),
    )


def quantile(histogram: Histogram, percent: int) -> int:
    """The least value that at least `percent` % of all do not exceed. Raises ValueError for an empty histogram."""
    total, seen = sum(histogram.values()), 0
    for value in sorted(histogram):
        seen += histogram[value]
        if 100 * seen >= percent * total:
            return value
    raise ValueError("nothing was counted")


def dropped(hats_per_user_day: Histogram, cap: int) -> float:
    """The share of all (user, HAT) pairs that max_hats_per_day = `cap` would drop; 0 if there are none."""
    total = sum(value * times for value, times in hats_per_user_day.items())
    over = sum((value - cap) * times for value, times in hats_per_user_day.items() if value > cap)
    return over / total if total else 0.0


def added(one: Histogram, other: Histogram) -> Histogram:
    """Both together."""
    return Counter(one) + Counter(other)
