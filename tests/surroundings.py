"""A timetable and a base map of the day's city: streets at right angles, a river, and routes along the streets."""

import zipfile
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import h3

from tests.displaying import CELLS
from tests.vector_tiles import LINE, POINT, POLYGON, Place, Shape, write_archive

CENTRE: Final[Place] = tuple(reversed(h3.cell_to_latlng(CELLS[0])))
STEP: Final = 0.012  # degrees between two large streets
REACH: Final = 7  # large streets on each side of the centre
ROUTES: Final[Mapping[str, tuple[str, tuple[tuple[int, int], ...]]]] = {
    "1": ("d7263d", ((-6, -5), (-6, 0), (0, 0), (6, 0), (6, 5))),
    "12": ("1b998b", ((-5, 6), (0, 6), (0, 0), (0, -6))),
    "104": ("2e294e", ((-7, 2), (-2, 2), (-2, -2), (5, -2), (5, -6))),
    "801": ("f46036", ((7, 6), (3, 6), (3, 1), (0, 1), (0, 0), (-4, 0), (-4, -5))),
    "N7": ("", ((-7, -3), (2, -3), (2, 4), (6, 4))),
}
"""Number, colour, and corners in streets east and north of the centre."""
PARKS: Final = ((-3.4, -4.3), (2.3, 1.4), (4.2, -5.0), (-0.9, -0.7))
HUB: Final = "Railway Station"
NAMES: Final = ("Chowk Bazar", "Athwa Gate", "Majura Gate", "Udhna Darwaja", "Sarthana", "Varachha", "Adajan Patiya")
ENDS: Final = ("North", "Market", "Depot", "Bridge", "School", "Garden")
CREDIT: Final = '<a href="https://www.openstreetmap.org/copyright">© OpenStreetMap</a>'


def at(east: float, north: float) -> Place:
    """The place so many streets from the centre."""
    return CENTRE[0] + east * STEP, CENTRE[1] + north * STEP


def _stops_of(corners: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """The crossings that a route passes."""
    stops = [corners[0]]
    for (x, y), (to_x, to_y) in pairwise(corners):
        steps = max(abs(to_x - x), abs(to_y - y))
        stops += [(x + (to_x - x) * i // steps, y + (to_y - y) * i // steps) for i in range(1, steps + 1)]
    return stops


def _name(x: int, y: int) -> str:
    number = (x + 9) * 19 + y + 9
    return HUB if (x, y) == (0, 0) else f"{NAMES[number % len(NAMES)]} {ENDS[number // 7 % len(ENDS)]}"


def tables() -> dict[str, str]:
    """The tables of the timetable."""
    routes, trips, shapes, times = (list[str]() for _ in range(4))
    stops = dict[tuple[int, int], str]()
    for route, (colour, corners) in ROUTES.items():
        routes.append(f"r{route},{route},Route {route},3,{colour}")
        trips += [f"r{route},t{route}{day},s{route}" for day in "ab"]
        for i, corner in enumerate(corners):
            lng, lat = at(*corner)
            shapes.append(f"s{route},{lat:.6f},{lng:.6f},{i}")
        for i, crossing in enumerate(_stops_of(corners)):
            lng, lat = at(*crossing)
            stops[crossing] = f"p{crossing[0]}_{crossing[1]},{_name(*crossing)},{lat:.6f},{lng:.6f}"
            clock = f"{8 + i // 15:02}:{i % 15 * 4:02}:00"
            times += [f"t{route}{day},{clock},p{crossing[0]}_{crossing[1]},{i}" for day in "ab"]
    heads = {
        "routes.txt": ("route_id,route_short_name,route_long_name,route_type,route_color", routes),
        "trips.txt": ("route_id,trip_id,shape_id", trips),
        "shapes.txt": ("shape_id,shape_pt_lat,shape_pt_lon,shape_pt_sequence", shapes),
        "stops.txt": ("stop_id,stop_name,stop_lat,stop_lon", list(stops.values())),
        "stop_times.txt": ("trip_id,arrival_time,stop_id,stop_sequence", times),
    }
    return {name: "\n".join([head, *rows, ""]) for name, (head, rows) in heads.items()}


def write_timetable(path: Path, changes: Mapping[str, str | None] | None = None) -> Path:
    """Write the timetable; `changes` replace tables, None leaves one out."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {**tables(), **(changes or {})}.items():
            if text is not None:
                archive.writestr(name, text)
    return path


def write_basemap(path: Path, parks: Sequence[Place] = PARKS) -> Path:
    """Write the base map: zooms 8 to 14. parks: their south-western corners, in streets from the centre."""
    edge = REACH + 2
    ground = [at(-edge, -edge), at(-edge, edge), at(edge, edge), at(edge, -edge), at(-edge, -edge)]
    north = [(-edge, 3.0), (-5, 2.2), (-2, 3.4), (1, 2.6), (4, 4.6), (edge, 4.0)]
    river = [at(*each) for each in [*north, *((x, y - 0.45) for x, y in reversed(north)), north[0]]]
    shapes = [
        Shape("earth", POLYGON, ground, {"kind": "earth"}),
        Shape("water", POLYGON, river, {"kind": "river"}),
        *(Shape("landuse", POLYGON, _square(*each), {"kind": "park"}) for each in parks),
    ]
    for i in range(-2 * edge, 2 * edge + 1):
        kind = "minor_road" if i % 2 else "highway" if i % 8 == 0 else "major_road"
        named = {"kind": kind} | ({} if i % 2 else {"name": f"Street {i // 2 + edge}"})
        shapes.append(Shape("roads", LINE, [at(i / 2, -edge), at(i / 2, edge)], named))
        shapes.append(
            Shape("roads", LINE, [at(-edge, i / 2), at(edge, i / 2)], named | {"name": f"Road {i // 2 + edge}"})
        )
    for number, name in enumerate(NAMES):
        place = at((number * 5) % 13 - 6.3, (number * 8) % 11 - 5.4)
        shapes.append(Shape("places", POINT, [place], {"kind": "locality", "name": name, "min_zoom": 9}))
    return write_archive(path, shapes, range(8, 15), attribution=CREDIT)


def _square(east: float, north: float) -> list[Place]:
    corners = ((0, 0), (0, 0.8), (1.3, 0.8), (1.3, 0), (0, 0))
    return [at(east + x, north + y) for x, y in corners]
