"""What the map has to know of a record in order to file it. The record itself is kept as bytes, and shown as bytes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from hatcast.stream.records import Cell, Date, Slot


class _Release(msgspec.Struct):
    """A few fields of `ReleaseRecord`: to read all takes four times as long, and later ones may have more."""

    release_id: str
    cell: Cell
    date: Date
    slot: Slot
    start: str
    end: str
    mean: float | None = None


class _Budget(msgspec.Struct):
    policy: str
    date: Date
    seq: int


_RELEASE: Final = msgspec.json.Decoder(_Release)
_BUDGET: Final = msgspec.json.Decoder(_Budget)


@dataclass(frozen=True, slots=True)
class Release:
    """A release as it is filed.

    record             its bytes
    partition, offset  where it stands on the topic
    slot               `2022-01-02T09:00`, local, as in its release_id
    start, end         as the record writes them
    start_ms, end_ms   ms UTC
    mean               to find the range of the colours; what is shown is in `record`
    """

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
    mean: float | None


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget record as it is filed: of a date, the one with the greatest `seq` holds."""

    record: bytes
    offset: int
    policy: str
    date: str
    seq: int


def read_release(record: bytes, partition: int, offset: int) -> Release:
    """Raises msgspec.DecodeError, ValueError where it is none."""
    read = _RELEASE.decode(record)
    return Release(
        record=record,
        partition=partition,
        offset=offset,
        policy=read.release_id.partition("/")[0],
        cell=read.cell,
        slot=f"{read.date}T{read.slot}",
        start=read.start,
        end=read.end,
        start_ms=instant_ms(read.start),
        end_ms=instant_ms(read.end),
        mean=read.mean,
    )


def read_budget(record: bytes, offset: int) -> Budget:
    """Raises msgspec.DecodeError where it is none."""
    read = _BUDGET.decode(record)
    return Budget(record, offset, read.policy, read.date, read.seq)


def instant_ms(text: str) -> int:
    """ms UTC of an instant in ISO 8601. Raises ValueError if it is none, or has no offset."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("an instant has an offset")
    return round(instant.timestamp() * 1000)
