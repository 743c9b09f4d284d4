"""GTFS-Realtime vehicle positions: protobuf polls of all vehicles; speeds in m/s, 32-bit floats.

A record is the bytes of one FeedEntity. The vehicle is one field of its descriptor, the same for all records: its id;
in `gtfs-rt-plate` its licence plate; in `gtfs-rt-label` its label, which many agencies fill with the headsign. No field
stands in for another: a vehicle that sends its id now and then would be two users. Nor does the entity's id, which may
change from poll to poll. An entity without position, speed or timestamp is undecodable; a timestamp of 0 is none. A
recording is one FeedMessage per file.    [gtfs.org, Realtime]
"""

import re
from collections.abc import Iterator
from functools import cache, partial
from math import isfinite
from types import ModuleType
from typing import BinaryIO, Final

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats.interface import Decode, Format, Recorded, arrival_ms
from hatcast.stream.readings.magic import HEAD_BYTES, other_text
from hatcast.stream.readings.reading import MISSING, Reading

NAME: Final = "gtfs-rt"
# Field 1, the header, which begins with its field 1, the version; lengths are numbers of one or two bytes.
_BEGINNING: Final = re.compile(r"\n.{1,2}\n[\x01-\x1f][0-9]", re.DOTALL)
POLL_BYTES_MAX: Final = 64 << 20  # 300,000 vehicles: larger files are rejected to bound memory


@cache
def _poll() -> ModuleType:
    from hatcast.stream.readings.formats import _poll as module  # noqa: PLC0415 - protobuf: only these polls need it

    return module


def has_trip(value: bytes) -> bool:
    """Return whether the vehicle of a FeedEntity is on a trip."""
    vehicle = _poll().vehicle_of(value)
    return vehicle is not None and bool(vehicle.trip.trip_id or vehicle.trip.route_id)


def _problem(value: bytes, field: str) -> str | None:
    """Return which field an undecodable FeedEntity lacks, or None; never any of its data."""
    vehicle = _poll().vehicle_of(value)
    if vehicle is None:
        return None
    if not getattr(vehicle.vehicle, field):
        others = [name for name, other in _FIELDS.items() if getattr(vehicle.vehicle, other)]
        return f"has no vehicle.{field}" + (f": use format {' or '.join(others)} {FLEET_NUMBERS}" if others else "")
    if not vehicle.timestamp:
        return "has no timestamp of its own: `--header-time` takes that of the poll's header"
    return None if vehicle.HasField("position") else "has no position"


def _format(name: str, field: str, *, header_times: bool = False) -> Format:
    """Return the format of this name. field: of the descriptor, that with the vehicle's id."""

    def decode_position(value: bytes) -> Reading | None:
        """Decode one FeedEntity, also without a speed; None if undecodable. Raises nothing."""
        vehicle = _poll().vehicle_of(value)
        if vehicle is None:
            return None
        place, name = vehicle.position, getattr(vehicle.vehicle, field)
        # The parser accepts missing required fields, and returns text that is not UTF-8 as bytes, despite its types.
        if not (name and name.__class__ is str and vehicle.timestamp):
            return None
        if not (place.HasField("latitude") and place.HasField("longitude")):
            return None
        lat, lon, speed = (x if isfinite(x) else str(x) for x in (place.latitude, place.longitude, place.speed))
        return Reading(name, vehicle.timestamp * 1000, lat, lon, speed if place.HasField("speed") else MISSING, "m/s")

    def decode(value: bytes) -> Reading | None:
        reading = decode_position(value)
        return None if reading is None or reading.speed is MISSING else reading

    def split(body: bytes, topic: str = "") -> list[bytes]:
        """Split a poll into the FeedEntity of each vehicle."""
        poll = _poll().split_poll(body, header_times=header_times)
        return poll[1] if poll is not None else [body] if body else []

    def records(stream: BinaryIO, path: str, decoder: Decode = decode) -> Iterator[Recorded]:
        """Yield the vehicles of one poll in its order. Raises RecordingError if the file is not a poll.

        Their arrival is the timestamp of the poll's header.
        """
        body = stream.read(POLL_BYTES_MAX + 1)
        poll = _poll().split_poll(body, header_times=header_times) if len(body) <= POLL_BYTES_MAX else None
        if poll is None:
            raise _not_a_poll(body, path)
        arrived, entities = poll
        for raw in entities:
            reading = decoder(raw)
            stamp = reading.time if arrived is None and reading is not None else arrived
            yield Recorded(raw, reading, arrival_ms(stamp), None if reading is not None else _problem(raw, field))

    return Format(
        name,
        decode,
        records,
        split,
        without_speed=Format(name, decode_position, partial(records, decoder=decode_position), split),
        header_times=None if header_times else lambda: _format(name, field, header_times=True),
        is_message=lambda body: _poll().split_poll(body) is not None,
        shows=lambda text, _: _BEGINNING.match(text) is not None,
    )


def _not_a_poll(body: bytes, path: str) -> RecordingError:
    found = other_text(body[:HEAD_BYTES]) if body[:1] in (b"{", b"[", b"<") else None
    if found is not None:
        return RecordingError(path, f"is {found[0]}, and no GTFS-Realtime poll", f"{found[1]}: docs/feeds.md")
    return RecordingError(path, "is not a complete GTFS-Realtime poll", "fetch it again, or name the file's format")


FLEET_NUMBERS: Final = "if that is each vehicle's own number, the same all day"  # when a plate or label may be the id
_FIELDS: Final = {NAME: "id", f"{NAME}-plate": "license_plate", f"{NAME}-label": "label"}
FORMAT, PLATES, LABELS = (_format(name, field) for name, field in _FIELDS.items())
