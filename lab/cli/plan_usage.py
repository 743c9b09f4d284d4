"""Options of `hatcast plan`, and which of them can be combined."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypedDict

import click

from hatcast.agents.cli.options import FiniteRange
from hatcast.agents.cli.recordings import check_recordings
from hatcast.lab.plan.continual.kinds import Criterion
from hatcast.stream.policy.continual_table import SLOTS_MAX
from hatcast.stream.policy.tracker_keys import Objective
from hatcast.stream.readings.formats import FormatChoice

TOTALS: Final = "2,5,10,20,40"
WRITTEN: Final = 5.0
_TRACKER: Final[Mapping[str, str]] = MappingProxyType(
    {"daily_limit": "--daily-limit", "objective": "--objective", "written_limit": "--write-limit"}
)
_CONTINUAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "slots": "--slots",
        "horizon_days": "--horizon-days",
        "max_slots": "--max-slots",
        "min_separation": "--min-separation",
        "max_cells": "--max-cells",
        "epsilon": "--epsilon",
        "delta": "--delta",
        "upper_bound": "--upper-bound",
        "users_per_slot": "--users-per-slot",
        "criterion": "--by",
    }
)


class Options(TypedDict):
    """Parsed command-line options; None: not given."""

    continual: bool
    data: tuple[Path, ...]
    more: tuple[Path, ...]
    feed_format: FormatChoice | None
    counts: Path | None
    config: Path | None
    min_users: int | None
    daily_limit: str | None
    objective: str | None
    target: Path | None
    written_limit: float | None
    slots: int | None
    horizon_days: int | None
    max_slots: int | None
    min_separation: int | None
    max_cells: int | None
    epsilon: float | None
    delta: float | None
    upper_bound: float | None
    users_per_slot: float | None
    criterion: str | None
    plot_file: Path | None
    as_json: bool


def tracker_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of plans of a tracker."""
    options = (
        click.option(
            "--daily-limit",
            metavar="EPS,...",
            help=f"Tracker: total epsilons of a bus and day to plan for.  [default: {TOTALS}]",
        ),
        click.option(
            "--objective",
            type=click.Choice([each.value for each in Objective]),
            help=f"Tracker: what the end of a day makes accurate.  [default: {Objective.CELLS.value}]",
        ),
        click.option(
            "--write-limit",
            "written_limit",
            type=float,
            help=f"Tracker: the total whose plan --write writes.  [default: {WRITTEN}]",
        ),
    )
    return _with(function, options)


def continual_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `--continual`."""
    options = (
        click.option(
            "--continual",
            is_flag=True,
            help="Plan running sums and means over a horizon instead of a tracker: compare the kinds of"
            " [policy.continual].",
        ),
        click.option("--slots", type=click.IntRange(1, SLOTS_MAX), help="Continual: slots of the horizon."),
        click.option(
            "--horizon-days",
            type=click.IntRange(1, 3660),
            help="Continual: local days of the horizon.  [default: that of --config, the days of the data, or"
            " slots / 24]",
        ),
        click.option(
            "--max-slots",
            type=click.IntRange(1),
            help="Continual: most slots that a user enters in one cell.  [default: that of --config, or as many as 95 %"
            " of users and cells have in the data]",
        ),
        click.option(
            "--min-separation",
            type=click.IntRange(1),
            help="Continual: slots between two of them, at least.  [default: that of --config, or 1]",
        ),
        click.option(
            "--max-cells",
            type=click.IntRange(1),
            help="Continual: most cells that a user enters.  [default: that of --config, as many as 95 % of users have"
            " in the data, or 1]",
        ),
        click.option(
            "--epsilon",
            type=FiniteRange(1e-3, 1e3),
            help="Continual: of a cell and horizon.  [default: that of --config, or 1]",
        ),
        click.option(
            "--delta",
            type=FiniteRange(0, 1e-3),
            help="Continual: of all cells of a user; 0: only kinds with pure epsilon.  [default: that of --config, or"
            " 1e-6]",
        ),
        click.option(
            "--upper-bound",
            type=FiniteRange(1e-3, 1e9),
            help="Continual: width of the value's range.  [default: that of --config, or 65 km/h]",
        ),
        click.option(
            "--users-per-slot",
            type=FiniteRange(1e-3, 1e9),
            help="Continual, without data: users of a cell in each slot.  [default: 10]",
        ),
        click.option(
            "--by",
            "criterion",
            type=click.Choice([each.value for each in Criterion]),
            help=f"Continual: error that the best kind has least.  [default: {Criterion.MEAN_RMS.value}]",
        ),
    )
    return _with(function, options)


def _with(function: Callable[..., Any], options: tuple[Any, ...]) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function


def check_usage(given: Options) -> None:
    """Raise UsageError if options are missing or cannot be combined."""
    check_recordings(given["data"], given["more"], given["feed_format"])
    if given["continual"]:
        _check_continual(given)
    else:
        _check_tracker(given)
    if given["counts"] is not None and given["feed_format"] is not None:
        raise click.UsageError("--format is for --data")


def _check_tracker(given: Options) -> None:
    for key, option in _CONTINUAL.items():
        if given[key] is not None:  # type: ignore[literal-required]  # a key of Options
            raise click.UsageError(f"{option} needs --continual")
    if (given["counts"] is None) == (not given["data"]):
        raise click.UsageError("name one of --counts and --data, or plan running means with --continual")


def _check_continual(given: Options) -> None:
    for key, option in _TRACKER.items():
        if given[key] is not None:  # type: ignore[literal-required]  # a key of Options
            raise click.UsageError(f"{option} is for a tracker: it cannot be combined with --continual")
    sources = {"--data": given["data"], "--counts": given["counts"], "--users-per-slot": given["users_per_slot"]}
    named = [option for option, value in sources.items() if value]
    if len(named) > 1:
        raise click.UsageError(f"name one of {' and '.join(named)}")
    if given["min_users"] is not None and not (given["data"] or given["counts"]):
        raise click.UsageError("--min-users needs --data or --counts")
    if given["upper_bound"] is not None and given["config"] is not None:
        raise click.UsageError("--upper-bound cannot be combined with --config, which has the value's range")
