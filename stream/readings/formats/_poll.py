"""GTFS-Realtime FeedMessage with header and entities as raw bytes, so that a damaged entity is one bad record.

The only module that loads protobuf, which takes as long as all other formats together: see gtfs_rt.py.
"""

from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.transit.gtfs_realtime_pb2 import FeedEntity, FeedHeader, VehiclePosition


def _poll_class() -> type[Any]:
    file = FileDescriptorProto(name="hatcast/poll.proto", package="hatcast")
    poll = file.message_type.add(name="Poll")
    kind = FieldDescriptorProto
    poll.field.add(name="header", number=1, type=kind.TYPE_BYTES, label=kind.LABEL_OPTIONAL)
    poll.field.add(name="entity", number=2, type=kind.TYPE_BYTES, label=kind.LABEL_REPEATED)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("hatcast.Poll"))


_Poll: Final = _poll_class()
_entity: Final = FeedEntity.FromString


def vehicle_of(value: bytes) -> VehiclePosition | None:
    """Return the vehicle of one FeedEntity; None if it is undecodable."""
    try:
        return _entity(value).vehicle
    except DecodeError:
        return None


def split_poll(body: bytes, *, header_times: bool = False) -> tuple[int | None, list[bytes]] | None:
    """Return (header timestamp in ms UTC, entities); None if the body is not a FeedMessage. A timestamp of 0 is none.

    Entities with a vehicle and undecodable entities are records. Trip updates, alerts and deleted entities are not.
    header_times   give vehicles without a timestamp that of the header
    """
    try:
        poll = _Poll.FromString(body)
        header = FeedHeader.FromString(poll.header)
    except DecodeError:
        return None
    if not header.HasField("gtfs_realtime_version"):
        return None
    timestamp = header.timestamp if header_times else 0
    records = [record for entity in poll.entity if (record := _record_of(entity, timestamp))]
    return header.timestamp * 1000 or None, records


def _record_of(value: bytes, timestamp: int) -> bytes:
    """Return an entity; its vehicle gets this timestamp if it has none. Empty: it is not a vehicle's record."""
    try:
        entity = _entity(value)
    except DecodeError:
        return value
    if not entity.HasField("vehicle") or entity.is_deleted:
        return b""
    if timestamp and not entity.vehicle.timestamp:
        entity.vehicle.timestamp = timestamp
        return bytes(entity.SerializePartialToString())
    return value
