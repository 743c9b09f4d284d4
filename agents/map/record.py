"""Fields by which the map indexes a record. The record itself is stored and served as its original bytes."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from hatcast.stream.records.fields import Cell, Date, Slot, is_settlement


class Kind(StrEnum):
    """Kinds of records of a cell and slot: the names of the lists in the API's responses."""

    RELEASES = "releases"
    ESTIMATES = "estimates"


class _Hat(msgspec.Struct, kw_only=True):
    """Fields that releases and estimates share."""

    cell: Cell
    date: Date
    slot: Slot
    start: str
    end: str
    unit: str = ""


class _Release(_Hat, kw_only=True):
    """Some fields of `ReleaseRecord`: decoding all takes four times as long, and later versions may add fields."""

    release_id: str
    mean: float | None = None


class _Road(msgspec.Struct):
    value: float


class _Estimate(_Hat, kw_only=True):
    """Some fields of `EstimateRecord`."""

    estimate_id: str
    road: _Road


class _Budget(msgspec.Struct):
    policy: str
    date: Date
    seq: int


_RELEASE: Final = msgspec.json.Decoder(_Release)
_ESTIMATE: Final = msgspec.json.Decoder(_Estimate)
_BUDGET: Final = msgspec.json.Decoder(_Budget)


@dataclass(frozen=True, slots=True)
class HatRecord:
    """Indexed release or estimate of one HAT.

    record             original bytes
    partition, offset  position on the kind's topic
    slot               `2022-01-02T09:00`, local, as in the record's id
    start, end         as written in the record
    start_ms, end_ms   ms UTC
    value              mean of a release, road speed of an estimate: for the colour range only; the page shows `record`
    unit               of the value; empty without one
    """

    kind: Kind
    record: bytes
    partition: int
    offset: int
    policy: str
    cell: str
    slot: str
    start: str
    end: str
    start_ms: int
    end_ms: int
    value: float | None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Budget:
    """Indexed budget record. The one with the greatest `seq` of a date is valid."""

    record: bytes
    offset: int
    policy: str
    date: str
    seq: int


def read_release(record: bytes, partition: int, offset: int) -> HatRecord | None:
    """Decode a release; return None for a query of a settlement, which is not of one HAT.

    Raises msgspec.DecodeError or ValueError for anything else.
    """
    read = _RELEASE.decode(record)
    if is_settlement(read.release_id):
        return None
    return _indexed(Kind.RELEASES, read, read.release_id, read.mean, (record, partition, offset))


def read_estimate(record: bytes, partition: int, offset: int) -> HatRecord:
    """Decode an estimate. Raises msgspec.DecodeError or ValueError for anything else."""
    read = _ESTIMATE.decode(record)
    return _indexed(Kind.ESTIMATES, read, read.estimate_id, read.road.value, (record, partition, offset))


def read_budget(record: bytes, offset: int) -> Budget:
    """Decode a budget record. Raises msgspec.DecodeError for anything else."""
    read = _BUDGET.decode(record)
    return Budget(record, offset, read.policy, read.date, read.seq)


def _indexed(kind: Kind, read: _Hat, name: str, value: float | None, place: tuple[bytes, int, int]) -> HatRecord:
    record, partition, offset = place
    return HatRecord(
        kind=kind,
        record=record,
        partition=partition,
        offset=offset,
        policy=name.partition("/")[0],
        cell=read.cell,
        slot=f"{read.date}T{read.slot}",
        start=read.start,
        end=read.end,
        start_ms=instant_ms(read.start),
        end_ms=instant_ms(read.end),
        value=value,
        unit=read.unit,
    )


def instant_ms(text: str) -> int:
    """Convert an ISO 8601 instant to milliseconds UTC. Raises ValueError if it is malformed or without an offset."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("the instant has no offset")
    return round(instant.timestamp() * 1000)
