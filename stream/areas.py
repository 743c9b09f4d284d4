"""H3 cells of lines and areas on the map: lists of cells that are made without telemetry, so they can be public."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import h3.api.basic_int as h3

from hatcast.stream.errors import HatcastError

CELLS_MAX: Final = 1_000_000  # most cells of a list: a policy holds it in memory, and the map draws it

Point = tuple[float, float]  # latitude and longitude in degrees (WGS 84)

_EARTH_KM: Final = 6371.0072  # radius of the sphere whose area is the earth's, as H3 uses it
_FRACTION_OF_EDGE: Final = 64
_BOX: Final = "write west,south,east,north in degrees, such as 72.7,21.1,73.0,21.3"


class BadArea(HatcastError):
    """A line or an area cannot be covered with cells. The message has the reason and the fix."""


def cells_of_lines(lines: Iterable[Sequence[Point]], resolution: int) -> set[int]:
    """Return the cells that lines cross, straight between their points in degrees, as GeoJSON has them.

    A line that enters a cell for less than 1/64 of the cell's edge may miss it. A line of one point is in one cell.
    Raises BadArea for a point that is not on the earth, and above CELLS_MAX cells.
    """
    step_km = h3.average_hexagon_edge_length(resolution) / _FRACTION_OF_EDGE
    cells: set[int] = set()
    for line in lines:
        before: Point | None = None
        for point in line:
            _check(point)
            if before is None:
                cells.add(h3.latlng_to_cell(*point, resolution))
            else:
                cells.update(_cells_of_segment(before, point, resolution, step_km))
            before = point
        if len(cells) > CELLS_MAX:
            raise _too_many(resolution)
    return cells


def cells_of_area(geometry: Mapping[str, Any], resolution: int) -> set[int]:
    """Return the cells that a GeoJSON object overlaps: its polygons, and the cells that its lines and points cross.

    Raises BadArea for an object that is not GeoJSON, for one without a geometry, and above CELLS_MAX cells.
    """
    cells: set[int] = set()
    for each in _geometries(geometry):
        kind, coordinates = each["type"], each["coordinates"]
        try:
            cells |= _cells_of_geometry(kind, coordinates, resolution)
        except (TypeError, ValueError, IndexError, KeyError):
            raise BadArea(f"its coordinates are not those of a {kind}: correct them, or export it again") from None
        if len(cells) > CELLS_MAX:
            raise _too_many(resolution)
    return cells


def cells_of_box(box: tuple[float, float, float, float], resolution: int) -> set[int]:
    """Return the cells that a box overlaps: west, south, east, north. With west > east it crosses the 180th meridian.

    Raises BadArea for a box that is empty, not on the earth, or wider than half of the earth across the 180th meridian
    (west and east are swapped), and above CELLS_MAX cells.
    """
    west, south, east, north = box
    for name, degrees, most in (("west", west, 180), ("south", south, 90), ("east", east, 180), ("north", north, 90)):
        if not -most <= degrees <= most:
            raise BadArea(f"{name}, {degrees:g}, is not within -{most} to {most}: {_BOX}")
    if south >= north:
        raise BadArea(f"south, {south:g}, is not south of north, {north:g}: {_BOX}")
    if west == east:
        raise BadArea(f"west and east are both {west:g}: {_BOX}")
    if west > east and east + 360 - west > 180:
        raise BadArea(f"west, {west:g}, is east of east, {east:g}: swap them")
    spans = [(west, east)] if west < east else [(west, 180.0), (-180.0, east)]
    # In parts, because H3 takes a loop that is wider than half of the earth for one across the 180th meridian.
    parts = [(a + (b - a) * i / 4, a + (b - a) * (i + 1) / 4) for a, b in spans if a != b for i in range(4)]
    rings = [[[[a, south], [b, south], [b, north], [a, north], [a, south]]] for a, b in parts]
    return cells_of_area({"type": "MultiPolygon", "coordinates": rings}, resolution)


def widened(cells: Iterable[int], rings: int) -> set[int]:
    """Return cells and their neighbours up to `rings` steps away. Raises BadArea above CELLS_MAX cells."""
    wider: set[int] = set()
    for cell in cells:
        wider.update(h3.grid_disk(cell, rings))
        if len(wider) > CELLS_MAX:
            raise _too_many(h3.get_resolution(cell))
    return wider


def _too_many(resolution: int) -> BadArea:
    return BadArea(f"it has more than {CELLS_MAX:,} cells of resolution {resolution}: use a smaller --resolution")


def _check(point: Point) -> None:
    latitude, longitude = point
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise BadArea(f"latitude {latitude:g}, longitude {longitude:g} is not on the earth: correct that point")


def _cells_of_segment(start: Point, end: Point, resolution: int, step_km: float) -> Iterator[int]:
    """Yield the cells of a segment. It is halved until both ends are in one cell, which is convex, or are close."""
    if abs(end[1] - start[1]) > 180:  # the short way, across the 180th meridian
        end = end[0], end[1] + math.copysign(360, start[1])
    pending = [(start, h3.latlng_to_cell(*start, resolution), end, h3.latlng_to_cell(*end, resolution))]
    while pending:
        a, cell_a, b, cell_b = pending.pop()
        yield cell_a
        yield cell_b
        if cell_a == cell_b or _distance_km(a, b) <= step_km:
            continue
        middle = (a[0] + b[0]) / 2, (a[1] + b[1]) / 2
        cell = h3.latlng_to_cell(*middle, resolution)
        pending += [(a, cell_a, middle, cell), (middle, cell, b, cell_b)]


def _distance_km(a: Point, b: Point) -> float:
    return float(h3.great_circle_distance(a, b, unit="km"))


def _geometries(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield the geometries with coordinates in a GeoJSON object, in its order."""
    pending = [value]
    while pending:
        each = pending.pop()
        if not isinstance(each, Mapping):
            raise BadArea("it is not a GeoJSON object: export the area as GeoJSON")
        kind = each.get("type")
        inner = {"FeatureCollection": "features", "GeometryCollection": "geometries"}.get(str(kind))
        if inner is not None:
            pending += reversed(cast("list[object]", each.get(inner) or []))
        elif kind == "Feature":
            pending += [each["geometry"]] if each.get("geometry") is not None else []
        elif kind in _GEOMETRIES and "coordinates" in each:
            yield each
        else:
            raise BadArea(f"it has an object of type {kind!r}, which is not GeoJSON: export the area as GeoJSON")


_GEOMETRIES: Final = ("Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon")


def _cells_of_geometry(kind: str, coordinates: Any, resolution: int) -> set[int]:
    nested = coordinates if kind.startswith("Multi") else [coordinates]
    if kind.endswith("Polygon"):
        return set().union(*(_cells_of_polygon(rings, resolution) for rings in nested))
    lines = [[each] if kind.endswith("Point") else each for each in nested]
    return cells_of_lines(([_point(position) for position in line] for line in lines), resolution)


def _point(position: Sequence[float]) -> Point:
    return float(position[1]), float(position[0])  # GeoJSON has the longitude first


def _cells_of_polygon(rings: Sequence[Sequence[Sequence[float]]], resolution: int) -> set[int]:
    loops = [[_point(position) for position in ring] for ring in rings]
    for loop in loops:
        for point in loop:
            _check(point)
    if _area_km2(loops[0]) > CELLS_MAX * h3.average_hexagon_area(resolution, unit="km^2"):
        raise _too_many(resolution)
    outside = h3.h3shape_to_cells_experimental(h3.LatLngPoly(*loops), resolution, contain="overlap")
    return set(outside)


def _area_km2(loop: Sequence[Point]) -> float:
    """Return the area within a loop on the sphere.    [Chamberlain & Duquette 2007, equation 4]"""
    total = 0.0
    for (lat_a, lng_a), (lat_b, lng_b) in zip(loop, [*loop[1:], loop[0]], strict=True):
        turn = (lng_b - lng_a + 180) % 360 - 180
        total += math.radians(turn) * (2 + math.sin(math.radians(lat_a)) + math.sin(math.radians(lat_b)))
    return abs(total) / 2 * _EARTH_KM**2
