"""Records of the output topics, decoded into the fields that a ledger recovery reads."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

from hatcast.agents.recovery.outputs import Record
from hatcast.stream.errors import UNREADABLE
from hatcast.stream.ledger.adoption import Answered, Published, Span
from hatcast.stream.records import BUDGET, BudgetRecord
from hatcast.stream.release.published import published_of
from hatcast.stream.release.spending import Fineness

log = structlog.get_logger()


@dataclass(slots=True)
class Contents:
    """Decoded records of a batch."""

    releases: list[tuple[int, Published]] = field(default_factory=list)  # means and answers, each with its offset
    answered: set[Answered] = field(default_factory=set)  # reservations of the answered queries
    # (policy name, date) -> the newest budget record
    budgets: dict[tuple[str, str], BudgetRecord] = field(default_factory=dict)
    # (policy name, date) -> offset of the first budget record
    budget_days: dict[tuple[str, str], int] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)  # policy name -> its first and last slot, under `add_remove`
    # (policy name, local date, start, end) of the releases: local times, as published
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
    topic: str, records: Iterable[Record], policy_id: str, fineness: Fineness, *, holds_budgets: bool
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
