"""Plans as a table, as JSON and as a plot."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from hatcast.lab.plan.grid import HORIZONS, Plan, Plans
from hatcast.stream.policy.tracker_keys import TrackerKeys

_DIGITS: Final = 4
_UNWORTHY: Final = "*"


def table_of(plans: Plans, title: str, unit: str = "km/h") -> Table:
    """Return a table: a row for each total. unit: of errors."""
    table = Table(
        title=title,
        title_justify="left",
        caption=escape(_caption(plans, unit)),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
    )
    for heading in ("total", "share", "price", *_headings()):
        table.add_column(heading, justify="right", no_wrap=True)
    for plan in plans.plans:
        keys = plan.keys
        table.add_row(
            f"{plan.total:g}",
            f"{keys.share:g}",
            f"{keys.price:g}",
            *(_cell(error, plans) for expected in plan.stages.values() for error in (expected.live, expected.end)),
        )
    return table


def _headings() -> list[str]:
    return ["live", "end", *(f"{when} {days}" for days in HORIZONS for when in ("live", "end"))]


def _cell(expected: float, plans: Plans) -> str:
    return f"{expected:.2f}{' ' if plans.is_worth_having(expected) else _UNWORTHY}"


def _caption(plans: Plans, unit: str) -> str:
    return (
        f"Expected error of a HAT's mean in {unit}, by the variances of the model{_scaled(unit)} and these counts; no"
        f" {'speed' if unit == 'km/h' else 'value'} was read. "
        "total: epsilon that a bus can lose on one day; share, price: keys of [policy.tracker]. live: at the "
        "close of the HAT's slot, end: of its day, over the given days; live 7: on the seventh day with these counts. "
        f"A constant costs nothing: by the same model publishing the city's mean, if somebody knew it, has an error of "
        f"{plans.city:.2f} (variances of hour, cell, counts and HAT), and U/2 one of {plans.half_bound:.2f} (also that "
        f"of the city). {_unworthy(plans)}"
    )


def _scaled(unit: str) -> str:
    return "" if unit == "km/h" else ", which were found on bus speeds and are scaled to the range,"


def _unworthy(plans: Plans) -> str:
    if all(
        plans.is_worth_having(error) for plan in plans.plans for each in plan.stages.values() for error in _both(each)
    ):
        return "Each error here is at least 10 % below the constant's."
    return f"{_UNWORTHY}: not worth having, since it is within 10 % of the constant's, or above it."


def _both(expected: Any) -> tuple[float, float]:
    return expected.live, expected.end


def as_json(plans: Plans) -> dict[str, Any]:
    """Return {"plans": {total: keys, errors by stage, whether they are worth having}, "constant": ..}."""
    return {
        "plans": {f"{plan.total:g}": _plan_json(plan, plans) for plan in plans.plans},
        "constant": {"city": round(plans.city, _DIGITS), "half_bound": round(plans.half_bound, _DIGITS)},
    }


def _plan_json(plan: Plan, plans: Plans) -> dict[str, Any]:
    return {
        "keys": keys_json(plan.keys),
        **{
            stage: {name: round(error, _DIGITS) for name, error in asdict(expected).items()}
            | {
                "worth_having": {
                    "live": plans.is_worth_having(expected.live),
                    "end": plans.is_worth_having(expected.end),
                }
            }
            for stage, expected in plan.stages.items()
        },
    }


def keys_json(keys: TrackerKeys) -> dict[str, str | float]:
    """Return the keys of [policy.tracker] that a plan chooses."""
    return {
        "share": keys.share,
        "objective": keys.objective.value,
        "price": keys.price,
    }


def plot(plans: Plans, title: str, path: Path, unit: str = "km/h") -> None:
    """Plot error against total, with the constant's line. Raises HatcastError if the file cannot be written."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    from hatcast.agents.tables.plots import open_axes

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
