"""Records as lines of CSV, with the digits of the records, and as GeoJSON features.    [RFC 4180; RFC 7946]

CSV: a header, then a line for each record. A value that a record does not have is an empty field. Lines end with a line
feed. GeoJSON: the polygon of the H3 cell, and the bytes of the record as properties.
"""

import codecs
import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final

import h3.api.basic_str as h3
import msgspec

from hatcast.agents.tables.columns import Layout, Row, Type


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """Encoding and decimal sign of a CSV file; with a decimal comma, semicolons separate the fields."""

    encoding: str = "utf-8"
    decimal: str = "."

    def line(self, fields: Sequence[str]) -> bytes:
        """Return a line. A character that the encoding lacks becomes a question mark."""
        buffer = io.StringIO()
        csv.writer(buffer, delimiter=";" if self.decimal == "," else ",", lineterminator="\n").writerow(fields)
        return buffer.getvalue().encode(self.encoding.removesuffix("-sig"), "replace")

    def header(self, layout: Layout) -> bytes:
        """Return the line of the columns' names; in utf-8-sig after the mark by which spreadsheets know UTF-8."""
        mark = codecs.BOM_UTF8 if self.encoding == "utf-8-sig" else b""
        return mark + self.line([each.name for each in layout.columns])

    def text(self, value: Any, kind: Type) -> str:
        """Return the text of a value."""
        if value is None:
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value).replace(".", self.decimal) if kind is Type.NUMBER else str(value)


PLAIN: Final = CsvStyle()


def csv_line(layout: Layout, record: bytes, style: CsvStyle = PLAIN) -> bytes | None:
    """Return a record's line; None if the record is not of this table."""
    values = layout.values(record)
    return None if values is None else style.line([style.text(values[each.name], each.type) for each in layout.columns])


def csv_of_records(layout: Layout, records: Iterable[bytes]) -> bytes:
    """Return records as CSV; records of other tables are left out."""
    lines = (csv_line(layout, record) for record in records)
    return b"".join([PLAIN.header(layout), *(each for each in lines if each is not None)])


_ENCODE: Final = msgspec.json.Encoder().encode
_CELLS: Final = 10_000  # cached polygons, about 1 kB each
_HALF: Final = 180.0
_IDS: Final = ("release_id", "estimate_id", "running_id")

Point = tuple[float, float]  # longitude and latitude, in degrees


def feature(cell: str, properties: bytes, name: str | None = None) -> bytes:
    """Return a feature. properties: JSON, kept byte for byte; name: its id."""
    identity = {} if name is None else {"id": name}
    return _ENCODE({"type": "Feature", **identity, "geometry": geometry(cell), "properties": msgspec.Raw(properties)})


def feature_of(layout: Layout, record: bytes) -> bytes | None:
    """Return a record's feature; None if the record is not of this table.

    Its properties are the record, byte for byte; of a short table they are the row.
    """
    values = layout.values(record)
    if values is None:
        return None
    if "hexagon" not in values:
        return feature(values["cell"], record, next((values[name] for name in _IDS if values.get(name)), None))
    return feature(values["hexagon"], _ENCODE(_flat(layout, values)))


def _flat(layout: Layout, values: Row) -> Row:
    """Return the row with its numbers as written: software for maps colours by numbers that are not nested."""
    return {
        each.name: msgspec.Raw(values[each.name])
        if each.type is Type.NUMBER and values[each.name]
        else values[each.name]
        for each in layout.columns
    }


def features_of(layout: Layout, records: Iterable[bytes]) -> list[msgspec.Raw]:
    """Return the features of records; records of other tables are left out."""
    found = (feature_of(layout, record) for record in records)
    return [msgspec.Raw(each) for each in found if each is not None]


@lru_cache(maxsize=_CELLS)
def geometry(cell: str) -> msgspec.Raw:
    """Return a cell's polygon as JSON; null if it is not an H3 cell.

    Rings are closed and counterclockwise. A cell across the antimeridian is cut there, into a MultiPolygon.
    """
    if not h3.is_valid_cell(cell):
        return msgspec.Raw(b"null")
    rings = [[ring] for ring in _rings([(longitude, latitude) for latitude, longitude in h3.cell_to_boundary(cell)])]
    made: dict[str, Any] = (
        {"type": "Polygon", "coordinates": rings[0]}
        if len(rings) == 1
        else {"type": "MultiPolygon", "coordinates": rings}
    )
    return msgspec.Raw(_ENCODE(made))


def _rings(corners: Sequence[Point]) -> list[list[Point]]:
    """Return the rings of a polygon on the sphere, each within longitudes from -180 to 180."""
    plane = _unrolled(corners)
    first = math.floor((min(longitude for longitude, _ in plane) + _HALF) / 360)
    last = math.ceil((max(longitude for longitude, _ in plane) - _HALF) / 360)
    if first == last == 0:
        return [_closed(corners)]
    rings = []
    for turn in range(first, last + 1):
        west = turn * 360 - _HALF
        part = _clipped(_clipped(plane, west, 1), west + 360, -1)
        if _area(part) != 0:
            rings.append(_closed([(longitude - turn * 360, latitude) for longitude, latitude in part]))
    return rings


def _unrolled(corners: Sequence[Point]) -> list[Point]:
    """Return the corners with longitudes that do not jump at the antimeridian, which may be beyond 180 degrees.

    A polygon around a pole is closed along the pole.
    """
    plane = [corners[0]]
    for longitude, latitude in [*corners[1:], corners[0]]:
        before = plane[-1][0]
        plane.append((longitude + 360 * round((before - longitude) / 360), latitude))
    (start, _), (end, _) = plane[0], plane[-1]
    if start == end:
        return plane[:-1]
    pole = math.copysign(90.0, corners[0][1])
    return [*plane, (end, pole), (start, pole)]


def _clipped(ring: Sequence[Point], edge: float, side: int) -> list[Point]:
    """Return the part of a ring that is east (side: 1) or west (-1) of a longitude.    [Sutherland-Hodgman]"""
    kept: list[Point] = []
    for (x, y), (to_x, to_y) in pairwise([*ring, *ring[:1]]):
        here, there = side * (x - edge), side * (to_x - edge)
        if here >= 0:
            kept.append((x, y))
        if (here > 0 > there) or (here < 0 < there):
            share = here / (here - there)
            kept.append((x + share * (to_x - x), y + share * (to_y - y)))
    return kept


def _closed(ring: Sequence[Point]) -> list[Point]:
    """Return a closed, counterclockwise ring."""
    turned = [*ring] if _area(ring) > 0 else [*ring][::-1]
    return [*turned, turned[0]]


def _area(ring: Sequence[Point]) -> float:
    """Return twice the signed area; it is positive if the ring is counterclockwise."""
    return sum(x * to_y - to_x * y for (x, y), (to_x, to_y) in pairwise([*ring, *ring[:1]]))
