"""The report's table of the cost of its two queries for one bus's day, next to that day's total cost.    [T III.E]

An exact calculation from public numbers: it reads no data and charges nothing. `hatcast.stream.ledger.day`
decides what hatcast charges.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """Inputs of the report's figures; the defaults are the report's own numbers.

    most_hats    K: most HATs that a bus entered on one day
    upper_bound  U, km/h
    user_days    N: daily unique buses, summed over the days, in each of the K HATs with the fewest. The report uses a
                 separate N for each and prints only the smallest and the total; 468 in each gives that total
    days         D, of both queries
    scale        B of the Laplace noise: km/h for query 1, buses a day for query 2
    epsilon      of the mean that hatcast releases for each HAT and day; the report releases none
    """

    most_hats: int = 89
    upper_bound: Fraction = Fraction(65)
    user_days: int = 468
    days: int = 31
    scale: Fraction = Fraction(1)
    epsilon: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Epsilon of one bus's day.

    hats                for the means of all its HATs
    query_1, query_2    for each query, over all its HATs
    """

    hats: Fraction
    query_1: Fraction
    query_2: Fraction

    @property
    def cumulative(self) -> Fraction:
        """Sum over both queries: the report's Cumulative-Epsilon-Per-Day."""
        return self.query_1 + self.query_2

    @property
    def total(self) -> Fraction:
        """Cost of all releases about the day."""
        return self.hats + self.cumulative


REPORT: Final = ReportSettings()
LEAST_USER_DAYS: Final = 314  # the smallest N of the report's HATs


def report_table(settings: ReportSettings = REPORT) -> ReportTable:
    """Return K times the cost of each release in one HAT: epsilon, U / (N B), 1 / (D B).

    With the report's numbers query 1 costs 12.361, query 2 costs 2.871, together 15.232, and with the means 104.232.
    """
    most_hats, scale = settings.most_hats, settings.scale
    return ReportTable(
        hats=most_hats * settings.epsilon,
        query_1=most_hats * settings.upper_bound / (settings.user_days * scale),
        query_2=most_hats / (settings.days * scale),
    )
