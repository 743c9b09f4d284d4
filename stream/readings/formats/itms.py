"""Surat's buses as IUDX publishes them (ITMS): nested JSON, the same flattened, or CSV; speeds in km/h.

nested      {"license_plate": .., "observationDateTime": .., "speed": .., "location": {"coordinates": [lon, lat]}, ..}
flattened   the same with "location.coordinates": [lon, lat]
CSV         columns of the flattened names; the coordinates as the text "[lon, lat]"

A time is ISO text with an offset, epoch ms, or epoch ms as text. A recording is a JSON array, one JSON object a line,
or CSV; a telemetry record is one JSON object.
"""

from collections.abc import Iterator, Sequence
from typing import BinaryIO, Final, Generic, TypeVar

import msgspec

from hatcast.stream.readings.formats._csv import Table, number, speed
from hatcast.stream.readings.formats._json_array import elements
from hatcast.stream.readings.formats._recorded import (
    UNREADABLE,
    another_format,
    first_byte,
    lines,
    recorded,
    split_json,
)
from hatcast.stream.readings.formats._speed import speed_of
from hatcast.stream.readings.formats.interface import Feed, Recorded
from hatcast.stream.readings.reading import Reading

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
    """The fields that are used, of both JSON forms. S: a float, or the speed as it was sent."""

    license_plate: str
    time: str | int | float = msgspec.field(name="observationDateTime")
    speed: S
    location: _Location | None = None
    flat: _Point | None = msgspec.field(name="location.coordinates", default=None)


class _Stamps(msgspec.Struct):
    """The time of a record that may be undecodable, and what tells that it is one of ITMS."""

    time: object = msgspec.field(name="observationDateTime", default=None)
    license_plate: msgspec.Raw = _ABSENT


_NOTHING: Final = _Stamps()
_read: Final = msgspec.json.Decoder(_Record[float]).decode
_read_any_speed: Final = msgspec.json.Decoder(_Record[msgspec.Raw]).decode
_read_stamps: Final = msgspec.json.Decoder(_Stamps).decode


def decode(value: bytes) -> Reading | None:
    """One JSON record, nested or flattened; None if undecodable. Raises nothing."""
    try:
        record = _read(value)
    except UNREADABLE:
        return _with_any_speed(value)
    return _reading(record, record.speed)


def _with_any_speed(value: bytes) -> Reading | None:
    """A record that was refused, perhaps for a speed that a double cannot hold."""
    try:
        record = _read_any_speed(value)
    except UNREADABLE:
        return None
    found = speed_of(record.speed)
    return None if found is None else _reading(record, found)


def _reading(record: _Record[S], found: float | str) -> Reading | None:
    location = record.location
    point = record.flat if location is None else location.coordinates
    if point is None:
        return None
    return Reading(record.license_plate, record.time, point.lat, point.lon, found)


def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
    """The records of a recording in any of its forms, in file order.

    Raises RecordingError: an empty file, an array that never ends, a CSV header without the needed columns, or JSON in
    which nothing has a licence plate or a time of ITMS (said at the end).
    """
    head = first_byte(stream)
    if head not in (b"[", b"{"):
        return _TABLE.records(lines(stream, head), path)
    raws = elements(stream, path) if head == b"[" else lines(stream, head)
    expected = "a JSON array, of one JSON object a line, or of CSV"
    return recorded(raws, decode, _look, another_format(path, NAME, expected))


def _look(raw: bytes, reading: Reading | None) -> tuple[object, bool]:
    if reading is not None:
        return reading.time, True
    try:
        stamps = _read_stamps(raw)
    except UNREADABLE:
        stamps = _NOTHING
    return stamps.time, bool(stamps.time is not None or stamps.license_plate)


def _from_csv(cells: Sequence[str]) -> Reading | None:
    plate, time, speed_text, coordinates = cells
    lon_text, comma, others = coordinates.strip().removeprefix("[").removesuffix("]").partition(",")
    lon, lat, found = number(lon_text), number(others.partition(",")[0]), speed(speed_text)
    if not plate or not time or not comma or lat is None or lon is None or found is None:
        return None
    return Reading(plate, time, lat, lon, found)


_TABLE: Final = Table(("license_plate", "observationDateTime", "speed", "location.coordinates"), _from_csv)

FEED: Final = Feed(NAME, decode, records, split_json, "json")
