"""Values of readings: parsing of numbers, and formats whose readings carry other values than the speed."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, BinaryIO, Final

import msgspec

from hatcast.stream.errors import UNREADABLE, SettingError, readable
from hatcast.stream.readings.formats.interface import Format, Recorded
from hatcast.stream.readings.reading import (
    NOT_FINITE,
    Reading,
    ValueReading,
    ValuesReading,
    ValueUnits,
    has_numbers,
    is_empty,
)

_NOT_FINITE: Final = frozenset({"nan", "inf", "infinity"})
_text: Final = msgspec.json.Decoder(str).decode
Extract = Callable[[bytes], Mapping[str, float | str] | None]
"""One record -> its further values by name, numbers or texts of `NOT_FINITE`; None if one is missing"""
DELAY: Final = "delay"
DELAY_UNIT: Final = "s"
VALUE: Final = "value"
_PLACE: Final[tuple[tuple[str, Any], ...]] = (
    ("vehicle", str),
    ("time", str | int | float),
    ("lat", float | str),
    ("lon", float | str),
)
ABSENT: Final = msgspec.Raw()
ABSENT_OR_NULL: Final = (b"", b"null")


# Any speed is accepted, so that its value does not decide whether the record counts.
# A policy with `drop_zero = false` and `reject_above = "none"` guarantees this (docs/proofs.md). So a number too
# large for a double becomes the largest double of the same sign: it counts as U, or as 0 if negative.
def finite(number: float) -> float:
    """Replace an infinity, the result of parsing too large a number, by the largest double of its sign."""
    return math.copysign(sys.float_info.max, number) if math.isinf(number) else number


def parse_number(text: str, *, clips: bool = False) -> float | str | None:
    """Parse a decimal number; "nan", "inf" or "-inf" if it is written as such; None if the text is not a number.

    Stricter than float(): no underscores, no digits of other scripts, and no number too large for a double, as in JSON.

    clips   a number too large for a double gives the largest double: see `finite`
    """
    try:
        value = float(text)
    except ValueError:
        return None
    if not text.isascii() or "_" in text:
        return None
    if math.isfinite(value):
        return value
    if text.strip().lstrip("+-").lower() in _NOT_FINITE:
        return str(value)
    return finite(value) if clips else None


def speed_in(text: str, missing: str | None) -> float | str | None:
    """Parse a number that `clips`; a text that programs write for a missing value gives `missing`."""
    speed = parse_number(text, clips=True)
    return missing if speed is None and missing is not None and is_empty(text) else speed


def speed_of(raw: msgspec.Raw, missing: str | None = None) -> float | str | None:
    """Return the speed of a JSON value: any number, or a text of `NOT_FINITE`; None if it is neither.

    The bytes of a text are not checked yet when they arrive here: they may be invalid UTF-8.

    missing   the speed of a value that is absent or null
    """
    text = bytes(raw)
    if text in ABSENT_OR_NULL:
        return missing
    if text[:1] in b"-0123456789":
        return finite(float(text))
    named = readable(_text, text)
    return named if named in NOT_FINITE else None


def is_absent(raw: msgspec.Raw) -> bool:
    """Return whether a JSON value is absent, null, or a text that programs write for a missing value."""
    try:
        return bytes(raw) in ABSENT_OR_NULL or is_empty(_text(raw))
    except UNREADABLE:
        return False


def with_values(feed: Format, extract: Extract) -> Format:
    """Return a format whose readings are `ValuesReading`s. A record that lacks a value is undecodable."""

    def extended(reading: Reading | None, raw: bytes) -> Reading | None:
        others = None if reading is None else extract(raw)
        if reading is None or others is None:
            return None
        return ValuesReading(
            reading.vehicle, reading.time, reading.lat, reading.lon, reading.speed, reading.unit, dict(others)
        )

    def decode(value: bytes) -> Reading | None:
        return extended(feed.decode(value), value)

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        for recorded in feed.records(stream, path):
            reading = extended(recorded.reading, recorded.raw)
            yield Recorded(recorded.raw, reading, recorded.arrival, recorded.problem)

    speedless = None if feed.without_speed is None else with_values(feed.without_speed, extract)
    return replace(feed, decode=decode, records=records, without_speed=speedless)


def with_decoder(feed: Format, decode: Callable[[bytes], Reading | None]) -> Format:
    """Return a format with another decoder of its records."""

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        for recorded in feed.records(stream, path):
            yield Recorded(recorded.raw, decode(recorded.raw), recorded.arrival, recorded.problem)

    return replace(feed, decode=decode, records=records, without_speed=None)


def with_delays(feed: Format, extract: Extract, decode: Callable[[bytes], Reading | None]) -> Format:
    """Return a format whose records have delays in seconds, as a further value or as the only one.

    extract   reads the delay of a record
    decode    decodes a record to a `ValueReading` of its delay
    """

    def carrying(units: ValueUnits) -> Format:
        for name, unit, key in units.named:
            if name != DELAY:
                raise SettingError(key, f"{feed.name} records have no {name!r}", f"use {DELAY!r}, or format jsonl")
            if unit != DELAY_UNIT:
                raise SettingError(
                    "policy.value", f"{feed.name} gives {DELAY} in {DELAY_UNIT}, not in {unit}", f'write "{DELAY_UNIT}"'
                )
        return with_values(feed, extract) if units.single is None else with_decoder(feed, decode)

    return replace(feed, carrying=carrying)


def single_value_decoder(name: str, unit: str) -> Callable[[bytes], Reading | None]:
    """Return the function that decodes a canonical record with this value; None if undecodable. It raises nothing.

    {"vehicle": "GJ05BX1234", "time": "2022-01-02T05:29:43+05:30", "lat": 21.2, "lon": 72.8, "value": 12.5,
    "unit": "ug/m3"}

    The value is the field with the policy's name for it, or else `value`. `unit` is the unit of `value` and, if
    present, must be the policy's: numbers in other units are not converted. [docs/specification/fold.md, rule 3]

    name, unit   of the value in the policy
    """
    plain, raw = _value_reader(name, unit, float | None, None), _value_reader(name, unit, msgspec.Raw, ABSENT)

    def decode(record: bytes) -> Reading | None:
        try:
            read: Any = plain(record)
            number = read.value if read.named is None else read.named
            is_named = read.named is not None
        except UNREADABLE:  # possibly because the value is a text of `NOT_FINITE`, or too large for a double
            read = readable(raw, record)
            if read is None:
                return None
            is_named = bool(read.named)
            number = speed_of(read.named or read.value)
        if number is None or not (is_named or read.unit == unit):
            return None
        reading = ValueReading(read.vehicle, read.time, read.lat, read.lon, number, unit)
        return reading if has_numbers(reading) else None

    return decode


def _value_reader(name: str, unit: str, kind: Any, missing: Any) -> Callable[[bytes], Any]:
    named = msgspec.field(default=missing, name="" if name == VALUE else name)
    fields: list[Any] = [*_PLACE, (VALUE, kind, missing), ("unit", str, unit), ("named", kind, named)]
    return msgspec.json.Decoder(msgspec.defstruct("ValueRecord", fields, gc=False)).decode
