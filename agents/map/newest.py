"""Newest records beside those of HATs, in bounded memory: answers to queries, clusterings, running means."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, TypeVar

import msgspec

from hatcast.agents.map.history import slot_view, value_range
from hatcast.agents.map.record import HatRecord, RunningWindow
from hatcast.stream.records import ClustersRecord
from hatcast.stream.records.projections import PLACED_ANSWER, PlacedAnswer

# Answers to queries over days, by policy, query, period, slot and cell, in bounded memory.
#
# Of each query the `MAX_PERIODS` newest periods are stored, and fewer while a policy has more than `MAX_ANSWERS`
# answers.
MAX_PERIODS: Final = 31  # of each query: a month of queries of one day
MAX_ANSWERS: Final = 50_000  # per policy: about 50 MB
MAX_POLICIES: Final = 8

P = TypeVar("P")


def _policy(policies: dict[str, P], name: str, make: Callable[[], P], age: Callable[[P], str | int]) -> P:
    """Return a policy's records, made if there are none; of too many policies the one with the oldest is dropped."""
    policy = policies.setdefault(name, make())
    if len(policies) > MAX_POLICIES:
        del policies[min((each for each in policies if each != name), key=lambda each: age(policies[each]))]
    return policy


@dataclass(slots=True)
class AnswerPeriod:
    """Answers of one query about one period."""

    first: PlacedAnswer  # the first answer that was read: it has the query's public fields
    slots: dict[str, dict[str, bytes]] = field(default_factory=dict)  # slot -> cell -> record

    @property
    def key(self) -> tuple[str, str]:
        """Query and first date."""
        return self.first.query, self.first.first_date

    def view(self) -> dict[str, Any]:
        """Return the period for the index: its query, its dates, and the number of answers of each slot."""
        read = self.first
        named = {"speed_limit": read.speed_limit, "threshold": read.threshold, "value": read.value}
        limit = {name: field for name, field in named.items() if bytes(field)}
        return {
            "query": read.query,
            "kind": read.kind,
            **limit,
            "first_date": read.first_date,
            "last_date": read.last_date,
            "days": read.days,
            "slots": {slot: len(self.slots[slot]) for slot in sorted(self.slots)},
        }


@dataclass(slots=True)
class PolicyAnswers:
    """Stored answers of one policy. `version` grows with each change."""

    periods: dict[tuple[str, str], AnswerPeriod] = field(default_factory=dict)
    count: int = 0
    version: int = 0

    @property
    def newest(self) -> str:
        """Last date of the newest period."""
        return max((period.first.last_date for period in self.periods.values()), default="")

    def in_order(self) -> list[AnswerPeriod]:
        """Return the periods by query, the newest first."""
        newest_first = sorted(self.periods.values(), key=lambda each: each.first.first_date, reverse=True)
        return sorted(newest_first, key=lambda each: each.first.query)

    def find(self, query: str | None, period: str | None, slot: str | None) -> list[bytes]:
        """Return the answers of a query, a period's first date and a slot, by query, slot and cell. None: all of them.

        Without a first date only the newest period of each query counts.
        """
        chosen = [each for each in self.in_order() if query in (None, each.first.query)]
        if period is None:
            newest = {each.first.query: each for each in reversed(chosen)}
            chosen = [each for each in chosen if newest[each.first.query] is each]
        else:
            chosen = [each for each in chosen if each.first.first_date == period]
        return [record for each in chosen for record in _in_order(each, slot)]

    def records(self) -> list[bytes]:
        """Return all answers, by query, the newest period first, slot and cell."""
        return [record for each in self.in_order() for record in _in_order(each, None)]

    def of_cell(self, cell: str) -> list[bytes]:
        """Return the answers about a cell, by query, the newest period first, and slot."""
        return [
            each.slots[slot][cell]
            for each in self.in_order()
            for slot in sorted(each.slots)
            if cell in each.slots[slot]
        ]


class AnswerIndex:
    """Stored answers of all policies."""

    def __init__(self) -> None:
        self.policies: dict[str, PolicyAnswers] = {}

    def add(self, record: bytes) -> str | None:
        """Add an answer; return its policy, or None if it changes nothing or is too old.

        Raises msgspec.DecodeError if it is not an answer.
        """
        read = PLACED_ANSWER.decode(record)
        policy = _policy(self.policies, read.policy, PolicyAnswers, lambda each: each.newest)
        period = policy.periods.setdefault((read.query, read.first_date), AnswerPeriod(read))
        cells = period.slots.setdefault(read.slot, {})
        if cells.get(read.cell) == record:
            return None
        policy.count += read.cell not in cells
        cells[read.cell] = record
        policy.version += 1
        _evict(policy, read.query)
        return read.policy if period.key in policy.periods else None

    def index(self, policy: str) -> list[dict[str, Any]]:
        """Return the queries and periods that are stored for a policy, without their answers."""
        return [period.view() for period in self.policies[policy].in_order()] if policy in self.policies else []


def _in_order(period: AnswerPeriod, slot: str | None) -> Iterator[bytes]:
    for name in sorted(period.slots):
        if slot in (None, name):
            yield from (period.slots[name][cell] for cell in sorted(period.slots[name]))


def _evict(policy: PolicyAnswers, query: str) -> None:
    """Drop the oldest period of a query that has too many, and the oldest of all while there are too many answers."""
    mine = [period for period in policy.periods.values() if period.first.query == query]
    if len(mine) > MAX_PERIODS:
        _drop_oldest(policy, mine)
    while policy.count > MAX_ANSWERS and len(policy.periods) > 1:
        _drop_oldest(policy, policy.periods.values())


def _drop_oldest(policy: PolicyAnswers, periods: Iterable[AnswerPeriod]) -> None:
    oldest = min(periods, key=lambda each: (each.first.last_date, each.first.query))
    del policy.periods[oldest.key]
    policy.count -= sum(map(len, oldest.slots.values()))


MAX_RESULTS: Final = 20  # per policy: the newest

_DECODE: Final = msgspec.json.Decoder(ClustersRecord).decode


class ClusteringIndex:
    """Stored results; of each policy those of the newest dates, of one date those that came last."""

    def __init__(self) -> None:
        self._results: dict[str, dict[str, tuple[str, bytes]]] = {}  # policy -> clustering -> (date, record)

    def add(self, record: bytes) -> str | None:
        """Store a record of `hats.clusters`; return its policy if it is a result that was not stored.

        Raises msgspec.DecodeError for anything else, and for a result that a page could not draw.
        """
        read = _DECODE(record)
        _check(read)
        if read.status != "released" or (read.date, record) == self._of(read.policy).get(read.clustering):
            return None
        results = self._results.pop(read.policy, {})
        self._results[read.policy] = results  # last: the policies without a new result are dropped first
        results[read.clustering] = read.date, record
        if len(results) > MAX_RESULTS:
            del results[self.ids(read.policy)[-1]]
        if len(self._results) > MAX_POLICIES:
            del self._results[next(iter(self._results))]
        return read.policy

    def ids(self, policy: str) -> list[str]:
        """Return the clusterings of a policy, the newest first."""
        results = self._of(policy)
        return sorted(results, key=lambda clustering: results[clustering][0])[::-1]

    def records(self, policy: str) -> list[bytes]:
        """Return the results of a policy, the newest first."""
        results = self._of(policy)
        return [results[clustering][1] for clustering in self.ids(policy)]

    def _of(self, policy: str) -> dict[str, tuple[str, bytes]]:
        return self._results.get(policy, {})


def _check(read: ClustersRecord) -> None:
    """Raise msgspec.DecodeError for a result without its clusters, or with clusters of other slots."""
    clusters, slots = read.clusters or (), len(read.slots)
    is_whole = clusters and read.users is not None and read.unit is not None
    if read.status == "released" and not (is_whole and all(len(each.centre) == slots for each in clusters)):
        raise msgspec.DecodeError("a result without a centre for each slot")


# Running means, by policy, name and cell: the newest of each, as the topic keeps them, in bounded memory.
#
# One is dropped when it ended `keep_ms` before the policy's newest, and the oldest ones when a policy has more than
# `MAX_RECORDS`.
MAX_RECORDS: Final = 100_000  # per policy: about 100 MB


@dataclass(slots=True)
class WindowRecords:
    """The newest running means of one name, by cell."""

    window: RunningWindow
    cells: dict[str, HatRecord] = field(default_factory=dict)

    def in_order(self) -> list[bytes]:
        """Return the records, ordered by cell."""
        return [self.cells[cell].record for cell in sorted(self.cells)]

    def view(self) -> dict[str, Any]:
        """Return the window for the index: its name, its latest slot, its cells, and the range of its colours."""
        window, newest = self.window, max(self.cells.values(), key=attrgetter("slot"))
        return {
            "name": window.name,
            "window": window.window,
            "of": window.of,
            "slot": slot_view(newest.slot, newest.start, newest.end),
            "cells": sorted(self.cells),
            "range": value_range(self.cells.values()),
        }


@dataclass(slots=True)
class PolicyRunning:
    """Running means of one policy, by name. `version` grows with each change."""

    windows: dict[str, WindowRecords] = field(default_factory=dict)
    newest_ms: int = 0
    count: int = 0
    version: int = 0

    def in_order(self, name: str | None = None) -> list[WindowRecords]:
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


class RunningIndex:
    """The newest running means of all policies."""

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self.policies: dict[str, PolicyRunning] = {}

    def add(self, record: HatRecord) -> bool:
        """Add a running mean; return False if it changes nothing, or is older than the stored one or too old."""
        policy = _policy(self.policies, record.policy, PolicyRunning, lambda each: each.newest_ms)
        if record.end_ms <= policy.newest_ms - self._keep_ms:
            return False
        window = policy.windows.setdefault(record.window.name, WindowRecords(record.window))
        known = window.cells.get(record.cell)
        if known is not None and (record.slot < known.slot or record.record == known.record):
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

    def _evict(self, policy: PolicyRunning, end_ms: int) -> None:
        if end_ms > policy.newest_ms:
            policy.newest_ms = end_ms
            self._drop(policy, [each for each in policy if each.end_ms <= end_ms - self._keep_ms])
        if policy.count > MAX_RECORDS:  # a tenth at once: it takes a sort
            oldest_first = sorted(policy, key=attrgetter("end_ms"))
            self._drop(policy, oldest_first[: policy.count - MAX_RECORDS + MAX_RECORDS // 10])

    def _drop(self, policy: PolicyRunning, records: Sequence[HatRecord]) -> None:
        for record in records:
            window = policy.windows[record.window.name]
            del window.cells[record.cell]
            if not window.cells:
                del policy.windows[record.window.name]
        policy.count -= len(records)
