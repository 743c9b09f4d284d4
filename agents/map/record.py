"""Fields by which the map indexes a record. The record itself is stored and served as its original bytes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from hatcast.stream.records.fields import Cell, Date, Slot


class _Release(msgspec.Struct):
    """Some fields of `ReleaseRecord`: decoding all takes four times as long, and later versions may add fields."""

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
    """Indexed release.

    record             original bytes
    partition, offset  position on the topic
    slot               `2022-01-02T09:00`, local, as in the release_id
    start, end         as written in the record
    start_ms, end_ms   ms UTC
    mean               for the colour range only; the page shows `record`
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
    """Indexed budget record. The one with the greatest `seq` of a date is valid."""

    record: bytes
    offset: int
    policy: str
    date: str
    seq: int


def read_release(record: bytes, partition: int, offset: int) -> Release:
    """Decode a release. Raises msgspec.DecodeError or ValueError for anything else."""
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
    """Decode a budget record. Raises msgspec.DecodeError for anything else."""
    read = _BUDGET.decode(record)
    return Budget(record, offset, read.policy, read.date, read.seq)


def instant_ms(text: str) -> int:
    """Return an ISO 8601 instant as ms UTC. Raises ValueError if it is malformed or has no offset."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("the instant has no offset")
    return round(instant.timestamp() * 1000)
