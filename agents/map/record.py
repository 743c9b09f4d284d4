"""Fields by which the map indexes a record. The record itself is stored and served as its original bytes."""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from hatcast.stream.records import projections
from hatcast.stream.records.fields import policy_of

_OFFSET: Final = re.compile(r".{19}(\.\d+)?")  # what is before it in an instant


class RecordKind(StrEnum):
    """Kinds of records of a cell and slot: the names of the lists in the API's responses.

    CONTINUAL: records of `hats.means` under a policy with `[policy.continual]`. Their mean is that of many slots, so
    they are never among the releases.
    """

    RELEASES = "releases"
    ESTIMATES = "estimates"
    RUNNING = "running"
    CONTINUAL = "continual"


@dataclass(frozen=True, slots=True)
class RunningWindow:
    """A running mean of a policy: its name, its window, and the kind of records that it is made of."""

    name: str
    window: str
    of: str


_NO_WINDOW: Final = RunningWindow("", "", "")


@dataclass(frozen=True, slots=True)
class HatRecord:
    """Indexed record of one HAT, or of a window that ends with its slot."""

    kind: RecordKind
    record: bytes  # original bytes
    # partition, offset: position on the kind's topic
    partition: int
    offset: int
    policy: str
    cell: str
    slot: str  # `2022-01-02T09:00`, local, as in the record's id
    # start, end: as written in the record
    start: str
    end: str
    # start_ms, end_ms: ms UTC
    start_ms: int
    end_ms: int
    # the mean; of an estimate without one the road: for the colour range only, the page shows `record`
    value: float | None
    unit: str = ""  # of the value; empty without one
    window: RunningWindow = _NO_WINDOW  # of a running mean; without a name for other kinds


@dataclass(frozen=True, slots=True)
class Budget:
    """Indexed budget record. The one with the greatest `seq` of a date is valid."""

    record: bytes
    offset: int
    policy: str
    date: str
    seq: int


def read_release(record: bytes, partition: int, offset: int) -> HatRecord | None:
    """Decode a record of `hats.means`; return None for a tracker's query that is not of one HAT.

    Raises msgspec.DecodeError or ValueError for anything else.
    """
    read = projections.PLACED_RELEASE.decode(record)
    if not read.is_of_hat:
        return None
    kind = RecordKind.RELEASES if read.is_of_slot else RecordKind.CONTINUAL
    made = _indexed(kind, read, read.release_id, read.mean, (record, partition, offset))
    return made if kind is RecordKind.RELEASES else _of_slot(made)


def read_estimate(record: bytes, partition: int, offset: int) -> HatRecord:
    """Decode an estimate. Raises msgspec.DecodeError or ValueError for anything else."""
    read = projections.PLACED_ESTIMATE.decode(record)
    shown = read.road if read.mean is None else read.mean
    return _indexed(RecordKind.ESTIMATES, read, read.estimate_id, shown.value, (record, partition, offset))


def read_running(record: bytes, partition: int, offset: int) -> HatRecord:
    """Decode a running mean. Raises msgspec.DecodeError or ValueError for anything else."""
    read = projections.PLACED_RUNNING.decode(record)
    value = None if read.mean is None else read.mean.value
    made = _indexed(RecordKind.RUNNING, read, read.policy, value, (record, partition, offset))
    return _of_slot(replace(made, window=RunningWindow(read.name, read.window, read.of)))


def read_budget(record: bytes, offset: int) -> Budget:
    """Decode a budget record. Raises msgspec.DecodeError for anything else."""
    read = projections.PLACED_BUDGET.decode(record)
    return Budget(record, offset, read.policy, read.date, read.seq)


def _indexed(
    kind: RecordKind, read: projections.PlacedFields, name: str, value: float | None, place: tuple[bytes, int, int]
) -> HatRecord:
    record, partition, offset = place
    return HatRecord(
        kind=kind,
        record=record,
        partition=partition,
        offset=offset,
        policy=policy_of(name),
        cell=read.cell,
        slot=f"{read.date}T{read.slot}",
        start=read.start,
        end=read.end,
        start_ms=instant_ms(read.start),
        end_ms=instant_ms(read.end),
        value=value,
        unit=read.unit,
    )


def _of_slot(record: HatRecord) -> HatRecord:
    """Return a record with the start of its slot in place of that of its window.

    The offset is that of the end: where the clock changes within the slot, the start is off by the change.
    """
    start = f"{record.slot}:00{_OFFSET.sub('', record.end)}"
    return replace(record, start=start, start_ms=instant_ms(start))


def instant_ms(text: str) -> int:
    """Convert an ISO 8601 instant to milliseconds UTC. Raises ValueError if it is malformed or without an offset."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("the instant has no offset")
    return round(instant.timestamp() * 1000)
