"""The canonical telemetry record, one JSON object a line.    [docs/specification/fold.md, rule 3]

{"vehicle": "GJ05BX1234", "time": "2022-01-02T05:29:43+05:30", "lat": 21.2, "lon": 72.8, "speed": 38, "unit": "km/h"}

In a recording a record may also have `arrival`: its time of arrival at the source, as ISO text or epoch ms. `value` is
another name of `speed`; a record with both has its speed in `speed`. For a policy with several values, each value but
the speed is a field of its name, a number in the policy's unit. For a policy of one other value, see
`_values`.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import chain, islice
from typing import BinaryIO, Final

import msgspec

from hatcast.stream.errors import UNREADABLE, RecordingError, SettingError, as_option, readable
from hatcast.stream.readings.formats._json_values import json_values, records_advice, split_json
from hatcast.stream.readings.formats._values import (
    ABSENT,
    VALUE,
    Extract,
    is_absent,
    single_value_decoder,
    speed_of,
    with_decoder,
    with_values,
)
from hatcast.stream.readings.formats.interface import Decode, Format, Recorded, decode_all, wrong_format
from hatcast.stream.readings.reading import MISSING, Reading, ValueReading, ValuesReading, ValueUnits, is_complete

NAME: Final = "jsonl"

_read: Final = msgspec.json.Decoder(Reading).decode


class _AnySpeed(msgspec.Struct, gc=False):
    """A `Reading` with the raw JSON of its speed or value: msgspec rejects numbers too large for a double."""

    vehicle: str
    time: str | int | float
    lat: float | str
    lon: float | str
    speed: msgspec.Raw = ABSENT
    value: msgspec.Raw = ABSENT
    unit: str = "km/h"


_read_any_speed: Final = msgspec.json.Decoder(_AnySpeed).decode
_read_any: Final = msgspec.json.Decoder().decode
_write: Final = msgspec.json.Encoder().encode


class _Stamps(msgspec.Struct):
    """Time fields of any type, also of an undecodable record, and fields that show that the format is jsonl."""

    arrival: object = None
    time: object = None
    vehicle: msgspec.Raw = ABSENT
    lat: msgspec.Raw = ABSENT
    lon: msgspec.Raw = ABSENT


_NOTHING: Final = _Stamps()
_read_stamps: Final = msgspec.json.Decoder(_Stamps).decode


def decode(value: bytes) -> Reading | None:
    """Decode one canonical record; None if undecodable. Raises nothing."""
    try:
        reading = _read(value)
    except UNREADABLE:
        return _with_any_speed(value)
    # Inlined check for almost every record: a function call would cost time on each.
    if (
        reading.speed.__class__ is float
        and reading.lat.__class__ is float
        and reading.lon.__class__ is float
        and reading.unit == "km/h"
    ):
        return reading
    return reading if is_complete(reading) else None


def _with_any_speed(value: bytes, missing: str | None = None) -> Reading | None:
    """Decode a record that `decode` may reject: its speed is named `value`, or too large for a double.

    missing   the speed of a record without one; None: it is undecodable
    """
    raw = readable(_read_any_speed, value)
    if raw is None:
        return None
    speed = speed_of(raw.speed or raw.value)
    if speed is None and is_absent(raw.speed):
        speed = missing
    if speed is None:
        return None
    reading = Reading(raw.vehicle, raw.time, raw.lat, raw.lon, 0.0 if speed is MISSING else speed, raw.unit)
    if not is_complete(reading):
        return None
    reading.speed = speed
    return reading


_decode_position: Final = partial(_with_any_speed, missing=MISSING)


def records(stream: BinaryIO, path: str, decoder: Decode = decode) -> Iterator[Recorded]:
    """Yield the records of a recording, one a line, in file order.

    Raises RecordingError at the end if there are lines and none is a JSON object with a field of the canonical record.
    """
    expected = 'lines such as {"vehicle": .., "time": .., "lat": .., "lon": .., "speed": ..}'
    raws = json_values(stream, path)
    first = list(islice(raws, 1))
    error = wrong_format(path, NAME, expected)
    if first and (advice := records_advice(first[0])) is not None:
        error = RecordingError(path, f"has no {NAME} record", f"it {advice}")
    yield from decode_all(chain(first, raws), decoder, _inspect, error, _why)


def _inspect(raw: bytes, _: Reading | None) -> tuple[object, bool]:
    try:  # not `readable`: a call for each record of a recording
        stamps = _read_stamps(raw)
    except UNREADABLE:
        stamps = _NOTHING
    stamp = stamps.time if stamps.arrival is None else stamps.arrival
    return stamp, bool(stamps.time is not None or stamps.vehicle or stamps.lat or stamps.lon)


def _why(raw: bytes) -> str | None:
    """Return which field of an undecodable record is missing or of another type, without any of its data."""
    try:
        found = _read_any(raw)
    except UNREADABLE:
        return "is not JSON" + (": write null for NaN" if b"NaN" in raw else "")
    if not isinstance(found, dict):
        return "is not a JSON object"
    for name in ("vehicle", "time", "lat", "lon"):
        if found.get(name) is None:
            return f"has no {name}: name its field with {as_option('columns', f'{name}=FIELD')}"
        if isinstance(found[name], dict | list):
            option = as_option("columns", f"{name}={name}.KEY")
            return f"{name} is an object or an array: name what is in it with {option}"
    numbers = [name for name in ("lat", "lon", "speed", "value") if isinstance(found.get(name), str)]
    wrong = [*(["vehicle"] if not isinstance(found["vehicle"], str) else []), *numbers]
    if wrong:
        kind = "a number, not text" if wrong[0] == "vehicle" else "text, not a number"
        options = f"{as_option('columns', f'{wrong[0]}={wrong[0]}')} and {as_option('unit', 'km/h')}"
        return f"{wrong[0]} is {kind}: {options} read both"
    return None


def canonical_value(recorded: Recorded) -> bytes:
    """Return the value that replay sends: the canonical record in its original unit, or raw bytes if undecodable.

    Numbers that JSON cannot represent are sent as "nan", "inf" and "-inf". `decode` returns an equal Reading.
    """
    reading = recorded.reading
    if reading is None:
        return recorded.raw
    lat, lon, speed = _as_json_number(reading.lat), _as_json_number(reading.lon), _as_json_number(reading.speed)
    plain = Reading(reading.vehicle, reading.time, lat, lon, speed, reading.unit)
    if isinstance(reading, ValueReading):
        fields = msgspec.structs.asdict(plain)
        return _write({**{name: fields[name] for name in _PLACE}, VALUE: speed, "unit": reading.unit})
    if not isinstance(reading, ValuesReading):
        return _write(plain)
    others = {name: _as_json_number(value) for name, value in reading.others.items()}
    return _write(msgspec.structs.asdict(plain) | others)


def _as_json_number(value: float | str) -> float | str:
    """Return a number that JSON can represent: str() of a float that is not finite gives its text."""
    return value if isinstance(value, str) or math.isfinite(value) else str(value)


def _extract(names: Collection[str]) -> Extract:
    """Return a function that reads the fields of these names."""
    numbers = msgspec.json.Decoder(msgspec.defstruct("Numbers", [(name, float) for name in names])).decode
    fields = msgspec.json.Decoder(msgspec.defstruct("Fields", [(name, msgspec.Raw) for name in names])).decode

    def extract(record: bytes) -> Mapping[str, float | str] | None:
        try:
            return msgspec.structs.asdict(numbers(record))  # almost every record
        except UNREADABLE:
            pass
        raws = readable(fields, record)
        if raws is None:
            return None
        found = {name: speed_of(raw) for name, raw in msgspec.structs.asdict(raws).items()}
        values = {name: value for name, value in found.items() if value is not None}
        return values if len(values) == len(found) else None

    return extract


def _carrying(units: ValueUnits) -> Format:
    """Return the format with these fields in its records, each a number in its unit. Raises SettingError."""
    for name, _, key in units.named:
        if name in _FIELDS:
            raise SettingError(key, f"{name!r} is a field of every {NAME} record", "use another name")
    if units.single is not None:
        return with_decoder(FORMAT, single_value_decoder(*units.single))
    return with_values(FORMAT, _extract(units.others))


_PLACE: Final = ("vehicle", "time", "lat", "lon")
_FIELDS: Final = (*Reading.__struct_fields__, "arrival")
_WITHOUT_SPEED: Final = Format(NAME, _decode_position, partial(records, decoder=_decode_position), split_json, "json")
FORMAT: Final = Format(NAME, decode, records, split_json, "json", _carrying, without_speed=_WITHOUT_SPEED)
