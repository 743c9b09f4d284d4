"""Answers to queries over days, by policy, query, period, slot and cell, in bounded memory.

Of each query the `MAX_PERIODS` newest periods are stored, and fewer while a policy has more than `MAX_ANSWERS` answers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hatcast.stream.records.projections import PLACED_ANSWER, PlacedAnswer

MAX_PERIODS: Final = 31  # of each query: a month of queries of one day
MAX_ANSWERS: Final = 50_000  # per policy: about 50 MB
MAX_POLICIES: Final = 8


@dataclass(slots=True)
class AnswerPeriod:
    """Answers of one query about one period.

    first   the first answer that was read: it has the query's public fields
    slots   slot -> cell -> record
    """

    first: PlacedAnswer
    slots: dict[str, dict[str, bytes]] = field(default_factory=dict)

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

    def index(self) -> list[dict[str, Any]]:
        """Return the stored periods, without the answers."""
        return [period.view() for period in self.in_order()]

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

    def of_cell(self, cell: str) -> list[bytes]:
        """Return the answers about a cell, by query, the newest period first, and slot."""
        return [
            each.slots[slot][cell]
            for each in self.in_order()
            for slot in sorted(each.slots)
            if cell in each.slots[slot]
        ]


class Answers:
    """Stored answers of all policies."""

    def __init__(self) -> None:
        self.policies: dict[str, PolicyAnswers] = {}

    def add(self, record: bytes) -> str | None:
        """Add an answer; return its policy, or None if it changes nothing or is too old.

        Raises msgspec.DecodeError if it is not an answer.
        """
        read = PLACED_ANSWER.decode(record)
        policy = self._policy(read.policy)
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
        return self.policies[policy].index() if policy in self.policies else []

    def _policy(self, name: str) -> PolicyAnswers:
        policy = self.policies.setdefault(name, PolicyAnswers())
        if len(self.policies) > MAX_POLICIES:
            del self.policies[min((each for each in self.policies if each != name), key=self._newest)]
        return policy

    def _newest(self, name: str) -> str:
        return self.policies[name].newest


def _in_order(period: AnswerPeriod, slot: str | None) -> Iterator[bytes]:
    for name in sorted(period.slots):
        if slot in (None, name):
            yield from (period.slots[name][cell] for cell in sorted(period.slots[name]))


def _evict(policy: PolicyAnswers, query: str) -> None:
    """Drop the oldest period of a query that has too many, and the oldest of all while there are too many answers."""
    mine = [period for period in policy.periods.values() if period.first.query == query]
    if len(mine) > MAX_PERIODS:
        _drop(policy, _oldest(mine))
    while policy.count > MAX_ANSWERS and len(policy.periods) > 1:
        _drop(policy, _oldest([*policy.periods.values()]))


def _oldest(periods: Sequence[AnswerPeriod]) -> AnswerPeriod:
    return min(periods, key=lambda each: (each.first.last_date, each.first.query))


def _drop(policy: PolicyAnswers, period: AnswerPeriod) -> None:
    del policy.periods[period.key]
    policy.count -= sum(map(len, period.slots.values()))
