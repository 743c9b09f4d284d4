"""Comparison of designs over whole days, as a table and as JSON."""

from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from hatcast.lab.evaluate.days.run import Comparison, Result
from hatcast.lab.evaluate.days.scores import MANY_USERS, Scores

_DIGITS: Final = 4
_NAME_WIDTH: Final = 16
_CONSTANTS: Final = {"half_bound": "U/2", "city": "the city's mean", "cell": "each cell's mean"}
_COLUMNS: Final = {
    "mae": "error",
    "by_users": "by users",
    "ge10": f">= {MANY_USERS}",
    "coverage": "covered",
    "half_width": "+-",
}


def table_of(comparison: Comparison, title: str) -> Table:
    """Return a table: a row for each design, daily limit and time; below them the constants."""
    table = Table(
        title=title,
        title_justify="left",
        caption=_caption(comparison),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),  # so that it fits into 80 columns
        pad_edge=False,
    )
    table.add_column("design", overflow="fold", min_width=_NAME_WIDTH)
    table.add_column("limit", justify="right")
    table.add_column("when")
    for heading in _COLUMNS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for name, by_limit in comparison.results.items():
        for limit, result in by_limit.items():
            table.add_row(name, f"{limit:g}", "live", *_cells(result.live))
            table.add_row("", "", "end", *_cells(result.end))
            if result.plain is not None:
                table.add_row("", "", "released", *_cells(result.plain))
        table.add_section()
    for name, scores in comparison.constants.items():
        table.add_row(_CONSTANTS[name], "0", "", *_cells(scores))
    return table


def _scores_of(result: Result) -> list[Scores]:
    return [result.live, result.end] + ([] if result.plain is None else [result.plain])


def _cells(scores: Scores) -> list[str]:
    cells = {name: f"{score.value:.2f}" for name, score in scores.items()}
    if "coverage" in scores:
        cells["coverage"] = f"{scores['coverage'].value:.1%}"
    return [cells.get(name, "-") for name in _COLUMNS]


def _caption(comparison: Comparison) -> str:
    """Return the notes below the table; the last sentence is about the best constant."""
    results = [result for by_limit in comparison.results.values() for result in by_limit.values()]
    errors = [scores["mae"] for result in results for scores in _scores_of(result)]
    spreads = [each.standard_error for each in errors if each.standard_error is not None]
    columns = (
        f"limit: epsilon that a bus can lose on one day. error: mean absolute error in {comparison.unit} against the"
        f" mean of all readings, each HAT alike; by users: weighted by them; >= {MANY_USERS}: HATs of as many users."
        " covered: share of 95 % intervals that have that mean; +-: their mean half width. live: at the close of the"
        " HAT's slot; end: of its day; released: what an estimator releases itself, before smoothing."
    )
    notes = [columns]
    if spreads:
        notes.append(f"Standard errors of errors are up to {max(spreads):.2f}.")
    released = min(result.released for result in results)
    if released < 1:
        notes.append(
            f"The papers' estimators release as few as {released:.0%} of these HATs, because a bus's first HATs use up "
            "its K; the others count as the mean of what was released before."
        )
    notes.append(_about_constants(comparison))
    return " ".join(notes)


def _about_constants(comparison: Comparison) -> str:
    """Return one sentence: the error of the best constant for the whole city, and which designs are better."""
    errors = {name: comparison.constants[name]["mae"].value for name in ("half_bound", "city")}
    best = min(errors, key=errors.__getitem__)
    better = []
    for name, by_limit in comparison.results.items():
        limits = [
            limit
            for limit, result in by_limit.items()
            if min(each["mae"].value for each in _scores_of(result)) < errors[best]
        ]
        better.append(f"{name} is better at {_listed(limits)}" if limits else f"{name} is better at no limit above")
    known = ", if somebody knew it in advance," if best == "city" else ""
    return (
        f"The best constant for the whole city is {_CONSTANTS[best]}: publishing it{known} costs nothing and has an "
        f"error of {errors[best]:.2f} {comparison.unit}; {'; '.join(better)}."
    )


def _listed(limits: list[float]) -> str:
    *others, last = [f"{limit:g}" for limit in limits]
    return f"{', '.join(others)} and {last}" if others else last


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return {design: {daily limit: {"live", "end"}}} and {"constant": {name: ..}}.

    A column without a value is null. `live` and `end` are estimates; `released` has what an estimator of the papers
    releases itself, and the `share` of the HATs with a release; it is null for a tracker. With several runs `se` has
    the standard errors of all columns.
    """
    designs = {
        name: {
            f"{limit:g}": {
                "live": _scores(result.live),
                "end": _scores(result.end),
                "released": None
                if result.plain is None
                else _scores(result.plain) | {"share": round(result.released, _DIGITS)},
            }
            for limit, result in by_limit.items()
        }
        for name, by_limit in comparison.results.items()
    }
    return designs | {"constant": {name: _scores(scores) for name, scores in comparison.constants.items()}}


def _scores(scores: Scores) -> dict[str, Any]:
    found: dict[str, Any] = {name: round(scores[name].value, _DIGITS) if name in scores else None for name in _COLUMNS}
    errors = {
        name: round(score.standard_error, _DIGITS) for name, score in scores.items() if score.standard_error is not None
    }
    return found | ({"se": errors} if errors else {})
