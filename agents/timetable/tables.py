"""Tables of a GTFS timetable, row by row.    [gtfs.org, Schedule]"""

import csv
import io
import re
import zipfile
import zlib
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hatcast.stream.areas import Point
from hatcast.stream.errors import HatcastError

_ENCRYPTED: Final = 1  # bit of a zip entry's flags
Tell = Callable[[str], object]
_NOWHERE: Final = (0.0, 0.0)
_TYPE: Final = re.compile(r"[0-9]{1,4}")
_EXTENDED_TYPE: Final = re.compile(r"[0-9]{3}")
_EXTENDED: Final = {"1": "2", "2": "3", "4": "1", "7": "3", "8": "11", "9": "0"}
"""First digit of an extended route type -> the basic type: rail, coach, metro, bus, trolleybus, tram"""
_FIX: Final = "export it again, or check it with a GTFS validator"


class BadTimetable(HatcastError):
    """A file is not a GTFS timetable, or a table of it is damaged."""

    def __init__(self, path: Path, problem: str, fix: str = _FIX) -> None:
        super().__init__(f"{path} {problem}; {fix}")


@dataclass(frozen=True, slots=True)
class Points:
    """Points of several lines, one after the other."""

    number: NDArray[np.int64]  # int64 [n]    number of the line that a point is of, ascending
    lats: NDArray[np.float64]  # float64 [n]  degrees
    lngs: NDArray[np.float64]  # float64 [n]  degrees


@dataclass(frozen=True, slots=True)
class Visits:
    """Stops of several trips, in the order in which each trip serves them."""

    number: NDArray[np.int64]  # int64 [n]  number of the trip, ascending
    stop: NDArray[np.int64]  # int64 [n]  number of the stop

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return trip, stop and next stop, of each stop that is not a trip's last."""
        follows = self.number[1:] == self.number[:-1]
        return self.number[:-1][follows], self.stop[:-1][follows], self.stop[1:][follows]


@contextmanager
def open_timetable(path: Path, tell: Tell) -> Iterator["Tables"]:
    """Open a GTFS zip file. Raises BadTimetable if it, or later one of its tables, cannot be read.

    tell   called with a line about what is left out
    """
    try:
        with zipfile.ZipFile(path) as archive:
            yield Tables(path, archive, tell)
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
    """The tables of one timetable. Each method reads its tables once, from the beginning.

    Stops and points at latitude and longitude 0 are left out: there is sea, and their place was not known.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile, tell: Tell) -> None:
        self.path = path
        self._archive = archive
        # By the name of the table: many archives have them in a folder.
        self._names = {
            name.rpartition("/")[2]: name for name in sorted(archive.namelist(), key=lambda name: -name.count("/"))
        }
        self._misplaced = set[int]()
        self._tell = tell

    def route_ids(self, route_types: Collection[int], *, or_all: bool = False) -> set[str]:
        """Return the ids of the routes of these types; without types, of all.

        or_all   return all if there is none of these types; otherwise that raises BadTimetable
        """
        rows = list(self.rows("routes.txt", ("route_id", "route_type")))
        kinds = {kind: _basic_type(kind.strip()) for _, kind in rows}
        wanted = {str(each) for each in route_types}
        found = {route for route, kind in rows if not wanted or not wanted.isdisjoint((kind.strip(), kinds[kind]))}
        if not found and or_all:
            return {route for route, _ in rows}
        if not found and rows:
            types = ", ".join(sorted({kind.strip() for _, kind in rows if _TYPE.fullmatch(kind.strip())}))
            raise BadTimetable(self.path, f"has routes of type {types or 'none'} only", "name one as --route-type")
        return found

    def shape_points(self, shapes: Mapping[str, int]) -> Points:
        """Return the points of shapes, given with their numbers, in the order of each line."""
        numbers, order, lats, lngs = array("q"), array("d"), array("d"), array("d")
        columns = ("shape_id", "shape_pt_sequence", "shape_pt_lat", "shape_pt_lon")
        for shape, sequence, lat, lng in self.rows("shapes.txt", columns):
            number = shapes.get(shape)
            if number is None:
                continue
            point = self.number(lat, "shapes.txt"), self.number(lng, "shapes.txt")
            if point != _NOWHERE:
                numbers.append(number)
                order.append(self.number(sequence, "shapes.txt"))
                lats.append(point[0])
                lngs.append(point[1])
        which = np.asarray(numbers)
        rows = np.lexsort((np.asarray(order), which))
        return Points(which[rows], np.asarray(lats)[rows], np.asarray(lngs)[rows])

    def stop_places(self) -> tuple[dict[str, int], list[Point | None], list[str]]:
        """Return stop id -> number, and by number the place, or None without one, and the name."""
        stops, places, names = dict[str, int](), list[Point | None](), list[str]()
        for stop, lat, lng, name in self.rows("stops.txt", ("stop_id", "stop_lat", "stop_lon"), "stop_name"):
            stops[stop] = len(places)
            placed = bool(lat.strip() and lng.strip())
            place = (self.number(lat, "stops.txt"), self.number(lng, "stops.txt")) if placed else None
            if place == _NOWHERE:
                self._misplaced.add(len(places))
            places.append(None if place == _NOWHERE else place)
            names.append(" ".join(name.split()))
        if self._misplaced:
            self._tell(f"hint: {self.path}: {len(self._misplaced):,} stops at latitude 0, longitude 0 are left out")
        return stops, places, names

    def stop_times(self) -> Iterator[tuple[str, str, str]]:
        """Yield trip id, stop_sequence and stop id of each time at a stop, in the file's order."""
        for trip, sequence, stop in self.rows("stop_times.txt", ("trip_id", "stop_sequence"), "stop_id"):
            if stop:  # without a stop: an area of on-demand service
                yield trip, sequence, stop

    def is_misplaced(self, stop: int) -> bool:
        """Return whether the stop of this number is left out, once the places of stops were read."""
        return stop in self._misplaced

    def stop_number(self, stops: Mapping[str, int], stop: str) -> int:
        """Return the number of a stop of stop_times.txt."""
        try:
            return stops[stop]
        except KeyError:
            raise BadTimetable(self.path, "names a stop in stop_times.txt that is not in stops.txt") from None

    def check_on_earth(self, table: str, lats: NDArray[np.float64], lngs: NDArray[np.float64]) -> None:
        """Raise BadTimetable if one of these places of a table is not on earth."""
        bad = ~((np.abs(lats) <= 90) & (np.abs(lngs) <= 180))  # also for NaN
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            place = f"latitude {lats[at]:g}, longitude {lngs[at]:g}"
            raise BadTimetable(self.path, f"has {place} in {table}, which is not on earth")

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
        name = self._names[table]
        if self._archive.getinfo(name).flag_bits & _ENCRYPTED:
            raise BadTimetable(self.path, "is encrypted", "unpack it, and pack it again without a password")
        with self._archive.open(name) as raw:
            reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline=""))
            header = [name.strip() for name in next(reader, [])]
            for name in required:
                if name not in header:
                    raise BadTimetable(self.path, f"has no column {name} in {table}")
            places = [header.index(name) if name in header else -1 for name in (*required, *optional)]
            for row in reader:
                if row:  # a short row ends before its empty columns
                    yield [row[place] if 0 <= place < len(row) else "" for place in places]


def _basic_type(kind: str) -> str:
    """Return the basic type of an extended one: 700 to 799 are buses, 3.    [Google, Extended GTFS route types]"""
    return _EXTENDED.get(kind[0], kind) if _EXTENDED_TYPE.fullmatch(kind) else kind


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
