"""A query's period + what was kept of its days + noise -> release: what `hats.queries` tells, byte for byte.

The privacy question, asked of every field. Under `replace` all but `mean`, `raw` and `interval95` depends on counts
only, which are public, and on the clock of the worker. Under `add_remove` there is no `user_days`, no `seq`, no kind
whose noise depends on counts; which dates are missing follows from what the log has lost, and `released_at` is a public
instant.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hatcast.stream.fold.hats import Calendar, Slot
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.policy.query_keys import Kind
from hatcast.stream.queries import KINDS, Answer, Period, Query, RetainedDay, answer_of
from hatcast.stream.release.hats import Status, estimate_fields, exact_json, record_parts, release_id, utc_text
from hatcast.stream.release.schedule import released_at_ms


@dataclass(frozen=True, slots=True)
class QueryPeriod:
    """One query about all cells, in one slot, on the dates of one period.

    slots   those of the period that the local clock has, in order: at least one
    """

    policy: Policy
    query: Query
    period: Period
    slots: tuple[Slot, ...]

    @property
    def closing(self) -> Slot:
        """The last of the slots: when it is final, the query is due, and its date keeps the records."""
        return self.slots[-1]

    @property
    def key(self) -> tuple[str, str]:
        """The query's name and the closing slot: tells what is asked from all else that the policy asks."""
        return self.query.name, self.closing.key

    def release_id(self, cell: str) -> str:
        """`policy/dateTslot/cell/query`, the same for ever."""
        return f"{release_id(self.policy, self.closing.key, cell)}/{self.query.name}"


def query_periods_of(policy: Policy, calendar: Calendar, date: str, slot_name: str) -> Iterator[QueryPeriod]:
    """What is asked of the slot of a local date: one for each query whose period the date is in."""
    yield from query_periods(policy, calendar, [f"{date}/{slot_name}"])


def query_periods(policy: Policy, calendar: Calendar, slots: Iterable[str]) -> list[QueryPeriod]:
    """What is asked of any of these slots (`date/slot`), each once; by closing slot, then query.

    A period is looked up once, whatever number of its slots is given: it may have a year of them.
    """
    asked = list[QueryPeriod]()
    read = {(date, name) for date, _, name in (slot.partition("/") for slot in slots)}
    for query in policy.queries:
        periods = {(query.period_of(date), name) for date, name in read}
        for period, name in periods:
            if period is None:
                continue
            found = (calendar.slot_named(day, name) for day in period.dates)
            there = tuple(slot for slot in found if slot is not None and slot.outside is None)
            if there:
                asked.append(QueryPeriod(policy, query, period, there))
    return sorted(asked, key=lambda one: (one.closing.end_ms, one.closing.name, one.query.name))


@dataclass(frozen=True, slots=True)
class QueryRelease:
    """The one answer to a query about one cell, before the ledger has numbered it.

    start, end  local, of the first and the last slot
    answer      None: the budget has no room for it
    """

    query_period: QueryPeriod
    cell: str
    start: str
    end: str
    answer: Answer | None

    @property
    def release_id(self) -> str:
        """See QueryPeriod."""
        return self.query_period.release_id(self.cell)

    @property
    def date(self) -> str:
        """The local date that it is kept under."""
        return self.query_period.closing.date

    @property
    def status(self) -> Status:
        """What became of it."""
        if self.answer is None:
            return Status.BUDGET_EXHAUSTED
        return Status.SUPPRESSED if self.answer.estimate is None else Status.RELEASED

    def exhausted(self) -> "QueryRelease":
        """The same query where some day has no room for it: nothing of the answer is left in it."""
        return replace(self, answer=None)

    def record(self, now_ms: int) -> tuple[bytes, bytes]:
        """The record's bytes before and after its number, as `hatcast.stream.release.hats.Release.record`."""
        policy, query, period, closing = (
            self.query_period.policy,
            self.query_period.query,
            self.query_period.period,
            self.query_period.closing,
        )
        hidden = policy.relation is Relation.ADD_REMOVE
        head = {"release_id": self.release_id, "policy_id": policy.policy_id, "status": self.status.value}
        tail: dict[str, Any] = {
            "query": query.name,
            "kind": query.kind.value,
            "cell": self.cell,
            "date": closing.date,
            "slot": closing.name,
            "start": self.start,
            "end": self.end,
            "first_date": period.first.isoformat(),
            "last_date": period.last.isoformat(),
            "days": period.days,
            "days_used": 0 if self.answer is None else period.days - len(self.answer.missing),
        }
        if query.kind is Kind.OVER_SPEED_LIMIT:
            tail["speed_limit"] = query.speed_limit / 1000
        if self.answer is not None:
            tail |= self._answer_fields(self.answer)
        tail |= {
            "epsilon": exact_json(query.epsilon_nano),
            "epsilon_user_day": exact_json(query.epsilon_nano * policy.most_hats),
            "most_hats": policy.most_hats,
            "relation": policy.relation.value,
            "released_at": utc_text(released_at_ms(closing, policy) if hidden else now_ms),
        }
        return record_parts(head, tail, hidden=hidden)

    def _answer_fields(self, answer: Answer) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if answer.missing:
            told["missing"] = list(answer.missing)
        if answer.reason is not None:
            told["reason"] = answer.reason.value
        if answer.user_days is not None:
            told["user_days"] = answer.user_days
        if answer.estimate is not None:
            told |= estimate_fields(answer.estimate, self.query_period.policy, KINDS[self.query_period.query.kind].unit)
        return told


def query_release_of(
    asked: QueryPeriod, calendar: Calendar, cell: str, days: Mapping[str, RetainedDay | None], noise: Noise
) -> QueryRelease:
    """Answer a query about one cell and draw its noise.

    days   local date -> what is kept of it in this slot; None, or no entry: the date is missing
    """
    answer = answer_of(asked.policy, asked.query, {date: days.get(date) for date in asked.period.dates}, noise)
    return QueryRelease(
        query_period=asked,
        cell=cell,
        start=calendar.local(asked.slots[0].start_ms).isoformat(),
        end=calendar.local(asked.closing.end_ms).isoformat(),
        answer=answer,
    )
