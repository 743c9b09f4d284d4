"""Comparison of the hybrid model as tables, JSON, rows and a plot."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.table import Column, Table

from hatcast.agents.cli.report import Report, open_figure, significant
from hatcast.agents.tables.terminal import table
from hatcast.lab.evaluate.hybrid import AXES, DELTA, Amplification, Curve, Heatmap, Measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS: Final = 4  # of heatmaps
_COLOURS: Final = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")
_STYLES: Final = ("-", "--", ":", "-.")
_NAMES: Final = {"users": "users n", "share": "central share c", "epsilon": "epsilon"}
_MEASURE: Final = "relative improvement R"
_AMPLIFIED: Final = f"epsilon against output viewers (Gaussian, delta {DELTA:g})"
_NAME_WIDTH: Final = 17  # of the longest name, which 80 columns have room for
_WIDTH: Final = 76  # so that title and caption do not fold at the table's own
_DIGITS: Final = 6
_WORSE: Final = "r, over the worse baseline"


def report_of(
    curves: Sequence[Curve],
    maps: Sequence[Heatmap],
    amplifications: Sequence[Amplification],
    title: str,
    settings: Mapping[str, Any],
    own: Measured | None = None,
) -> Report:
    """Return tables of improvement, heatmap and amplification, and before them that of an own recording.

    {"improvement": {axis: {estimator: {sigma: [point]}}},
     "heatmap": {estimator: {"sigma": .., "share": [..], "epsilon": [..], "improvement": [row of each epsilon],
                              "over_worse": [..]}},
     "amplification": {coalition: [[share, epsilon]]},
     "recording": {"name": .., "users": .., "central": .., "local": .., "sigma": .., "improvement": {estimator: R},
                   "over_worse": {estimator: r}}}
    """
    rows: list[dict[str, Any]] = []
    improvement: dict[str, Any] = {}
    for curve in curves:
        place = {"table": "improvement", "axis": curve.axis, "estimator": curve.estimator, "sigma": curve.sigma}
        points = [
            {**{name: _rounded(each) for name, each in asdict(point).items()}, "x": point.x} for point in curve.points
        ]
        of_axis = improvement.setdefault(curve.axis, {}).setdefault(curve.estimator, {})
        of_axis[f"{curve.sigma:g}"] = [
            {curve.axis if name == "x" else name: number for name, number in point.items()} for point in points
        ]
        rows += [{**place, **point} for point in points]
    heatmap: dict[str, dict[str, Any]] = {
        each.estimator: {
            "sigma": each.sigma,
            "share": [float(f"{share:.4g}") for share in each.shares],
            "epsilon": [float(f"{epsilon:.4g}") for epsilon in each.epsilons],
            "improvement": [[_rounded(number) for number in row] for row in each.improvements.tolist()],
            "over_worse": [[_rounded(number) for number in row] for row in each.over_worse.tolist()],
        }
        for each in maps
    }
    for name, found in heatmap.items():
        place = {"table": "heatmap", "estimator": name, "sigma": found["sigma"]}
        for epsilon, row, worse in zip(found["epsilon"], found["improvement"], found["over_worse"], strict=True):
            rows += [
                {**place, "share": share, "epsilon": epsilon, "theory": number, "over_worse": over_worse}
                for share, number, over_worse in zip(found["share"], row, worse, strict=True)
            ]
    public = {
        f"{each.coalition:g}": [[share, _rounded(epsilon)] for share, epsilon in each.points] for each in amplifications
    }
    rows += [
        {"table": "amplification", "coalition": float(coalition), "share": share, "epsilon": epsilon}
        for coalition, points in public.items()
        for share, epsilon in points
    ]
    figures: dict[str, Any] = {"improvement": improvement, "heatmap": heatmap, "amplification": public}
    if own is not None:
        found = _recording(own)
        figures["recording"] = found
        rows += [
            {"table": "recording", "estimator": name, "theory": found["improvement"][name], "over_worse": worse}
            for name, worse in found["over_worse"].items()
        ]
    return Report(
        shown=[
            *([] if own is None else [_own_table(own)]),
            *(_axis_table(curves, axis, title) for axis in AXES),
            table(
                f"{_AMPLIFIED} against {_NAMES['share']}",
                "",
                ["coalition of local users", *(f"{share:g}" for share, _ in amplifications[0].points)],
                (
                    (f"{each.coalition:.0%}", *(significant(epsilon) for _, epsilon in each.points))
                    for each in amplifications
                ),
            ),
        ],
        figures=figures,
        settings=settings,
        rows=rows,
        plot=lambda path: _plot(curves, maps, amplifications, title, path),
    )


def _rounded(number: float) -> float | None:
    """Return a number with six significant digits; None for NaN."""
    return None if math.isnan(number) else float(f"{number:.{_DIGITS}g}")


def _recording(own: Measured) -> dict[str, Any]:
    return {
        "name": own.name,
        "users": own.central + own.local,
        "central": own.central,
        "local": own.local,
        "sigma": _rounded(own.case.sigma),
        "improvement": {name: _rounded(better) for name, (better, _) in own.ratios.items()},
        "over_worse": {name: _rounded(worse) for name, (_, worse) in own.ratios.items()},
    }


def _own_table(own: Measured) -> Table:
    sigma = own.case.sigma
    return table(
        f"{own.name}: T = {own.central:,} central and L = {own.local:,} local users, eps {own.case.epsilon:g}",
        f"sigma of the users' means is {significant(sigma)} U, {significant(sigma * own.upper_bound)} {own.unit}. R and"
        " r are by the lemmas, for groups that are alike.",
        ["estimator", "R", "r"],
        ([name, significant(better), significant(worse)] for name, (better, worse) in own.ratios.items()),
        min_width=_WIDTH,
    )


def _axis_table(curves: Sequence[Curve], axis: str, title: str) -> Table:
    rows = [curve for curve in curves if curve.axis == axis]
    points = [point for row in rows for point in row.points if point.standard_error]
    off = max((abs(each.simulated - each.theory) / each.standard_error for each in points), default=0.0)
    return table(
        f"{title}: {_MEASURE} against {_NAMES[axis]}",
        f"By the lemmas; simulated R are up to {off:.1f} of their standard errors away. R is over the "
        "better of the baselines tcm_only and full_lm, r over the worse one.",
        [
            Column("estimator, sigma / U", overflow="fold", min_width=_NAME_WIDTH),
            *(
                f"{point.x:.3g}" if axis == "share" else f"{point.x:g}"
                for point in max((row.points for row in rows), key=len)
            ),
        ],
        [
            *(
                (f"{row.estimator}, {row.sigma:.3g}", *(significant(point.theory) for point in row.points))
                for row in rows
            ),
            None,
            *(
                (f"r of {row.estimator}, {row.sigma:.3g}", *(significant(point.over_worse) for point in row.points))
                for row in rows
            ),
        ],
    )


def _plot(
    curves: Sequence[Curve], maps: Sequence[Heatmap], amplifications: Sequence[Amplification], title: str, path: Path
) -> None:
    """Plot R and r, a panel per axis, and heatmaps of R with the amplification below. Lemmas are lines."""
    drawn = len(maps) * 2 + 1
    rows = math.ceil(drawn / _COLUMNS)
    with open_figure(path, title, (11, 6.8 + 3.2 * rows)) as figure:
        better, worse, below = figure.subfigures(3, 1, squeeze=False, height_ratios=[1, 1, rows]).flat
        for row, measure, shown in ((better, _MEASURE, 1), (worse, _WORSE, 2)):
            for axis, panel in zip(AXES, row.subplots(1, 3), strict=True):
                _improvements(panel, [curve for curve in curves if curve.axis == axis], shown)
                panel.set(xlabel=_NAMES[axis], ylabel=measure)
        panels = below.subplots(rows, min(_COLUMNS, drawn), squeeze=False).flat
        for at, each in enumerate(maps):
            _heatmap(panels[2 * at], each, "R")
            _heatmap(panels[2 * at + 1], each, "r")
        _public(panels[drawn - 1], amplifications)
        for panel in panels[drawn:]:
            panel.set_axis_off()
        labelled = better.axes[0].get_legend_handles_labels()
        figure.legend(*labelled, loc="outside lower center", ncols=3, frameon=False)


def _heatmap(panel: "Axes", heatmap: Heatmap, measure: str) -> None:
    """Draw R, or r on a logarithmic scale of colours, as in the paper."""
    from matplotlib.colors import LogNorm

    numbers, norm = heatmap.improvements, None
    if measure == "r" and not np.isnan(heatmap.over_worse).all():
        numbers, norm = heatmap.over_worse, LogNorm()
    drawn = panel.pcolormesh(heatmap.shares, heatmap.epsilons, numbers, shading="nearest", rasterized=True, norm=norm)
    panel.figure.colorbar(drawn, ax=panel, shrink=0.9)
    panel.set(xscale="log", yscale="log", xlabel=_NAMES["share"], ylabel=_NAMES["epsilon"])
    panel.set_title(f"{measure} of {heatmap.estimator},\nsigma {heatmap.sigma:g} U", fontsize=9)


def _improvements(panel: "Axes", curves: Sequence[Curve], shown: int) -> None:
    """Draw the curves of R with simulated points (shown: 1) or of r (shown: 2), on a logarithmic scale."""
    names = [*dict.fromkeys(curve.estimator for curve in curves)]
    sigmas = [*dict.fromkeys(curve.sigma for curve in curves)]
    for curve in curves:
        if not curve.line:
            continue  # one group is empty along the whole axis
        colour = _COLOURS[sigmas.index(curve.sigma) % len(_COLOURS)]
        style = _STYLES[names.index(curve.estimator) % len(_STYLES)]
        label = f"{curve.estimator}, sigma {curve.sigma:g} U"
        points = [*zip(*curve.line, strict=True)]
        panel.plot(points[0], points[shown], style, color=colour, linewidth=1, label=label)
        if shown == 2:
            continue
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
    if shown == 2:
        panel.set_yscale("log")
    panel.grid(visible=True, which="major", linewidth=0.3)


def _public(panel: "Axes", amplifications: Sequence[Amplification]) -> None:
    for each, style in zip(amplifications, _STYLES, strict=False):
        panel.plot(*zip(*each.points, strict=True), style, color="black", linewidth=1, label=f"{each.coalition:.0%}")
    panel.set(xscale="log", yscale="log", xlabel=_NAMES["share"])
    panel.set_title(_AMPLIFIED.replace(" (", "\n("), fontsize=9)
    panel.grid(visible=True, which="major", linewidth=0.3)
    panel.legend(title="in a coalition", frameon=False, fontsize=7, title_fontsize=7)
