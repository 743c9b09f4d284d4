"""The file that `policy.cells` names: where the list comes from, what that has cost, one H3 index a line."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import h3.api.basic_int as h3

from hatcast.stream.errors import SettingError
from hatcast.stream.units import nano

SOURCES: Final = ("public", "survey", "private")
_EPSILON_MOST: Final = 1000
_DAYS_MOST: Final = 3_660  # ten years: each of them is booked when the list is first used


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a private choice of cells has cost: epsilon on each local date from the first to the last."""

    epsilon: float
    first: date
    last: date

    @property
    def epsilon_nano(self) -> int:
        """1e-9, rounded up."""
        return nano(self.epsilon)

    @property
    def dates(self) -> list[str]:
        """The local dates that it has cost something, in order."""
        days = (self.last - self.first).days + 1
        return [(self.first + timedelta(days=day)).isoformat() for day in range(days)]

    def is_on(self, day: str) -> bool:
        """Whether it has cost a local date something."""
        return self.first.isoformat() <= day <= self.last.isoformat()


@dataclass(frozen=True, slots=True)
class CellsFile:
    """A list of cells. chosen: what it has cost, where `source` is "private"; else None."""

    source: str
    cells: frozenset[int]
    chosen: Chosen | None = None

    @property
    def canonical(self) -> dict[str, Any]:
        """What is hashed into policy_id."""
        cost = {}
        if self.chosen is not None:
            days = [self.chosen.first.isoformat(), self.chosen.last.isoformat()]
            cost = {"epsilon": self.chosen.epsilon, "days": days}
        return {"source": self.source, **cost, "cells": sorted(h3.int_to_str(cell) for cell in self.cells)}

    def text(self, remarks: Iterable[str]) -> str:
        """The file."""
        lines = [f'source = "{self.source}"', *(f"# {remark}" for remark in remarks)]
        if self.chosen is not None:
            lines.append(f"epsilon = {self.chosen.epsilon!r}")
            lines.append(f'days = "{self.chosen.first},{self.chosen.last}"')
        return "\n".join([*lines, *(h3.int_to_str(cell) for cell in sorted(self.cells))]) + "\n"


def read_cells_file(text: str, where: str, resolution: int) -> CellsFile:
    """A file of cells; lines that begin with # are remarks.

    where   whose file it is, for the refusal
    Raises SettingError for a first line without a source, for what is no H3 index of that resolution, and for a private
    list that does not say what it has cost.
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
        if is_key and source == "private" and key in ("epsilon", "days"):
            cost[key] = value.strip('"')
            continue
        if not h3.is_valid_cell(_index(index)) or h3.get_resolution(_index(index)) != resolution:
            raise SettingError(
                where, f"line {number} is no H3 index of resolution {resolution}", "correct or remove it"
            )
        cells.add(_index(index))
    return CellsFile(source, frozenset(cells), _chosen(cost, where) if source == "private" else None)


def _chosen(cost: dict[str, str], where: str) -> Chosen:
    try:
        epsilon = Decimal(cost["epsilon"])
        first, last = (date.fromisoformat(day.strip()) for day in cost["days"].split(","))
    except (KeyError, ValueError, InvalidOperation):
        epsilon, first, last = Decimal(0), date.min, date.min
    if not 0 < epsilon <= _EPSILON_MOST or not first <= last:
        raise SettingError(
            where,
            "is private and does not say what it has cost",
            'let `hatcast survey --private` write it: it puts there epsilon = 1.0 and days = "FIRST,LAST"',
        )
    if (last - first).days >= _DAYS_MOST:
        raise SettingError(
            where, f"names more than {_DAYS_MOST:,} days", "correct its line days, as the survey wrote it"
        )
    return Chosen(float(epsilon), first, last)


def _index(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0
