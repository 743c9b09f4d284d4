"""Search for a tracker's keys, for several totals: a table, JSON and a plot."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from hatcast.agents.cli.report import Report, open_axes, rounded
from hatcast.agents.tables.terminal import table
from hatcast.lab.plan.counts import CountedDays
from hatcast.lab.plan.forecast import Constants, Expected, Forecast, constant_errors
from hatcast.lab.processes import in_processes
from hatcast.stream.policy.tracker_keys import Objective, TrackerKeys, default_price, rounded_price
from hatcast.stream.tracker.prior import Prior
from hatcast.stream.tracker.timetable import Timetable
from hatcast.stream.units import nano_floor

MONTH: Final = 31  # days
HORIZONS: Final = (7, 30)  # days after which errors are forecast, besides the first ones
WORTH: Final = 0.9  # an error above this part of the constant's is not worth having
_SHARES: Final = (0.1, 0.3, 0.6)
_FACTORS: Final = (0.5, 2.0)  # of the default price
_GRID_DAYS: Final = 4  # the keys with the least error on this day are the best: on the first one nothing is known yet
_DESIGNED: Final = frozenset({1, 2, 6})
STEPS: Final = (len(_SHARES) + len(_FACTORS)) * _GRID_DAYS + max(HORIZONS)
"""Days that are forecast for a total: of each candidate, and of the best one up to a month"""
INTERVAL_WIDTH: Final = 4.9  # of a mean's 95 % interval, in errors: 2 * 1.96 / sqrt(2 / pi)
_UNWORTHY: Final = "*"


@dataclass(frozen=True, slots=True)
class TrackerPlan:
    """The best keys found for one total, and their expected errors."""

    total: float
    keys: TrackerKeys
    first: Expected  # means over the given days, which are the first ones of the policy
    after: dict[int, Expected]  # by number of days: on that day

    @property
    def stages(self) -> dict[str, Expected]:
        """The errors of the first days (`first`) and of later ones (`7`, `30`), by name."""
        return {"first": self.first, **{f"{day}": expected for day, expected in self.after.items()}}


@dataclass(frozen=True, slots=True)
class Plans:
    """Plans by total, and the expected errors of what costs nothing."""

    plans: list[TrackerPlan]
    constants: Constants

    @property
    def constant(self) -> float:
        """The error of the best constant."""
        return self.constants.best

    def is_worth_having(self, error: float) -> bool:
        """Return whether an error is at least 10 % below the constant's."""
        return error < WORTH * self.constant

    def skill(self, error: float) -> float:
        """Return 1 - MSE / MSE(best constant)."""
        return 1 - (error / self.constant) ** 2


def plan(
    counts: CountedDays,
    prior: Prior,
    totals: Sequence[float],
    objective: Objective,
    progress: Callable[[int], None],
    timetable: Timetable | None = None,
) -> Plans:
    """Return the best plan of each total.

    counts     of one day or more; prior: of the policy's value; with two processors two totals are planned at once
    progress   called with the number of further days that are forecast, of `STEPS` for each total
    timetable  from which hexagons have their scheduled speeds
    """
    longest_first = sorted(totals, reverse=True)
    tasks = [partial(_best_plan, total, objective, prior, counts, timetable) for total in longest_first]
    plans = (found for _, found in in_processes(tasks, progress))
    return Plans(sorted(plans, key=lambda each: each.total), constant_errors(prior, counts, timetable))


def _best_plan(
    total: float, objective: Objective, prior: Prior, counts: CountedDays, timetable: Timetable | None
) -> TrackerPlan:
    """Vary share, then price, and forecast the errors of the best keys."""
    first_day = replace(counts, days=counts.days[:1])
    scores: dict[TrackerKeys, float] = {}

    def best(candidates: Sequence[TrackerKeys]) -> TrackerKeys:
        for keys in candidates:
            if keys not in scores:
                last = Forecast(keys, prior, first_day, timetable).days(_GRID_DAYS, ())[-1]
                scores[keys] = last.live + last.end
        return min(candidates, key=scores.__getitem__)

    price = rounded_price(default_price(total, prior.reference_width, objective))
    keys = best([TrackerKeys(nano_floor(total), price, share, objective) for share in _SHARES])
    keys = best([keys, *(replace(keys, price=rounded_price(factor * keys.price)) for factor in _FACTORS)])
    days = Forecast(keys, prior, counts, timetable).days(max(HORIZONS), _DESIGNED)
    return TrackerPlan(total, keys, _mean(days[: len(counts.days)]), {number: days[number - 1] for number in HORIZONS})


def _mean(days: Sequence[Expected]) -> Expected:
    return Expected(*(sum(each) / len(days) for each in zip(*map(astuple, days), strict=True)))


def report_of(plans: Plans, title: str, settings: Mapping[str, Any], unit: str) -> Report:
    """Return {"plans": {total: keys, errors by stage, whether they are worth having}, "constant": ..}."""
    return Report(
        shown=[_table(plans, title, unit)],
        figures={
            "plans": {f"{plan.total:g}": _plan_json(plan, plans) for plan in plans.plans},
            "constant": {name: rounded(error) for name, error in asdict(plans.constants).items() if error is not None},
        },
        settings=settings,
        plot=lambda path: _plot(plans, title, unit, path),
    )


def _plan_json(plan: TrackerPlan, plans: Plans) -> dict[str, Any]:
    stages = {
        stage: {name: rounded(error) for name, error in asdict(expected).items()}
        | {"skill": rounded(plans.skill(expected.live))}
        | {"worth_having": {when: plans.is_worth_having(getattr(expected, when)) for when in ("live", "end")}}
        for stage, expected in plan.stages.items()
    }
    return {"keys": keys_json(plan.keys), **stages}


def _table(plans: Plans, title: str, unit: str) -> Table:
    def cell(expected: float) -> str:
        return f"{expected:.2f}{' ' if plans.is_worth_having(expected) else _UNWORTHY}"

    return table(
        title,
        _caption(plans, unit),
        (
            "total",
            f"{MONTH} days",
            "share",
            "price",
            "live",
            "end",
            "skill",
            "wide",
            *(f"{when} {day}" for day in HORIZONS for when in ("live", "end")),
        ),
        (
            (
                f"{plan.total:g}",
                f"{MONTH * plan.total:g}",
                f"{plan.keys.share:g}",
                f"{plan.keys.price:g}",
                cell(plan.first.live),
                cell(plan.first.end),
                f"{plans.skill(plan.first.live):.2f}",
                f"{INTERVAL_WIDTH * plan.first.end:.0f}",
                *(cell(error) for after in plan.after.values() for error in (after.live, after.end)),
            )
            for plan in plans.plans
        ),
        left=0,
    )


def _caption(plans: Plans, unit: str) -> str:
    scaled = "" if unit == "km/h" else ", which were found on bus speeds and are scaled to the range,"
    timetable = plans.constants.timetable
    scheduled = "" if timetable is None else f", and the timetable around that mean one of {timetable:.2f}"
    errors = [error for plan in plans.plans for each in plan.stages.values() for error in (each.live, each.end)]
    unworthy = f"{_UNWORTHY}: not worth having, since it is within 10 % of the constant's, or above it."
    if all(map(plans.is_worth_having, errors)):
        unworthy = "Each error here is at least 10 % below the constant's."
    return (
        f"Expected error of a HAT's mean in {unit}, by the variances of the model{scaled} and these counts; no"
        f" {'speed' if unit == 'km/h' else 'value'} was read. "
        f"total: epsilon that a bus can lose on one day, and in {MONTH} days, since days add up; share, price: keys of"
        " [policy.tracker]. live: at the close of the HAT's slot, end: of its day, over the given days; live 7: on the"
        " seventh day with these counts. "
        "skill: 1 - MSE / MSE of the best constant, of live means in the first days. "
        "wide: about how wide a mean's 95 % interval is at the day's end in the first days, from end to end: "
        f"{INTERVAL_WIDTH:g} times the error. "
        f"A constant costs nothing: by the same model publishing the city's mean, if somebody knew it, has an error of "
        f"{plans.constants.city:.2f} (variances of hour, cell, counts and HAT), and U/2 one of "
        f"{plans.constants.half_bound:.2f} (also that of the city){scheduled}. {unworthy}"
    )


def keys_json(keys: TrackerKeys) -> dict[str, str | float]:
    """Return the keys of [policy.tracker] that a plan chooses."""
    return {"share": keys.share, "objective": keys.objective.value, "price": keys.price}


def _plot(plans: Plans, title: str, unit: str, path: Path) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    totals = [plan.total for plan in plans.plans]
    with open_axes(path, title) as axes:
        for stage, when in (("first", "first days"), *((f"{days}", f"after {days} days") for days in HORIZONS)):
            for name, style in (("live", "-"), ("end", "--")):
                errors = [getattr(plan.stages[stage], name) for plan in plans.plans]
                axes.plot(totals, errors, style, marker="o", markersize=4, linewidth=1, label=f"{name}, {when}")
        axes.axhline(plans.constant, color="black", linewidth=1, label="a constant")
        axes.set(xlabel="epsilon that a bus can lose on one day", ylabel=f"expected error, {unit}", xscale="log")
        axes.set_ylim(bottom=0)
        axes.set_xticks(totals)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
