"""A fold of one partition, and records for it."""

import json
from collections.abc import Sequence
from typing import Any, Final

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.fold.checkpoint import FoldChanges, StoredPartition
from hatcast.stream.fold.reading_fold import Fold, reading_fold
from hatcast.stream.fold.users import FoldUsers
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import format_with
from hatcast.stream.readings.vehicles import KEY_BYTES, PARTITIONERS, Pseudonyms

PSEUDONYMS: Final = Pseudonyms(bytes(KEY_BYTES))
MINUTE: Final = 60_000
HOUR: Final = 3_600_000
DAY: Final = 86_400_000
NOON: Final = 1_641_124_800_000  # 2022-01-02T12:00Z
NOW: Final = 1_800_000_000_000  # in 2027
BUS: Final[dict[str, Any]] = {"vehicle": "bus", "time": NOON, "lat": 21.2, "lon": 72.8, "speed": 30.0, "unit": "km/h"}
ABSENT: Final = object()


def record(**changes: Any) -> bytes:
    """A canonical record of a bus at noon in Surat at 30 km/h, but for the changes; ABSENT leaves a field out."""
    fields = {name: value for name, value in (BUS | changes).items() if value is not ABSENT}
    return json.dumps(fields).encode()


def fold_of(policy: Policy, partition: int = 0, partitions: int = 1, partitioner: str = "murmur2") -> Fold:
    """An empty fold of a partition, with rule 10."""
    choose = PARTITIONERS[partitioner]
    return reading_fold(
        policy,
        Calendar(policy),
        FoldUsers(PSEUDONYMS),
        format_with("jsonl", policy.value_units).decode,
        lambda vehicle: choose(vehicle, partitions) == partition,
    )


def apply(fold: Fold, records: Sequence[tuple[int, bytes | None]], now: int = NOW) -> list[int]:
    """(arrival, value) in order; the indexes of the undecodable ones."""
    return [*fold.apply(now, [arrival for arrival, _ in records], [value for _, value in records])]


def occurring(fold: Fold) -> dict[str, int]:
    """The outcomes that occur."""
    return {outcome: records for outcome, records in fold.outcomes.items() if records}


def contributions(fold: Fold) -> dict[tuple[str, int, bytes], tuple[int, int, int, int]]:
    """(`date/slot`, cell, pseudonym) -> count, sum, max, seen."""
    return {
        (key, cell, user): (known.count, known.total, known.maximum, known.seen)
        for key, slot in fold.slots.items()
        for cell, hat in slot.hats.items()
        for user, known in hat.users.items()
    }


def other_totals(fold: Fold) -> dict[tuple[str, int, bytes], tuple[int, ...]]:
    """(`date/slot`, cell, pseudonym) -> totals of the values besides the speed, from their lower ends."""
    return {
        (key, cell, user): (*known.others,)
        for key, slot in fold.slots.items()
        for cell, hat in slot.hats.items()
        for user, known in hat.users.items()
    }


def entered(fold: Fold) -> dict[tuple[str, bytes], int]:
    """(date, pseudonym) -> HATs entered that day."""
    return {(date, user.pseudonym): user.entered for date, day in fold.periods.items() for user in day.users.values()}


def stored_of(changes: FoldChanges) -> StoredPartition:
    """The state that a worker reads after the first checkpoint of a partition."""
    hats: dict[tuple[str, str], list[bytes]] = {}
    for (slot, cell, _), chunk in sorted(changes.chunks.items()):
        hats.setdefault((slot, cell), []).append(chunk)
    days: dict[str, list[bytes]] = {}
    for (date, _), chunk in sorted(changes.day_chunks.items()):
        days.setdefault(date, []).append(chunk)
    return StoredPartition(changes.watermark, changes.outcomes, hats, days)
