"""GTFS-Realtime vehicle positions: protobuf polls of all vehicles; speeds in m/s, numbers of 32 bits.

A record is one FeedEntity, as its bytes stand in the poll. The vehicle is its descriptor's id, else licence plate, else
label; never the entity's id, which may change from poll to poll and would make one vehicle many users. An entity
without position, speed or timestamp is undecodable. A recording is one FeedMessage a file.    [gtfs.org, Realtime]
"""

from collections.abc import Iterator
from math import isfinite
from typing import BinaryIO, Final

from google.protobuf.message import DecodeError
from google.transit.gtfs_realtime_pb2 import FeedEntity

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats._poll import cut
from hatcast.stream.readings.formats._recorded import arrival_ms
from hatcast.stream.readings.formats.interface import Feed, Recorded
from hatcast.stream.readings.reading import Reading

NAME: Final = "gtfs-rt"
POLL_BYTES_MAX: Final = 64 << 20  # 300,000 vehicles: a larger file is no poll, and must not fill the memory
_read: Final = FeedEntity.FromString


def decode(value: bytes) -> Reading | None:
    """One FeedEntity; None if undecodable. Raises nothing."""
    try:
        vehicle = _read(value).vehicle
    except DecodeError:
        return None
    place, who = vehicle.position, vehicle.vehicle
    name = who.id or who.license_plate or who.label
    # The parser lets required fields be missing, and gives text that is no UTF-8 as bytes, whatever its types say.
    if not (name and name.__class__ is str and vehicle.HasField("timestamp") and place.HasField("speed")):
        return None
    if not (place.HasField("latitude") and place.HasField("longitude")):
        return None
    lat, lon, speed = (x if isfinite(x) else str(x) for x in (place.latitude, place.longitude, place.speed))
    return Reading(name, vehicle.timestamp * 1000, lat, lon, speed, "m/s")


def split(body: bytes, topic: str = "") -> list[bytes]:
    """The FeedEntity of each vehicle of a poll."""
    poll = cut(body)
    return poll[1] if poll is not None else [body] if body else []


def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
    """The vehicles of one poll, arrived when its header says, in its order. Raises RecordingError if it is no poll."""
    body = stream.read(POLL_BYTES_MAX + 1)
    poll = cut(body) if len(body) <= POLL_BYTES_MAX else None
    if poll is None:
        raise RecordingError(path, "is no whole GTFS-Realtime poll", "fetch it again, or name its own format")
    arrived, entities = poll
    for raw in entities:
        reading = decode(raw)
        stamp = reading.time if arrived is None and reading is not None else arrived
        yield Recorded(raw, reading, arrival_ms(stamp))


FEED: Final = Feed(NAME, decode, records, split)
