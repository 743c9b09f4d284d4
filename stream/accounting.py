"""Ledger arithmetic: what a day of releases costs one user.    [estimators.md, section 7; design 4, Budget]

Charges are integers of 1e-9 epsilon. e(cell, slot) is the sum of all charges that read that cell and slot of a day;
a user's day costs at most the sum of the K largest of them, because a user enters at most K HATs. The ledger keeps
them as *levels* (how many cells and slots have which e), so that one more charge costs O(levels), not O(HATs).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Final

from stream.units import NANO

_INTERVAL: Final = 1e-3  # of the discretised losses: pessimistic, so the reported epsilon is never too small


def day_cost(levels: Mapping[int, int], cap: int) -> int:
    """The sum of the `cap` largest e(cell, slot), in 1e-9.

    levels   e(cell, slot) in 1e-9 -> how many cells and slots have it
    """
    cost, left = 0, cap
    for level in sorted(levels, reverse=True):
        taken = min(left, levels[level])
        cost += taken * level
        left -= taken
        if left == 0:
            break
    return cost


@dataclass(slots=True)
class DayLedger:
    """One day's charges of a domain, all its policies together.

    costs    `cell/slot` -> e(cell, slot) in 1e-9
    levels   e -> how many cells and slots have it
    """

    costs: dict[str, int] = field(default_factory=dict)
    levels: Counter[int] = field(default_factory=Counter)

    def charge(self, place: str, charge: int, cap: int, limit: int) -> bool:
        """Book a charge (1e-9) on `cell/slot` if the day's cost stays within `limit`; False leaves all as it was."""
        before = self.costs.get(place, 0)
        after = before + charge
        levels = self.levels.copy()
        if before:
            levels[before] -= 1
        levels[after] += 1
        if day_cost(levels, cap) > limit:
            return False
        self.costs[place] = after
        self.levels = +levels
        return True


@dataclass(frozen=True, slots=True)
class DaySummary:
    """What `hats.budget` tells of a day and a policy.

    releases          HATs released
    epsilon_sum       1e-9: the sum of the charges
    epsilon_user_day  1e-9: the most that one user's day has cost so far, over all policies of the domain
    sequence          number of changes of the day's ledger
    levels            as in `day_cost`
    """

    releases: int
    epsilon_sum: int
    epsilon_user_day: int
    sequence: int
    levels: Mapping[int, int]


def composed(levels: Mapping[int, int], cap: int, delta: float) -> float:
    """The epsilon of (epsilon, delta) that the `cap` largest charges compose to, by privacy loss distributions.

    Every charge counts as a pure epsilon mechanism (randomised response dominates them all), so the figure holds
    whatever noise was drawn; it is never above the plain sum.
    """
    largest: list[tuple[int, int]] = []
    left = cap
    for level in sorted(levels, reverse=True):
        taken = min(left, levels[level])
        if taken:
            largest.append((level, taken))
        left -= taken
    return _composed(tuple(largest), delta)


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
