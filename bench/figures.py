"""Results of a benchmark: named figures, some with a limit, as a table or as one flat JSON object."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One result. `low` and `high` are the spread over runs; `least` or `most` is the limit."""

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    least: float | None = None
    most: float | None = None

    @property
    def holds(self) -> bool | None:
        """True if the value is within the limit; None without a limit."""
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    @property
    def limit(self) -> str:
        """The limit in words."""
        if self.least is not None:
            return f"at least {self.least:g}"
        return "" if self.most is None else f"at most {self.most:g}"


def middle(
    name: str, values: Sequence[float], unit: str, *, least: float | None = None, most: float | None = None
) -> Figure:
    """Return the median of several runs, with their spread."""
    return Figure(name, median(values), unit, min(values), max(values), least, most)


def show(title: str, figures: Sequence[Figure], *, as_json: bool) -> int:
    """Print the figures to standard output; return the exit code, 1 if a limit is missed."""
    missed = [figure for figure in figures if figure.holds is False]
    if as_json:
        print(json.dumps(_flat(figures)))
    else:
        _table(title, figures)
    for figure in missed:
        print(f"above its limit: {figure.name} is {_text(figure.value)}, wanted {figure.limit}", file=sys.stderr)
    return 1 if missed else 0


def _flat(figures: Sequence[Figure]) -> dict[str, float]:
    flat: dict[str, float] = {}
    for figure in figures:
        for suffix, value in (
            ("", figure.value),
            ("_min", figure.low),
            ("_max", figure.high),
            ("_at_least", figure.least),
            ("_at_most", figure.most),
        ):
            if value is not None:
                flat[figure.name + suffix] = round(value, 4)
    return flat


def _table(title: str, figures: Sequence[Figure]) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("figure")
    for column in ("value", "spread"):
        table.add_column(column, justify="right")
    for column in ("unit", "limit", "holds"):
        table.add_column(column)
    for figure in figures:
        spread = "" if figure.low is None or figure.high is None else f"{_text(figure.low)} to {_text(figure.high)}"
        holds = {None: "", True: "yes", False: "NO"}[figure.holds]
        table.add_row(figure.name, _text(figure.value), spread, figure.unit, figure.limit, holds)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)
