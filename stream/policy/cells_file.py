"""Cells files, of `policy.cells` and `policy.fine_cells`: their source, their privacy cost, and one H3 index a line."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

import h3.api.basic_int as h3

from hatcast.stream.errors import SettingError
from hatcast.stream.units import nano_ceil

SOURCES: Final = ("public", "survey", "private")
_EPSILON_MAX: Final = 1000
_DAYS_MAX: Final = 3_660  # ten years: each day is charged when the list is first used


@dataclass(frozen=True, slots=True)
class SelectionCost:
    """Privacy cost of a private selection of cells: epsilon on each local date from `first` to `last`."""

    epsilon: float
    first: date
    last: date

    @property
    def epsilon_nano(self) -> int:
        """Charge in 1e-9, rounded up."""
        return nano_ceil(self.epsilon)

    @property
    def dates(self) -> list[str]:
        """The charged local dates in ascending order."""
        days = (self.last - self.first).days + 1
        return [(self.first + timedelta(days=day)).isoformat() for day in range(days)]

    def covers(self, day: str) -> bool:
        """Return whether a local date is charged."""
        return self.first.isoformat() <= day <= self.last.isoformat()


@dataclass(frozen=True, slots=True)
class CellsFile:
    """A list of cells. cost, timezone: of its days, set if `source` is "private", else None."""

    source: str
    cells: frozenset[int]
    cost: SelectionCost | None = None
    timezone: str | None = None

    @property
    def canonical(self) -> dict[str, Any]:
        """The content that is hashed into policy_id."""
        cost = {}
        if self.cost is not None:
            cost = {"epsilon": self.cost.epsilon, "days": [self.cost.first.isoformat(), self.cost.last.isoformat()]}
        return {"source": self.source, **cost, "cells": sorted(h3.int_to_str(cell) for cell in self.cells)}

    def text(self, comments: Iterable[str]) -> str:
        """Return the file's text."""
        lines = [f'source = "{self.source}"', *(f"# {comment}" for comment in comments)]
        if self.cost is not None:
            lines.append(f"epsilon = {self.cost.epsilon!r}")
            lines.append(f'days = "{self.cost.first},{self.cost.last}"')
            lines.append(f'timezone = "{self.timezone}"')
        return "\n".join([*lines, *(h3.int_to_str(cell) for cell in sorted(self.cells))]) + "\n"


def read_cells_file(text: str, where: str, *resolutions: int) -> CellsFile:
    """Parse a cells file; lines that begin with # are comments.

    where         the configuration key, for error messages
    resolutions   of the cells
    Raises SettingError for a first line without a source, for a line that is not an H3 index of such a resolution, and
    for a private list without its cost or its time zone.
    """
    first, *rest = text.splitlines() or [""]
    source = first.removeprefix("source = ").strip('"')
    if source not in SOURCES or not first.startswith("source = "):
        raise SettingError(where, "does not begin with its source", 'make the first line source = "public"')
    cells, cost = set(), dict[str, str]()
    for number, line in enumerate(rest, start=2):
        index = line.strip()
        if not index or index.startswith("#"):
            continue
        key, is_key, value = (part.strip() for part in index.partition("="))
        if is_key and source == "private" and key in ("epsilon", "days", "timezone"):
            cost[key] = value.strip('"')
            continue
        if not h3.is_valid_cell(_index(index)) or h3.get_resolution(_index(index)) not in resolutions:
            raise SettingError(
                where,
                f"line {number} is not an H3 index of resolution {' or '.join(map(str, resolutions))}",
                "correct or remove it",
            )
        cells.add(_index(index))
    if source != "private":
        return CellsFile(source, frozenset(cells))
    charged = _selection_cost(cost, where)
    if not cost.get("timezone"):
        raise SettingError(
            where,
            "is private and does not state the time zone of its days",
            'add the line timezone = "..." with the policy.timezone under which `hatcast survey --private` wrote it',
        )
    return CellsFile(source, frozenset(cells), charged, cost["timezone"])


def check_days(listed: CellsFile, timezone: str, where: str) -> None:
    """Raise SettingError if the days that a private list has cost are not those of this time zone."""
    if listed.timezone not in (None, timezone):
        raise SettingError(
            where,
            f"has cost days of {listed.timezone}, and policy.timezone is {timezone}: other days would be charged",
            f'use timezone = "{listed.timezone}", or select again by `hatcast survey --private` under this one',
        )


def _selection_cost(cost: dict[str, str], where: str) -> SelectionCost:
    try:
        epsilon = float(cost["epsilon"])  # 0.0 for one below all others: it would cost nothing
        first, last = (date.fromisoformat(day.strip()) for day in cost["days"].split(","))
    except (KeyError, ValueError):
        epsilon, first, last = 0.0, date.min, date.min
    if not 0 < epsilon <= _EPSILON_MAX or not first <= last:
        raise SettingError(
            where,
            "is private and does not state its privacy cost",
            'let `hatcast survey --private` write the file: it adds epsilon = 1.0 and days = "FIRST,LAST"',
        )
    if (last - first).days >= _DAYS_MAX:
        raise SettingError(where, f"names more than {_DAYS_MAX:,} days", "restore its line days as the survey wrote it")
    return SelectionCost(epsilon, first, last)


def _index(text: str) -> int:
    """Parse a hexadecimal H3 index; return 0, which H3 rejects, for a text that is not an unsigned 64-bit number."""
    try:
        number = int(text, 16)
    except ValueError:
        return 0
    return number if 0 <= number < 1 << 64 else 0
