"""Comparison of clusterings as a table, as JSON and as a plot."""

import math
from itertools import cycle
from pathlib import Path
from typing import Final

from rich.table import Table

from hatcast.lab.evaluate.clusters import Scores
from hatcast.lab.evaluate.simulation import Floats

_MARKERS: Final = "osD^v<>"
_DIGITS: Final = 6
_WIDTH: Final = 79  # otherwise title and caption wrap at the width of a few columns


def table_of(scores: Scores, title: str) -> Table:
    """Return a table: a row per contender, a column per number of iterations; the least score with noise in bold."""
    lengths = list(next(iter(scores.values())))
    worst = max(standard_error(runs) / float(runs.mean()) for row in scores.values() for runs in row.values())
    table = Table(
        title=title,
        title_justify="left",
        caption="WCSS per user, in 1/1000 of the cube's edge squared, by number of iterations; standard errors are up "
        f"to {worst:.0%} of it. :printed is as in the paper's pseudocode; see docs/cluster.md.",
        min_width=_WIDTH,
    )
    table.add_column("", no_wrap=True)
    for length in lengths:
        table.add_column(f"{length}", justify="right", no_wrap=True)
    noisy = [row for name, row in scores.items() if name != "non_private"]
    least = {length: min(float(row[length].mean()) for row in noisy) for length in lengths}
    for name, row in scores.items():
        cells = [(1000 * float(runs.mean()), float(runs.mean()) == least[length]) for length, runs in row.items()]
        table.add_row(name, *(f"[bold]{score:.2f}[/bold]" if best else f"{score:.2f}" for score, best in cells))
    return table


def standard_error(runs: Floats) -> float:
    """Return the standard error of the mean of all runs."""
    return float(runs.std(ddof=1)) / math.sqrt(len(runs))


def as_json(scores: Scores) -> dict[str, dict[str, dict[str, float]]]:
    """Return {contender: {iterations: mean and standard error}}."""
    return {
        name: {
            str(length): {
                "mean": round(float(runs.mean()), _DIGITS),
                "standard_error": round(standard_error(runs), _DIGITS),
            }
            for length, runs in row.items()
        }
        for name, row in scores.items()
    }


def plot(scores: Scores, title: str, path: Path) -> None:
    """Plot a line per contender. Raises HatcastError if it cannot be written."""
    from hatcast.agents.tables.plots import open_axes

    with open_axes(path, title) as axes:
        for (name, row), marker in zip(scores.items(), cycle(_MARKERS), strict=False):
            means = [float(runs.mean()) for runs in row.values()]
            style = "--" if name.endswith(":printed") else "-"
            axes.plot([*row], means, style, marker=marker, markersize=4, linewidth=1, label=name)
        axes.set(xlabel="iterations", ylabel="WCSS per user, edges^2", yscale="log")
        axes.set_xticks([*next(iter(scores.values()))])
