"""The canonical telemetry record, one JSON object a line.    [fold.md, rule 3; design.md, section 6]

{"vehicle": "GJ05BX1234", "time": "2022-01-02T05:29:43+05:30", "lat": 21.2, "lon": 72.8, "speed": 38, "unit": "km/h"}

In a recording the record may also have `arrival`: when it reached the bridge, as ISO text or epoch ms.
"""

import math
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec

from hatcast.stream.readings.formats._recorded import UNREADABLE, another_format, lines, recorded, split_json
from hatcast.stream.readings.formats._speed import speed_of
from hatcast.stream.readings.formats.interface import Feed, Recorded
from hatcast.stream.readings.reading import Reading, is_complete

NAME: Final = "jsonl"

_read: Final = msgspec.json.Decoder(Reading).decode


class _AnySpeed(msgspec.Struct, gc=False):
    """A `Reading` whose speed is left as it was sent: the decoder refuses numbers that a double cannot hold."""

    vehicle: str
    time: str | int | float
    lat: float | str
    lon: float | str
    speed: msgspec.Raw
    unit: str = "km/h"


_read_any_speed: Final = msgspec.json.Decoder(_AnySpeed).decode
_write: Final = msgspec.json.Encoder().encode
_ABSENT: Final = msgspec.Raw()


class _Stamps(msgspec.Struct):
    """What tells when a record arrived, of any type, so that a bad record has it too; and what tells that it is one."""

    arrival: object = None
    time: object = None
    vehicle: msgspec.Raw = _ABSENT
    lat: msgspec.Raw = _ABSENT
    lon: msgspec.Raw = _ABSENT


_NOTHING: Final = _Stamps()
_read_stamps: Final = msgspec.json.Decoder(_Stamps).decode


def decode(value: bytes) -> Reading | None:
    """One canonical record; None if undecodable. Raises nothing."""
    try:
        reading = _read(value)
    except UNREADABLE:
        return _with_any_speed(value)
    # What almost every record is, without a call: this line is crossed by each of them.
    if (
        reading.speed.__class__ is float
        and reading.lat.__class__ is float
        and reading.lon.__class__ is float
        and reading.unit == "km/h"
    ):
        return reading
    return reading if is_complete(reading) else None


def _with_any_speed(value: bytes) -> Reading | None:
    """A record that was refused, perhaps for a speed that a double cannot hold."""
    try:
        found = _read_any_speed(value)
    except UNREADABLE:
        return None
    speed = speed_of(found.speed)
    if speed is None:
        return None
    reading = Reading(found.vehicle, found.time, found.lat, found.lon, speed, found.unit)
    return reading if is_complete(reading) else None


def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
    """The records of a recording, one a line, in file order.

    Raises RecordingError, at the end, if there are lines and none is a JSON object with a field of the canonical record.
    """
    expected = 'lines such as {"vehicle": .., "time": .., "lat": .., "lon": .., "speed": ..}'
    return recorded(lines(stream), decode, _look, another_format(path, NAME, expected))


def _look(raw: bytes, _: Reading | None) -> tuple[object, bool]:
    try:
        stamps = _read_stamps(raw)
    except UNREADABLE:
        stamps = _NOTHING
    stamp = stamps.time if stamps.arrival is None else stamps.arrival
    return stamp, bool(stamps.time is not None or stamps.vehicle or stamps.lat or stamps.lon)


def canonical_value(recorded: Recorded) -> bytes:
    """What replay sends: the canonical record with the original number and unit; of an undecodable one, its raw bytes.

    Numbers that JSON cannot hold are sent as "nan", "inf" and "-inf". `decode` gives an equal Reading again.
    """
    reading = recorded.reading
    if reading is None:
        return recorded.raw
    lat, lon, speed = _sendable(reading.lat), _sendable(reading.lon), _sendable(reading.speed)
    return _write(Reading(reading.vehicle, reading.time, lat, lon, speed, reading.unit))


def _sendable(value: float | str) -> float | str:
    """A number as JSON can hold it: str() of a float that is not finite is the text that stands for it."""
    return value if isinstance(value, str) or math.isfinite(value) else str(value)


FEED: Final = Feed(NAME, decode, records, split_json, "json")
