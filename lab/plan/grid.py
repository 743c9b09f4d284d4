"""Search for a tracker's keys, for several totals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hatcast.lab.plan.counts import Counts
from hatcast.lab.plan.forecast import Expected, Forecast, constant_errors
from hatcast.lab.processes import in_processes
from hatcast.stream.policy.tracker_keys import Objective, TrackerKeys, default_price, rounded_price
from hatcast.stream.units import nano_floor

TOTALS: Final = (2.0, 5.0, 10.0, 20.0, 40.0)
HORIZONS: Final = (7, 30)
"""days after which errors are forecast, besides the first ones"""
WORTH: Final = 0.9
"""an error above this part of the constant's is not worth having"""
_SHARES: Final = (0.1, 0.3, 0.6)
_FACTORS: Final = (0.5, 2.0)  # of the default price
_GRID_DAYS: Final = 4  # the keys with the least error on this day are the best: on the first one nothing is known yet
_DESIGNED: Final = frozenset({1, 2, 6})


@dataclass(frozen=True, slots=True)
class Plan:
    """The best keys found for one total, and their expected errors.

    first   means over the given days, which are the first ones of the policy
    after   by number of days: on that day
    """

    total: float
    keys: TrackerKeys
    first: Expected
    after: dict[int, Expected]

    @property
    def stages(self) -> dict[str, Expected]:
        """The errors of the first days (`first`) and of later ones (`7`, `30`), by name."""
        return {"first": self.first, **{f"{day}": expected for day, expected in self.after.items()}}


@dataclass(frozen=True, slots=True)
class Plans:
    """Plans by total, and the expected errors of two constants: U/2, and the city's mean, if it were known."""

    plans: list[Plan]
    half_bound: float
    city: float

    @property
    def constant(self) -> float:
        """The error of the better constant."""
        return min(self.half_bound, self.city)

    def is_worth_having(self, error: float) -> bool:
        """Return whether an error is at least 10 % below the constant's."""
        return error < WORTH * self.constant


@dataclass(frozen=True, slots=True)
class _Task:
    """One total. It is sent to another process."""

    total: float
    objective: Objective
    upper_bound: float
    counts: Counts


def plan(
    counts: Counts,
    upper_bound: float,
    totals: Sequence[float],
    objective: Objective,
    progress: Callable[[int], None],
) -> Plans:
    """Return the best plan of each total. Calls `progress` with 1 after each.

    counts   of one day or more; with two processors two totals are planned at once
    """
    tasks = [_Task(total, objective, upper_bound, counts) for total in sorted(totals, reverse=True)]  # longest first
    plans = []
    for _, found in in_processes(_best_plan, tasks):
        plans.append(found)
        progress(1)
    half_bound, city = constant_errors(upper_bound, counts)
    return Plans(sorted(plans, key=lambda each: each.total), half_bound, city)


def _best_plan(task: _Task) -> Plan:
    """Vary share, then price, and forecast the errors of the best keys."""
    first_day = replace(task.counts, days=task.counts.days[:1])
    scores: dict[TrackerKeys, float] = {}

    def best(candidates: Sequence[TrackerKeys]) -> TrackerKeys:
        for keys in candidates:
            if keys not in scores:
                last = Forecast(keys, task.upper_bound, first_day).days(_GRID_DAYS, ())[-1]
                scores[keys] = last.live + last.end
        return min(candidates, key=scores.__getitem__)

    keys = best([_keys_of(task, share) for share in _SHARES])
    keys = best([keys, *(replace(keys, price=rounded_price(factor * keys.price)) for factor in _FACTORS)])
    days = Forecast(keys, task.upper_bound, task.counts).days(max(HORIZONS), _DESIGNED)
    return Plan(
        task.total, keys, _mean(days[: len(task.counts.days)]), {number: days[number - 1] for number in HORIZONS}
    )


def _keys_of(task: _Task, share: float) -> TrackerKeys:
    price = rounded_price(default_price(task.total, task.upper_bound, task.objective))
    return TrackerKeys(nano_floor(task.total), price, share, task.objective)


def _mean(days: Sequence[Expected]) -> Expected:
    number = len(days)
    return Expected(
        live=sum(day.live for day in days) / number,
        end=sum(day.end for day in days) / number,
        road_live=sum(day.road_live for day in days) / number,
        road_end=sum(day.road_end for day in days) / number,
    )
