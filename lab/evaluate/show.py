"""Comparison of estimators as a table, as JSON and as a plot."""

import math
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

from rich.table import Table

from hatcast.lab.evaluate.comparison import Errors
from hatcast.lab.evaluate.contenders import hides_presence

_DIGITS: Final = 4
_MARKERS: Final = "osD^v<>pPX*"


def measure_name(dimensions: int) -> str:
    """Return the name of the measure."""
    return "mean absolute error" if dimensions == 1 else "mean l1 error"


def table_of(errors: Errors, title: str, measure: str, unit: str = "km/h") -> Table:
    """Return a table: a row per estimator, a column per epsilon; the least error under `replace` in bold."""
    epsilons = list(next(iter(errors.values())))
    worst = max(
        (each.standard_error / each.mae for row in errors.values() for each in row.values() if each.mae), default=0
    )
    table = Table(
        title=title,
        title_justify="left",
        caption=" ".join(
            [f"{measure} in {unit}; standard errors are up to {worst:.1%} of it.", *_caption_notes(errors)]
        ),
    )
    table.add_column("estimator", overflow="fold")
    for epsilon in epsilons:
        table.add_column(f"eps {epsilon:g}", justify="right", no_wrap=True, min_width=7)
    replacing = [row for name, row in errors.items() if not hides_presence(name)]
    least = {epsilon: min((row[epsilon].mae for row in replacing), default=None) for epsilon in epsilons}
    for name, row in errors.items():
        cells = ["-" if math.isnan(each.mae) else f"{each.mae:.3f}" for each in row.values()]
        table.add_row(
            f"{name} (add_remove)" if hides_presence(name) else name,
            *(
                f"[bold]{cell}[/bold]" if row[epsilon].mae == least[epsilon] else cell
                for epsilon, cell in zip(epsilons, cells, strict=True)
            ),
        )
    return table


def _caption_notes(errors: Errors) -> Iterator[str]:
    """Yield the notes that a reader needs to compare rows with different guarantees."""
    hiding = {name: row for name, row in errors.items() if hides_presence(name)}
    if not hiding:
        return
    epsilons = list(next(iter(hiding.values())))
    pairs = [f"{epsilon:g} with {2 * epsilon:g}" for epsilon in epsilons if 2 * epsilon in epsilons]
    yield (
        "(add_remove) also hides that a bus was there. To replace one is to remove it and to add another, so compare "
        f"its eps with twice that of the others{': ' if pairs else ''}{', '.join(pairs)}."
    )
    if any(name.split(":")[1:] == [] for name in hiding):
        yield "Its array length is the median count here; in a policy it is a number."
    for name, row in hiding.items():
        suppressions = [
            f"{error.suppressed:.0%} of runs at eps {epsilon:g}" for epsilon, error in row.items() if error.suppressed
        ]
        if suppressions:
            yield f"Noise suppressed {name} in {', '.join(suppressions)}: these are not in its errors."


def as_json(errors: Errors) -> dict[str, dict[str, float | None]]:
    """Return {estimator: {epsilon: mean absolute error}}; null if all runs were suppressed."""
    return {
        name: {
            f"{epsilon:g}": None if math.isnan(error.mae) else round(error.mae, _DIGITS)
            for epsilon, error in row.items()
        }
        for name, row in errors.items()
    }


def suppressed(errors: Errors) -> dict[str, dict[str, float]]:
    """Return {estimator: {epsilon: share of suppressed runs}} of the estimators that noise can suppress."""
    return {
        name: {f"{epsilon:g}": round(error.suppressed, _DIGITS) for epsilon, error in row.items()}
        for name, row in errors.items()
        if hides_presence(name)
    }


def _line(name: str, epsilons: Sequence[float]) -> tuple[Sequence[float], str, str]:
    """Return x values, label and style of a line. Points with the same x hide a replaced bus equally well."""
    if hides_presence(name):
        return [2 * epsilon for epsilon in epsilons], f"{name} (add_remove), at 2 eps", "--"
    return epsilons, name, "-"


def plot(errors: Errors, title: str, measure: str, path: Path, unit: str = "km/h") -> None:
    """Plot a line per estimator, in the format of the file's suffix. Raises HatcastError if it cannot be written."""
    from matplotlib.ticker import FuncFormatter

    from hatcast.agents.tables.plots import open_axes

    with open_axes(path, title) as axes:
        for (name, row), marker in zip(errors.items(), cycle(_MARKERS), strict=False):
            xs, label, style = _line(name, sorted(row))
            axes.plot(
                xs, [row[x].mae for x in sorted(row)], style, marker=marker, markersize=4, linewidth=1, label=label
            )
        axes.set(xlabel="epsilon", ylabel=f"{measure}, {unit}", yscale="log")
        axes.set_xticks(sorted({x for name, row in errors.items() for x in _line(name, list(row))[0]}))
        for formats in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            formats(FuncFormatter(lambda y, _: f"{y:g}"))
