"""A comparison as a table, and as a plot."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

from rich.table import Table

from agents.evaluate.comparison import Errors
from stream.errors import Refusal

_DIGITS: Final = 4
_MARKERS: Final = "osD^v<>pPX*"


def measured(dimensions: int) -> str:
    """What the numbers are."""
    return "mean absolute error" if dimensions == 1 else "mean l1 error"


def table_of(errors: Errors, title: str, measure: str) -> Table:
    """Estimators down, epsilons across; the least of each epsilon in bold."""
    epsilons = list(next(iter(errors.values())))
    worst = max(
        (each.standard_error / each.mae for row in errors.values() for each in row.values() if each.mae), default=0
    )
    table = Table(
        title=title,
        title_justify="left",
        caption=f"{measure} in km/h; standard errors are up to {worst:.1%} of it",
    )
    table.add_column("estimator", overflow="fold")
    for epsilon in epsilons:
        table.add_column(f"eps {epsilon:g}", justify="right", no_wrap=True, min_width=7)
    least = {epsilon: min(row[epsilon].mae for row in errors.values()) for epsilon in epsilons}
    for name, row in errors.items():
        cells = [f"{each.mae:.3f}" for each in row.values()]
        table.add_row(
            name,
            *(
                f"[bold]{cell}[/bold]" if row[epsilon].mae == least[epsilon] else cell
                for epsilon, cell in zip(epsilons, cells, strict=True)
            ),
        )
    return table


def as_json(errors: Errors) -> dict[str, dict[str, float]]:
    """{estimator: {epsilon: mean absolute error}}"""
    return {
        name: {f"{epsilon:g}": round(error.mae, _DIGITS) for epsilon, error in row.items()}
        for name, row in errors.items()
    }


def plot(errors: Errors, title: str, measure: str, path: Path) -> None:
    """A line an estimator, in the format of the file's ending. Raises Refusal if it cannot be written."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    with rc_context({"svg.hashsalt": "hatcast", "svg.fonttype": "none", "font.size": 9}):  # the same file each time
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for (name, row), marker in zip(errors.items(), cycle(_MARKERS), strict=False):
            xs: Sequence[float] = sorted(row)
            axes.plot(xs, [row[x].mae for x in xs], marker=marker, markersize=4, linewidth=1, label=name)
        axes.set(xlabel="epsilon", ylabel=f"{measure}, km/h", yscale="log")
        axes.set_xticks(sorted(next(iter(errors.values()))))
        for formats in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            formats(FuncFormatter(lambda y, _: f"{y:g}"))
        figure.suptitle(title, fontsize=9)
        axes.grid(visible=True, which="both", linewidth=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except (OSError, ValueError) as error:
            raise Refusal(f"--plot: {path} cannot be written ({error}); name a file such as out.svg") from None
