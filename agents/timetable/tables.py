"""Tables of a GTFS timetable, row by row.    [gtfs.org, Schedule]"""

import csv
import io
import zipfile
import zlib
from array import array
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Points:
    """Points of several lines, one after the other.

    number   int64 [n]    number of the line that a point is of, ascending
    lats     float64 [n]  degrees
    lngs     float64 [n]  degrees
    """

    number: NDArray[np.int64]
    lats: NDArray[np.float64]
    lngs: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Visits:
    """Stops of several trips, in the order in which each trip serves them.

    number   int64 [n]  number of the trip, ascending
    stop     int64 [n]  number of the stop
    """

    number: NDArray[np.int64]
    stop: NDArray[np.int64]

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return trip, stop and next stop, of each stop that is not a trip's last."""
        follows = self.number[1:] == self.number[:-1]
        return self.number[:-1][follows], self.stop[:-1][follows], self.stop[1:][follows]


@contextmanager
def open_timetable(path: Path) -> Iterator["Tables"]:
    """Open a GTFS zip file. Raises BadTimetable if it, or later one of its tables, cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield Tables(path, archive)
    except FileNotFoundError:
        raise BadTimetable(path, "does not exist", "name the zip file of a GTFS timetable") from None
    except OSError as error:
        raise BadTimetable(path, f"cannot be read ({error.strerror})", "check the file and its permissions") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError):  # the last: of the names in it
        raise BadTimetable(path, "is not a whole zip file", "fetch it again") from None
    except NotImplementedError:  # a compression that Python's zipfile lacks
        raise BadTimetable(path, "has a compression that cannot be read", "pack it again with deflate") from None
    except csv.Error:
        raise BadTimetable(path, "has a table that is not CSV") from None


class Tables:
    """The tables of one timetable. Each method reads its tables once, from the beginning."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        self._archive = archive
        self._names = set(archive.namelist())

    def route_ids(self, route_types: Collection[int]) -> set[str]:
        """Return the ids of the routes of these types; without types, of all."""
        wanted = {str(each) for each in route_types}
        rows = self.rows("routes.txt", ("route_id", "route_type"))
        return {route for route, kind in rows if not wanted or kind.strip() in wanted}

    def shape_points(self, shapes: Mapping[str, int]) -> Points:
        """Return the points of shapes, given with their numbers, in the order of each line."""
        numbers, order, lats, lngs = array("q"), array("d"), array("d"), array("d")
        columns = ("shape_id", "shape_pt_sequence", "shape_pt_lat", "shape_pt_lon")
        for shape, sequence, lat, lng in self.rows("shapes.txt", columns):
            number = shapes.get(shape)
            if number is not None:
                numbers.append(number)
                order.append(self.number(sequence, "shapes.txt"))
                lats.append(self.number(lat, "shapes.txt"))
                lngs.append(self.number(lng, "shapes.txt"))
        which = np.asarray(numbers)
        rows = np.lexsort((np.asarray(order), which))
        return Points(which[rows], np.asarray(lats)[rows], np.asarray(lngs)[rows])

    def stop_places(self) -> tuple[dict[str, int], list[Point | None], list[str]]:
        """Return stop id -> number, and by number the place, or None without one, and the name."""
        stops, places, names = dict[str, int](), list[Point | None](), list[str]()
        for stop, lat, lng, name in self.rows("stops.txt", ("stop_id", "stop_lat", "stop_lon"), "stop_name"):
            stops[stop] = len(places)
            placed = bool(lat.strip() and lng.strip())
            places.append((self.number(lat, "stops.txt"), self.number(lng, "stops.txt")) if placed else None)
            names.append(" ".join(name.split()))
        return stops, places, names

    def stop_times(self) -> Iterator[tuple[str, str, str]]:
        """Yield trip id, stop_sequence and stop id of each time at a stop, in the file's order."""
        for trip, sequence, stop in self.rows("stop_times.txt", ("trip_id", "stop_sequence"), "stop_id"):
            if stop:  # without a stop: an area of on-demand service
                yield trip, sequence, stop

    def stop_number(self, stops: Mapping[str, int], stop: str) -> int:
        """Return the number of a stop of stop_times.txt."""
        try:
            return stops[stop]
        except KeyError:
            raise BadTimetable(self.path, "names a stop in stop_times.txt that is not in stops.txt") from None

    def number(self, text: str, table: str) -> float:
        """Convert a number of a table."""
        try:
            return float(text)
        except ValueError:
            raise BadTimetable(self.path, f"has {text!r} in {table}, where a number belongs") from None

    def rows(self, table: str, required: tuple[str, ...], *optional: str) -> Iterator[list[str]]:
        """Yield the named columns of a table's rows; an optional column that is missing is empty."""
        if table not in self._names:
            raise BadTimetable(self.path, f"has no table {table}")
        if self._archive.getinfo(table).flag_bits & _ENCRYPTED:
            raise BadTimetable(self.path, "is encrypted", "unpack it, and pack it again without a password")
        with self._archive.open(table) as raw:
            reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline=""))
            header = [name.strip() for name in next(reader, [])]
            for name in required:
                if name not in header:
                    raise BadTimetable(self.path, f"has no column {name} in {table}")
            places = [header.index(name) if name in header else -1 for name in (*required, *optional)]
            for row in reader:
                if row:  # a short row ends before its empty columns
                    yield [row[place] if 0 <= place < len(row) else "" for place in places]


class VisitRows:
    """Rows of stop_times.txt, collected as numbers: 24 bytes each."""

    def __init__(self) -> None:
        self._numbers, self._order, self._stops = array("q"), array("d"), array("q")

    def add(self, trip: int, sequence: float, stop: int) -> None:
        """Add one row."""
        self._numbers.append(trip)
        self._order.append(sequence)
        self._stops.append(stop)

    def sorted(self) -> Visits:
        """Return the rows by trip and sequence."""
        which = np.asarray(self._numbers)
        rows = np.lexsort((np.asarray(self._order), which))
        return Visits(which[rows], np.asarray(self._stops)[rows])
