"""Worst-case errors as a table, as JSON and as a figure."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from hatcast.lab.evaluate.comparison import Errors
from hatcast.lab.evaluate.contenders import hides_presence
from hatcast.lab.evaluate.simulation import Floats, Integers
from hatcast.lab.evaluate.worst import WorstCase, WorstCases

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

_DIGITS: Final = 4
_MARKERS: Final = "osD^v<>pPX*"
_FULL: Final = "full arrays"
_TIE: Final = 1e-9  # in the value's unit

Staircases = Mapping[str, tuple[Floats, Integers]]


def table_of(found: WorstCases, full: Mapping[float, WorstCase], title: str, unit: str = "km/h") -> Table:
    """Return a table: rows by estimator and epsilon, the least E_M under `replace` at each epsilon in bold."""
    table = Table(
        title=title,
        title_justify="left",
        caption=f"In {unit}; m and arrays are numbers. E_M = bias + noise bounds the mean absolute error of any values:"
        " bias is the largest of any values, noise the mean of its absolute value. A dash: not used, or not fixed by "
        "counts. full arrays: E^(epsilon) of the papers, for arrays without an empty place.",
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("estimator", overflow="fold")
    for name in ("eps", "m", "arrays", "tau", "bias", "noise", "E_M"):
        table.add_column(name, justify="right", no_wrap=True)
    least = _least(found)
    for name, row in [*found.items(), (_FULL, full)]:
        label = f"{name} (add_remove)" if name != _FULL and hides_presence(name) else name
        for epsilon, each in row.items():
            total = _text(each.total)
            best = name != _FULL and each.total is not None and each.total <= least[epsilon] + _TIE
            numbers = [each.tau, each.bias, each.noise]
            table.add_row(
                label,
                f"{epsilon:g}",
                "-" if each.array_length is None else f"{each.array_length}",
                "-" if each.arrays is None else f"{each.arrays:.4g}",
                *map(_text, numbers),
                f"[bold]{total}[/bold]" if best else total,
            )
            label = ""
    return table


def _least(found: WorstCases) -> dict[float, float]:
    """Return the least E_M of each epsilon; infinite without one."""
    least: dict[float, float] = {}
    for row in found.values():
        for epsilon, each in row.items():
            least[epsilon] = min(least.get(epsilon, np.inf), np.inf if each.total is None else each.total)
    return least


def _text(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"


def as_json(found: WorstCases, full: Mapping[float, WorstCase], lengths: Staircases) -> dict[str, Any]:
    """Return the worst cases by estimator and epsilon, those of full arrays, and the steps of both array lengths."""
    return {
        "worst_case": {name: _row(row) for name, row in found.items()},
        "full_arrays": _row(full),
        "array_lengths": {rule: _steps(*steps) for rule, steps in lengths.items()},
    }


def _row(row: Mapping[float, WorstCase]) -> dict[str, dict[str, float | None]]:
    return {
        f"{epsilon:g}": {
            "array_length": each.array_length,
            **{
                key: None if number is None else round(number, _DIGITS)
                for key, number in (
                    ("arrays", each.arrays),
                    ("tau", each.tau),
                    ("bias", each.bias),
                    ("noise", each.noise),
                    ("worst_case_error", each.total),
                )
            },
        }
        for epsilon, each in row.items()
    }


def _steps(epsilons: Floats, lengths: Integers) -> list[tuple[float, int]]:
    """Return (first epsilon, array length) of each step."""
    starts = np.flatnonzero(np.diff(lengths, prepend=-1))
    return [(round(float(epsilons[at]), _DIGITS), int(lengths[at])) for at in starts]


def plot(
    found: WorstCases, lengths: Staircases, errors: Mapping[str, Errors], title: str, path: Path, unit: str = "km/h"
) -> None:
    """Plot E_M and m against epsilon, and below them the simulated errors of groupings, a panel per estimator.

    Raises HatcastError if it cannot be written.
    """
    from hatcast.agents.tables.plots import open_figure

    with open_figure(path, title, (8.5, 7.2 if errors else 3.8)) as figure:
        rows = figure.subfigures(2 if errors else 1, 1, squeeze=False).flat
        left, right = rows[0].subplots(1, 2)
        _errors(left, found, unit)
        _staircases(right, lengths)
        if errors:
            _groupings(rows[1], errors, unit)


def _errors(panel: "Axes", found: WorstCases, unit: str) -> None:
    for (name, row), marker in zip(found.items(), cycle(_MARKERS), strict=False):
        points = [(epsilon, each.total) for epsilon, each in sorted(row.items()) if each.total is not None]
        if points:
            panel.plot(*zip(*points, strict=True), marker=marker, markersize=4, linewidth=1, label=name)
    _finish(panel, f"worst-case error E_M, {unit}")
    panel.set_yscale("log")


def _staircases(panel: "Axes", lengths: Staircases) -> None:
    for (rule, (epsilons, steps)), style in zip(lengths.items(), ("-", "--"), strict=False):
        panel.step(epsilons, steps, style, where="post", linewidth=1, label=rule)
    _finish(panel, "array length m")
    panel.set_xscale("log")


def _groupings(figure: "SubFigure", errors: Mapping[str, Errors], unit: str) -> None:
    for panel, (name, rows) in zip(figure.subplots(1, len(errors)), errors.items(), strict=True):
        for (variant, row), marker in zip(rows.items(), _MARKERS, strict=False):
            epsilons: Sequence[float] = sorted(row)
            label = variant.removeprefix(f"{name}:")
            panel.plot(epsilons, [row[x].mae for x in epsilons], marker=marker, markersize=4, linewidth=1, label=label)
        panel.set_title(name, fontsize=9)
        _finish(panel, f"mean absolute error, {unit}")


def _finish(panel: "Axes", measure: str) -> None:
    panel.set(xlabel="epsilon", ylabel=measure)
    panel.grid(visible=True, which="both", linewidth=0.3)
    panel.legend(frameon=False, fontsize=7)
