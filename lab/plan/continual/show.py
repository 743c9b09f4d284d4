"""Plans of running means as tables, as JSON and as a plot."""

from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from hatcast.lab.plan.continual.choose import ContinualPlan, Observed
from hatcast.lab.plan.continual.kinds import Candidate, Spread, Stream, mean_errors
from hatcast.lab.plan.continual.users import run_of
from hatcast.lab.plan.continual.words import CRITERIA, number
from hatcast.lab.survey.figures import Histogram, dropped_share, quantile, summarize
from hatcast.stream.continual import KINDS

_TITLE_WIDTH: Final = 100  # letters
_DIGITS: Final = 6  # that count
_QUANTILES: Final = (50, 75, 90, 95, 99, 100)


def table_of(plan: ContinualPlan, title: str, unit: str) -> Table:
    """Return a table with a row for each kind. unit: of the value."""
    table = _empty(
        title,
        "Standard deviation of the noise over the slots of a horizon, root mean square and maximum: of the running mean"
        f" in {unit}, of the running sum in {unit} x users. factor: mean rms with one user a slot, in standard"
        " deviations of the noise that a single slot of a user needs. bytes: state of a cell. *: the least"
        f" {CRITERIA[plan.criterion]}. withhold_release: also by values that are withheld; its sums lack them.",
    )
    for heading in ("kind", "noise"):
        table.add_column(heading, no_wrap=True)
    for heading in ("mean\nrms", "mean\nmax", "factor", "sum\nrms", "sum\nmax", "bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in plan.candidates:
        mean, total = each.errors.mean, each.errors.sum
        table.add_row(
            f"{each.name}{' *' if each is plan.best else ''}",
            each.setting.noise.value,
            number(mean.rms),
            number(mean.maximum),
            f"{each.factor:.3f}" if each.factor < 100 else number(each.factor),
            *(("-", "-") if total is None else (number(total.rms), number(total.maximum))),
            f"{each.memory:,}",
        )
    return table


def participation_table(observed: Observed, stream: Stream) -> Table:
    """Return a table of the participation in the data: quantiles, and the share that each as a limit would cut."""
    participation = stream.participation
    table = _empty(
        "Participation in the data. Not private",
        "Slots of a user in one cell, and cells of a user, in a horizon: quantiles, in brackets the share of all (user,"
        " cell, slot) that this max_slots, and of all (user, cell) that this max_cells, would cut. With max_slots"
        f" {participation.max_slots}, min_separation {participation.min_separation} and max_cells"
        f" {participation.max_cells}, {observed.cut:.1%} of all (user, cell, slot) are over_participation.",
    )
    table.add_column("", no_wrap=True)
    for percent in _QUANTILES:
        table.add_column("most" if percent == 100 else f"{percent} %", justify="right", no_wrap=True)
    for name, histogram in (("max_slots", observed.presence.slots), ("max_cells", observed.presence.cells)):
        limits = (quantile(histogram, percent) for percent in _QUANTILES)
        table.add_row(name, *(f"{limit} ({dropped_share(histogram, limit):.1%})" for limit in limits))
    return table


def _empty(title: str, caption: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        caption=escape(caption),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 0, 0, 1),
    )


def as_json(plan: ContinualPlan) -> dict[str, Any]:
    """Return {"kinds": errors and memory by kind, "best": .., "free": .., "constant": .., "participation": ..}."""
    free = plan.free
    found: dict[str, Any] = {
        "kinds": {each.kind.value: _kind_json(each) for each in plan.candidates},
        "best": {
            "kind": plan.best.kind.value,
            "by": plan.criterion.value,
            "per_slot": plan.per_slot_is_best,
            "keys": keys_of(plan),
        },
        "free": {
            "daily_cost": free.daily_cost,
            "releases": {"epsilon": _rounded(free.release_epsilon), "mean": _spread_json(free.releases)},
            **({} if free.tracker is None else {"tracker": {"mean_at_most": _spread_json(free.tracker)}}),
            "is_best": plan.free_is_best,
        },
        "constant": _rounded(plan.constant),
    }
    if plan.observed is not None:
        presence = plan.observed.presence
        found["participation"] = {
            "private": False,
            "slots_of_a_user_and_cell": _histogram_json(presence.slots),
            "cells_of_a_user": _histogram_json(presence.cells),
            "cut": _rounded(plan.observed.cut),
        }
    return found


def _kind_json(each: Candidate) -> dict[str, Any]:
    return {
        "noise": each.setting.noise.value,
        **({} if each.setting.branching is None else {"branching": each.setting.branching}),
        "mean": _spread_json(each.errors.mean),
        "sum": None if each.errors.sum is None else _spread_json(each.errors.sum),
        "factor": _rounded(each.factor),
        "bytes": each.memory,
    }


def _spread_json(spread: Spread) -> dict[str, float]:
    return {"rms": _rounded(spread.rms), "max": _rounded(spread.maximum)}


def _histogram_json(histogram: Histogram) -> dict[str, Any]:
    return {**asdict(summarize(histogram)), "histogram": {f"{value}": histogram[value] for value in sorted(histogram)}}


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def keys_of(plan: ContinualPlan) -> dict[str, str | int]:
    """Return the keys of [policy.continual] for the best kind."""
    setting, participation = plan.best.setting, plan.stream.participation
    own = {"branching": setting.branching, "buffers": setting.buffers}
    return {
        "kind": plan.best.kind.value,
        "noise": setting.noise.value,
        "horizon_days": plan.stream.days,
        "max_slots": participation.max_slots,
        "min_separation": participation.min_separation,
        "max_cells": participation.max_cells,
        **{key: value for key, value in own.items() if value is not None},
    }


def plot(plan: ContinualPlan, title: str, path: Path, unit: str) -> None:
    """Plot the error of the running mean against the slot. Raises HatcastError if the file cannot be written."""
    from hatcast.agents.tables.plots import open_axes

    with open_axes(path, fill(title, _TITLE_WIDTH)) as axes:
        for each in plan.candidates:
            run = run_of(KINDS[each.kind](each.setting), plan.users)
            squares = mean_errors(run, plan.users, plan.stream.bound) ** 2
            cells = np.isfinite(squares).sum(axis=0)
            slots = np.flatnonzero(cells)
            errors = np.sqrt(np.nansum(squares, axis=0)[slots] / cells[slots])
            axes.plot(slots + 1, errors, linewidth=1, label=each.name)
        axes.axhline(plan.constant, color="black", linewidth=1, label="a constant")
        axes.set(xlabel="slot of the horizon", ylabel=f"error of the running mean, {unit}", xscale="log", yscale="log")
