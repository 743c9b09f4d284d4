"""Queries over days: one answer about a cell and slot on D local dates, computed once all are over.    [T II.D]

One kind per file, listed in `KINDS`. They read contributions retained per (day, user) at the release of a HAT:
`RetainedDay`. See docs/specification/estimators.md, section 7.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import CELL_SELECTION, RUNNING_SUMS, TRACKER_QUERIES, Kind, Period, Query
from hatcast.stream.queries import mean_speed, over_speed_limit
from hatcast.stream.queries._interface import Answer, QueryKind, Reason, RetainedDay, answerer

__all__ = [
    "CELL_SELECTION",
    "KINDS",
    "RUNNING_SUMS",
    "TRACKER_QUERIES",
    "Answer",
    "Period",
    "Query",
    "QueryKind",
    "Reason",
    "RetainedDay",
    "answer_of",
    "is_queried",
]

KINDS: Final[Mapping[Kind, QueryKind]] = MappingProxyType(
    {Kind.MEAN_SPEED: mean_speed.KIND, Kind.OVER_SPEED_LIMIT: over_speed_limit.KIND}
)

answer_of = answerer(KINDS)


def is_queried(policy: Policy, date: str) -> bool:
    """Return whether a query will read the contributions of HATs of a local date."""
    return any(query.period_of(date) is not None for query in policy.queries)
