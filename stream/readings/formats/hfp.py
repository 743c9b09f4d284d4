"""HSL's High-Frequency Positioning (HFP v2): an MQTT topic, a space and a JSON payload; speeds in m/s.

/hfp/v2/journey/ongoing/vp/tram/0040/00436/.. {"VP": {"tst": "2025-03-12T11:24:51.251Z", "spd": 5.5, ..}}

The vehicle is operator/vehicle of the topic. The payload's operator is the operator of the trip and may change. All
event types are read. A null position or speed is undecodable.    [digitransit.fi, High-frequency positioning]

Of further values it has `delay`, in seconds: the negative of `dl`, which is negative behind the timetable.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import BinaryIO, Final

import msgspec

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.readings.formats._values import ABSENT, DELAY, DELAY_UNIT, speed_of, with_delays
from hatcast.stream.readings.formats.interface import (
    Decode,
    Format,
    Recorded,
    decode_all,
    lines,
    split_lines,
    wrong_format,
)
from hatcast.stream.readings.reading import MISSING, Reading, ValueReading

NAME: Final = "hfp"
# Vehicle and payload. The payload begins at the first " {": a topic may contain spaces, as in "Pikku Huopalahti".
_match: Final = re.compile(rb"/hfp/v2(?:/[^/]*){4}/([^/ ]+/[^/ ]+)(?:/.*?)? (\{.*)", re.DOTALL).fullmatch


class _Event(msgspec.Struct, gc=False):
    """The decoded fields, in their order, which is the fastest."""

    tst: str
    spd: float
    lat: float
    lon: float = msgspec.field(name="long")


class _AnyEvent(msgspec.Struct, gc=False):
    """An event whose speed and delay may be absent, null, or too large for a double."""

    tst: str
    lat: float
    lon: float = msgspec.field(name="long")
    spd: msgspec.Raw = ABSENT
    dl: msgspec.Raw = ABSENT


_read: Final = msgspec.json.Decoder(dict[str, _Event]).decode
_read_any_speed: Final = msgspec.json.Decoder(dict[str, _AnyEvent]).decode
_read_any: Final = msgspec.json.Decoder(dict[str, dict[str, object]]).decode


def decode(value: bytes) -> Reading | None:
    """Decode one topic and payload; None if undecodable. Raises nothing."""
    if (match := _match(value)) is None:
        return None
    try:
        [event] = _read(match[2]).values()
        return Reading(match[1].decode(), event.tst, event.lat, event.lon, event.spd, "m/s")
    except UNREADABLE:
        return _with_any_speed(value)


def _with_any_speed(value: bytes, missing: str | None = None) -> Reading | None:
    """Decode a record that `decode` may reject, such as one with a speed too large for a double.

    missing   the speed of a record without one; None: it is undecodable
    """
    if (match := _match(value)) is None:
        return None
    try:
        [event] = _read_any_speed(match[2]).values()
        speed = speed_of(event.spd, missing)
        return None if speed is None else Reading(match[1].decode(), event.tst, event.lat, event.lon, speed, "m/s")
    except UNREADABLE:
        return None


def split(body: bytes, topic: str = "") -> list[bytes]:
    """Return a payload with its topic as one record; without a topic, split lines of both."""
    return [b"%b %b" % (topic.encode(errors="replace"), body.strip())] if topic else split_lines(body)


def records(stream: BinaryIO, path: str, decoder: Decode = decode) -> Iterator[Recorded]:
    """Yield the records of a recording, one a line. Raises RecordingError at the end if none has an HFP topic."""
    return decode_all(lines(stream), decoder, _inspect, wrong_format(path, NAME, "lines of topic and payload"))


def _inspect(raw: bytes, reading: Reading | None) -> tuple[object, bool]:
    if reading is not None:
        return reading.time, True
    try:
        [event] = _read_any(raw[raw.find(b" {") + 1 :]).values()
    except UNREADABLE:
        event = {}
    return event.get("tst"), raw.startswith(b"/hfp/v2/")


def _delay(record: bytes) -> Mapping[str, float | str] | None:
    """Return the delay of a record; None if it has none: then the vehicle is on no trip."""
    try:
        [event] = _read_any_speed(record[record.find(b" {") + 1 :]).values()
        ahead = speed_of(event.dl)
    except UNREADABLE:
        return None
    return None if ahead is None else {DELAY: _behind(ahead)}


def _behind(ahead: float | str) -> float | str:
    """Return the delay: the negative of `dl`, as a number or a text of `NOT_FINITE`."""
    return ahead if isinstance(ahead, str) else 0.0 - ahead


def _decode_delay(value: bytes) -> Reading | None:
    """Decode the delay of one record, which needs no speed; None if undecodable."""
    if (match := _match(value)) is None:
        return None
    try:
        [event] = _read_any_speed(match[2]).values()
        vehicle, ahead = match[1].decode(), speed_of(event.dl)
    except UNREADABLE:
        return None
    return None if ahead is None else ValueReading(vehicle, event.tst, event.lat, event.lon, _behind(ahead), DELAY_UNIT)


_decode_position: Final = partial(_with_any_speed, missing=MISSING)
_WITHOUT_SPEED: Final = Format(NAME, _decode_position, partial(records, decoder=_decode_position), split)
FORMAT: Final = with_delays(
    Format(
        NAME,
        decode,
        records,
        split,
        without_speed=_WITHOUT_SPEED,
        shows=lambda text, _: text.lstrip().startswith("/hfp/"),
    ),
    _delay,
    _decode_delay,
)
