"""Queries over days: what is asked of one cell and slot on D local dates, answered once they are over.

One kind a file, in `KINDS`. What they read is kept per (day, user) when a HAT is released: `RetainedDay`.
[T III.B], [estimators.md, section 7]
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hatcast.stream.accounting.ledger import Reserved
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query_keys import CELLS, Kind, Period, Query
from hatcast.stream.queries import mean_speed, over_speed_limit
from hatcast.stream.queries._interface import Answer, QueryKind, Reason, RetainedDay, answered

__all__ = [
    "CELLS",
    "KINDS",
    "Answer",
    "Period",
    "Query",
    "QueryKind",
    "Reason",
    "RetainedDay",
    "answer_of",
    "is_read",
    "reservations",
]

KINDS: Final[Mapping[Kind, QueryKind]] = MappingProxyType(
    {Kind.MEAN_SPEED: mean_speed.KIND, Kind.OVER_SPEED_LIMIT: over_speed_limit.KIND}
)

answer_of = answered(KINDS)


def reservations(policy: Policy, date: str) -> dict[str, Reserved]:
    """What the queries that read a local date cost a user there, by name.

    A private choice of cells is one of them, `CELLS`: it has read the day before there was a policy.
    """
    asked = {
        query.name: Reserved(policy.most_hats, query.epsilon_nano)
        for query in policy.queries
        if query.period_of(date) is not None
    }
    if policy.chosen is not None and policy.chosen.is_on(date):
        asked[CELLS] = Reserved(1, policy.chosen.epsilon_nano, is_spent=True)
    return asked


def is_read(policy: Policy, date: str) -> bool:
    """Whether a query will read what HATs of a local date had."""
    return any(query.period_of(date) is not None for query in policy.queries)
