"""Release of a query over days: its answer, and the bytes of its `hats.queries` record.

Privacy of each field. Under `replace` all fields except `mean`, `raw` and `interval95` depend only on counts, which are
public, and on the worker's clock. Under `add_remove` there is no `user_days`, no `seq` and no kind whose noise depends
on counts; the missing dates follow from records that the log has lost, and `released_at` is a public instant.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hatcast.stream.fold.calendar import Calendar, Slot
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.proposals import AnswerProposal
from hatcast.stream.mechanisms import Noise
from hatcast.stream.policy.policy import Policy, Relation
from hatcast.stream.policy.query import Kind, Period, Query
from hatcast.stream.queries import KINDS, Answer, RetainedDay, answer_of
from hatcast.stream.records.fields import Status, release_id
from hatcast.stream.release.hats import estimate_fields
from hatcast.stream.release.placed import Placed, cell_fields, exact_json, record_parts, utc_text, value_fields
from hatcast.stream.release.schedule import released_at_ms


@dataclass(frozen=True, slots=True)
class QueryPeriod:
    """One query over one slot of the day on the dates of one period, for all cells."""

    policy: Policy
    query: Query
    period: Period
    slots: tuple[Slot, ...]  # slots of the period that exist in local time, in order: at least one

    @property
    def closing(self) -> Slot:
        """The last slot: the query is due once it is final, and the records are stored under its date."""
        return self.slots[-1]

    @property
    def key(self) -> tuple[str, str]:
        """Query name and closing slot, unique within the policy."""
        return self.query.name, self.closing.key

    def with_limit(self, milli: int) -> "QueryPeriod":
        """Return the period with a requested limit, in milli-units above the value's lower bound."""
        return replace(self, query=replace(self.query, speed_limit=milli))

    def release_id(self, cell: str) -> str:
        """Return `policy/dateTslot/cell/query`; it never changes."""
        return f"{release_id(self.policy.name, self.closing.key, cell)}/{self.query.name}"


def query_periods_of(policy: Policy, calendar: Calendar, date: str, slot_name: str) -> Iterator[QueryPeriod]:
    """Yield the query periods that read one slot of a local date: one for each query whose period has the date."""
    yield from query_periods(policy, calendar, [f"{date}/{slot_name}"])


def query_periods(policy: Policy, calendar: Calendar, slots: Iterable[str]) -> list[QueryPeriod]:
    """Return the query periods that read any of these slots (`date/slot`), each once, by closing slot, then query.

    Each period is resolved once for all of its slots, because it may have a year of them.
    """
    readers = list[QueryPeriod]()
    read = {(date, name) for date, _, name in (slot.partition("/") for slot in slots)}
    for query in policy.queries:
        periods = {(query.period_of(date), name) for date, name in read}
        for period, name in periods:
            if period is None:
                continue
            named = (calendar.slot_named(day, name) for day in period.dates)
            existing = tuple(slot for slot in named if slot is not None and slot.outside is None)
            if existing:
                readers.append(QueryPeriod(policy, query, period, existing))
    return sorted(readers, key=lambda each: (each.closing.end_ms, each.closing.name, each.query.name))


@dataclass(frozen=True, slots=True)
class QueryRelease:
    """The release of a query about one cell, before the ledger assigns its `seq`."""

    query_period: QueryPeriod
    cell: str
    # start, end: local start of the first slot and end of the last slot
    start: str
    end: str
    answer: Answer | None  # None if the budget has no room for it

    @property
    def release_id(self) -> str:
        """As `QueryPeriod.release_id`."""
        return self.query_period.release_id(self.cell)

    @property
    def date(self) -> str:
        """Local date under which it is stored."""
        return self.query_period.closing.date

    @property
    def status(self) -> Status:
        """Status of the release."""
        if self.answer is None:
            return Status.BUDGET_EXHAUSTED
        return Status.SUPPRESSED if self.answer.estimate is None else Status.RELEASED

    def exhausted(self) -> "QueryRelease":
        """Return the release of this query with status `budget_exhausted` and without the answer."""
        return replace(self, answer=None)

    def record(self, now_ms: int) -> tuple[bytes, bytes]:
        """Return the record's bytes before and after `seq`, as `hatcast.stream.release.hats.Release.record`."""
        policy, query = self.query_period.policy, self.query_period.query
        period, closing = self.query_period.period, self.query_period.closing
        hidden = policy.relation is Relation.ADD_REMOVE
        head = {"release_id": self.release_id, "policy_id": policy.policy_id, "status": self.status.value}
        tail: dict[str, Any] = {
            "query": query.name,
            "kind": query.kind_name,
            **cell_fields(policy, self.cell),
            "date": closing.date,
            "slot": closing.name,
            "start": self.start,
            "end": self.end,
            "first_date": period.first.isoformat(),
            "last_date": period.last.isoformat(),
            "days": period.days,
            "days_used": 0 if self.answer is None else period.days - len(self.answer.missing),
        }
        tail |= value_fields(policy)
        if query.kind is Kind.OVER_SPEED_LIMIT and query.speed_limit is not None:
            name = "speed_limit" if query.kind_name == Kind.OVER_SPEED_LIMIT else "threshold"
            tail[name] = (query.speed_limit + policy.lower) / 1000
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

    def proposal(self, at_ms: int, release_partition: int) -> AnswerProposal:
        """Return the answer as proposed to the ledger by the owner of a release partition."""
        policy, query = self.query_period.policy, self.query_period.query
        return AnswerProposal(
            release_id=self.release_id,
            date=self.date,
            dates=self.query_period.period.dates,
            query=query.name,
            reserved=Reserved(policy.most_hats, query.epsilon_nano),
            record=self.record(at_ms),
            exhausted=(self.exhausted() if self.status == Status.RELEASED else self).record(at_ms),
            release_partition=release_partition,
        )

    def _answer_fields(self, answer: Answer) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if answer.missing:
            fields["missing"] = list(answer.missing)
        if answer.reason is not None:
            fields["reason"] = answer.reason.value
        if answer.user_days is not None:
            fields["user_days"] = answer.user_days
        if answer.estimate is not None:
            policy, kind = self.query_period.policy, KINDS[self.query_period.query.kind]
            fields |= estimate_fields(answer.estimate, kind.grid(policy), kind.unit(policy))
        return fields


AnyRelease = Placed | QueryRelease
"""A release of any kind, before the ledger assigns its `seq`"""


@dataclass(frozen=True, slots=True)
class RetainedPeriod:
    """Input of the answers of one query period."""

    with_data: Container[str]  # slots (`date/slot`) with retained contributions of any cell
    parts: Mapping[tuple[str, str], Sequence[bytes]]  # (cell, `date/slot`) -> retained chunks
    first_ms: int  # slots that began earlier (ms UTC) are not the policy's
    has_lost: Callable[[Slot], bool]  # whether a slot may lack readings, as public facts show

    def complete_slots(self, query_period: QueryPeriod) -> list[Slot]:
        """Return the slots that have all their data; an empty one under `replace`, where counts are public, has not."""
        hidden = query_period.policy.relation is Relation.ADD_REMOVE
        return [
            slot
            for slot in query_period.slots
            if slot.start_ms >= self.first_ms and (hidden or slot.key in self.with_data) and not self.has_lost(slot)
        ]


def answers_of(
    query_period: QueryPeriod, calendar: Calendar, cells: Sequence[str], retained: RetainedPeriod, noise: Noise
) -> list[QueryRelease]:
    """Answer a query about cells, including its noise, in order."""
    slots, answers = retained.complete_slots(query_period), []
    for cell in cells:
        days = {slot.date: RetainedDay.of(retained.parts.get((cell, slot.key), [])) for slot in slots}
        answers.append(query_release_of(query_period, calendar, cell, days, noise))
    return answers


def query_release_of(
    query_period: QueryPeriod, calendar: Calendar, cell: str, days: Mapping[str, RetainedDay | None], noise: Noise
) -> QueryRelease:
    """Answer a query about one cell, including its noise.

    days   local date -> retained contributions of the slot; the date is missing if None or absent
    """
    period_days = {date: days.get(date) for date in query_period.period.dates}
    answer = answer_of(query_period.policy, query_period.query, period_days, noise)
    return QueryRelease(
        query_period=query_period,
        cell=cell,
        start=calendar.local(query_period.slots[0].start_ms).isoformat(),
        end=calendar.local(query_period.closing.end_ms).isoformat(),
        answer=answer,
    )
