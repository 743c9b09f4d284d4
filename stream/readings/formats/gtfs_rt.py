"""GTFS-Realtime vehicle positions: protobuf polls of all vehicles; speeds in m/s, 32-bit floats.

A record is the bytes of one FeedEntity. The vehicle is its descriptor's id, else licence plate, else label; never the
entity's id, which may change from poll to poll and would turn one vehicle into many users. An entity without position,
speed or timestamp is undecodable. A recording is one FeedMessage per file.    [gtfs.org, Realtime]
"""

from collections.abc import Iterator
from functools import cache, partial
from math import isfinite
from types import ModuleType
from typing import BinaryIO, Final

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats._recorded import Decode, arrival_ms
from hatcast.stream.readings.formats.interface import Format, Recorded
from hatcast.stream.readings.reading import MISSING, Reading

NAME: Final = "gtfs-rt"
POLL_BYTES_MAX: Final = 64 << 20  # 300,000 vehicles: larger files are rejected to bound memory


def decode(value: bytes) -> Reading | None:
    """Decode one FeedEntity; None if undecodable. Raises nothing."""
    reading = _decode_position(value)
    return None if reading is None or reading.speed is MISSING else reading


@cache
def _poll() -> ModuleType:
    from hatcast.stream.readings.formats import _poll as module  # noqa: PLC0415 - protobuf: only these polls need it

    return module


def _decode_position(value: bytes) -> Reading | None:
    """Decode one FeedEntity like `decode`, also without a speed."""
    vehicle = _poll().vehicle_of(value)
    if vehicle is None:
        return None
    place, who = vehicle.position, vehicle.vehicle
    name = who.id or who.license_plate or who.label
    # The parser accepts missing required fields, and returns text that is not UTF-8 as bytes, despite its types.
    if not (name and name.__class__ is str and vehicle.HasField("timestamp")):
        return None
    if not (place.HasField("latitude") and place.HasField("longitude")):
        return None
    lat, lon, speed = (x if isfinite(x) else str(x) for x in (place.latitude, place.longitude, place.speed))
    return Reading(name, vehicle.timestamp * 1000, lat, lon, speed if place.HasField("speed") else MISSING, "m/s")


def split(body: bytes, topic: str = "") -> list[bytes]:
    """Split a poll into the FeedEntity of each vehicle."""
    poll = _poll().split_poll(body)
    return poll[1] if poll is not None else [body] if body else []


def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
    """Yield the vehicles of one poll in its order. Raises RecordingError if the file is not a poll.

    Their arrival is the timestamp of the poll's header.
    """
    return _records(stream, path, decode)


def _records(stream: BinaryIO, path: str, decoder: Decode) -> Iterator[Recorded]:
    body = stream.read(POLL_BYTES_MAX + 1)
    poll = _poll().split_poll(body) if len(body) <= POLL_BYTES_MAX else None
    if poll is None:
        raise RecordingError(path, "is not a complete GTFS-Realtime poll", "fetch it again, or name the file's format")
    arrived, entities = poll
    for raw in entities:
        reading = decoder(raw)
        stamp = reading.time if arrived is None and reading is not None else arrived
        yield Recorded(raw, reading, arrival_ms(stamp))


_WITHOUT_SPEED: Final = Format(NAME, _decode_position, partial(_records, decoder=_decode_position), split)
FORMAT: Final = Format(NAME, decode, records, split, without_speed=_WITHOUT_SPEED)
