"""`hatcast cells`: make a public list of cells, from a timetable, an area or a box."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from hatcast.agents.cli.options import FILE, parsed
from hatcast.agents.tables.files import check_target, new_file
from hatcast.agents.timetable.tables import BadTimetable, Tables, Tell, VisitRows, open_timetable
from hatcast.stream.areas import BadArea, Point, cells_of_area, cells_of_box, cells_of_lines, widened
from hatcast.stream.errors import UNREADABLE, HatcastError
from hatcast.stream.policy.cells_file import CellsFile


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
        points = tables.shape_points(shapes) if shapes else None
        if points is not None and len(points.number):  # in the order of their numbers
            starts = np.flatnonzero(np.diff(points.number)) + 1
            for lats, lngs in zip(np.split(points.lats, starts), np.split(points.lngs, starts), strict=True):
                yield list(zip(lats.tolist(), lngs.tolist(), strict=True))
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


Box = tuple[float, float, float, float]  # west, south, east and north, in degrees


def _box(text: str) -> Box:
    west, south, east, north = map(float, text.split(","))
    return west, south, east, north


@click.command(epilog="Example:  hatcast cells --gtfs timetable.zip --resolution 7 -o cells.txt")
@click.option("--gtfs", type=FILE, help="GTFS timetable (zip): the cells that its trips cross.")
@click.option("--geojson", type=FILE, help="GeoJSON file: the cells that its areas, lines and points touch.")
@click.option(
    "--bbox",
    callback=parsed(_box, "write WEST,SOUTH,EAST,NORTH in degrees, such as 72.7,21.1,73.0,21.3"),
    metavar="W,S,E,N",
    help="Box in degrees: the cells that it touches.",
)
@click.option("--resolution", type=click.IntRange(0, 15), default=7, help="H3 resolution.")
@click.option(
    "--route-type",
    type=int,
    multiple=True,
    help="With --gtfs: only routes of this type, such as 3 for buses (with 700 to 799).",
)
@click.option("--rings", type=click.IntRange(0, 10), default=0, help="Add so many rings of neighbours.")
@click.option("-o", "--output", type=FILE, help="Write to this new file.  [default: standard output]")
def command(**given: Any) -> None:
    """Make a list of cells for `policy.cells` that is public: it is made without telemetry.

    Give a timetable, an area or a box. `relation = "add_remove"` needs such a list, and `survey --private` chooses
    from one. An area that was drawn after looking at telemetry is not public.
    """
    output, rings = given["output"], given["rings"]
    if sum(each is not None for each in (given["gtfs"], given["geojson"], given["bbox"])) != 1:
        raise click.UsageError("give one of --gtfs, --geojson and --bbox")
    if given["route_type"] and given["gtfs"] is None:
        raise click.UsageError("--route-type is for --gtfs")
    if output is not None:
        check_target(output, "--output", [output.suffix.lower()])
    cells, origin = _cells(given)
    if not cells:
        raise HatcastError(f"{origin}: there is no line or area; name another file")
    around = f", with {rings} ring{'s' * (rings > 1)} of neighbours" if rings else ""
    if rings:
        cells = _named("--rings", lambda: widened(cells, rings))
    _write(cells, f"{origin}{around}", given["resolution"], output)


def _cells(given: Mapping[str, Any]) -> tuple[set[int], str]:
    """Return the cells, and a description of where they are from."""
    gtfs, geojson, bbox, resolution = given["gtfs"], given["geojson"], given["bbox"], given["resolution"]
    if gtfs is not None:
        types = sorted(set(given["route_type"]))
        lines = trip_lines(gtfs, types, partial(click.echo, err=True))
        kinds = f" of type {', '.join(map(str, types))}" if types else ""
        return _named(gtfs, lambda: cells_of_lines(lines, resolution)), f"the routes{kinds} of {gtfs.name}"
    if geojson is not None:
        area = _read_json(geojson)
        return _named(geojson, lambda: cells_of_area(area, resolution)), geojson.name
    box = bbox or (0.0, 0.0, 0.0, 0.0)
    return _named("--bbox", lambda: cells_of_box(box, resolution)), f"the box {','.join(f'{each:g}' for each in box)}"


def _named(where: Path | str, compute: Callable[[], set[int]]) -> set[int]:
    """Return the result; an error about the area is prefixed by where it was given."""
    try:
        return compute()
    except BadArea as error:
        raise HatcastError(f"{where}: {error}") from None


def _read_json(path: Path) -> dict[str, object]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except OSError as error:
        raise HatcastError(f"{path} cannot be read ({error.strerror}); name a GeoJSON file") from None
    except UNREADABLE:
        raise HatcastError(f"{path} is not a JSON object; name a GeoJSON file") from None


def _write(cells: set[int], origin: str, resolution: int, output: Path | None) -> None:
    text = CellsFile("public", frozenset(cells)).text([f"cells of resolution {resolution}: {origin}"])
    if output is None:
        click.echo(text, nl=False)
        return
    with new_file(output, "--output") as file:
        file.write(text.encode())
    click.echo(
        f'{output}: {len(cells):,} cells, source = "public"; add cells = "{output.name}" and '
        f"h3_resolution = {resolution} to [policy]",
        err=True,
    )
