"""Archived vehicle positions of Capital Metro, Austin: CSV, one record a line, speeds in m/s.

vehicle_id,timestamp,speed,route_id,trip_id,latitude,longitude,trip_headsign
2619,2017-03-21T00:00:31-05:00,17.43456,1,1723912,30.19826,-97.77679,1-Metric/South Congress-SB

Source: github.com/scascketta/CapMetrics. Speeds are in m/s from 2016 on; the unit before 2016 is unknown.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO, Final

from hatcast.stream.readings.formats._csv import csv_records, fields
from hatcast.stream.readings.formats._values import parse_number, speed_in
from hatcast.stream.readings.formats.interface import Format, Recorded, lines, split_lines
from hatcast.stream.readings.reading import MISSING, Reading

NAME: Final = "capmetro"
COLUMNS: Final = ("vehicle_id", "timestamp", "speed", "route_id", "trip_id", "latitude", "longitude", "trip_headsign")
_FIRST_YEAR: Final = "2016"


def decode(value: bytes, missing: str | None = None) -> Reading | None:
    """Decode one CSV line in the standard column order; None if undecodable. Raises nothing.

    missing   the speed of a record without one, or with one of an unknown unit; None: it is undecodable
    """
    try:
        line = value.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        return None
    row = fields(line)
    if row is None or len(row) < len(COLUMNS) - 1 or "\n" in line:  # the headsign is optional
        return None
    return _reading((row[0], row[1], row[5], row[6], row[2]), missing)


def _reading(cells: Sequence[str], missing: str | None) -> Reading | None:
    vehicle, time, latitude, longitude, sent = cells
    lat, lon, speed = parse_number(latitude), parse_number(longitude), speed_in(sent, missing)
    if time < _FIRST_YEAR and time[4:5] == "-":
        speed = missing
    if not vehicle or not time or lat is None or lon is None or speed is None:
        return None
    return Reading(vehicle, time, lat, lon, speed, "m/s")


def records(stream: BinaryIO, path: str, missing: str | None = None) -> Iterator[Recorded]:
    """Yield the records of a recording in file order, which is not time order.

    Raises RecordingError if the first line is not a header with the required columns.
    """
    columns = ("vehicle_id", "timestamp", "latitude", "longitude", "speed")
    return csv_records(lines(stream), path, columns, _reading, missing)


_WITHOUT_SPEED: Final = Format(
    NAME, partial(decode, missing=MISSING), partial(records, missing=MISSING), split_lines, "csv"
)
# Only by all columns: some of them are in many exports, whose speeds have other units.
FORMAT: Final = Format(
    NAME, decode, records, split_lines, "csv", without_speed=_WITHOUT_SPEED, shows=lambda _, names: (*names,) == COLUMNS
)
