"""Archived vehicle positions of Capital Metro, Austin: CSV, one record a line, speeds in m/s.

vehicle_id,timestamp,speed,route_id,trip_id,latitude,longitude,trip_headsign
2619,2017-03-21T00:00:31-05:00,17.43456,1,1723912,30.19826,-97.77679,1-Metric/South Congress-SB

Source: github.com/scascketta/CapMetrics. Speeds are in m/s from 2016 on; the unit before 2016 is unknown.
"""

from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final

from hatcast.stream.readings.formats._csv import CsvTable, fields
from hatcast.stream.readings.formats._values import parse_number, parse_speed
from hatcast.stream.readings.formats.interface import Format, Recorded, lines, split_lines
from hatcast.stream.readings.reading import MISSING, Reading, is_empty

NAME: Final = "capmetro"
COLUMNS: Final = ("vehicle_id", "timestamp", "speed", "route_id", "trip_id", "latitude", "longitude", "trip_headsign")
_FIRST_YEAR: Final = "2016"


def decode(value: bytes) -> Reading | None:
    """Decode one CSV line in the standard column order; None if undecodable. Raises nothing."""
    return None if (cells := _cells(value)) is None else _reading(cells)


def _decode_position(value: bytes) -> Reading | None:
    """Decode like `decode`, also without a speed."""
    return None if (cells := _cells(value)) is None else _position(cells)


def _cells(value: bytes) -> Sequence[str] | None:
    """Return the cells of `_COLUMNS` of a line in the standard column order; None if broken."""
    try:
        line = value.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        return None
    row = fields(line)
    if row is None or len(row) < len(COLUMNS) - 1 or "\n" in line:  # the headsign is optional
        return None
    vehicle, time, speed, _, _, lat, lon, *_ = row
    return vehicle, time, lat, lon, speed


def _reading(cells: Sequence[str]) -> Reading | None:
    vehicle, time, latitude, longitude, speed_text = cells
    lat, lon, speed = parse_number(latitude), parse_number(longitude), parse_speed(speed_text)
    if not vehicle or not time or lat is None or lon is None or speed is None:
        return None
    if _has_unknown_unit(time):
        return None
    return Reading(vehicle, time, lat, lon, speed, "m/s")


def _position(cells: Sequence[str]) -> Reading | None:
    """Return a reading like `_reading`, with the speed `MISSING` if the cell is empty or its unit unknown."""
    vehicle, time, latitude, longitude, speed = cells
    if not is_empty(speed) and not _has_unknown_unit(time):
        return _reading(cells)
    lat, lon = parse_number(latitude), parse_number(longitude)
    if not vehicle or not time or lat is None or lon is None:
        return None
    return Reading(vehicle, time, lat, lon, MISSING, "m/s")


def _has_unknown_unit(time: str) -> bool:
    return time < _FIRST_YEAR and time[4:5] == "-"


_COLUMNS: Final = ("vehicle_id", "timestamp", "latitude", "longitude", "speed")
_TABLE: Final = CsvTable(_COLUMNS, _reading)
_POSITIONS: Final = CsvTable(_COLUMNS, _position, optional=("speed",))


def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
    """Yield the records of a recording in file order, which is not time order.

    Raises RecordingError if the first line is not a header with the required columns.
    """
    return _TABLE.records(lines(stream), path)


def _positions(stream: BinaryIO, path: str) -> Iterator[Recorded]:
    return _POSITIONS.records(lines(stream), path)


_WITHOUT_SPEED: Final = Format(NAME, _decode_position, _positions, split_lines, "csv")
FORMAT: Final = Format(NAME, decode, records, split_lines, "csv", without_speed=_WITHOUT_SPEED)
