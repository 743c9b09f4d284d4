"""The cost of a day of releases for one user, and whether there is room for more of it.

[docs/specification/estimators.md, section 7; docs/specification/release.md, Reservations]

Charges are integers in 1e-9 epsilon. For one policy and day, e(cell, slot) is the sum of all charges of releases that
read this cell and slot. A user enters at most K HATs, so a user's day costs at most the sum of the K largest e. Two
policies may admit a user to different HATs, so the costs of several policies add up (docs/proofs.md, "Several
policies"). The ledger stores e as *levels*, e -> number of cells and slots, so that a charge takes O(levels) instead of
O(HATs).

A query over days reads every cell and slot, so it adds its charge q to each e: the sum of the K largest (e + q) is the
sum of the K largest e, plus K q, with e = 0 where nothing else was charged. K q is reserved on each of the query's days
before the first release of that day.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import mul

from hatcast.stream.policy.policy import Policy
from hatcast.stream.policy.query import CELL_SELECTION


def largest_charges(levels: Mapping[int, int], cap: int | None) -> dict[int, int]:
    """Return the `cap` largest e(cell, slot), as levels; all of them if `cap` is None.

    levels   e(cell, slot) in 1e-9 -> number of cells and slots with this e
    """
    largest, left = dict[int, int](), cap
    for level in sorted(levels, reverse=True):
        taken = levels[level] if left is None else min(left, levels[level])
        if taken > 0:
            largest[level] = taken
        left = None if left is None else left - taken
    return largest


def day_cost(levels: Mapping[int, int], cap: int | None) -> int:
    """Return the sum (1e-9) of the `cap` largest e(cell, slot); the sum of all if `cap` is None."""
    largest = largest_charges(levels, cap)
    return sum(map(mul, largest, largest.values()))


@dataclass(slots=True)
class Total:
    """Cost of all days of a domain, for a user who was present on each of them (privacy unit `user`)."""

    spent: int = 0  # 1e-9: sum of the days' costs
    # 1e-9: smallest `total_limit` of the policies that charged; None if none of them has a limit
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Reserved:
    """Reservation on one day of anything that is charged by date: `epsilon` (1e-9) for each of a user's `places`.

    Of a query over days, a tracker, running sums, a private list of cells, or a clustering.
    """

    places: int  # that a user may enter; 0 if the day's budget had no room: then nothing is drawn for it
    epsilon: int
    # the epsilon is spent already, so it is reserved even above the limits
    is_spent: bool = field(default=False, compare=False)
    # releases of a day that has no room for it are `budget_exhausted`, though they charge nothing else
    is_required: bool = field(default=False, compare=False)

    @property
    def amount(self) -> int:
        """Reserved cost of a user's day, in 1e-9."""
        return self.places * self.epsilon

    @property
    def stored(self) -> bytes:
        """Text of the reservation in a ledger."""
        return b"%dx%d" % (self.places, self.epsilon)


@dataclass(slots=True)
class PolicyDay:
    """Charges of one policy on one day."""

    cap: int | None  # K of the policy; None while the ledger does not know it: then every charge counts
    # `cell/slot` -> e(cell, slot), in 1e-9, of the places that are charged next; another has none yet
    costs: dict[str, int] = field(default_factory=dict)
    levels: dict[int, int] = field(default_factory=dict)  # e -> number of cells and slots with this e
    hats_cost: int = 0  # sum of the K largest e, in 1e-9
    queries: dict[str, Reserved] = field(default_factory=dict)  # query name -> its reservation

    @property
    def cost(self) -> int:
        """Cost of the day for one user, in 1e-9."""
        return self.hats_cost + sum(reserved.amount for reserved in self.queries.values())

    def levels_with(self, place: str, charge: int) -> dict[int, int]:
        """Return the levels with a charge (1e-9) added to `cell/slot`."""
        before, levels = self.costs.get(place, 0), self.levels.copy()
        levels[before + charge] = levels.get(before + charge, 0) + 1
        if before:
            levels[before] -= 1
            if not levels[before]:
                del levels[before]
        return levels


@dataclass(slots=True)
class DayLedger:
    """Charges of one day of a domain, by policy."""

    policies: dict[str, PolicyDay] = field(default_factory=dict)
    limit: int | None = None  # 1e-9: smallest `daily_limit` of the policies that charged; None if no policy has charged

    @property
    def cost(self) -> int:
        """Upper bound of a user's cost on this day, in 1e-9."""
        return sum(policy.cost for policy in self.policies.values())

    @property
    def levels(self) -> Counter[int]:
        """Largest charges of one user, as levels: of each policy the K largest of HATs, and those of its queries."""
        return sum((user_charges(p.levels, p.cap, p.queries.values()) for p in self.policies.values()), Counter[int]())

    def policy_levels(self, name: str) -> dict[int, int]:
        """Return the K largest charges of this policy's HATs, as levels."""
        policy = self.policies.get(name)
        return {} if policy is None else largest_charges(policy.levels, policy.cap)

    def charge_if_room(self, policy: Policy, place: str, charge: int, total: Total) -> bool:
        """Charge `cell/slot` (1e-9) if day and total stay within the limits; else change nothing and return False."""
        policy_day = self._policy_day(policy)
        levels = policy_day.levels_with(place, charge)
        hats = day_cost(levels, policy_day.cap)
        if not self._spend(policy, hats - policy_day.hats_cost, total):
            return False
        policy_day.levels, policy_day.hats_cost = levels, hats
        policy_day.costs[place] = policy_day.costs.get(place, 0) + charge
        self.policies[policy.name] = policy_day
        return True

    def reserve_if_room(self, policy: Policy, wanted: Mapping[str, Reserved], total: Total) -> list[str]:
        """Reserve the cost of each query without a reservation on this day; return their names.

        A query is reserved in full, or with 0 places if day or total leave no room for it. This is final.
        """
        policy_day = self._policy_day(policy)
        new = [name for name in wanted if name not in policy_day.queries]
        for name in new:
            self.policies[policy.name] = policy_day
            has_room = self._spend(policy, wanted[name].amount, total, is_spent=wanted[name].is_spent)
            policy_day.queries[name] = wanted[name] if has_room else Reserved(0, wanted[name].epsilon)
        return new

    def _policy_day(self, policy: Policy) -> PolicyDay:
        return self.policies.get(policy.name) or PolicyDay(policy.max_hats_per_day)

    def _spend(self, policy: Policy, amount: int, total: Total, *, is_spent: bool = False) -> bool:
        """Add the amount (1e-9) to the total if both limits allow it; if `is_spent`, whatever the limits."""
        if not is_spent and not self.has_room(policy, amount, total):
            return False
        self.limit = _smaller_limit(self.limit, policy.daily_limit_nano)
        total.spent, total.limit = total.spent + amount, _smaller_limit(total.limit, policy.total_limit_nano)
        return True

    def has_room(self, policy: Policy, amount: int, total: Total) -> bool:
        """Return whether day and total may grow by an amount (1e-9), under the policy's limits and the stored ones."""
        day_limit = _smaller_limit(self.limit, policy.daily_limit_nano)
        total_limit = _smaller_limit(total.limit, policy.total_limit_nano)
        if day_limit is not None and self.cost + amount > day_limit:
            return False
        return total_limit is None or total.spent + amount <= total_limit


def user_charges(levels: Mapping[int, int], cap: int | None, queries: Iterable[Reserved]) -> Counter[int]:
    """Return the largest charges of one user under a policy, as levels: K HATs, and all places of each query."""
    charges = Counter(largest_charges(levels, cap))
    for reserved in queries:
        charges[reserved.epsilon] += reserved.places
    return +charges


def _smaller_limit(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else min(one, other)


def reservations(policy: Policy, date: str) -> dict[str, Reserved]:
    """Return the reservations of a local date by name, in the order in which they are made before its first release.

    - each query over days whose period contains the date, under its own name
    - `CELL_SELECTION`: the private list of cells, if it was made from readings of this date. It was made before the
      policy, so this epsilon is spent already
    - last, what the policy's method needs: `TRACKER_QUERIES`, all queries of a tracker together, or `RUNNING_SUMS`, all
      running sums of the date's horizon. Without room for it the date's releases are `budget_exhausted`
    """
    by_name = {
        query.name: Reserved(policy.most_hats, query.epsilon_nano)
        for query in policy.queries
        if query.period_of(date) is not None
    }
    if policy.selection_cost is not None and policy.selection_cost.covers(date):
        by_name[CELL_SELECTION] = Reserved(1, policy.selection_cost.epsilon_nano, is_spent=True)
    return by_name | own_reservation(policy, date)


def own_reservation(policy: Policy, date: str | None = None) -> dict[str, Reserved]:
    """Return the reservation of the policy's method on a local date, by name. date: None for one with releases."""
    own = policy.method.reserved(policy.epsilon, date)
    return {} if own is None else {own.name: Reserved(own.places, own.epsilon_nano, is_required=True)}
