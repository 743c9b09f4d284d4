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


def vehicle_of(value: bytes) -> VehiclePosition | None:
    """Return the vehicle of one FeedEntity; None if it is undecodable."""
    try:
        return FeedEntity.FromString(value).vehicle
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
    entities = [entity for entity in poll.entity if _may_be_a_record(entity)]
    if header_times and header.timestamp:
        entities = [_dated(entity, header.timestamp) for entity in entities]
    return header.timestamp * 1000 or None, entities


def _dated(value: bytes, timestamp: int) -> bytes:
    """Return the entity with this timestamp, unless its vehicle has one."""
    try:
        entity = FeedEntity.FromString(value)
    except DecodeError:
        return value
    if entity.vehicle.timestamp:
        return value
    entity.vehicle.timestamp = timestamp
    return bytes(entity.SerializePartialToString())


def _may_be_a_record(value: bytes) -> bool:
    try:
        entity = FeedEntity.FromString(value)
    except DecodeError:
        return bool(value)
    return entity.HasField("vehicle") and not entity.is_deleted
