"""Releases or estimates of the last days, by policy and slot, in bounded memory.

Slots that ended more than `keep_ms` before the policy's newest slot are evicted, and older ones first while a policy
has more than `MAX_RECORDS` records. At most `MAX_POLICIES` policies are stored: those with the newest slots.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Final

from hatcast.agents.map.record import Budget, HatRecord, RecordKind

MAX_RECORDS: Final = 200_000  # per policy: about 280 MB, and never less than a slot
MAX_POLICIES: Final = 8
MAX_BUDGETS: Final = 100  # of a policy without slots
_MIN_COMPACTION: Final = 1_000  # records
_SPEEDS: Final = ("", "km/h")
_RANGE_STEP: Final = 5.0  # of the colour range of speeds, km/h
_TINY: Final = 1e-9  # of a step: a multiple of it stays one
_STEPS: Final = 4  # least number of steps of the colour range of other values
_OUTLIERS: Final = 40  # one value in 40 may lie above the range and one below: noise has long tails


@dataclass(slots=True)
class SlotRecords:
    """One slot of a policy, and its records by cell."""

    slot: str
    start: str
    end: str
    start_ms: int
    end_ms: int
    records: dict[str, HatRecord] = field(default_factory=dict)

    def view(self) -> dict[str, str]:
        """Return the slot with its label."""
        return slot_view(self.slot, self.start, self.end)

    def in_order(self) -> list[bytes]:
        """Return the records, ordered by cell."""
        return [self.records[cell].record for cell in sorted(self.records)]


_ORDER: Final = attrgetter("start_ms", "slot")


def slot_view(slot: str, start: str, end: str) -> dict[str, str]:
    """Return a slot with its label: its local date and hours in words, for displays."""
    first = datetime.fromisoformat(start)
    label = f"{first:%a} {first.day} {first:%b %Y}, {start[11:16]} to {end[11:16]}"
    return {"slot": slot, "start": start, "end": end, "label": label}


@dataclass(slots=True)
class PolicyHistory:
    """Stored slots and budgets of one policy."""

    name: str
    slots: dict[str, SlotRecords] = field(default_factory=dict)  # by name, in the order of their first record
    seen: set[str] = field(default_factory=set)  # every cell that ever had a record
    budgets: dict[str, Budget] = field(default_factory=dict)  # by date
    newest_ms: int = 0
    count: int = 0
    version: int = 0  # grows with each change: the cache key of rendered responses

    def in_order(self) -> list[SlotRecords]:
        """Return the slots, ordered by start."""
        return sorted(self.slots.values(), key=_ORDER)

    def latest(self) -> SlotRecords | None:
        """Return the slot with the latest start; None if there is none."""
        return max(self.slots.values(), key=_ORDER, default=None)

    def cells(self) -> list[str]:
        """Return the cells of all stored slots."""
        return sorted({cell for slot in self.slots.values() for cell in slot.records})

    def value_range(self) -> tuple[float, float]:
        """Return the colour range of all stored values."""
        return value_range(each for slot in self.slots.values() for each in slot.records.values())

    def of_cell(self, cell: str, from_ms: int | None, to_ms: int | None) -> list[bytes]:
        """Return the records of a cell for slots that begin in [from, to), ordered by time."""
        return [
            slot.records[cell].record
            for slot in self.in_order()
            if (from_ms is None or slot.start_ms >= from_ms) and (to_ms is None or slot.start_ms < to_ms)
            if cell in slot.records
        ]


def value_range(records: Iterable[HatRecord]) -> tuple[float, float]:
    """Return the colour range of records: it covers nearly all values, rounded outwards to round numbers.

    These are multiples of 5 for speeds; for other values the step follows from the range.
    """
    found = [each for each in records if each.value is not None]
    values = sorted(each.value for each in found if each.value is not None)
    if not values:
        return 0.0, _RANGE_STEP
    outliers = len(values) // _OUTLIERS
    least, most = values[outliers], values[-1 - outliers]
    step = _RANGE_STEP if found[0].unit in _SPEEDS else _round_step(least, most)
    low = math.floor(least / step + _TINY) * step
    return _plain(low), _plain(max(low + step, math.ceil(most / step - _TINY) * step))


def _round_step(least: float, most: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at most a fourth of the difference; of equal values of their size."""
    part = (most - least or abs(most) or 1.0) / _STEPS
    power: float = 10.0 ** math.floor(math.log10(part))
    return power * max(each for each in (1, 2, 5) if each * power <= part * (1 + 1e-9))


def _plain(value: float) -> float:
    """Return a number without the last digits of a float: 0.3, not 0.30000000000000004."""
    return float(f"{value:.12g}")


class History:
    """Stored records of one kind, and budgets, of all policies. Records may come out of order and more than once.

    A release stays as it is; a later estimate of the same HAT replaces the earlier one.
    """

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._log: dict[int, deque[HatRecord]] = {}
        self.policies: dict[str, PolicyHistory] = {}

    def add(self, record: HatRecord) -> bool:
        """Add a record; return False if it changes nothing or is too old."""
        policy = self._policy(record.policy)
        policy.seen.add(record.cell)
        if record.end_ms <= policy.newest_ms - self._keep_ms:
            return False
        slot = policy.slots.get(record.slot)
        if slot is None:
            slot = SlotRecords(record.slot, record.start, record.end, record.start_ms, record.end_ms)
            policy.slots[record.slot] = slot
        known = slot.records.get(record.cell)
        if known is not None and (record.kind is not RecordKind.ESTIMATES or record.record == known.record):
            return False
        slot.records[record.cell] = record
        policy.count += known is None
        policy.version += 1
        log = self._log.setdefault(record.partition, deque())
        log.append(record)
        if len(log) > _MIN_COMPACTION + 2 * sum(policy.count for policy in self.policies.values()):
            self._compact(record.partition)  # replaced records leave it when they are most of it
        if record.end_ms > policy.newest_ms or policy.count > MAX_RECORDS:
            policy.newest_ms = max(record.end_ms, policy.newest_ms)
            horizon = policy.newest_ms - self._keep_ms
            self._evict(policy, [slot.slot for slot in policy.slots.values() if slot.end_ms <= horizon])
            while policy.count > MAX_RECORDS and len(policy.slots) > 1:
                self._evict(policy, [policy.in_order()[0].slot])
            self._evict_budgets(policy)
        return True

    def contains(self, record: HatRecord) -> bool:
        """Return True unless the record is a duplicate, too old, evicted, or replaced."""
        policy = self.policies.get(record.policy)
        slot = None if policy is None else policy.slots.get(record.slot)
        return slot is not None and slot.records.get(record.cell) is record

    def add_budget(self, budget: Budget) -> bool:
        """Add a budget record; return False unless it is the latest of its day."""
        policy = self._policy(budget.policy)
        known = policy.budgets.get(budget.date)
        if known is not None and budget.seq <= known.seq:
            return False
        policy.budgets[budget.date] = budget
        policy.version += 1
        self._evict_budgets(policy)
        return True

    def since(self, positions: Mapping[int, int]) -> Iterator[HatRecord]:
        """Yield the stored records from these offsets on, partition by partition, in offset order."""
        for partition, log in self._log.items():
            begin, newer = positions.get(partition, 0), list[HatRecord]()
            for record in reversed(log):
                if record.offset < begin:
                    break
                newer.append(record)
            yield from (record for record in reversed(newer) if self.contains(record))

    def budgets(self) -> Iterator[Budget]:
        """Yield the latest budget record of each policy and day."""
        for policy in self.policies.values():
            yield from policy.budgets.values()

    def _policy(self, name: str) -> PolicyHistory:
        policy = self.policies.get(name)
        if policy is None:
            policy = self.policies[name] = PolicyHistory(name)
            if len(self.policies) > MAX_POLICIES:
                others = (each for each in self.policies.values() if each is not policy)
                oldest = min(others, key=lambda each: each.newest_ms)
                self._evict(oldest, list(oldest.slots))
                del self.policies[oldest.name]
        return policy

    def _evict(self, policy: PolicyHistory, names: Sequence[str]) -> None:
        evicted = set(names)
        for name in evicted:
            policy.count -= len(policy.slots.pop(name).records)
        if evicted:
            for partition in self._log:
                self._compact(partition)

    def _compact(self, partition: int) -> None:
        self._log[partition] = deque(each for each in self._log[partition] if self.contains(each))

    def _evict_budgets(self, policy: PolicyHistory) -> None:
        """Drop the budgets of dates before the first stored slot; without slots, the oldest of too many."""
        dates = sorted(policy.budgets)
        # Without slots it is a continual policy, whose records are another kind.
        first = min((slot.slot[:10] for slot in policy.slots.values()), default=None) or min(dates[-MAX_BUDGETS:])
        for date in dates:
            if date < first:
                del policy.budgets[date]


def names_of(*histories: History) -> list[str]:
    """Return the names of the policies with records in any of them, the one with the newest slot first."""
    newest = dict[str, int]()
    for policy in (each for history in histories for each in history.policies.values() if each.slots):
        newest[policy.name] = max(policy.newest_ms, newest.get(policy.name, 0))
    return sorted(newest, key=lambda name: -newest[name])
