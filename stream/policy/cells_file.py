"""Cells files, of `policy.cells` and `policy.fine_cells`: their source, their privacy cost, and one H3 index a line.

Fine cells are used where they are listed, coarse cells elsewhere. [T III.C, remark; docs/specification/fold.md, rule 8]
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

import h3.api.basic_int as h3
import msgspec

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.table import PolicyTable
from hatcast.stream.units import nano_ceil

SOURCES: Final = ("public", "survey", "private")
_RESOLUTIONS: Final = "policy.resolutions"
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


def text_of(name: str, where: str, read_cells: Callable[[str], str]) -> str:
    """Return the text of a cells file that another key than `cells` names. Raises SettingError."""
    try:
        return read_cells(name)
    except SettingError as error:  # it names `cells`
        raise SettingError(where, "cannot be read", "name a readable file") from error


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


@dataclass(frozen=True, slots=True)
class FineCells:
    """Listed cells of resolutions above `h3_resolution`."""

    resolutions: tuple[int, ...]  # those of the list's cells, finest first
    cells: frozenset[int]
    remainders: frozenset[int]  # coarse cells that overlap a listed cell

    def cell_at(self, latitude: float, longitude: float) -> int | None:
        """Return the finest listed cell of a place; None if no listed cell contains it."""
        for resolution in self.resolutions:
            cell: int = h3.latlng_to_cell(latitude, longitude, resolution)
            if cell in self.cells:
                return cell
        return None

    def is_remainder(self, cell: str) -> bool:
        """Return whether readings of this cell are left out because a listed finer cell contains them."""
        return h3.str_to_int(cell) in self.remainders


def with_coarse_resolution(given: PolicyTable, table: Mapping[str, Any]) -> PolicyTable:
    """Return the policy table with `h3_resolution` set to the first of `resolutions`, if these are configured.

    table   as written
    Raises SettingError.
    """
    resolutions = given.resolutions
    if resolutions is None:
        if given.fine_cells is not None:
            raise SettingError("policy.fine_cells", "is not used without resolutions", "add resolutions = [7, 8]")
        return given
    if "h3_resolution" in table:
        raise SettingError(_RESOLUTIONS, "and h3_resolution are both written", "remove h3_resolution")
    ascending = [*resolutions] == sorted({*resolutions})
    if not ascending or len(resolutions) < 2 or not 0 <= resolutions[0] <= resolutions[-1] <= 15:
        raise SettingError(
            _RESOLUTIONS,
            f"{[*resolutions]} is not a list of H3 resolutions from coarse to fine",
            "use two or more of 0 to 15, such as [7, 8], or h3_resolution",
        )
    if given.fine_cells is None:
        raise SettingError("policy.fine_cells", "is missing", "name a file of fine cells, or use h3_resolution")
    return msgspec.structs.replace(given, h3_resolution=resolutions[0])


def fine_cells_of(
    given: PolicyTable, coarse: CellsFile | None, read_cells: Callable[[str], str]
) -> tuple[CellsFile | None, FineCells | None, dict[str, Any]]:
    """Return the file of fine cells, its cells for the fold, and the keys that are hashed into policy_id.

    given    a result of `with_coarse_resolution`
    coarse   the file that `cells` names; None: all cells
    Without `resolutions` there is no file and no key. Raises SettingError.
    """
    if given.resolutions is None or given.fine_cells is None:
        return None, None, {}
    where = f"policy.fine_cells ({given.fine_cells})"
    listed = read_cells_file(text_of(given.fine_cells, where, read_cells), where, *given.resolutions[1:])
    if not listed.cells:
        raise SettingError(where, "lists no cell", "list H3 indexes, one a line, or use h3_resolution")
    check_days(listed, given.timezone, where)
    if given.privacy.relation == "add_remove" and listed.source != "public":
        raise SettingError(
            where,
            "must be public under add_remove: which cells have data is private",
            'name a file whose first line is source = "public", made without looking at the data',
        )
    if coarse is not None and coarse.cost is not None and listed.cost is not None:
        raise SettingError(
            where,
            "and cells are both private selections, and a policy books the cost of one",
            "choose one of the two lists without noise, from public knowledge",
        )
    found = tuple(sorted({h3.get_resolution(cell) for cell in listed.cells}, reverse=True))
    remainders = _remainders(listed.cells, given.resolutions[0])
    content = {"resolutions": [*given.resolutions], "fine_cells": listed.canonical}
    return listed, FineCells(found, listed.cells, remainders), content


def _remainders(fine: frozenset[int], resolution: int) -> frozenset[int]:
    """Return the coarse cells that overlap a fine cell. Hexagons do not nest: a fine one may reach into several.

    A small convex cell that overlaps a large one has its centre or a vertex in it, or contains a vertex of it.
    """
    overlapped = {
        h3.latlng_to_cell(*place, resolution)
        for cell in fine
        for place in (h3.cell_to_latlng(cell), *h3.cell_to_boundary(cell))
    }
    finer = {h3.get_resolution(cell) for cell in fine}
    near = {cell for known in overlapped for cell in h3.grid_disk(known, 1)} - overlapped
    cornered = {
        cell
        for cell in near
        if any(h3.latlng_to_cell(*corner, each) in fine for corner in h3.cell_to_boundary(cell) for each in finer)
    }
    return frozenset(overlapped | cornered)
