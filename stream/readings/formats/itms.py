"""ITMS data of Surat's buses, published by IUDX: nested JSON, flattened JSON, or CSV; speeds in km/h.

nested      {"license_plate": .., "observationDateTime": .., "speed": .., "location": {"coordinates": [lon, lat]}, ..}
flattened   the same with "location.coordinates": [lon, lat]
CSV         columns with the flattened names; coordinates are the text "[lon, lat]"

A time is ISO text with a UTC offset, epoch ms, or epoch ms as text. A recording is a JSON array, one JSON object a
line, or CSV; a telemetry record is one JSON object.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO, Final, Generic, TypeVar

import msgspec

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.readings.formats._csv import CsvTable
from hatcast.stream.readings.formats._json_values import json_values, split_json
from hatcast.stream.readings.formats._values import parse_number, parse_speed, speed_of
from hatcast.stream.readings.formats.interface import (
    Decode,
    Format,
    Recorded,
    decode_all,
    first_byte,
    lines,
    wrong_format,
)
from hatcast.stream.readings.reading import MISSING, Reading, is_empty

NAME: Final = "itms"
S = TypeVar("S")
_ABSENT: Final = msgspec.Raw()


class _Point(msgspec.Struct, array_like=True, gc=False):
    """GeoJSON coordinates: longitude first; an altitude may follow."""

    lon: float
    lat: float


class _Location(msgspec.Struct, gc=False):
    coordinates: _Point


class _Record(msgspec.Struct, Generic[S], gc=False):
    """The decoded fields of both JSON forms. S: a float, or the raw JSON of the speed."""

    license_plate: str
    time: str | int | float = msgspec.field(name="observationDateTime")
    speed: S
    location: _Location | None = None
    flat: _Point | None = msgspec.field(name="location.coordinates", default=None)


class _Stamps(msgspec.Struct):
    """Time and plate of a record that may be undecodable. One of them shows that the format is ITMS."""

    time: object = msgspec.field(name="observationDateTime", default=None)
    license_plate: msgspec.Raw = _ABSENT


_NOTHING: Final = _Stamps()
_read: Final = msgspec.json.Decoder(_Record[float]).decode
_read_any_speed: Final = msgspec.json.Decoder(_Record[msgspec.Raw]).decode
_read_stamps: Final = msgspec.json.Decoder(_Stamps).decode


def decode(value: bytes) -> Reading | None:
    """Decode one JSON record, nested or flattened; None if undecodable. Raises nothing."""
    try:
        record = _read(value)
    except UNREADABLE:
        return _with_any_speed(value)
    # Inlined `_reading` for almost every record: a function call would cost time on each.
    location = record.location
    point = record.flat if location is None else location.coordinates
    return None if point is None else Reading(record.license_plate, record.time, point.lat, point.lon, record.speed)


def _with_any_speed(value: bytes) -> Reading | None:
    """Decode a record that `decode` rejected, possibly because its speed is too large for a double."""
    try:
        record = _read_any_speed(value)
    except UNREADABLE:
        return None
    speed = speed_of(record.speed)
    return None if speed is None else _reading(record, speed)


class _Position(msgspec.Struct, gc=False):
    license_plate: str
    time: str | int | float = msgspec.field(name="observationDateTime")
    speed: float | None = None
    location: _Location | None = None
    flat: _Point | None = msgspec.field(name="location.coordinates", default=None)


_read_position: Final = msgspec.json.Decoder(_Position).decode


def _decode_position(value: bytes) -> Reading | None:
    """Decode one JSON record like `decode`, also without a speed."""
    try:
        record = _read_position(value)
    except UNREADABLE:
        return _with_any_speed(value)
    return _reading(record, MISSING if record.speed is None else record.speed)


def _reading(record: _Record[S] | _Position, speed: float | str) -> Reading | None:
    location = record.location
    point = record.flat if location is None else location.coordinates
    if point is None:
        return None
    return Reading(record.license_plate, record.time, point.lat, point.lon, speed)


def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
    """Yield the records of a recording in any of the three forms, in file order.

    Raises RecordingError for an empty file, an unterminated array, a CSV header without the required columns, and (at
    the end) for JSON in which no record has a licence plate or a time of ITMS.
    """
    return _records(stream, path, decode, _TABLE)


def _records(stream: BinaryIO, path: str, decoder: Decode, table: CsvTable) -> Iterator[Recorded]:
    head = first_byte(stream)
    if head not in (b"[", b"{"):
        return table.records(lines(stream, head), path)
    raws = json_values(stream, path, head=head)
    expected = "a JSON array, of one JSON object a line, or of CSV"
    return decode_all(raws, decoder, _inspect, wrong_format(path, NAME, expected))


def _inspect(raw: bytes, reading: Reading | None) -> tuple[object, bool]:
    if reading is not None:
        return reading.time, True
    try:
        stamps = _read_stamps(raw)
    except UNREADABLE:
        stamps = _NOTHING
    return stamps.time, bool(stamps.time is not None or stamps.license_plate)


def _from_csv(cells: Sequence[str]) -> Reading | None:
    speed = parse_speed(cells[_SPEED_AT])
    return None if speed is None else _with_speed(cells, speed)


def _position_from_csv(cells: Sequence[str]) -> Reading | None:
    return _with_speed(cells, MISSING) if is_empty(cells[_SPEED_AT]) else _from_csv(cells)


def _with_speed(cells: Sequence[str], speed: float | str) -> Reading | None:
    plate, time, coordinates, _ = cells
    lon_text, comma, others = coordinates.strip().removeprefix("[").removesuffix("]").partition(",")
    lon, lat = parse_number(lon_text), parse_number(others.partition(",")[0])
    if not plate or not time or not comma or lat is None or lon is None:
        return None
    return Reading(plate, time, lat, lon, speed)


_COLUMNS: Final = ("license_plate", "observationDateTime", "location.coordinates", "speed")
_SPEED_AT: Final = 3  # one column has latitude and longitude
_TABLE: Final = CsvTable(_COLUMNS, _from_csv)
_POSITIONS: Final = CsvTable(_COLUMNS, _position_from_csv, optional=("speed",))

_WITHOUT_SPEED: Final = Format(
    NAME, _decode_position, partial(_records, decoder=_decode_position, table=_POSITIONS), split_json, "json"
)
FORMAT: Final = Format(NAME, decode, records, split_json, "json", without_speed=_WITHOUT_SPEED)
