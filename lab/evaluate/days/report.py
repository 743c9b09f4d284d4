"""Comparison of designs over whole days, as a table, JSON and rows."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.table import Column, Table

from hatcast.agents.cli.report import COMPACT, Report, rounded, table
from hatcast.lab.evaluate.days.run import Comparison, Result
from hatcast.lab.evaluate.days.scores import MANY_USERS, Scores

_CONSTANTS: Final = {"half_bound": "U/2", "city": "the city's mean", "cell": "each cell's mean"}
_COLUMNS: Final = {
    "mae": "error",
    "by_users": "by users",
    "ge10": f">= {MANY_USERS}",
    "coverage": "covered",
    "half_width": "+-",
}


def report_of(comparison: Comparison, title: str, settings: Mapping[str, Any]) -> Report:
    """Return {design: {daily limit: {"live", "end", "released"}}} and {"constant": {name: ..}}, a table and rows.

    A column without a value is null. `live` and `end` are estimates; `released` has what an estimator of the papers
    releases itself, and the `share` of the HATs with a release; it is null for a tracker. With several runs `se` has
    the standard errors of all columns; in a row they are flat.
    """
    designs = {
        name: {
            f"{limit:g}": {
                "live": _scores(result.live),
                "end": _scores(result.end),
                "released": None
                if result.plain is None
                else _scores(result.plain) | {"share": rounded(result.released)},
            }
            for limit, result in by_limit.items()
        }
        for name, by_limit in comparison.results.items()
    }
    constants = {name: _scores(scores) for name, scores in comparison.constants.items()}
    return Report(
        shown=[_table(comparison, title)],
        figures=designs | {"constant": constants},
        settings=settings,
        rows=[
            *(
                {"design": name, "daily_limit": float(limit), "when": when, **_flat(scores)}
                for name, by_limit in designs.items()
                for limit, by_time in by_limit.items()
                for when, scores in by_time.items()
                if scores is not None
            ),
            *({"design": name, "when": "constant", **_flat(scores)} for name, scores in constants.items()),
        ],
    )


def _scores(scores: Scores) -> dict[str, Any]:
    found: dict[str, Any] = {name: rounded(scores[name].value) if name in scores else None for name in _COLUMNS}
    errors = {name: rounded(each.standard_error) for name, each in scores.items() if each.standard_error is not None}
    return found | ({"se": errors} if errors else {})


def _flat(scores: Mapping[str, Any]) -> dict[str, Any]:
    errors = {f"{name}_se": error for name, error in scores.get("se", {}).items()}
    return {name: score for name, score in scores.items() if name != "se"} | errors


def _table(comparison: Comparison, title: str) -> Table:
    """Return a table: a row for each design, daily limit and time; below them the constants."""

    def rows() -> Iterator[tuple[str, ...] | None]:
        for name, by_limit in comparison.results.items():
            for limit, result in by_limit.items():
                yield name, f"{limit:g}", "live", *_cells(result.live)
                yield "", "", "end", *_cells(result.end)
                if result.plain is not None:
                    yield "", "", "released", *_cells(result.plain)
            yield None
        for name, scores in comparison.constants.items():
            yield _CONSTANTS[name], "0", "", *_cells(scores)

    limit, when = Column("limit", justify="right"), Column("when")
    return table(
        title,
        _caption(comparison),
        (Column("design", overflow="fold", min_width=16), limit, when, *_COLUMNS.values()),
        rows(),
        pad_edge=False,  # so that it fits into 80 columns
        **COMPACT,
    )


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
