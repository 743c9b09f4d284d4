"""Queries over days: what is asked of one cell and slot on D local dates, answered once they are over.

One kind a file, in `KINDS`. What they read is kept per (day, user) when a HAT is released: `RetainedDay`.
[T III.B], [estimators.md, section 7]
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hatcast.stream.accounting.ledger import Reserved
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query_keys import CELL_SELECTION, Kind, Period, Query
from hatcast.stream.queries import mean_speed, over_speed_limit
from hatcast.stream.queries._interface import Answer, QueryKind, Reason, RetainedDay, answerer

__all__ = [
    "CELL_SELECTION",
    "KINDS",
    "Answer",
    "Period",
    "Query",
    "QueryKind",
    "Reason",
    "RetainedDay",
    "answer_of",
    "is_queried",
    "reservations",
]

KINDS: Final[Mapping[Kind, QueryKind]] = MappingProxyType(
    {Kind.MEAN_SPEED: mean_speed.KIND, Kind.OVER_SPEED_LIMIT: over_speed_limit.KIND}
)

answer_of = answerer(KINDS)


def reservations(policy: Policy, date: str) -> dict[str, Reserved]:
    """What the queries that read a local date cost a user there, by name.

    A private choice of cells is one of them, `CELL_SELECTION`: it has read the day before there was a policy.
    """
    asked = {
        query.name: Reserved(policy.most_hats, query.epsilon_nano)
        for query in policy.queries
        if query.period_of(date) is not None
    }
    if policy.selection_cost is not None and policy.selection_cost.covers(date):
        asked[CELL_SELECTION] = Reserved(1, policy.selection_cost.epsilon_nano, is_spent=True)
    return asked


def is_queried(policy: Policy, date: str) -> bool:
    """Whether a query will read what HATs of a local date had."""
    return any(query.period_of(date) is not None for query in policy.queries)
