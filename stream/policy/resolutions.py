"""Cells of several H3 resolutions: fine cells where they are listed, coarse cells elsewhere.    [T III.C, remark]

`[policy]` resolutions, fine_cells. See docs/specification/fold.md, rule 8.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import h3.api.basic_int as h3
import msgspec

from hatcast.stream.errors import SettingError
from hatcast.stream.policy.cells_file import CellsFile, check_days, read_cells_file
from hatcast.stream.policy.table import PolicyTable

_KEY: Final = "policy.resolutions"


@dataclass(frozen=True, slots=True)
class FineCells:
    """Listed cells of resolutions above `h3_resolution`.

    resolutions   those of the list's cells, finest first
    remainders    coarse cells that overlap a listed cell
    """

    resolutions: tuple[int, ...]
    cells: frozenset[int]
    remainders: frozenset[int]

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
        raise SettingError(_KEY, "and h3_resolution are both written", "remove h3_resolution")
    ascending = [*resolutions] == sorted({*resolutions})
    if not ascending or len(resolutions) < 2 or not 0 <= resolutions[0] <= resolutions[-1] <= 15:
        raise SettingError(
            _KEY,
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
    try:
        text = read_cells(given.fine_cells)
    except SettingError as error:  # it names `cells`
        raise SettingError(where, "cannot be read", "name a readable file") from error
    listed = read_cells_file(text, where, *given.resolutions[1:])
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
