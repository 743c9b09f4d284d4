"""The short table of records for spreadsheets and maps: hexagon, hour, value, interval and basis."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import h3.api.basic_str as h3

from hatcast.agents.tables.columns import RECORD, Column, Fields, Table, Type

Place = Callable[[str], str | None]
"""Name of the place of a cell; None if it has none"""

_CELLS: Final = 10_000  # cached centres


def short(table: Table, place: Place | None = None) -> Table:
    """Return the short table of a kind of records; of one without places all columns but the record.

    place   None: without a column of places
    """
    if table.name not in _OF:
        return replace(table, columns=[each for each in table.columns if each.name != RECORD])
    head, mean, low, high, basis, tail = _OF[table.name]
    known = {each.name: each for each in table.columns}
    columns = (
        *(known[name] for name in head),
        Column("hexagon", Type.TEXT, lambda fields: fields["cell"]),
        Column("latitude", Type.NUMBER, lambda fields: _centre(fields["cell"])[0]),
        Column("longitude", Type.NUMBER, lambda fields: _centre(fields["cell"])[1]),
        *([] if place is None else [Column("place", Type.TEXT, lambda fields: place(fields["cell"]))]),
        known["date"],
        Column("hour", Type.TEXT, _hours),
        Column("quantity", Type.TEXT, known["value"].value),
        _renamed("value", known[mean]),
        _renamed("low", known[low]),
        _renamed("high", known[high]),
        known["unit"],
        _renamed("basis", known[basis]),
        *(known[name] for name in tail),
        _text_of("start"),
        _text_of("end"),
    )
    return replace(table, columns=columns)


_Names = Sequence[str]
# Columns of the full table: before the hexagon; value, low, high and basis; after them.
_OF: Final[Mapping[str, tuple[_Names, str, str, str, str, _Names]]] = MappingProxyType(
    {
        "releases": ((), "mean", "low", "high", "status", ("settlement", "pulse")),
        "estimates": ((), "mean", "mean_low", "mean_high", "stage", ("road", "road_low", "road_high")),
        "running": (("name",), "mean", "mean_low", "mean_high", "stage", ("slots",)),
        "answers": (("query", "first_date", "last_date"), "mean", "low", "high", "status", ()),
    }
)


def _hours(fields: Fields) -> str:
    """Return the local start and end of the slot, or of a part of the day."""
    start = fields["start"][11:16] if fields.get("window") == "period" else fields["slot"]
    return f"{start}-{fields['end'][11:16]}"


def _renamed(name: str, column: Column) -> Column:
    return replace(column, name=name)


def _text_of(name: str) -> Column:
    """Return the column of an instant with the city's offset, as the record has it: a column of instants is in UTC."""
    return Column(name, Type.TEXT, lambda fields: fields[name])


@lru_cache(maxsize=_CELLS)
def _centre(cell: str) -> tuple[str | None, str | None]:
    """Return latitude and longitude of a cell's centre, to a decimetre; None if it is not an H3 cell."""
    if not h3.is_valid_cell(cell):
        return None, None
    latitude, longitude = h3.cell_to_latlng(cell)
    return f"{latitude:.6f}", f"{longitude:.6f}"
