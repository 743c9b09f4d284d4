"""ITMS data of Surat's buses, published by IUDX: nested JSON, flattened JSON, or CSV; speeds in km/h.

nested      {"license_plate": .., "observationDateTime": .., "speed": .., "location": {"coordinates": [lon, lat]}, ..}
flattened   the same with "location.coordinates": [lon, lat]
CSV         columns with the flattened names; coordinates are the text "[lon, lat]"

A time is ISO text with a UTC offset, epoch ms, or epoch ms as text. A recording is a JSON array, one JSON object a
line, or CSV; a telemetry record is one JSON object.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO, Final

import msgspec

from hatcast.stream.errors import UNREADABLE, readable
from hatcast.stream.readings.formats._csv import csv_records
from hatcast.stream.readings.formats._json_values import json_values, split_json
from hatcast.stream.readings.formats._values import ABSENT, parse_number, speed_in, speed_of
from hatcast.stream.readings.formats.interface import (
    Decode,
    Format,
    Recorded,
    decode_all,
    first_byte,
    lines,
    wrong_format,
)
from hatcast.stream.readings.reading import MISSING, Reading

NAME: Final = "itms"


class _Point(msgspec.Struct, array_like=True, gc=False):
    """GeoJSON coordinates: longitude first; an altitude may follow."""

    lon: float
    lat: float


class _Location(msgspec.Struct, gc=False):
    coordinates: _Point


class _Record(msgspec.Struct, gc=False):
    """The decoded fields of both JSON forms, in their order, which is the fastest."""

    license_plate: str
    time: str | int | float = msgspec.field(name="observationDateTime")
    speed: float
    location: _Location | None = None
    flat: _Point | None = msgspec.field(name="location.coordinates", default=None)


class _ItmsAnySpeed(msgspec.Struct, gc=False):
    """A record whose speed may be absent, null, or too large for a double."""

    license_plate: str
    time: str | int | float = msgspec.field(name="observationDateTime")
    speed: msgspec.Raw = ABSENT
    location: _Location | None = None
    flat: _Point | None = msgspec.field(name="location.coordinates", default=None)


class _ItmsStamps(msgspec.Struct):
    """Time and plate of a record that may be undecodable. One of them shows that the format is ITMS."""

    time: object = msgspec.field(name="observationDateTime", default=None)
    license_plate: msgspec.Raw = ABSENT


_NOTHING: Final = _ItmsStamps()
_read: Final = msgspec.json.Decoder(_Record).decode
_read_any_speed: Final = msgspec.json.Decoder(_ItmsAnySpeed).decode
_read_stamps: Final = msgspec.json.Decoder(_ItmsStamps).decode


def decode(value: bytes) -> Reading | None:
    """Decode one JSON record, nested or flattened; None if undecodable. Raises nothing."""
    try:
        record = _read(value)
    except UNREADABLE:
        return _with_any_speed(value)
    # Inlined for almost every record: a function call would cost time on each.
    location = record.location
    point = record.flat if location is None else location.coordinates
    return None if point is None else Reading(record.license_plate, record.time, point.lat, point.lon, record.speed)


def _with_any_speed(value: bytes, missing: str | None = None) -> Reading | None:
    """Decode a record that `decode` may reject, such as one with a speed too large for a double.

    missing   the speed of a record without one; None: it is undecodable
    """
    record = readable(_read_any_speed, value)
    if record is None:
        return None
    speed, location = speed_of(record.speed, missing), record.location
    point = record.flat if location is None else location.coordinates
    if point is None or speed is None:
        return None
    return Reading(record.license_plate, record.time, point.lat, point.lon, speed)


def _inspect(raw: bytes, reading: Reading | None) -> tuple[object, bool]:
    if reading is not None:
        return reading.time, True
    stamps = readable(_read_stamps, raw) or _NOTHING
    return stamps.time, bool(stamps.time is not None or stamps.license_plate)


def _from_csv(cells: Sequence[str], missing: str | None) -> Reading | None:
    plate, time, coordinates, sent = cells
    lon_text, comma, others = coordinates.strip().removeprefix("[").removesuffix("]").partition(",")
    lon, lat, speed = parse_number(lon_text), parse_number(others.partition(",")[0]), speed_in(sent, missing)
    if not plate or not time or not comma or lat is None or lon is None or speed is None:
        return None
    return Reading(plate, time, lat, lon, speed)


def records(stream: BinaryIO, path: str, decoder: Decode = decode, missing: str | None = None) -> Iterator[Recorded]:
    """Yield the records of a recording in any of the three forms, in file order.

    Raises RecordingError for an empty file, an unterminated array, a CSV header without the required columns, and (at
    the end) for JSON in which no record has a licence plate or a time of ITMS.
    """
    head = first_byte(stream)
    if head not in (b"[", b"{"):
        columns = ("license_plate", "observationDateTime", "location.coordinates", "speed")
        return csv_records(lines(stream, head), path, columns, _from_csv, missing)
    raws = json_values(stream, path, head=head)
    expected = "a JSON array, of one JSON object a line, or of CSV"
    return decode_all(raws, decoder, _inspect, wrong_format(path, NAME, expected))


_decode_position: Final = partial(_with_any_speed, missing=MISSING)
_WITHOUT_SPEED: Final = Format(
    NAME, _decode_position, partial(records, decoder=_decode_position, missing=MISSING), split_json, "json"
)
FORMAT: Final = Format(
    NAME,
    decode,
    records,
    split_json,
    "json",
    without_speed=_WITHOUT_SPEED,
    shows=lambda _, names: {"license_plate", "observationDateTime"}.issubset(names),
)
