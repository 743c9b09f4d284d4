"""Routes and stops of a timetable, as the map draws them, and names of the places of cells by its stops."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import h3.api.basic_str as h3
import numpy as np
from numpy.typing import NDArray

from hatcast.agents.timetable.tables import BadTimetable, Points, Tables, Tell, VisitRows, open_timetable
from hatcast.stream.areas import Point

_METRES_A_DEGREE: Final = 111_195.0  # of latitude
_BATCH: Final = 200_000  # points that are simplified at a time: some 150 bytes each

_Vectors = tuple[NDArray[np.float64], NDArray[np.float64]]


def kept_points(points: Points, tolerance_m: float) -> NDArray[np.bool_]:
    """Return which points to keep, so that no line moves by more than the tolerance.    [Douglas & Peucker 1973]

    A line keeps its ends. Distances are those of a plane, which is exact enough for lines of a city.
    """
    keep = np.zeros(len(points.number), dtype=np.bool_)
    starts = np.flatnonzero(np.r_[True, np.diff(points.number) > 0]) if len(keep) else np.zeros(0, dtype=np.int64)
    batches = starts[np.r_[True, np.diff(starts // _BATCH) > 0]] if len(starts) else starts
    for start, end in zip(batches, np.r_[batches[1:], len(keep)], strict=True):
        part = slice(int(start), int(end))
        keep[part] = _kept(Points(points.number[part], points.lats[part], points.lngs[part]), tolerance_m)
    return keep


def _kept(points: Points, tolerance_m: float) -> NDArray[np.bool_]:
    """Each pass splits every pending chord of every line at the point that is farthest from it."""
    y, x = points.lats * _METRES_A_DEGREE, points.lngs * _METRES_A_DEGREE
    narrow = np.cos(np.radians(points.lats))  # metres of a degree of longitude, over those of a degree of latitude
    edge = np.flatnonzero(np.diff(points.number))
    first, last = np.r_[0, edge + 1], np.r_[edge, len(x) - 1]
    keep = np.zeros(len(x), dtype=np.bool_)
    keep[first] = keep[last] = True
    while True:
        has_inner = last - first > 1
        first, last = first[has_inner], last[has_inner]
        if not len(first):
            return keep
        sizes = last - first - 1
        begins = np.r_[0, np.cumsum(sizes)[:-1]]
        inner = np.arange(sizes.sum()) + np.repeat(first + 1 - begins, sizes)
        starts, ends = np.repeat(first, sizes), np.repeat(last, sizes)
        scale = narrow[starts]
        chords = (x[ends] - x[starts]) * scale, y[ends] - y[starts]
        away = _distances(((x[inner] - x[starts]) * scale, y[inner] - y[starts]), chords)
        most = np.maximum.reduceat(away, begins)
        chord = np.repeat(np.arange(len(first)), sizes)
        at_most = np.flatnonzero(away == most[chord])
        _, one_each = np.unique(chord[at_most], return_index=True)
        split = inner[at_most[one_each]]
        is_far = most > tolerance_m
        keep[split[is_far]] = True
        first, last = np.r_[first[is_far], split[is_far]], np.r_[split[is_far], last[is_far]]


def _distances(points: _Vectors, chords: _Vectors) -> NDArray[np.float64]:
    """Return the distance of each point from its chord, a segment; both are relative to the segment's start."""
    (px, py), (dx, dy) = points, chords
    length2 = dx * dx + dy * dy
    along = np.clip((px * dx + py * dy) / np.where(length2 > 0, length2, 1.0), 0.0, 1.0)
    return np.hypot(px - along * dx, py - along * dy)


STOPS_MAX: Final = 100_000
POINTS_MAX: Final = 1_000_000  # most points of simplified lines: the page holds and draws them

_TOLERANCE_M: Final = 5.0  # a pixel at zoom 15: 4.8 m at the equator
_SAME_STOP_KM: Final = 0.25  # stops of one name on both sides of a road, or at a junction, are one
_KM_A_DEGREE: Final = 111.195
_NAME_MAX: Final = 100
_COLOUR: Final = re.compile(r"[0-9A-Fa-f]{6}")
_CUT: Final = "cut out the part that the map shows"

_Served = tuple[Point, set[int]]  # place of a stop, and the numbers of the routes that serve it


@dataclass(frozen=True, slots=True)
class TimetableRoute:
    """One route: its names, its colour such as "0055aa" or "", and its simplified lines."""

    name: str
    long_name: str
    colour: str
    lines: Sequence[Sequence[Point]]


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop with a name, and the names of the routes that serve it. Near stops of one name are one."""

    name: str
    place: Point
    routes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Network:
    """Routes and stops of a timetable."""

    routes: Sequence[TimetableRoute]
    stops: Sequence[Stop]


def read_network(path: Path, tell: Tell = str) -> Network:
    """Read the routes and the stops that they serve.

    A route's lines are the shapes of its trips, simplified to 5 m; without a shape, straight from stop to stop.
    While it reads, memory is some 60 bytes a point of a shape and 150 a trip; a million stop times take some 2 s.
    tell   called with a line about what is left out
    Raises BadTimetable as `trip_lines` does, and above STOPS_MAX stops and POINTS_MAX points.
    """
    with open_timetable(path, tell) as tables:
        named = _named_routes(tables)
        trips, shapes, shapeless = _trips(tables, {route: number for number, route in enumerate(named)})
        stops, places, names = tables.stop_places()
        tables.check_on_earth("stops.txt", *np.array([each for each in places if each] or [(0.0, 0.0)]).T)
        served, visits = _served(tables, trips, shapeless, stops)
        lines = defaultdict[int, list[Sequence[Point]]](list)
        _add_shapes(tables, shapes, lines)
        for route, pairs in visits.items():  # straight from stop to stop
            for a, b in sorted(pairs):
                first, second = places[a], places[b]
                if first is not None and second is not None and first != second:
                    lines[route].append([_rounded(first), _rounded(second)])
    routes = [(number, *each) for number, each in enumerate(named.values())]
    network = Network(
        [TimetableRoute(name, long, colour, lines[number]) for number, name, long, colour in routes if lines[number]],
        _stops(path, served, zip(places, names, strict=True), [name for _, name, _, _ in routes]),
    )
    if sum(len(line) for route in network.routes for line in route.lines) > POINTS_MAX:
        raise BadTimetable(path, f"has lines of more than {POINTS_MAX:,} points", _CUT)
    if not network.routes and not network.stops:
        raise BadTimetable(path, "has no route with a line and no stop", "name another timetable")
    return network


def _named_routes(tables: Tables) -> dict[str, tuple[str, str, str]]:
    """Return route id -> name, long name and colour."""
    columns = ("route_short_name", "route_long_name", "route_color")
    named = {}
    for route, *texts, colour in tables.rows("routes.txt", ("route_id",), *columns):
        short, long = (" ".join(each.split())[:_NAME_MAX] for each in texts)
        named[route] = short or long or route[:_NAME_MAX], long, colour.lower() if _COLOUR.fullmatch(colour) else ""
    return named


def _trips(
    tables: Tables, routes: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, set[int]], dict[str, tuple[int, int]]]:
    """Return trip id -> route, shape id -> routes, and trip id without a shape -> number and route."""
    trips, shapes, shapeless = dict[str, int](), defaultdict[str, set[int]](set), dict[str, tuple[int, int]]()
    for route_id, trip, shape in tables.rows("trips.txt", ("route_id", "trip_id"), "shape_id"):
        route = routes.get(route_id)
        if route is None:
            continue
        trips[trip] = route
        if shape:
            shapes[shape].add(route)
        else:
            shapeless[trip] = len(shapeless), route
    return trips, shapes, shapeless


def _served(
    tables: Tables, trips: Mapping[str, int], shapeless: Mapping[str, tuple[int, int]], stops: Mapping[str, int]
) -> tuple[dict[int, set[int]], dict[int, set[tuple[int, int]]]]:
    """Return stop -> routes that serve it, and route -> pairs of stops that its trips without a shape connect."""
    served = set[tuple[int, int]]()
    collected = VisitRows()
    route_of = [route for _, route in shapeless.values()]
    for trip, sequence, stop_id in tables.stop_times():
        route = trips.get(trip)
        if route is None:
            continue
        stop = tables.stop_number(stops, stop_id)
        served.add((stop, route))
        if trip in shapeless and not tables.is_misplaced(stop):
            collected.add(shapeless[trip][0], tables.number(sequence, "stop_times.txt"), stop)
    routes_of = defaultdict[int, set[int]](set)
    for stop, route in served:
        routes_of[stop].add(route)
    hops = defaultdict[int, set[tuple[int, int]]](set)
    for number, before, after in zip(*(each.tolist() for each in collected.sorted().pairs()), strict=True):
        hops[route_of[number]].add((before, after) if before < after else (after, before))
    return routes_of, hops


def _add_shapes(tables: Tables, shapes: Mapping[str, set[int]], lines: dict[int, list[Sequence[Point]]]) -> None:
    """Add the simplified shapes to the routes that follow them."""
    if not shapes:
        return
    points = tables.shape_points({shape: number for number, shape in enumerate(shapes)})
    tables.check_on_earth("shapes.txt", points.lats, points.lngs)
    keep = kept_points(points, _TOLERANCE_M)
    routes_of = list(shapes.values())
    for number, line in _lines(Points(points.number[keep], points.lats[keep], points.lngs[keep])):
        for route in sorted(routes_of[number]):
            lines[route].append(line)


def _lines(points: Points) -> Iterator[tuple[int, list[Point]]]:
    """Yield each line of at least two points, with its number."""
    starts = np.r_[0, np.flatnonzero(np.diff(points.number)) + 1] if len(points.number) else np.zeros(0, dtype=np.int64)
    lats, lngs = points.lats.round(5).tolist(), points.lngs.round(5).tolist()  # 1 m
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(lats)], strict=False):
        if end - start > 1:
            yield int(points.number[start]), list(zip(lats[start:end], lngs[start:end], strict=True))


def _rounded(place: Point) -> Point:
    return round(place[0], 5), round(place[1], 5)


def _stops(
    path: Path, served: Mapping[int, set[int]], stops: Iterable[tuple[Point | None, str]], routes: Sequence[str]
) -> list[Stop]:
    """Return the stops with a name and a place that a route serves; near ones of one name as one, at their mean."""
    by_name = defaultdict[str, list[_Served]](list)
    for number, (place, name) in enumerate(stops):
        if place is not None and name and number in served:
            by_name[name].append((place, served[number]))
    found = [
        Stop(name[:_NAME_MAX], _mean([place for place, _ in group]), _names(group, routes))
        for name, same in by_name.items()
        for group in _near(same)
    ]
    if len(found) > STOPS_MAX:
        raise BadTimetable(path, f"has {len(found):,} stops, and the map shows at most {STOPS_MAX:,}", _CUT)
    return found


def _near(stops: Sequence[_Served]) -> Iterable[list[_Served]]:
    """Group stops of one name: each with a group whose first stop is near. A grid bounds the groups to look at."""
    groups = dict[tuple[int, int], list[_Served]]()
    for stop in stops:
        row, column = (math.floor(each * _KM_A_DEGREE / _SAME_STOP_KM) for each in stop[0])
        around = [(row + i, column + j) for i in (0, -1, 1) for j in (0, -1, 1)]
        near = (at for at in around if at in groups and _distance_km(groups[at][0][0], stop[0]) <= _SAME_STOP_KM)
        groups.setdefault(next(near, (row, column)), []).append(stop)
    return groups.values()


def _distance_km(a: Point, b: Point) -> float:
    return _KM_A_DEGREE * math.hypot(a[0] - b[0], (a[1] - b[1]) * math.cos(math.radians(a[0])))


def _mean(places: Sequence[Point]) -> Point:
    lats, lngs = zip(*places, strict=True)
    return _rounded((sum(lats) / len(lats), sum(lngs) / len(lngs)))


def _names(group: Iterable[_Served], routes: Sequence[str]) -> list[str]:
    return sorted({routes[route] for _, served in group for route in served}, key=_natural)


def _natural(name: str) -> tuple[int, str]:
    """Order route names as people do: 2 before 10."""
    digits = re.match(r"\d{1,9}", name)
    return (int(digits[0]) if digits else 10**9), name


def place_names(stops: Iterable[Stop]) -> Callable[[str], str | None]:
    """Return a function that names the place of a cell: its stop with most routes, else the nearest stop around it.

    The page of the map names places by the same rule. Of several such stops it is the one nearest to the centre; None:
    no stop is near, or it is not a cell.
    """
    known = sorted(stops, key=lambda stop: -len(stop.routes))

    @cache
    def by_cell(resolution: int) -> dict[str, list[Stop]]:
        found = defaultdict(list)
        for stop in known:
            found[h3.latlng_to_cell(*stop.place, resolution)].append(stop)
        return dict(found)

    @cache
    def name(cell: str) -> str | None:
        if not h3.is_valid_cell(cell):
            return None
        near, centre = by_cell(h3.get_resolution(cell)), h3.cell_to_latlng(cell)
        within = near.get(cell, [])
        chosen = [stop for stop in within if len(stop.routes) == len(within[0].routes)] or [
            stop for each in h3.grid_disk(cell, 1) for stop in near.get(each, [])
        ]
        nearest = min(chosen, key=lambda stop: _distance_km(centre, stop.place), default=None)
        return None if nearest is None else f"near {nearest.name}"

    return name
