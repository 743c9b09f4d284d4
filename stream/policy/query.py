"""Query of a policy, and the periods that it is answered for.    [docs/specification/estimators.md, section 7]

A query is answered once per period for every cell and slot. Periods have `days` days; the first begins at `from`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from fractions import Fraction
from types import MappingProxyType
from typing import Final

CELL_SELECTION: Final = "cells"  # name of the private selection of cells where queries are listed
TRACKER_QUERIES: Final = "tracker"  # name of what all queries of a tracker reserve together
RUNNING_SUMS: Final = "continual"  # name of what the running sums of a horizon reserve on each of its dates


class Kind(StrEnum):
    """Kind of a query.    [T II.D]"""

    MEAN_SPEED = "mean_speed"
    OVER_SPEED_LIMIT = "over_speed_limit"


KINDS_OF_VALUE: Final[Mapping[str, Kind]] = MappingProxyType(
    {"mean_value": Kind.MEAN_SPEED, "over_threshold": Kind.OVER_SPEED_LIMIT}
)
"""Names of the kinds in a policy of another value than the speed"""


class MissingDays(StrEnum):
    """Handling of days without data: suppress the answer, or leave these days out."""

    SUPPRESS = "suppress"
    LEAVE_OUT = "leave_out"


@dataclass(frozen=True, slots=True)
class Period:
    """Local dates of one answer, first and last included."""

    first: date
    days: int

    @property
    def last(self) -> date:
        """The last date: the query is answered after it, and its records are stored under it."""
        return self.first + timedelta(days=self.days - 1)

    @property
    def dates(self) -> list[str]:
        """The local dates in ascending order."""
        return [(self.first + timedelta(days=day)).isoformat() for day in range(self.days)]


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a policy."""

    name: str
    kind: Kind
    days: int  # D, length of a period
    first: date  # first date of the first period
    epsilon_nano: int  # charge of one answer on each of its days, in 1e-9, rounded up
    epsilon: float | None  # as configured; None if `scale` is configured
    # B, of the Laplace noise in milli-units (of a reading, or of vehicles); None if `epsilon` is configured
    scale: Fraction | None
    min_n: int  # `mean_speed` is suppressed below this number of user-days; 0 for the other kind
    # of `over_speed_limit`: milli-units above the value's lower bound; 0 for the other kind; None: not answered unless
    # one is requested
    speed_limit: int | None
    missing_days: MissingDays
    canonical: dict[str, str | int | float] = field(compare=False, repr=False)  # the part that is hashed into policy_id
    # an operator may request a speed limit for each period, once; `speed_limit` is used without a request
    on_request: bool = False
    kind_name: str = ""  # name of the kind in the policy and in records

    def period_of(self, day: str) -> Period | None:
        """Return the period that contains a local date; None before the first period."""
        past = (date.fromisoformat(day) - self.first).days
        if past < 0:
            return None
        return Period(self.first + timedelta(days=past - past % self.days), self.days)
