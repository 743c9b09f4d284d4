"""Lines that a timetable's trips follow, for lists of cells."""

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from hatcast.agents.timetable.tables import BadTimetable, Tables, Tell, VisitRows, open_timetable
from hatcast.stream.areas import Point


def trip_lines(path: Path, route_types: Collection[int] = (), tell: Tell = str) -> Iterator[list[Point]]:
    """Yield each line that trips follow, once: their shape, or straight from stop to stop where they have none.

    route_types   GTFS route types to read, such as 3 for buses, which has 700 to 799; empty: all
    tell          called with a line about what is left out
    Memory is some 30 bytes a point of a shape, and 16 a stop time of trips without a shape.
    Raises BadTimetable if the file is not a GTFS zip, a table or column is missing, or a row is damaged.
    """
    with open_timetable(path, tell) as tables:
        shapes, shapeless = _trips(tables, tables.route_ids(route_types))
        if not shapes and not shapeless:
            raise BadTimetable(path, "has no trip of these routes", "name another --route-type, or another timetable")
        if shapes:
            yield from _shape_lines(tables, shapes)
        if shapeless:
            yield from _stop_lines(tables, shapeless)


def _trips(tables: Tables, routes: set[str]) -> tuple[dict[str, int], dict[str, int]]:
    """Return shape ids, and ids of trips without a shape, each with its number from 0."""
    shapes, shapeless = dict[str, int](), dict[str, int]()
    for route, trip, shape in tables.rows("trips.txt", ("route_id", "trip_id"), "shape_id"):
        if route in routes:
            numbered, key = (shapes, shape) if shape else (shapeless, trip)
            numbered.setdefault(key, len(numbered))
    return shapes, shapeless


def _shape_lines(tables: Tables, shapes: dict[str, int]) -> Iterator[list[Point]]:
    """Yield the lines of shapes.txt that are wanted, in the order of their numbers."""
    points = tables.shape_points(shapes)
    if not len(points.number):
        return
    starts = np.flatnonzero(np.diff(points.number)) + 1
    for lats, lngs in zip(np.split(points.lats, starts), np.split(points.lngs, starts), strict=True):
        yield list(zip(lats.tolist(), lngs.tolist(), strict=True))


def _stop_lines(tables: Tables, trips: dict[str, int]) -> Iterator[list[Point]]:
    """Yield the straight line between each pair of stops that a trip serves one after the other, once a pair."""
    stops, places, _ = tables.stop_places()
    collected = VisitRows()
    for trip, sequence, stop in tables.stop_times():
        number = trips.get(trip)
        if number is not None and not tables.is_misplaced(at := tables.stop_number(stops, stop)):
            collected.add(number, tables.number(sequence, "stop_times.txt"), at)
    _, before, after = collected.sorted().pairs()
    for a, b in np.unique(np.stack([before, after], axis=1), axis=0):
        first, second = places[a], places[b]
        if first is not None and second is not None:
            yield [first, second]
