"""Running means, by policy, name and cell: the newest of each, as the topic keeps them, in bounded memory.

One is dropped when it ended `keep_ms` before the policy's newest, and the oldest ones when a policy has more than
`MAX_RECORDS`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hatcast.agents.map.history import value_range
from hatcast.agents.map.record import HatRecord, Window

MAX_RECORDS: Final = 100_000  # per policy: about 100 MB
MAX_POLICIES: Final = 8


@dataclass(slots=True)
class WindowMeans:
    """The newest running means of one name, by cell."""

    window: Window
    cells: dict[str, HatRecord] = field(default_factory=dict)

    def in_order(self) -> list[bytes]:
        """Return the records, ordered by cell."""
        return [self.cells[cell].record for cell in sorted(self.cells)]

    def view(self) -> dict[str, Any]:
        """Return the window for the index: its name, its latest slot, its cells, and the range of its colours."""
        window, newest = self.window, max(self.cells.values(), key=_slot)
        return {
            "name": window.name,
            "window": window.window,
            "of": window.of,
            "slot": {"slot": newest.slot, "start": newest.start, "end": newest.end},
            "cells": sorted(self.cells),
            "range": value_range(self.cells.values()),
        }


@dataclass(slots=True)
class PolicyRunning:
    """Running means of one policy, by name. `version` grows with each change."""

    windows: dict[str, WindowMeans] = field(default_factory=dict)
    newest_ms: int = 0
    count: int = 0
    version: int = 0

    def in_order(self, name: str | None = None) -> list[WindowMeans]:
        """Return all windows, ordered by name, or the one with this name."""
        return [self.windows[each] for each in sorted(self.windows) if name in (None, each)]

    def records(self, name: str | None = None) -> list[bytes]:
        """Return all running means, ordered by name and cell, or those with this name."""
        return [record for each in self.in_order(name) for record in each.in_order()]

    def of_cell(self, cell: str) -> list[bytes]:
        """Return the running means of a cell, ordered by name."""
        return [each.cells[cell].record for each in self.in_order() if cell in each.cells]

    def __iter__(self) -> Iterator[HatRecord]:
        for window in self.windows.values():
            yield from window.cells.values()


class RunningMeans:
    """The newest running means of all policies."""

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self.policies: dict[str, PolicyRunning] = {}

    def add(self, record: HatRecord) -> bool:
        """Add a running mean; return False if it changes nothing, or is older than the stored one or too old."""
        policy = self._policy(record.policy)
        if record.end_ms <= policy.newest_ms - self._keep_ms:
            return False
        window = policy.windows.setdefault(record.window.name, WindowMeans(record.window))
        known = window.cells.get(record.cell)
        if known is not None and (_slot(record) < _slot(known) or record.record == known.record):
            return False
        window.window = record.window
        window.cells[record.cell] = record
        policy.count += known is None
        policy.version += 1
        self._evict(policy, record.end_ms)
        return True

    def contains(self, record: HatRecord) -> bool:
        """Return True unless the record was replaced or dropped."""
        policy = self.policies.get(record.policy)
        window = None if policy is None else policy.windows.get(record.window.name)
        return window is not None and window.cells.get(record.cell) is record

    def since(self, positions: Mapping[int, int]) -> Iterator[HatRecord]:
        """Yield the stored records from these offsets on."""
        for policy in self.policies.values():
            yield from (each for each in policy if each.offset >= positions.get(each.partition, 0))

    def index(self, policy: str) -> list[dict[str, Any]]:
        """Return the windows of a policy, without the running means."""
        return [each.view() for each in self.policies[policy].in_order()] if policy in self.policies else []

    def _policy(self, name: str) -> PolicyRunning:
        policy = self.policies.setdefault(name, PolicyRunning())
        if len(self.policies) > MAX_POLICIES:
            del self.policies[min((each for each in self.policies if each != name), key=self._newest_ms)]
        return policy

    def _newest_ms(self, name: str) -> int:
        return self.policies[name].newest_ms

    def _evict(self, policy: PolicyRunning, end_ms: int) -> None:
        if end_ms > policy.newest_ms:
            policy.newest_ms = end_ms
            self._drop(policy, [each for each in policy if each.end_ms <= end_ms - self._keep_ms])
        if policy.count > MAX_RECORDS:  # a tenth at once: it takes a sort
            self._drop(policy, sorted(policy, key=_end_ms)[: policy.count - MAX_RECORDS + MAX_RECORDS // 10])

    def _drop(self, policy: PolicyRunning, records: Sequence[HatRecord]) -> None:
        for record in records:
            window = policy.windows[record.window.name]
            del window.cells[record.cell]
            if not window.cells:
                del policy.windows[record.window.name]
        policy.count -= len(records)


def _slot(record: HatRecord) -> str:
    return record.slot


def _end_ms(record: HatRecord) -> int:
    return record.end_ms
