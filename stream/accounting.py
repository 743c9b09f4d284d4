"""Ledger arithmetic: what a day of releases costs one user.    [estimators.md, section 7; design 4, Budget]

Charges are integers of 1e-9 epsilon. Under one policy, e(cell, slot) is the sum of all charges that read that cell and
slot of a day, and a user's day costs at most the sum of the K largest, because a user enters at most K HATs. Two
policies may let one user into different HATs, so a day costs at most the sum of what each of them costs
(docs/privacy.md, "Several policies"). The ledger keeps e as *levels* (how many cells and slots have which e), so that
one more charge costs O(levels), not O(HATs).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Final

from stream.policy import Policy
from stream.units import NANO

_INTERVAL: Final = 1e-3  # of the discretised losses: pessimistic, so the reported epsilon is never too small


def dearest(levels: Mapping[int, int], cap: int | None) -> Counter[int]:
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
    return sum(level * count for level, count in dearest(levels, cap).items())


@dataclass(slots=True)
class Total:
    """What all days of a domain cost a user that was there on each of them.    [unit `user`]

    spent   1e-9: the sum of the days' costs
    limit   1e-9: the least `total_limit` of the policies that charged; None: none of them has one
    """

    spent: int = 0
    limit: int | None = None


@dataclass(slots=True)
class PolicyDay:
    """One policy's charges of a day.

    cap      its K
    costs    `cell/slot` -> e(cell, slot) in 1e-9
    levels   e -> how many cells and slots have it
    """

    cap: int
    costs: dict[str, int] = field(default_factory=dict)
    levels: Counter[int] = field(default_factory=Counter)

    @property
    def cost(self) -> int:
        """1e-9: of the K largest."""
        return day_cost(self.levels, self.cap)

    def book(self, place: str, charge: int) -> None:
        """One more charge on a `cell/slot`."""
        before = self.costs.get(place, 0)
        self.costs[place] = before + charge
        self.levels[before + charge] += 1
        if before:
            self.levels[before] -= 1
            self.levels += Counter()  # drops what is 0

    def growth(self, place: str, charge: int) -> int:
        """How much more the day would cost with one more charge."""
        before = self.costs.get(place, 0)
        levels = self.levels + Counter({before + charge: 1}) - Counter({before: 1})
        return day_cost(levels, self.cap) - self.cost


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
        """The charges that one user may have met: of each policy the K largest."""
        return sum((dearest(policy.levels, policy.cap) for policy in self.policies.values()), Counter[int]())

    def charge(self, policy: Policy, place: str, charge: int, total: Total) -> bool:
        """Book a charge (1e-9) on `cell/slot` if day and total stay within the limits; False leaves all as it was."""
        own = self.policies.get(policy.name) or PolicyDay(policy.max_hats_per_day)
        grown = own.growth(place, charge)
        day_limit = _least(self.limit, policy.daily_limit_nano)
        total_limit = _least(total.limit, policy.total_limit_nano)
        if day_limit is not None and self.cost + grown > day_limit:
            return False
        if total_limit is not None and total.spent + grown > total_limit:
            return False
        own.book(place, charge)
        self.policies[policy.name] = own
        self.limit = day_limit
        total.spent, total.limit = total.spent + grown, total_limit
        return True


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
    levels            the charges that one user may have met: of each policy the K largest
    total             of the domain
    """

    releases: int
    epsilon_sum: int
    epsilon_user_day: int
    shared: bool
    limit: int | None
    sequence: int
    levels: Mapping[int, int]
    total: Total


def composed(levels: Mapping[int, int], delta: float) -> float:
    """The epsilon of (epsilon, delta) that these charges compose to, by privacy loss distributions.

    levels   charge in 1e-9 -> how often one user may have met it
    Every charge counts as a pure epsilon mechanism (randomised response dominates them all), so the figure holds
    whatever noise was drawn; it is never above the plain sum.
    """
    return _composed(tuple(sorted(levels.items(), reverse=True)), delta)


@lru_cache(maxsize=4096)
def _composed(charges: tuple[tuple[int, int], ...], delta: float) -> float:
    from dp_accounting.pld import common  # noqa: PLC0415 - takes two seconds, and most commands compose nothing
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415 - as above

    plain = sum(level * count for level, count in charges) / NANO
    if not charges or charges[0][0] > 20 * NANO or len(charges) > 16:
        return plain  # too weak, or too mixed, for the finer figure to be worth its cost
    total = None
    for level, count in charges:
        pure = common.DifferentialPrivacyParameters(level / NANO, 0.0)
        one = pld.from_privacy_parameters(pure, value_discretization_interval=_INTERVAL)
        many = one.self_compose(count) if count > 1 else one
        total = many if total is None else total.compose(many)
    finer = total.get_epsilon_for_delta(delta) if total is not None else plain
    return min(plain, float(finer))


def decimal(nano: int) -> Decimal:
    """A charge as the decimal that is published: 1e-9 without trailing zeros, at least one digit after the point."""
    value = (Decimal(nano) / NANO).normalize()
    exponent = value.as_tuple().exponent
    return value if isinstance(exponent, int) and exponent < 0 else value.quantize(Decimal("0.1"))
