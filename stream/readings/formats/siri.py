"""SIRI Vehicle Monitoring (SIRI-VM), XML and JSON: deliveries of all vehicles; speeds in m/s.

A record is one `VehicleActivity` in JSON. Its values may be wrapped, as in {"VehicleRef": {"value": "12"}}, and its
numbers may be text. A delivery in XML is split into such records (`_deliveries`). A recording has one delivery or more.

vehicle   `VehicleRef` alone. `OperatorRef` is the journey's operator: a vehicle that runs for two of them in one day
          would be two users, and its privacy loss twice the bound
time      `LocationRecordedAtTime`, else `RecordedAtTime`
speed     `Velocity`, which is in metres per second    [SIRI 2.1, siri_location.xsd, VelocityType]
arrival   in a recording: `ResponseTimestamp` of the delivery, else the record's own time

Of further values it has `delay` in seconds, from `Delay`, an xs:duration that is negative for an early vehicle.
"""

import io
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import BinaryIO, Final

import msgspec

from hatcast.stream.errors import UNREADABLE, RecordingError, readable
from hatcast.stream.readings.formats import _deliveries
from hatcast.stream.readings.formats._mapped import CellsTarget, problem_of
from hatcast.stream.readings.formats._values import (
    ABSENT,
    ABSENT_OR_NULL,
    DELAY,
    DELAY_UNIT,
    finite,
    parse_number,
    speed_in,
    speed_of,
    with_delays,
)
from hatcast.stream.readings.formats.interface import (
    BYTE_ORDER_MARK,
    WHITE_SPACE,
    Decode,
    Format,
    Recorded,
    arrival_ms,
    first_byte,
)
from hatcast.stream.readings.reading import MISSING, Reading, ValueReading
from hatcast.stream.readings.vehicles import vehicle_text

NAME: Final = "siri"
_FIX: Final = "fetch it again, or name the file's format; other XML, such as GPX, has to be converted to CSV"
_MEMBERS: Final = frozenset(("Siri", "ServiceDelivery", "MonitoredVehicleJourney"))
_XML_STARTS: Final = (b"<", b"\xff", b"\xfe", b"\0")  # the others: UTF-16


class _Wrapped(msgspec.Struct, gc=False):
    value: int | float | str


class _WrappedNumber(msgspec.Struct, gc=False):
    value: float | str


class _WrappedRaw(msgspec.Struct, gc=False):
    value: msgspec.Raw


Scalar = int | float | str | _Wrapped | None


class _SiriLocation(msgspec.Struct, gc=False):
    lon: float | str | _WrappedNumber = msgspec.field(name="Longitude")
    lat: float | str | _WrappedNumber = msgspec.field(name="Latitude")


class _Journey(msgspec.Struct, gc=False):
    vehicle: int | str | _Wrapped = msgspec.field(name="VehicleRef")
    location: _SiriLocation = msgspec.field(name="VehicleLocation")
    time: Scalar = msgspec.field(name="LocationRecordedAtTime", default=None)
    speed: msgspec.Raw = msgspec.field(name="Velocity", default=ABSENT)


class _Activity(msgspec.Struct, gc=False):
    journey: _Journey = msgspec.field(name="MonitoredVehicleJourney")
    time: Scalar = msgspec.field(name="RecordedAtTime", default=None)


class _Details(msgspec.Struct, gc=False):
    framed: msgspec.Raw = msgspec.field(name="FramedVehicleJourneyRef", default=ABSENT)
    plain: msgspec.Raw = msgspec.field(name="VehicleJourneyRef", default=ABSENT)
    delay: msgspec.Raw = msgspec.field(name="Delay", default=ABSENT)


class _Detailed(msgspec.Struct, gc=False):
    journey: _Details = msgspec.field(name="MonitoredVehicleJourney")


_read: Final = msgspec.json.Decoder(_Activity).decode
_read_times: Final = msgspec.json.Decoder(dict[str, object]).decode
_CHECKS: Final = CellsTarget(lambda _: 0, "m/s", Reading)  # a time that is not one is a `bad_time`
_read_wrapped: Final = msgspec.json.Decoder(_WrappedRaw).decode
_read_text: Final = msgspec.json.Decoder(str).decode
_read_details: Final = msgspec.json.Decoder(_Detailed).decode
_read_delay: Final = msgspec.json.Decoder(str | _Wrapped).decode


def decode(value: bytes, missing: str | None = None) -> Reading | None:
    """Decode one activity, or a delivery of one activity, in JSON or XML; None if undecodable. Raises nothing.

    missing   the speed of an activity without a `Velocity`; None: it is undecodable
    """
    try:
        return _reading(_read(value), missing)
    except UNREADABLE:
        only = _only(value)
    try:
        return None if only is None else _reading(_read(only), missing)
    except UNREADABLE:
        return None


def _only(value: bytes) -> bytes | None:
    """Return the only activity of a delivery; None: it has others or none, or is an activity itself."""
    found = split(value)
    return found[0] if len(found) == 1 and found[0] != value else None


def has_journey(value: bytes) -> bool:
    """Return whether the vehicle of an activity is on a journey, which `FramedVehicleJourneyRef` names."""
    try:
        journey = _read_details(value).journey
    except UNREADABLE:
        only = _only(value)
        return only is not None and has_journey(only)
    return any(bytes(each) not in (*ABSENT_OR_NULL, b'""', b"{}") for each in (journey.framed, journey.plain))


def _reading(activity: _Activity, missing: str | None) -> Reading | None:
    journey = activity.journey
    located = _scalar(journey.time)
    time = _scalar(activity.time) if located is None else located
    vehicle = vehicle_text(_scalar(journey.vehicle))
    lat, lon = _degrees(journey.location.lat), _degrees(journey.location.lon)
    speed = _speed(journey.speed, missing)
    if not vehicle or time is None or lat is None or lon is None or speed is None:
        return None
    return Reading(vehicle, time, lat, lon, speed, "m/s")


def _scalar(field: Scalar) -> int | float | str | None:
    return field.value if isinstance(field, _Wrapped) else field


def _degrees(field: float | str | _WrappedNumber) -> float | str | None:
    degrees = field.value if isinstance(field, _WrappedNumber) else field
    return parse_number(degrees) if isinstance(degrees, str) else degrees


def _speed(raw: msgspec.Raw, missing: str | None) -> float | str | None:
    """Return the speed of a JSON number, of a text with a number, or of one of them wrapped; None if it is neither."""
    text = bytes(raw)
    if text[:1] == b"{":
        text = bytes(_read_wrapped(text).value)
    return speed_in(_read_text(text), missing) if text[:1] == b'"' else speed_of(msgspec.Raw(text), missing)


def split(body: bytes, topic: str = "") -> list[bytes]:
    """Split deliveries into their vehicle activities, in JSON."""
    text = body.removeprefix(BYTE_ORDER_MARK).strip(WHITE_SPACE)
    if text.startswith(_XML_STARTS):
        try:
            return [record.raw for record in _deliveries.xml_records(io.BytesIO(body))]
        except _deliveries.NotSiriError:
            return [body]
    found = _deliveries.json_records(body)
    if found is None:
        return [text] if text else []
    return [record.raw for record in found]


def _is_delivery(body: bytes) -> bool:
    """Return whether a body is a delivery, with vehicles or without: XML by its names, in any encoding."""
    if body.removeprefix(BYTE_ORDER_MARK).strip(WHITE_SPACE).startswith(_XML_STARTS):
        text = body.replace(b"\0", b"")
        return any(name in text for name in (b"Siri", b"ServiceDelivery", b"VehicleMonitoringDelivery"))
    return _deliveries.json_records(body) is not None


def records(stream: BinaryIO, path: str, decoder: Decode = decode) -> Iterator[Recorded]:
    """Yield the vehicle activities of one or more deliveries, in their order.

    Raises RecordingError if a delivery is cut off or not a SIRI delivery, after the records before it.
    """
    head = first_byte(stream)
    found = _deliveries.xml_records(stream, head) if head in _XML_STARTS else _deliveries.json_recording(stream, head)
    try:
        for record in found:
            reading = decoder(record.raw)
            delivered = arrival_ms(record.delivered)
            arrival = _own_time(record, reading) if delivered is None else delivered
            yield Recorded(record.raw, reading, arrival, _why(record.raw) if reading is None else None)
    except _deliveries.NotSiriError as error:
        raise RecordingError(path, error.reason, _FIX) from None


def _why(raw: bytes) -> str | None:
    """Return which field of an undecodable activity is missing or wrong, without any of its data."""
    activity = readable(_read_times, raw)
    if activity is None:
        return None
    if "ErrorCondition" in activity:
        return "the server rejects the request"
    journey = _members(activity.get("MonitoredVehicleJourney"))
    place = _members(journey.get("VehicleLocation"))
    time = journey.get("LocationRecordedAtTime") or activity.get("RecordedAtTime")
    found = journey.get("VehicleRef"), time, place.get("Latitude"), place.get("Longitude"), journey.get("Velocity")
    cells = [_members(each).get("value") if isinstance(each, dict) else each for each in found]
    return problem_of(cells, _CHECKS, "SIRI has a decimal point")


def _members(found: object) -> dict[str, object]:
    return found if isinstance(found, dict) else {}


def _own_time(record: _deliveries.SiriRecord, reading: Reading | None) -> int | None:
    """Return the time of a record (ms UTC), which may be undecodable otherwise; None if it is unreadable."""
    if reading is not None:
        return arrival_ms(reading.time)
    time = (readable(_read_times, record.raw) or {}).get("RecordedAtTime")
    return arrival_ms(time.get("value") if isinstance(time, dict) else time)


# Years and months have no fixed length: only 0 of them is a number of seconds.
_duration: Final = re.compile(
    r"(-?)P(?=[\dT])(?:0+Y)?(?:0+M)?(?:([0-9]+)D)?(?:T(?=\d)(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?"
).fullmatch


def _delay(record: bytes) -> Mapping[str, float | str] | None:
    """Return the delay of a record; None if it has none."""
    try:
        delay = _scalar(_read_delay(_read_details(_only(record) or record).journey.delay))
    except UNREADABLE:
        return None
    parts = _duration(delay) if isinstance(delay, str) else None
    if parts is None:
        return None
    seconds = 0.0
    for number, unit in zip(parts.groups(default="0")[1:], (86_400, 3_600, 60, 1), strict=True):
        seconds += float(number) * unit
    return {DELAY: finite(-seconds if parts[1] else seconds)}


def _decode_delay(value: bytes) -> Reading | None:
    """Decode the delay of one activity, which needs no speed; None if undecodable."""
    reading, delay = _decode_position(value), _delay(value)
    if reading is None or delay is None:
        return None
    return ValueReading(reading.vehicle, reading.time, reading.lat, reading.lon, delay[DELAY], DELAY_UNIT)


_decode_position: Final = partial(decode, missing=MISSING)
_WITHOUT_SPEED: Final = Format(NAME, _decode_position, partial(records, decoder=_decode_position), split)
FORMAT: Final = with_delays(
    Format(
        NAME,
        decode,
        records,
        split,
        without_speed=_WITHOUT_SPEED,
        is_message=_is_delivery,
        shows=lambda text, names: text.lstrip().startswith("<") or not _MEMBERS.isdisjoint(names),
    ),
    _delay,
    _decode_delay,
)
