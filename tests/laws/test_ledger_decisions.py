"""Laws of the ledger's decisions alone: several writers, each with time between its read and its apply.

A writer reads, decides, and applies later or never; meanwhile others apply, or an older copy of the store returns. What
is applied is what the definition decides at that moment, so every history is one of decisions one after the other.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date as local_date
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hatcast.agents.ledger.store import RecentRows, at_once
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.checks import check_rows
from hatcast.stream.ledger.commits import Guard, book_spent, commit, commit_rows, dates_rows
from hatcast.stream.ledger.day import Reserved, reservations
from hatcast.stream.ledger.proposals import AnswerProposal, Committed, Proposal, StateChange
from hatcast.stream.ledger.rejections import Behind
from hatcast.stream.ledger.summary import summary_of, summary_rows
from hatcast.stream.ledger.view import Decision, RowChanges, Unread, View, Wanted, merged
from hatcast.stream.policy.cells_file import SelectionCost
from hatcast.stream.policy.policy import Policy
from hatcast.stream.units import NANO
from tests.ledgers import MemoryStore, Model, Rows
from tests.replayed import policy_of
from tests.unit.test_continual_policy import policy as continual_policy

DATES = ("2022-01-02", "2022-01-03")
CELLS = "abc"
WRITERS = range(3)
PARTITIONS = range(2)
SUMS = continual_policy({"kind": "laplace", "max_cells": 2, "horizon_days": 1, "max_slots": 12}, name="sums")

tenths = st.integers(1, 25).map(lambda number: number * NANO // 10)
made = st.tuples(
    st.integers(1, 3),  # K
    st.integers(5, 60),  # daily limit, in tenths
    st.none() | st.integers(10, 90),  # limit of all days
    st.lists(st.tuples(st.integers(1, 2), st.integers(1, 4)), max_size=2),  # days and epsilon of queries
    st.none() | st.integers(1, 30),  # cost of a private list of cells
)


def a_policy(number: int, given: tuple[int, int, int | None, list[tuple[int, int]], int | None]) -> Policy:
    cap, limit, total, queries, chosen = given
    keys = {"kind": "over_speed_limit", "from": DATES[0], "speed_limit": 40.0}
    least = 1 + cap * sum(epsilon for _, epsilon in queries)
    unit = {} if total is None else {"unit": "user", "total_limit": (least + total) / 10}
    policy = policy_of(
        name=f"p{number}",
        privacy={"epsilon": 0.1, "max_hats_per_day": cap, "daily_limit": (least + limit) / 10, **unit},
        query=[{"name": f"q{n}", "days": days, "epsilon": each / 10} | keys for n, (days, each) in enumerate(queries)],
    )
    first, last = map(local_date.fromisoformat, DATES)
    return policy if chosen is None else replace(policy, selection_cost=SelectionCost(chosen / 10, first, last))


def recover(store: Any) -> None:
    """Store that the server that runs has everything; a file has no server, and stores one here."""
    view = at_once(store.read({rows.SERVER: {"run_id", "replid"}}))
    server = {each: view.get(rows.SERVER, each) or each.encode() for each in ("run_id", "replid")}
    if view.get(rows.SERVER, "run_id") is None:
        assert at_once(store.apply(RowChanges(set={rows.SERVER: server})))
    assert at_once(store.apply(RowChanges(set={rows.RECOVERY: {"token": b"token", **server}})))


async def not_stale(times: int) -> None:
    assert times < 2, "nobody else writes meanwhile"


@dataclass
class Pending:
    """What a writer has decided and not applied.

    expected   returns, from the model at the time of the apply, what must have been decided
    """

    decision: Decision[Any]
    expected: Callable[[Model], Any]


class Writers(RuleBasedStateMachine):
    """Writers on one store."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.new_store()
        self.pending: dict[int, Pending] = {}
        self.copies: list[tuple[Rows, Model]] = []
        self.drawn = 0
        self.recent: dict[tuple[int, int], RecentRows] = {}

    def new_store(self) -> Any:
        return MemoryStore()

    @initialize(first=made, second=made)
    def begin(self, first: Any, second: Any) -> None:
        policies = [a_policy(0, first), a_policy(1, second), SUMS]
        self.policies = policies
        self.model = Model({policy.name: policy for policy in policies})
        recover(self.store)

    def decide(self, wanted: Wanted, decision: Callable[[View], Decision[Any]]) -> Decision[Any]:
        while True:
            try:
                return decision(at_once(self.store.read(wanted)))
            except Unread as more:
                wanted = merged(wanted, {more.key: more.fields})

    def guard(self, policy: Policy) -> Guard:
        """What a worker knows that takes over the release partitions now."""
        stored = self.store.rows.get(rows.SEQUENCES, {})
        written = {r: int(stored.get(rows.sequence_field(policy.name, r), 0)) for r in PARTITIONS}
        return Guard("token", written, int(stored.get(rows.ALL, 0)))

    hats = st.tuples(st.sampled_from(DATES), st.sampled_from(CELLS), st.integers(0, 3), st.just(0) | tenths)

    @rule(writer=st.sampled_from(WRITERS), number=st.integers(0, 1), hats=st.lists(hats, min_size=1, max_size=4))
    def decide_hats(self, writer: int, number: int, hats: list[tuple[str, str, int, int]]) -> None:
        policy = self.policies[number]
        self._decide(writer, policy, [self.hat(policy, *hat) for hat in hats])

    @rule(writer=st.sampled_from(WRITERS), number=st.integers(0, 1), hats=st.lists(hats, min_size=1, max_size=4))
    def commit_remembered(self, writer: int, number: int, hats: list[tuple[str, str, int, int]]) -> None:
        """Commit as a worker that remembers the rows of its last commits, whatever has happened since."""
        policy = self.policies[number]
        proposals, guard = [self.hat(policy, *hat) for hat in hats], self.guard(policy)
        recent = self.recent.setdefault((writer, number), RecentRows(self.store))
        wanted, model = commit_rows(policy, proposals, guard), self.model.copy()
        decided = recent.decide(lambda: wanted, lambda view: commit(view, policy, proposals, guard), not_stale)
        assert at_once(decided) == self._expected(policy, proposals)(model)
        self.model = model
        self.rows_fit_together()
        self.days_are_those_of_the_definition()

    @rule(
        writer=st.sampled_from(WRITERS),
        number=st.integers(0, 1),
        query=st.integers(0, 1),
        date=st.sampled_from(DATES),
        cell=st.sampled_from(CELLS),
    )
    def decide_answer(self, writer: int, number: int, query: int, date: str, cell: str) -> None:
        policy = self.policies[number]
        for each in policy.queries:
            if each.name == f"q{query}" and (period := each.period_of(date)) is not None:
                dates = [day for day in period.dates if day in DATES]
                cost = reservations(policy, date)[each.name]
                name, last = f"{policy.name}/{dates[-1]}T12:00/{cell}/{each.name}", dates[-1]
                record, exhausted = self._records(name, "drawn"), self._records(name, "exhausted")
                answer = AnswerProposal(name, last, dates, each.name, cost, record, exhausted, ord(cell) % 2)
                self._decide(writer, policy, [answer])

    @rule(
        writer=st.sampled_from(WRITERS),
        date=st.sampled_from(DATES),
        cells=st.sets(st.sampled_from(CELLS), min_size=1),
        slot=st.integers(0, 3),
        closes=st.sampled_from([None, None, None, None, "incomplete"]),
    )
    def decide_sums(self, writer: int, date: str, cells: set[str], slot: int, closes: str | None) -> None:
        proposals = []
        for cell in sorted(cells):
            before = self.model.states.get((SUMS.name, date, cell))
            self.drawn += 1
            after = None if closes else (before or b"") + b"%d," % self.drawn
            change = StateChange(date, cell, before, after, closes)
            proposals.append(replace(self.hat(SUMS, date, cell, slot, 0), change=change))
        try:
            self._decide(writer, SUMS, proposals)
        except Behind:
            assert self.model.closed or any(each.change is not None for each in proposals)

    @rule(writer=st.sampled_from(WRITERS), number=st.integers(0, 1))
    def decide_spent(self, writer: int, number: int) -> None:
        policy = self.policies[number]
        if policy.selection_cost is not None:
            decision = self.decide(dates_rows(policy, DATES), lambda view: book_spent(view, policy, DATES))

            def expected(model: Model) -> list[str]:
                missing = [date for date in DATES if "cells" not in model.reserved.get((date, policy.name), {})]
                model.book_spent(policy, DATES)
                return missing

            self.pending[writer] = Pending(decision, expected)

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def apply(self, data: st.DataObject) -> None:
        pending = self.pending.pop(data.draw(st.sampled_from(sorted(self.pending))))
        if pending.decision.changes.is_empty or at_once(self.store.apply(pending.decision.changes)):
            model = self.model.copy()
            expected = pending.expected(model)
            if not pending.decision.changes.is_empty:
                assert pending.decision.result == expected
                self.model = model
                self.rows_fit_together()
                self.days_are_those_of_the_definition()

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        del self.pending[data.draw(st.sampled_from(sorted(self.pending)))]

    @rule()
    def copy(self) -> None:
        self.copies.append((self.store.rows, self.model.copy()))

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        copy, model = self.copies[data.draw(st.integers(0, len(self.copies) - 1))]
        self.store.restore(copy)
        self.model = model.copy()

    def rows_fit_together(self) -> None:
        found = {key: fields for key, fields in self.store.rows.items() if key not in (rows.RECOVERY, rows.SERVER)}
        records = {key: len(fields) for key, fields in found.items() if key.startswith("releases:")}
        kept = {key: fields for key, fields in found.items() if key not in records}
        for key in (rows.SEQUENCES, *(key for key in found if key.startswith("running-before:"))):
            kept.pop(key, None)
        check_rows(kept, records)

    def days_are_those_of_the_definition(self) -> None:
        for policy in self.policies:
            for date in DATES:
                self._compare(policy, date)

    def _compare(self, policy: Policy, date: str) -> None:
        wanted = summary_rows(date, policy.name)
        day = self.decide(wanted, lambda view: Decision(summary_of(view, policy, date), RowChanges())).result
        model, key = self.model, (date, policy.name)
        assert day.epsilon_user_day == model.cost(date)
        assert (day.releases, day.sequence) == (model.releases[key], model.sequence[date])
        assert day.epsilon_sum == sum(model.charged.get(key, {}).values())
        assert dict(day.queries) == {
            name: Reserved(each.places, each.epsilon) for name, each in model.reserved.get(key, {}).items()
        }
        assert (day.limit or float("inf")) == model.limits.get(date, float("inf"))
        assert (day.total.spent, day.total.limit or float("inf")) == (model.total, model.total_limit)

    def _decide(self, writer: int, policy: Policy, proposals: list[Any]) -> None:
        guard = self.guard(policy)
        wanted = commit_rows(policy, proposals, guard)
        decision = self.decide(wanted, lambda view: commit(view, policy, proposals, guard))
        self.pending[writer] = Pending(decision, self._expected(policy, proposals))

    def _expected(self, policy: Policy, proposals: list[Any]) -> Callable[[Model], list[Committed]]:
        """Return what commits these proposals to a model."""

        def expected(model: Model) -> list[Committed]:
            stored = [each.release_id in model.records for each in proposals]
            seen = set[str]()
            found = []
            for known, proposal in zip(stored, proposals, strict=True):
                record = model.commit(policy, proposal)
                assert record is not None, "a running sum was stored that was drawn from another state"
                found.append(Committed(record, published=False, new=not known and proposal.release_id not in seen))
                seen.add(proposal.release_id)
            return found

        return expected

    def hat(self, policy: Policy, date: str, cell: str, slot: int, charge: int) -> Proposal:
        name = f"{policy.name}/{date}T{slot:02}:00/{cell}"
        self.drawn += 1
        record, exhausted = self._records(name, str(self.drawn)), self._records(name, "exhausted")
        place = f"{cell}/{slot % 2:02}:00"  # several charges on a place
        return Proposal(name, date, place, charge, record, exhausted, slot, release_partition=(ord(cell) + slot) % 2)

    @staticmethod
    def _records(name: str, drawn: str) -> tuple[bytes, bytes]:
        return json.dumps({"release_id": name, "drawn": drawn}).encode()[:-1] + b', "seq": ', b"}"


STEPS = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_whatever_writers_do_at_once_each_apply_is_what_the_definition_decides_then() -> None:
    run_state_machine_as_test(Writers, settings=STEPS)


# What happens between a read and its apply, one by one. `p0` has a daily limit of 1, `p1` a limit of all days too.
