"""Records of `hats.means`, grouped as a smoother takes them: by slot, and by settlement of a date."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import NamedTuple, Self

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.policy.policy import Policy
from hatcast.stream.records import RELEASE, ReleaseRecord
from hatcast.stream.records.fields import is_settlement

_MILLI = 1000


class SlotKey(NamedTuple):
    """Place of a group in the order in which a smoother takes them: the settlement of a date is its last.

    start_ms   ms UTC; 0 for a settlement
    """

    date: str
    is_settlement: bool
    start_ms: int

    @classmethod
    def of(cls, record: ReleaseRecord) -> Self:
        """Return the key of a record's group."""
        settles = is_settlement(record.release_id)
        return cls(record.date, settles, 0 if settles else start_of(record))


@dataclass(frozen=True, slots=True)
class ReleasedSlot:
    """All records of one slot, or of the settlement of a date; in any order, and a record may be there twice."""

    key: SlotKey
    records: Sequence[ReleaseRecord]


def read_release(value: bytes, policy: Policy) -> ReleaseRecord | None:
    """Decode a record of `hats.means`; None if it is not of this policy, or is a running sum."""
    try:
        record = RELEASE.decode(value)
    except UNREADABLE:
        return None
    is_ours = record.policy_id == policy.policy_id and record.release_id.startswith(f"{policy.name}/")
    return record if is_ours and record.running is None else None


def start_of(record: ReleaseRecord) -> int:
    """Return the start of a record's slot, ms UTC."""
    return round(datetime.fromisoformat(record.start).timestamp() * _MILLI)


def end_of(record: ReleaseRecord) -> int:
    """Return the end of a record's slot, ms UTC."""
    return round(datetime.fromisoformat(record.end).timestamp() * _MILLI)


def slots_of(records: Iterable[ReleaseRecord]) -> Iterator[ReleasedSlot]:
    """Group records, in the order in which a smoother takes them."""
    for key, group in groupby(sorted(records, key=SlotKey.of), SlotKey.of):
        yield ReleasedSlot(key, list(group))
