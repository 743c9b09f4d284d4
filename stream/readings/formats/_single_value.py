"""Canonical records of one value other than the speed.    [docs/specification/fold.md, rule 3]

{"vehicle": "GJ05BX1234", "time": "2022-01-02T05:29:43+05:30", "lat": 21.2, "lon": 72.8, "value": 12.5, "unit": "ug/m3"}

The value is the field with the policy's name for it, or else `value`. `unit` is the unit of `value` and, if present,
must be the policy's: numbers in other units are not converted.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.readings.formats._speed import speed_of
from hatcast.stream.readings.reading import Reading, ValueReading, has_numbers

VALUE: Final = "value"
_PLACE: Final[tuple[tuple[str, Any], ...]] = (
    ("vehicle", str),
    ("time", str | int | float),
    ("lat", float | str),
    ("lon", float | str),
)
_ABSENT: Final = msgspec.Raw()


def single_value_decoder(name: str, unit: str) -> Callable[[bytes], Reading | None]:
    """Return the function that decodes a record with this value; None if undecodable. It raises nothing.

    name, unit   of the value in the policy
    """
    plain, raw = _reader(name, unit, float | None, None), _reader(name, unit, msgspec.Raw, _ABSENT)

    def decode(record: bytes) -> Reading | None:
        try:
            read: Any = plain(record)
            number = read.named
        except UNREADABLE:
            return any_number(record)
        if number is None:
            number = read.value
            if number is None or read.unit != unit:
                return None
        reading = ValueReading(read.vehicle, read.time, read.lat, read.lon, number, unit)
        return reading if has_numbers(reading) else None

    def any_number(record: bytes) -> Reading | None:
        """Decode a record whose value is a text of `NOT_FINITE`, or too large for a double."""
        try:
            read: Any = raw(record)
        except UNREADABLE:
            return None
        text = read.named or read.value
        if not text or (not read.named and read.unit != unit):
            return None
        number = speed_of(text)
        if number is None:
            return None
        reading = ValueReading(read.vehicle, read.time, read.lat, read.lon, number, unit)
        return reading if has_numbers(reading) else None

    return decode


def _reader(name: str, unit: str, kind: Any, missing: Any) -> Callable[[bytes], Any]:
    """Return the decoder of records whose value has this type."""
    fields: list[Any] = [*_PLACE, (VALUE, kind, missing), ("unit", str, unit)]
    if name == VALUE:
        fields.append(("named", kind, msgspec.field(default=missing, name="")))
    else:
        fields.append(("named", kind, msgspec.field(default=missing, name=name)))
    return msgspec.json.Decoder(msgspec.defstruct("ValueRecord", fields, gc=False)).decode
