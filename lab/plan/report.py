"""Plans of a tracker as a table, as JSON and as a plot."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from hatcast.agents.cli.report import Report, open_axes, rounded, table
from hatcast.lab.plan.grid import HORIZONS, Plan, Plans
from hatcast.stream.policy.tracker_keys import TrackerKeys

_UNWORTHY: Final = "*"
LOOK: Final[Mapping[str, Any]] = {"box": SIMPLE_HEAD, "padding": (0, 0, 0, 1), "caption_justify": "left"}
"""of the tables of plans"""


def report_of(plans: Plans, title: str, settings: Mapping[str, Any], unit: str) -> Report:
    """Return {"plans": {total: keys, errors by stage, whether they are worth having}, "constant": ..}."""
    return Report(
        shown=[_table(plans, title, unit)],
        figures={
            "plans": {f"{plan.total:g}": _plan_json(plan, plans) for plan in plans.plans},
            "constant": {"city": rounded(plans.city), "half_bound": rounded(plans.half_bound)},
        },
        settings=settings,
        plot=lambda path: _plot(plans, title, unit, path),
    )


def _plan_json(plan: Plan, plans: Plans) -> dict[str, Any]:
    stages = {
        stage: {name: rounded(error) for name, error in asdict(expected).items()}
        | {"worth_having": {when: plans.is_worth_having(getattr(expected, when)) for when in ("live", "end")}}
        for stage, expected in plan.stages.items()
    }
    return {"keys": keys_json(plan.keys), **stages}


def _table(plans: Plans, title: str, unit: str) -> Table:
    """Return a table: a row for each total."""

    def cell(expected: float) -> str:
        return f"{expected:.2f}{' ' if plans.is_worth_having(expected) else _UNWORTHY}"

    return table(
        title,
        _caption(plans, unit),
        ("total", "share", "price", "live", "end", *(f"{when} {day}" for day in HORIZONS for when in ("live", "end"))),
        (
            (
                f"{plan.total:g}",
                f"{plan.keys.share:g}",
                f"{plan.keys.price:g}",
                *(cell(error) for expected in plan.stages.values() for error in (expected.live, expected.end)),
            )
            for plan in plans.plans
        ),
        left=0,
        **LOOK,
    )


def _caption(plans: Plans, unit: str) -> str:
    scaled = "" if unit == "km/h" else ", which were found on bus speeds and are scaled to the range,"
    errors = [error for plan in plans.plans for each in plan.stages.values() for error in (each.live, each.end)]
    unworthy = f"{_UNWORTHY}: not worth having, since it is within 10 % of the constant's, or above it."
    if all(map(plans.is_worth_having, errors)):
        unworthy = "Each error here is at least 10 % below the constant's."
    return (
        f"Expected error of a HAT's mean in {unit}, by the variances of the model{scaled} and these counts; no"
        f" {'speed' if unit == 'km/h' else 'value'} was read. "
        "total: epsilon that a bus can lose on one day; share, price: keys of [policy.tracker]. live: at the "
        "close of the HAT's slot, end: of its day, over the given days; live 7: on the seventh day with these counts. "
        f"A constant costs nothing: by the same model publishing the city's mean, if somebody knew it, has an error of "
        f"{plans.city:.2f} (variances of hour, cell, counts and HAT), and U/2 one of {plans.half_bound:.2f} (also that "
        f"of the city). {unworthy}"
    )


def keys_json(keys: TrackerKeys) -> dict[str, str | float]:
    """Return the keys of [policy.tracker] that a plan chooses."""
    return {
        "share": keys.share,
        "objective": keys.objective.value,
        "price": keys.price,
    }


def _plot(plans: Plans, title: str, unit: str, path: Path) -> None:
    """Plot error against total, with the constant's line."""
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
