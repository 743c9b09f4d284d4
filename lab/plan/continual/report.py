"""Plans of running sums and means as tables, sentences, JSON and a plot."""

import math
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import numpy as np
from rich.table import Column, Table

from hatcast.agents.cli.report import Report, open_axes
from hatcast.agents.tables.terminal import table
from hatcast.lab.plan.continual import Criterion
from hatcast.lab.plan.continual.choose import ContinualPlan, Observed
from hatcast.lab.plan.continual.inputs import PlanInputs
from hatcast.lab.plan.continual.kinds import INDEPENDENT, Candidate, ErrorSpread, PlannedSums, mean_errors
from hatcast.lab.plan.continual.users import run_of
from hatcast.lab.survey.figures import Histogram, dropped_share, quantile, summarize
from hatcast.stream.continual import KINDS

_CRITERIA: Final = {
    Criterion.MEAN_RMS: "rms error of the running mean",
    Criterion.MEAN_MAX: "maximum error of the running mean",
    Criterion.SUM_RMS: "rms error of the running sum",
    Criterion.SUM_MAX: "maximum error of the running sum",
}
_OF_MEAN: Final = {Criterion.SUM_RMS: Criterion.MEAN_RMS, Criterion.SUM_MAX: Criterion.MEAN_MAX}
_TITLE_WIDTH: Final = 100  # letters
_DIGITS: Final = 6  # that count
_QUANTILES: Final = (50, 75, 90, 95, 99, 100)
_LARGE: Final = 100_000
_EQUAL: Final = 0.005


def report_of(plan: ContinualPlan, inputs: PlanInputs, unit: str) -> Report:
    """Return {"kinds": errors and memory by kind, "best", "free", "constant", "participation"}. unit: of the value."""
    free, observed, stream, limits = plan.free, plan.observed, plan.stream, plan.stream.participation
    users = inputs.source if inputs.users_per_slot is None else f"{inputs.users_per_slot:g} users a slot"
    title = (
        f"{stream.slots} slots, {users}; a user in at most {limits.max_slots} of a cell, {limits.min_separation} apart,"
        f" and in {limits.max_cells} cell{'s' * (limits.max_cells != 1)}; epsilon {stream.epsilon:g}"
        f"{f', delta {stream.delta:g}' if stream.delta else ''}; range of the value {stream.bound:g} {unit}"
    )
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
            "is_best": free.best(plan.criterion) < plan.best.errors.mean.by(plan.criterion),
        },
        "constant": _rounded(plan.constant),
    }
    if observed is not None:
        found["participation"] = {
            "private": False,
            "slots_of_a_user_and_cell": _histogram_json(observed.presence.slots),
            "cells_of_a_user": _histogram_json(observed.presence.cells),
            "cut": _rounded(observed.cut),
        }
    return Report(
        shown=[
            *([] if observed is None else [_participation_table(observed, plan.stream)]),
            _table(plan, title, unit),
            *verdict(plan, unit),
        ],
        figures=found,
        settings={
            "source": inputs.source,
            "users_per_slot": inputs.users_per_slot,
            "slots": stream.slots,
            "slots_of_a_day": stream.day_slots,
            "max_slots": limits.max_slots,
            "min_separation": limits.min_separation,
            "max_cells": limits.max_cells,
            "epsilon": stream.epsilon,
            "delta": stream.delta,
            "upper_bound": stream.bound,
            "unit": unit,
        },
        plot=lambda path: _plot(plan, title, unit, path),
    )


def _table(plan: ContinualPlan, title: str, unit: str) -> Table:
    errors = ("mean\nrms", "mean\nmax", "factor", "sum\nrms", "sum\nmax", "bytes")
    return table(
        title,
        "Standard deviation of the noise over the slots of a horizon, root mean square and maximum: of the running mean"
        f" in {unit}, of the running sum in {unit} x users. factor: mean rms with one user a slot, in standard"
        " deviations of the noise that a single slot of a user needs. bytes: state of a cell. *: the least"
        f" {_CRITERIA[plan.criterion]}. withhold_release: also by values that are withheld; its sums lack them.",
        (Column("kind", no_wrap=True), Column("noise", no_wrap=True), *errors),
        (
            (
                f"{each.name}{' *' if each is plan.best else ''}",
                each.setting.noise.value,
                number(each.errors.mean.rms),
                number(each.errors.mean.maximum),
                f"{each.factor:.3f}" if each.factor < 100 else number(each.factor),
                *(
                    ("-", "-")
                    if each.errors.sum is None
                    else (number(each.errors.sum.rms), number(each.errors.sum.maximum))
                ),
                f"{each.memory:,}",
            )
            for each in plan.candidates
        ),
    )


def _participation_table(observed: Observed, stream: PlannedSums) -> Table:
    """Return a table of the participation in the data: quantiles, and the share that each as a limit would cut."""
    participation = stream.participation

    def cells(histogram: Histogram) -> list[str]:
        limits = (quantile(histogram, percent) for percent in _QUANTILES)
        return [f"{limit} ({dropped_share(histogram, limit):.1%})" for limit in limits]

    return table(
        "Participation in the data. Not private",
        "Slots of a user in one cell, and cells of a user, in a horizon: quantiles, in brackets the share of all (user,"
        " cell, slot) that this max_slots, and of all (user, cell) that this max_cells, would cut. With max_slots"
        f" {participation.max_slots}, min_separation {participation.min_separation} and max_cells"
        f" {participation.max_cells}, {observed.cut:.1%} of all (user, cell, slot) are over_participation.",
        [Column("", no_wrap=True), *("most" if percent == 100 else f"{percent} %" for percent in _QUANTILES)],
        [("max_slots", *cells(observed.presence.slots)), ("max_cells", *cells(observed.presence.cells))],
    )


def number(value: float) -> str:
    """Return a number with three digits that count, or all digits of an integer below 100,000."""
    if value >= _LARGE:
        exponent = math.floor(math.log10(value))
        return f"{value / 10**exponent:.2f}e{exponent}"
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}".rstrip(".")


def verdict(plan: ContinualPlan, unit: str) -> list[str]:
    """Return sentences: the best kind, noise of each slot alone, free running means, and a constant."""
    return [_best(plan, unit), _free(plan, unit), *_worthless(plan, unit)]


def _best(plan: ContinualPlan, unit: str) -> str:
    best = plan.best
    # With noise of each slot alone if the best one has not, or without.
    unlike = [each for each in plan.candidates if (each.kind in INDEPENDENT) != plan.per_slot_is_best]
    other = min(unlike, key=lambda each: each.errors.by(plan.criterion))
    error, others = (each.errors.by(plan.criterion) for each in (best, other))
    of = unit if plan.criterion in (Criterion.MEAN_RMS, Criterion.MEAN_MAX) else f"{unit} x users"
    line = f"Best kind: {_with_noise(best)}, {_CRITERIA[plan.criterion]} {number(error)} {of}."
    times = f"has {number(others / error)} times the error."
    if plan.per_slot_is_best:
        return f"{line} Noise of each slot alone is best here: the best other kind, {_with_noise(other)}, {times}"
    return f"{line} Noise of each slot alone ({_with_noise(other)}) {times}"


def _with_noise(each: Candidate) -> str:
    noise = each.setting.noise.value
    return each.name if each.kind.value == noise else f"{each.name} ({noise} noise)"


def _free(plan: ContinualPlan, unit: str) -> str:
    free = plan.free
    criterion = _OF_MEAN.get(plan.criterion, plan.criterion)
    cost = f"{free.daily_cost:g}"
    text = (
        f"Running means that cost nothing more (hats.running), of a policy whose day costs a user as much ({cost}):"
        f" {_CRITERIA[criterion]} {_compared(plan, free.releases.by(criterion), unit)}, for releases with epsilon"
        f" {number(free.release_epsilon)} of a HAT"
    )
    if free.tracker is not None:
        tracker = free.tracker.by(criterion)
        text += f"; at most {_compared(plan, tracker, unit)}, for a tracker with daily_limit = {cost}"
    days = plan.stream.days
    if days > 1:
        text += (
            f". Their guarantee is for a day: the {days} days of a horizon add up to {days * free.daily_cost:g}, and a"
            f" continual policy guarantees {cost} for all of them"
        )
    return f"{text}."


def _compared(plan: ContinualPlan, error: float, unit: str) -> str:
    least = plan.best.errors.mean.by(plan.criterion)
    if abs(error - least) < _EQUAL * least:
        compared = "as much as the best kind above"
    else:
        compared = "less than each kind above" if error < least else "more than the best kind above"
    return f"{number(error)} {unit}, {compared}"


def _worthless(plan: ContinualPlan, unit: str) -> list[str]:
    error, constant = plan.best.errors.mean.by(plan.criterion), plan.constant
    line = (
        f"Not worth having: the middle of the range, which costs nothing, is off by {number(constant)} {unit} if values"
        " spread evenly over the range. More users a cell, a larger epsilon or a smaller max_slots help."
    )
    return [line] if error >= constant else []


def _kind_json(each: Candidate) -> dict[str, Any]:
    return {
        "noise": each.setting.noise.value,
        **({} if each.setting.branching is None else {"branching": each.setting.branching}),
        "mean": _spread_json(each.errors.mean),
        "sum": None if each.errors.sum is None else _spread_json(each.errors.sum),
        "factor": _rounded(each.factor),
        "bytes": each.memory,
    }


def _spread_json(spread: ErrorSpread) -> dict[str, float]:
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


def _plot(plan: ContinualPlan, title: str, unit: str, path: Path) -> None:
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
