"""Reservations of a policy's queries on a local date, made before anything of the date is released.

[docs/specification/release.md, Reservations]
"""

from hatcast.stream.ledger.day import Reserved
from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import CELL_SELECTION, RUNNING_SUMS, TRACKER_QUERIES
from hatcast.stream.units import nano_ceil


def reservations(policy: Policy, date: str) -> dict[str, Reserved]:
    """Return the reservations of the queries that read a local date, by query name.

    A private selection of cells counts as a query, `CELL_SELECTION`. It read the date before the policy existed, so its
    epsilon is spent already. All queries of a tracker count as one, `TRACKER_QUERIES`: it is reserved last, and without
    it none of them is made. Running sums reserve the cost of their whole horizon on each of its dates, `RUNNING_SUMS`:
    without it nothing is released.
    """
    by_name = {
        query.name: Reserved(policy.most_hats, query.epsilon_nano)
        for query in policy.queries
        if query.period_of(date) is not None
    }
    if policy.selection_cost is not None and policy.selection_cost.covers(date):
        by_name[CELL_SELECTION] = Reserved(1, policy.selection_cost.epsilon_nano, is_spent=True)
    if policy.tracker is not None:
        by_name[TRACKER_QUERIES] = Reserved(1, policy.tracker.daily_limit, is_required=True)
    if policy.continual is not None and policy.continual.horizon_of(date) is not None:
        by_name[RUNNING_SUMS] = horizon_cost(policy)
    return by_name


def horizon_cost(policy: Policy) -> Reserved:
    """Return what one horizon of running sums costs a user. Raises ValueError for a policy without horizons.

    Each of its `max_cells` cells has its own sum. Without room for all of them, nothing of the date is released.
    """
    if policy.continual is None:
        raise ValueError(f"{policy.name} has no horizons")
    return Reserved(policy.continual.max_cells, nano_ceil(policy.epsilon), is_required=True)
