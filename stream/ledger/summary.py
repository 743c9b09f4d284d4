"""A day of the ledger as one policy sees it: what `hats.budget` publishes, and whether more releases have room."""

from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from hatcast.stream.ledger import rows
from hatcast.stream.ledger.book import parse_day, whole_total
from hatcast.stream.ledger.day import DayLedger, PolicyDay, Reserved, Total, day_cost, largest_charges, user_charges
from hatcast.stream.ledger.view import View, Wanted, number_of
from hatcast.stream.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class DaySummary:
    """Summary of a policy's day, as published in `hats.budget`."""

    releases: int  # number of HATs released
    epsilon_sum: int  # 1e-9: sum of the charges
    epsilon_user_day: int  # 1e-9: upper bound of a user's cost on this day so far, over all policies of the domain
    shared: bool  # whether another policy of the domain has charged this day too
    limit: int | None  # 1e-9: smallest daily limit of the policies that charged; None if nothing was charged
    sequence: int  # number of changes of the day's ledger
    # largest charges of one user: of each policy the K largest of HATs, and those of its queries
    levels: Mapping[int, int]
    total: Total  # total of the domain
    policy_levels: Mapping[int, int] = field(default_factory=dict)  # K largest charges of this policy's HATs, as levels
    # `mechanisms.grid.fineness` -> number of this policy's charges whose noise had that fineness
    fineness: Mapping[int, int] = field(default_factory=dict)
    queries: Mapping[str, Reserved] = field(default_factory=dict)  # name of a query of this policy -> its reservation

    @property
    def least_fineness(self) -> int | None:
        """Smallest fineness of this policy's HATs; None unless all charges are equal and on different places.

        If the mean charge equals the largest level, all charges equal it. None also where
        the fineness of some is not known.
        """
        largest = max(self.policy_levels, default=0)
        if self.epsilon_sum != self.releases * largest or sum(self.fineness.values()) != self.releases:
            return None
        return min(self.fineness, default=None)


def fits(summary: DaySummary, policy: Policy, releases: int, wanted: Mapping[str, Reserved]) -> bool:
    """Return whether this many more releases, each of a different HAT, keep day and total within the limits.

    They are charged to a copy of the day, after the queries that its first commit reserves.
    wanted   queries that read the day
    """
    levels, queries = dict(summary.policy_levels), dict(summary.queries)
    ours = PolicyDay(policy.max_hats_per_day, {}, levels, day_cost(levels, policy.max_hats_per_day), queries)
    others = PolicyDay(0, hats_cost=summary.epsilon_user_day - ours.cost)
    day, total = DayLedger({policy.name: ours, "": others}, summary.limit), deepcopy(summary.total)
    day.reserve_if_room(policy, wanted, total)
    return all(day.charge_if_room(policy, f"new {number}", policy.epsilon_nano, total) for number in range(releases))


def summary_rows(date: str, name: str) -> Wanted:
    """Return what `summary_of` reads, but for the levels of other policies, which it asks for by Unread."""
    return {rows.ledger(date): None, rows.levels(date, name): None, rows.TOTAL: None}


def charging(view: View, date: str) -> list[str]:
    """Return the policies that a date has charges of, whose levels `summary_of` reads. Raises Unread."""
    return sorted(field.partition(":")[2] for field in view.whole(rows.ledger(date)) if field.startswith("cost:"))


def summary_of(view: View, policy: Policy, date: str) -> DaySummary:
    """Return a day of the ledger, as published on `hats.budget`. Raises DamagedRow, Unread."""
    key, name = rows.ledger(date), policy.name
    fields = view.whole(key)
    day, numbers = parse_day(fields, name, date, view)
    levels = Counter[int]()
    for other in [each for each in day.policies if each != name]:
        theirs, of_theirs = parse_day(fields, other, date, view)
        if other in theirs.policies:
            charged = theirs.policies[other]
            levels += user_charges(charged.levels, of_theirs.get(f"cap:{other}"), charged.queries.values())
    ours = day.policies.get(name, PolicyDay(None))
    levels += user_charges(ours.levels, ours.cap, ours.queries.values())
    cost = number_of(key, fields.get(f"cost:{name}", b"0"))
    fineness = f"fineness:{name}:"
    return DaySummary(
        releases=numbers.get(f"releases:{name}", 0),
        epsilon_sum=numbers.get(f"epsilon:{name}", 0),
        epsilon_user_day=cost + sum(each.cost for other, each in day.policies.items() if other != name),
        shared=any(each.cost for other, each in day.policies.items() if other != name),
        limit=day.limit,
        sequence=numbers.get("sequence", 0),
        levels=levels,
        total=whole_total(view),
        policy_levels=largest_charges(ours.levels, ours.cap),
        fineness={
            number_of(key, row.removeprefix(fineness).encode()): n
            for row, n in numbers.items()
            if row.startswith(fineness) and n
        },
        queries=dict(ours.queries),
    )
