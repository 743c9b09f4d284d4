"""Static GTFS: the lines that a timetable's trips follow, from its zip file.    [gtfs.org, Schedule]"""

import csv
import io
import zipfile
import zlib
from array import array
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.areas import Point
from hatcast.stream.errors import HatcastError

_ENCRYPTED: Final = 1  # bit of a zip entry's flags
_FIX: Final = "export it again, or check it with a GTFS validator"


class BadTimetable(HatcastError):
    """A file is not a GTFS timetable, or a table of it is damaged."""

    def __init__(self, path: Path, problem: str, fix: str = _FIX) -> None:
        super().__init__(f"{path} {problem}; {fix}")


def trip_lines(path: Path, route_types: Collection[int] = ()) -> Iterator[list[Point]]:
    """Yield each line that trips follow, once: their shape, or straight from stop to stop where they have none.

    route_types   GTFS route types to read, such as 3 for buses; empty: all
    Memory is some 30 bytes a point of a shape, and 16 a stop time of trips without a shape.
    Raises BadTimetable if the file is not a GTFS zip, a table or column is missing, or a row is damaged.
    """
    with _opened(path) as tables:
        routes = tables.routes(route_types)
        shapes, shapeless = tables.trips(routes)
        if not shapes and not shapeless:
            raise BadTimetable(path, "has no trip of these routes", "name another --route-type, or another timetable")
        if shapes:
            yield from tables.shape_lines(shapes)
        if shapeless:
            yield from tables.stop_lines(shapeless)


@contextmanager
def _opened(path: Path) -> Iterator["_Tables"]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield _Tables(path, archive)
    except FileNotFoundError:
        raise BadTimetable(path, "does not exist", "name the zip file of a GTFS timetable") from None
    except OSError as error:
        raise BadTimetable(path, f"cannot be read ({error.strerror})", "check the file and its permissions") from None
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise BadTimetable(path, "is not a whole zip file", "fetch it again") from None
    except NotImplementedError:  # a compression that Python's zipfile lacks
        raise BadTimetable(path, "has a compression that cannot be read", "pack it again with deflate") from None
    except csv.Error:
        raise BadTimetable(path, "has a table that is not CSV") from None


class _Tables:
    """The tables of one timetable."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive
        self._names = set(archive.namelist())

    def routes(self, route_types: Collection[int]) -> set[str]:
        """Return the ids of the routes of these types."""
        wanted = {str(each) for each in route_types}
        rows = self._rows("routes.txt", ("route_id", "route_type"))
        return {route for route, kind in rows if not wanted or kind.strip() in wanted}

    def trips(self, routes: set[str]) -> tuple[dict[str, int], dict[str, int]]:
        """Return shape ids, and ids of trips without a shape, each with its number from 0."""
        shapes, shapeless = dict[str, int](), dict[str, int]()
        for route, trip, shape in self._rows("trips.txt", ("route_id", "trip_id"), "shape_id"):
            if route in routes:
                numbered, key = (shapes, shape) if shape else (shapeless, trip)
                numbered.setdefault(key, len(numbered))
        return shapes, shapeless

    def shape_lines(self, shapes: dict[str, int]) -> Iterator[list[Point]]:
        """Yield the lines of shapes.txt that are wanted, in the order of their numbers."""
        numbers, order, lats, lngs = array("q"), array("d"), array("d"), array("d")
        columns = ("shape_id", "shape_pt_sequence", "shape_pt_lat", "shape_pt_lon")
        for shape, sequence, lat, lng in self._rows("shapes.txt", columns):
            number = shapes.get(shape)
            if number is not None:
                numbers.append(number)
                order.append(self._number(sequence, "shapes.txt"))
                lats.append(self._number(lat, "shapes.txt"))
                lngs.append(self._number(lng, "shapes.txt"))
        which = np.asarray(numbers)
        sorted_rows = np.lexsort((np.asarray(order), which))
        for rows in _groups(which, sorted_rows):
            yield [(lats[row], lngs[row]) for row in rows]

    def stop_lines(self, trips: dict[str, int]) -> Iterator[list[Point]]:
        """Yield the straight line between each pair of stops that a trip serves one after the other, once a pair."""
        stops, places = dict[str, int](), list[Point | None]()
        for stop, lat, lng in self._rows("stops.txt", ("stop_id", "stop_lat", "stop_lon")):
            stops[stop] = len(places)
            placed = bool(lat.strip() and lng.strip())
            places.append((self._number(lat, "stops.txt"), self._number(lng, "stops.txt")) if placed else None)
        numbers, order, served = array("q"), array("d"), array("q")
        for trip, sequence, stop in self._rows("stop_times.txt", ("trip_id", "stop_sequence"), "stop_id"):
            number = trips.get(trip)
            if number is not None and stop:  # without a stop: an area of on-demand service
                numbers.append(number)
                order.append(self._number(sequence, "stop_times.txt"))
                served.append(self._stop(stops, stop))
        which, at = np.asarray(numbers), np.asarray(served)
        sorted_rows = np.lexsort((np.asarray(order), which))
        which, at = which[sorted_rows], at[sorted_rows]
        follows = which[1:] == which[:-1]
        for a, b in np.unique(np.stack([at[:-1][follows], at[1:][follows]], axis=1), axis=0):
            first, second = places[a], places[b]
            if first is not None and second is not None:
                yield [first, second]

    def _stop(self, stops: dict[str, int], stop: str) -> int:
        try:
            return stops[stop]
        except KeyError:
            raise BadTimetable(self._path, "names a stop in stop_times.txt that is not in stops.txt") from None

    def _number(self, text: str, table: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise BadTimetable(self._path, f"has {text!r} in {table}, where a number belongs") from None

    def _rows(self, table: str, required: tuple[str, ...], *optional: str) -> Iterator[list[str]]:
        """Yield the named columns of a table's rows; an optional column that is missing is empty."""
        if table not in self._names:
            raise BadTimetable(self._path, f"has no table {table}")
        if self._archive.getinfo(table).flag_bits & _ENCRYPTED:
            raise BadTimetable(self._path, "is encrypted", "unpack it, and pack it again without a password")
        with self._archive.open(table) as raw:
            reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline=""))
            header = [name.strip() for name in next(reader, [])]
            for name in required:
                if name not in header:
                    raise BadTimetable(self._path, f"has no column {name} in {table}")
            places = [header.index(name) if name in header else -1 for name in (*required, *optional)]
            for row in reader:
                if row:  # a short row ends before its empty columns
                    yield [row[place] if 0 <= place < len(row) else "" for place in places]


def _groups(which: NDArray[np.int64], rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Split sorted row numbers where `which` changes."""
    if len(rows):
        yield from np.split(rows, np.flatnonzero(np.diff(which[rows])) + 1)
