"""Decode records of the output topics into the fields that a ledger recovery reads."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime

import structlog

from hatcast.agents.recovery.outputs import Record
from hatcast.stream.errors import UNREADABLE
from hatcast.stream.ledger.adoption import Answered, Published, Span
from hatcast.stream.policy.continual_keys import CONTINUAL
from hatcast.stream.policy.policy import Relation
from hatcast.stream.policy.query_keys import DAYS_MAX
from hatcast.stream.policy.tracker_keys import TRACKER
from hatcast.stream.queries import RUNNING_SUMS, TRACKER_QUERIES, Period
from hatcast.stream.records import BUDGET, BudgetRecord
from hatcast.stream.records.fields import Status, policy_of
from hatcast.stream.records.projections import CHARGED, Charged
from hatcast.stream.release.hats import is_charged
from hatcast.stream.release.spending import Fineness
from hatcast.stream.units import nano_ceil


def published_of(value: bytes, policy_id: str, fineness: Fineness) -> Published:
    """Decode a release or answer record. Raises msgspec.DecodeError, ValueError.

    fineness   `hatcast.stream.release.spending.fineness_of` the policy with this id; unknown for other policies
    """
    record = CHARGED.decode(value)
    is_hat = not isinstance(record.query, str)  # an answer's charge is its reservation
    horizon = record.running if is_hat else None
    starts = is_hat and record.relation == Relation.ADD_REMOVE.value
    return Published(
        release_id=record.release_id,
        name=policy_of(record.release_id),
        date=record.date,
        place=f"{record.cell}/{record.slot}" if is_hat else "",
        charge=_charge(record) if is_hat else 0,
        seq=record.seq or 0,
        fineness=fineness(_scales(record)) if is_hat and record.policy_id == policy_id else 0,
        record=value,
        answered=_answered(record),
        slot_start_ms=int(datetime.fromisoformat(record.start).timestamp() * 1000) if starts else None,
        horizon="" if horizon is None else horizon.horizon,
        is_drawn=horizon is not None and record.status in (Status.RELEASED, Status.SUPPRESSED),
        start=record.start,
        end=record.end,
    )


def _charge(release: Charged) -> int:
    """Return the charge of a HAT (1e-9): the larger of the vehicles' and the devices'; 0 if a reservation pays."""
    charged = is_charged(release.status, release.relation) and release.estimator not in (TRACKER, CONTINUAL)
    return nano_ceil(max(release.epsilon, release.device_epsilon)) if charged else 0


def _scales(release: Charged) -> list[float | None]:
    """Return the scale of the noise of each value."""
    if release.values:
        return [each.noise.scale for each in release.values]
    return [None if release.noise is None else release.noise.scale]


def _answered(record: Charged) -> Answered | None:
    """Return the record's reservation; None unless it is released, because a day may have lacked room."""
    if record.status is not Status.RELEASED or (record.query is None and record.running is None):
        return None
    name, epsilon = policy_of(record.release_id), nano_ceil(record.epsilon)
    if not isinstance(record.query, str):
        period = Period(date.fromisoformat(record.date), 1)
        if record.running is not None:
            return Answered(name, RUNNING_SUMS, period, record.running.max_cells, epsilon)
        return (
            None if record.query is None else Answered(name, TRACKER_QUERIES, period, 1, nano_ceil(record.query.limit))
        )
    first = date.fromisoformat(record.first_date)
    period = Period(first, (date.fromisoformat(record.last_date) - first).days + 1)
    if not 1 <= period.days <= DAYS_MAX:  # it would be reserved on each of its dates
        raise ValueError("not a period of a query")
    return Answered(name, record.query, period, record.most_hats, epsilon)


log = structlog.get_logger()


@dataclass(slots=True)
class Contents:
    """Decoded records of a batch.

    releases  means and answers, each with its offset
    answered  reservations of the answered queries
    budgets   (policy name, date) -> the newest budget record
    budget_days   (policy name, date) -> offset of the first budget record
    spans     policy name -> its first and last slot, under `add_remove`
    slots     (policy name, local date, start, end) of the releases: local times, as published
    """

    releases: list[tuple[int, Published]] = field(default_factory=list)
    answered: set[Answered] = field(default_factory=set)
    budgets: dict[tuple[str, str], BudgetRecord] = field(default_factory=dict)
    budget_days: dict[tuple[str, str], int] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    slots: set[tuple[str, str, str, str]] = field(default_factory=set)

    def add_budget(self, offset: int, budget: BudgetRecord) -> None:
        """Add a budget record if it is the newest of its policy and date."""
        self.budget_days.setdefault((budget.policy, budget.date), offset)
        known = self.budgets.get((budget.policy, budget.date))
        if known is None or known.seq <= budget.seq:
            self.budgets[budget.policy, budget.date] = budget

    def add_release(self, offset: int, release: Published) -> None:
        """Add a release or an answer."""
        self.releases.append((offset, release))
        self.slots.add((release.name, release.date, release.start, release.end))
        if release.answered is not None:
            self.answered.add(release.answered)
        start_ms = release.slot_start_ms
        if start_ms is not None:
            self.spans[release.name] = self.spans.get(release.name, Span(start_ms, start_ms)).widened(start_ms)


def decode_contents(
    topic: str,
    records: Iterable[Record],
    *,
    holds_budgets: bool,
    policy_id: str,
    fineness: Fineness,
) -> Contents:
    """Decode the records of our own domain, and skip those of other domains.

    fineness   `hatcast.stream.release.spending.fineness_of` the policy with this id; unknown for other policies
    """
    contents = Contents()
    for record in records:
        if not record.is_ours:
            continue
        try:
            if holds_budgets:
                contents.add_budget(record.offset, BUDGET.decode(record.value))
            else:
                contents.add_release(record.offset, published_of(record.value, policy_id, fineness))
        except UNREADABLE:
            log.warning("unreadable record on an output topic", topic=topic)
    return contents
