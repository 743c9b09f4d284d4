"""Ledger arithmetic: what a day of releases costs one user.    [estimators.md, section 7; design 4, Budget]

Charges are integers of 1e-9 epsilon. Under one policy, e(cell, slot) is the sum of all charges that read that cell and
slot of a day, and a user's day costs at most the sum of the K largest, because a user enters at most K HATs. Two
policies may let one user into different HATs, so a day costs at most the sum of what each of them costs
(docs/privacy.md, "Several policies"). The ledger keeps e as *levels* (how many cells and slots have which e), so that
one more charge costs O(levels), not O(HATs).

A query over days reads every cell and slot alike, so it adds the same to each e, and to a day's cost as many times that
as a user can enter HATs. This is reserved on each of its days before the day's first release: sum of the K largest of
(e + q) = sum of the K largest e + K q, with e = 0 where nothing else was charged.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from hatcast.stream.policy.policy import Policy
from hatcast.stream.units import NANO


def largest_charges(levels: Mapping[int, int], cap: int | None) -> Counter[int]:
    """The `cap` largest e(cell, slot), as levels; None: all of them.

    levels   e(cell, slot) in 1e-9 -> how many cells and slots have it
    """
    found: Counter[int] = Counter()
    left = cap
    for level in sorted(levels, reverse=True):
        taken = levels[level] if left is None else min(left, levels[level])
        if taken > 0:
            found[level] = taken
        left = None if left is None else left - taken
    return found


def day_cost(levels: Mapping[int, int], cap: int | None) -> int:
    """The sum of the `cap` largest e(cell, slot), in 1e-9; None: of all."""
    cost, left = 0, sum(levels.values()) if cap is None else cap
    for level in sorted(levels, reverse=True):
        taken = min(left, levels[level])
        cost += taken * level
        left -= taken
    return cost


@dataclass(slots=True)
class Total:
    """What all days of a domain cost a user that was there on each of them.    [unit `user`]

    spent   1e-9: the sum of the days' costs
    limit   1e-9: the least `total_limit` of the policies that charged; None: none of them has one
    """

    spent: int = 0
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a query over days costs a user's day: `epsilon` (1e-9) in each of the `places` that it can have entered.

    places is 0 where the day had no room for it: then the query is not answered. What is spent already needs no room.
    """

    places: int
    epsilon: int
    is_spent: bool = field(default=False, compare=False)

    @property
    def amount(self) -> int:
        """1e-9."""
        return self.places * self.epsilon


@dataclass(slots=True)
class PolicyDay:
    """One policy's charges of a day.

    cap      its K
    costs    `cell/slot` -> e(cell, slot) in 1e-9, of HATs
    levels   e -> how many cells and slots have it
    hats     1e-9: of the K largest
    queries  by name
    """

    cap: int
    costs: dict[str, int] = field(default_factory=dict)
    levels: dict[int, int] = field(default_factory=dict)
    hats: int = 0
    queries: dict[str, Reserved] = field(default_factory=dict)

    @property
    def cost(self) -> int:
        """1e-9: what the day costs a user."""
        return self.hats + sum(reserved.amount for reserved in self.queries.values())

    def add_charge(self, place: str, charge: int) -> None:
        """One more charge on a `cell/slot`."""
        self.levels = self._levels_with(place, charge)
        self.costs[place] = self.costs.get(place, 0) + charge
        self.hats = day_cost(self.levels, self.cap)

    def cost_increase(self, place: str, charge: int) -> int:
        """How much more the day would cost with one more charge."""
        return day_cost(self._levels_with(place, charge), self.cap) - self.hats

    def _levels_with(self, place: str, charge: int) -> dict[int, int]:
        """The levels after one more charge."""
        before, levels = self.costs.get(place, 0), self.levels.copy()
        levels[before + charge] = levels.get(before + charge, 0) + 1
        if before:
            levels[before] -= 1
            if not levels[before]:
                del levels[before]
        return levels


@dataclass(slots=True)
class DayLedger:
    """One day's charges of a domain, by policy.

    limit   1e-9: the least `daily_limit` of the policies that charged; None: none has
    """

    policies: dict[str, PolicyDay] = field(default_factory=dict)
    limit: int | None = None

    @property
    def cost(self) -> int:
        """The most that a user's day costs, in 1e-9."""
        return sum(policy.cost for policy in self.policies.values())

    @property
    def levels(self) -> Counter[int]:
        """The charges that one user may have met: of each policy the K largest, and its queries'."""
        return sum((user_charges(p.levels, p.cap, p.queries.values()) for p in self.policies.values()), Counter[int]())

    def policy_levels(self, name: str) -> Counter[int]:
        """Those of them that are of this policy's HATs."""
        policy = self.policies.get(name)
        return Counter() if policy is None else largest_charges(policy.levels, policy.cap)

    def charge(self, policy: Policy, place: str, charge: int, total: Total) -> bool:
        """Book a charge (1e-9) on `cell/slot` if day and total stay within the limits; False leaves all as it was."""
        own = self._policy_day(policy)
        if not self._spend(policy, own.cost_increase(place, charge), total):
            return False
        own.add_charge(place, charge)
        self.policies[policy.name] = own
        return True

    def reserve(self, policy: Policy, wanted: Mapping[str, Reserved], total: Total) -> list[str]:
        """Settle what was not settled yet of the queries that read this day; returns their names.

        Each is reserved in full, or not at all where day or total leave no room for it: for good.
        """
        own = self._policy_day(policy)
        new = [name for name in wanted if name not in own.queries]
        for name in new:
            self.policies[policy.name] = own
            fits = self._spend(policy, wanted[name].amount, total, must=wanted[name].is_spent)
            own.queries[name] = wanted[name] if fits else Reserved(0, wanted[name].epsilon)
        return new

    def _policy_day(self, policy: Policy) -> PolicyDay:
        return self.policies.get(policy.name) or PolicyDay(policy.max_hats_per_day)

    def _spend(self, policy: Policy, grown: int, total: Total, *, must: bool = False) -> bool:
        """Raise the total by what the day is going to cost more, if the limits allow it, or it must be."""
        day_limit = _least(self.limit, policy.daily_limit_nano)
        total_limit = _least(total.limit, policy.total_limit_nano)
        if not must and day_limit is not None and self.cost + grown > day_limit:
            return False
        if not must and total_limit is not None and total.spent + grown > total_limit:
            return False
        self.limit = day_limit
        total.spent, total.limit = total.spent + grown, total_limit
        return True


def user_charges(levels: Mapping[int, int], cap: int | None, queries: Iterable[Reserved]) -> Counter[int]:
    """What one user may have met of a policy: the K largest charges of HATs, and each query's in all its places."""
    met = largest_charges(levels, cap)
    for reserved in queries:
        met[reserved.epsilon] += reserved.places
    return +met


def _least(one: int | None, other: int | None) -> int | None:
    return min((limit for limit in (one, other) if limit is not None), default=None)


@dataclass(frozen=True, slots=True)
class DaySummary:
    """What `hats.budget` tells of a day and a policy.

    releases          HATs released
    epsilon_sum       1e-9: the sum of the charges
    epsilon_user_day  1e-9: the most that one user's day has cost so far, over all policies of the domain
    shared            another policy of the domain has charged this day too
    limit             1e-9: the least of the charging policies' daily limits; None: nothing was charged
    sequence          number of changes of the day's ledger
    levels            the charges that one user may have met: of each policy the K largest, and its queries'
    total             of the domain
    own               those levels that are of this policy's HATs
    fineness          `mechanisms.grid.fineness` -> how many of this policy's charges had noise of that fineness
    queries           of this policy, by name: what is reserved for them
    """

    releases: int
    epsilon_sum: int
    epsilon_user_day: int
    shared: bool
    limit: int | None
    sequence: int
    levels: Mapping[int, int]
    total: Total
    policy_levels: Mapping[int, int] = field(default_factory=dict)
    fineness: Mapping[int, int] = field(default_factory=dict)
    queries: Mapping[str, Reserved] = field(default_factory=dict)

    @property
    def least_fineness(self) -> int | None:
        """Of all charges of this policy's HATs, if they are equal and each is on a place of its own; None otherwise.

        If the charges' mean is the largest level, all of them are that level. Where some were booked by a version that
        did not keep fineness, it is not known of each.
        """
        largest = max(self.policy_levels, default=0)
        if self.epsilon_sum != self.releases * largest or sum(self.fineness.values()) != self.releases:
            return None
        return min(self.fineness, default=None)


def fits(summary: DaySummary, policy: Policy, releases: int, wanted: Mapping[str, Reserved]) -> bool:
    """Whether so many more releases of a policy, each of a HAT of its own, keep the day and the total within limits.

    wanted   the queries that read the day: what is not settled of them comes first, as at a commit
    """
    levels = Counter(summary.policy_levels)
    levels[policy.epsilon_nano] += releases
    grown = day_cost(levels, policy.max_hats_per_day) - day_cost(summary.policy_levels, policy.max_hats_per_day)
    day = DayLedger({"": PolicyDay(0, hats=summary.epsilon_user_day, queries={})}, summary.limit)
    total = Total(summary.total.spent, summary.total.limit)
    day.reserve(policy, {name: one for name, one in wanted.items() if name not in summary.queries}, total)
    day_limit = _least(day.limit, policy.daily_limit_nano)
    total_limit = _least(total.limit, policy.total_limit_nano)
    if day_limit is not None and day.cost + grown > day_limit:
        return False
    return total_limit is None or total.spent + grown <= total_limit


def decimal(nano: int) -> Decimal:
    """A charge as the decimal that is published: 1e-9 without trailing zeros, at least one digit after the point."""
    value = (Decimal(nano) / NANO).normalize()
    exponent = value.as_tuple().exponent
    return value if isinstance(exponent, int) and exponent < 0 else value.quantize(Decimal("0.1"))
