"""Comparison of the hybrid model as tables, as JSON and as a plot."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from hatcast.agents.research.evaluate.hybrid import AXES, DELTA, Amplification, Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DIGITS: Final = 4
_COLOURS: Final = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")
_STYLES: Final = ("-", "--", ":", "-.")
_NAMES: Final = {"users": "users n", "share": "central share c", "epsilon": "epsilon"}
_MEASURE: Final = "relative improvement R"


def tables_of(curves: Sequence[Curve], amplifications: Sequence[Amplification], title: str) -> Iterator[Table]:
    """Yield a table per axis, and one of epsilon against output viewers."""
    for axis in AXES:
        rows = [curve for curve in curves if curve.axis == axis]
        points = [point for row in rows for point in row.points if point.standard_error]
        off = max((abs(each.simulated - each.theory) / each.standard_error for each in points), default=0.0)
        table = Table(
            title=f"{title}: {_MEASURE} against {_NAMES[axis]}",
            title_justify="left",
            caption=f"By the lemmas; simulated ones are up to {off:.1f} of their standard errors away.",
        )
        table.add_column("estimator, sigma / U", overflow="fold")
        for point in max((row.points for row in rows), key=len):
            table.add_column(f"{point.x:g}", justify="right", no_wrap=True)
        for row in rows:
            cells = [f"{point.theory:.3f}" for point in row.points]
            table.add_row(f"{row.estimator}, {row.sigma:g}", *cells)
        yield table
    table = Table(title=f"{_amplified()} against {_NAMES['share']}", title_justify="left")
    table.add_column("coalition of local users")
    for share, _ in amplifications[0].points:
        table.add_column(f"{share:g}", justify="right", no_wrap=True)
    for each in amplifications:
        table.add_row(f"{each.coalition:.0%}", *(f"{epsilon:.4f}" for _, epsilon in each.points))
    yield table


def as_json(curves: Sequence[Curve], amplifications: Sequence[Amplification]) -> dict[str, Any]:
    """Return the curves and amplifications.

    {"improvement": {axis: {estimator: {sigma: [point]}}}, "amplification": {coalition: [[share, epsilon]]}}
    """
    improvement: dict[str, dict[str, dict[str, Any]]] = {}
    for curve in curves:
        improvement.setdefault(curve.axis, {}).setdefault(curve.estimator, {})[f"{curve.sigma:g}"] = [
            {
                curve.axis: point.x,
                "theory": round(point.theory, _DIGITS),
                "over_worse": round(point.over_worse, _DIGITS),
                "simulated": round(point.simulated, _DIGITS),
                "standard_error": round(point.standard_error, _DIGITS),
            }
            for point in curve.points
        ]
    public = {
        f"{each.coalition:g}": [[share, round(epsilon, _DIGITS)] for share, epsilon in each.points]
        for each in amplifications
    }
    return {"improvement": improvement, "amplification": public}


def plot(curves: Sequence[Curve], amplifications: Sequence[Amplification], title: str, path: Path) -> None:
    """Plot lemmas as lines and simulations as points, a panel per axis. Raises HatcastError if it cannot be written."""
    from hatcast.agents.research.figures import open_figure

    with open_figure(path, title, (8.5, 7.2)) as figure:
        first, *others, last = figure.subplots(2, 2).flat
        for axis, panel in zip(AXES, (first, *others), strict=True):
            _improvements(panel, [curve for curve in curves if curve.axis == axis])
            panel.set(xlabel=_NAMES[axis], ylabel=_MEASURE)
        _public(last, amplifications)
        figure.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)


def _improvements(panel: "Axes", curves: Sequence[Curve]) -> None:
    names = [*dict.fromkeys(curve.estimator for curve in curves)]
    sigmas = [*dict.fromkeys(curve.sigma for curve in curves)]
    for curve in curves:
        if not curve.line:
            continue  # one group is empty along the whole axis
        colour = _COLOURS[sigmas.index(curve.sigma) % len(_COLOURS)]
        style = _STYLES[names.index(curve.estimator) % len(_STYLES)]
        label = f"{curve.estimator}, sigma {curve.sigma:g} U"
        panel.plot(*zip(*curve.line, strict=True), style, color=colour, linewidth=1, label=label)
        panel.errorbar(
            [point.x for point in curve.points],
            [point.simulated for point in curve.points],
            yerr=[2 * point.standard_error for point in curve.points],
            fmt="o",
            color=colour,
            markersize=3,
            linewidth=0.8,
        )
    panel.axhline(1, color="black", linewidth=0.5)
    panel.set_xscale("log")
    panel.grid(visible=True, which="major", linewidth=0.3)


def _public(panel: "Axes", amplifications: Sequence[Amplification]) -> None:
    for each, style in zip(amplifications, _STYLES, strict=False):
        panel.plot(*zip(*each.points, strict=True), style, color="black", linewidth=1, label=f"{each.coalition:.0%}")
    panel.set(xscale="log", yscale="log", xlabel=_NAMES["share"])
    panel.set_title(_amplified(), fontsize=9)
    panel.grid(visible=True, which="major", linewidth=0.3)
    panel.legend(title="local users in a coalition", frameon=False)


def _amplified() -> str:
    return f"epsilon against output viewers (Gaussian, delta {DELTA:g})"
