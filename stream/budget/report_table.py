"""The report's table of what its two queries cost one bus's day, beside what such a day costs in all.    [T III.E]

A named calculation, exact and of public numbers only: it reads no data and charges nothing. What hatcast itself charges
is decided by `hatcast.stream.accounting.ledger`.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """What the report's figures follow from; its own numbers unless others are given.

    most_hats    K: the most HATs that a bus was in on one day
    upper_bound  U, km/h
    user_days    N: unique buses a day, summed over the days, of each of the K HATs with the fewest. The report has an
                 N for each and prints only the least and what all come to; 468 in each of them comes to that
    days         D, of both queries
    scale        B of the Laplace noise: in km/h for query 1, in buses a day for query 2
    epsilon      of the mean that hatcast releases of each HAT and day; the report releases none
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

    hats                of the means of all its HATs
    query_1, query_2    of each query, in all its HATs
    """

    hats: Fraction
    query_1: Fraction
    query_2: Fraction

    @property
    def cumulative(self) -> Fraction:
        """What the report adds up: its Cumulative-Epsilon-Per-Day."""
        return self.query_1 + self.query_2

    @property
    def whole(self) -> Fraction:
        """What all that is released about the day costs."""
        return self.hats + self.cumulative


REPORT: Final = ReportSettings()
LEAST_USER_DAYS: Final = 314  # of all HATs of the report


def report_table(settings: ReportSettings = REPORT) -> ReportTable:
    """K times what each release costs in one HAT: epsilon, U / (N B), 1 / (D B).

    With the report's numbers query 1 costs 12.361, query 2 costs 2.871, together 15.232, and with the means 104.232.
    """
    most_hats, scale = settings.most_hats, settings.scale
    return ReportTable(
        hats=most_hats * settings.epsilon,
        query_1=most_hats * settings.upper_bound / (settings.user_days * scale),
        query_2=most_hats / (settings.days * scale),
    )
