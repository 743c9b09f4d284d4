"""Laws of the ledger's decisions alone: several writers, each with time between its read and its apply.

A writer reads, decides, and applies later or never; meanwhile others apply, or an older copy of the store returns. What
is applied is what the definition decides at that moment, so every history is one of decisions one after the other.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date as local_date
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hatcast.agents.ledger.recent_rows import RecentRows
from hatcast.agents.ledger.store import at_once
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.checks import check_rows
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.ledger import Guard, book_spent, commit, commit_rows, dates_rows
from hatcast.stream.ledger.proposals import AnswerProposal, Committed, Proposal, StateChange
from hatcast.stream.ledger.rejections import Behind, DaySealed, Replaced, Unrecovered
from hatcast.stream.ledger.reservations import reservations
from hatcast.stream.ledger.summary import summary_of, summary_rows
from hatcast.stream.ledger.view import Changes, DamagedRow, Decision, Unread, View, Wanted, merged
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
        assert at_once(store.apply(Changes(set={rows.SERVER: server})))
    assert at_once(store.apply(Changes(set={rows.RECOVERY: {"token": b"token", **server}})))


async def _not_stale(times: int) -> None:
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
        expected = self._expected(policy, proposals)(model)
        assert (
            at_once(recent.decide(wanted, lambda view: commit(view, policy, proposals, guard), _not_stale)) == expected
        )
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
        day = self.decide(wanted, lambda view: Decision(summary_of(view, policy, date), Changes())).result
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

FREE = a_policy(0, (9, 9, None, [], None))
TOTAL = a_policy(1, (9, 9, 9, [], None))
FULL = NANO  # a charge that leaves no room for another on its day


class Counts(MemoryStore):
    """A store that replaces a nonce by the next number: one that went back counts to the same again."""

    async def apply(self, changes: Changes) -> bool:
        nonces = self.rows.get(rows.NONCES, {})
        numbers = {name: b"%d" % (int(nonces.get(name, 0)) + 1) for name in changes.nonces}
        return await super().apply(replace(changes, set=changes.set | {rows.NONCES: dict(numbers)}, nonces={}))


def machine(store: MemoryStore | None = None) -> Writers:
    made = Writers()
    made.store = store or MemoryStore()
    made.policies = [FREE, TOTAL, SUMS]
    made.model = Model({policy.name: policy for policy in made.policies})
    recover(made.store)
    return made


def decided(of: Writers, policy: Policy, *hats: tuple[str, str, int], guard: Guard | None = None) -> Decision[Any]:
    """A decision about HATs: date, cell, charge."""
    proposals = [of.hat(policy, date, cell, 2 * (ord(cell) % 2), charge) for date, cell, charge in hats]
    known = guard or of.guard(policy)
    return of.decide(commit_rows(policy, proposals, known), lambda view: commit(view, policy, proposals, known))


def applied(of: Writers, decision: Decision[Any]) -> bool:
    return bool(at_once(of.store.apply(decision.changes)))


@pytest.mark.parametrize("policy", [FREE, TOTAL])
def test_two_that_have_read_one_date_cannot_both_spend_what_is_left_of_it(policy: Policy) -> None:
    of = machine()
    first, second = decided(of, FREE, (DATES[0], "a", FULL)), decided(of, policy, (DATES[0], "b", FULL))
    assert applied(of, first)
    assert not applied(of, second)
    assert b"exhausted" in decided(of, policy, (DATES[0], "b", FULL)).result[0].record


def test_a_commit_of_another_date_stops_nobody_where_no_limit_of_all_days_binds() -> None:
    of = machine()
    first, second = decided(of, FREE, (DATES[0], "a", FULL)), decided(of, FREE, (DATES[1], "b", FULL))
    assert applied(of, first)
    assert applied(of, second)


@pytest.mark.parametrize("order", [(FREE, TOTAL), (TOTAL, FREE), (TOTAL, TOTAL)])
def test_where_one_policy_has_a_limit_of_all_days_the_dates_wait_for_each_other(order: tuple[Policy, Policy]) -> None:
    """Also of a policy without one: that none is stored is compared, and what it charges changes the total."""
    of = machine()
    first, second = decided(of, order[0], (DATES[0], "a", FULL)), decided(of, order[1], (DATES[1], "b", FULL))
    assert applied(of, first)
    assert not applied(of, second)


@pytest.mark.parametrize("store", [MemoryStore, Counts])
def test_a_store_that_went_back_and_counted_to_the_same_numbers_is_another_one(store: type[MemoryStore]) -> None:
    of = machine(store())
    copy = of.store.rows
    assert applied(of, decided(of, FREE, (DATES[0], "a", FULL)))
    waiting = decided(of, TOTAL, (DATES[0], "b", NANO // 10))
    of.store.restore(copy)
    assert applied(of, decided(of, FREE, (DATES[0], "c", NANO // 10)))
    assert applied(of, waiting) == (store is Counts), "a counter would not be noticed"


@pytest.mark.parametrize(
    ("key", "name", "value"),
    [
        (rows.RECOVERY, "token", b"another"),
        (rows.RECOVERY, "token", None),
        (rows.SERVER, "run_id", b"restarted"),
        (rows.SERVER, "replid", b"of another's data"),
        (rows.SEALED, FREE.name, DATES[0].encode()),
        (rows.NEXT_POLICIES, FREE.name, f"{DATES[0]} new".encode()),
        (rows.SEQUENCES, rows.sequence_field(FREE.name, 1), b"7"),
    ],
)
def test_what_is_read_beside_the_dates_is_compared_by_value(key: str, name: str, value: bytes | None) -> None:
    of = machine()
    waiting = decided(of, FREE, (DATES[0], "a", FULL))
    assert at_once(of.store.apply(Changes(set={key: {name: value}})))
    assert not applied(of, waiting)
    again = [None]
    with pytest.raises((Unrecovered, DaySealed, Replaced)):
        again = decided(of, FREE, (DATES[0], "a", FULL), guard=Guard("token", dict.fromkeys(PARTITIONS, 0), 0)).result
        raise again[0]


def test_the_number_of_the_domains_commits_may_grow_and_not_shrink() -> None:
    of = machine()
    waiting = decided(of, FREE, (DATES[0], "a", NANO // 10), guard=Guard("token", dict.fromkeys(PARTITIONS, 0), 0))
    assert applied(of, decided(of, FREE, (DATES[1], "b", NANO // 10)))  # of another release partition
    assert applied(of, waiting)
    with pytest.raises(Behind):
        decided(of, FREE, (DATES[0], "c", 1), guard=Guard("token", dict.fromkeys(PARTITIONS, 1), 3))


@pytest.mark.parametrize("other", ["state", "closed"])
def test_a_running_sum_is_stored_only_after_the_state_that_it_was_drawn_from(other: str) -> None:
    of = machine()

    def drawn(before: bytes | None, slot: int, closes: str | None = None) -> Decision[Any]:
        after = None if closes else (before or b"") + b"x"
        proposal = replace(
            of.hat(SUMS, DATES[0], "a", slot, 0), change=StateChange(DATES[0], "a", before, after, closes)
        )
        guard = of.guard(SUMS)
        return of.decide(commit_rows(SUMS, [proposal], guard), lambda view: commit(view, SUMS, [proposal], guard))

    waiting = drawn(None, 1)
    assert applied(of, drawn(None, 3, None if other == "state" else "incomplete"))
    assert not applied(of, waiting)
    with pytest.raises(Behind):
        drawn(None, 1)


def test_a_damaged_row_rejects_its_proposal_and_the_others_are_committed() -> None:
    of = machine()
    assert applied(of, decided(of, FREE, (DATES[0], "a", 1)))
    key, value = rows.costs(DATES[0], FREE.name), "\uff11".encode()
    assert at_once(of.store.apply(Changes(set={key: {"b/00:00": value}})))
    decision = decided(of, FREE, (DATES[0], "b", 1), (DATES[0], "c", 1))
    damaged, committed = decision.result
    assert isinstance(damaged, DamagedRow)
    assert committed.new
    assert applied(of, decision)
    assert of.store.rows[key]["b/00:00"] == value, "it is not overwritten"


@pytest.mark.parametrize("damage", ["levels are lost", "a cost hides another"])
def test_a_date_that_costs_less_than_it_has_is_damaged(damage: str) -> None:
    of = machine()
    assert applied(of, decided(of, FREE, (DATES[0], "a", 1)))
    key, levels = rows.ledger(DATES[0]), rows.levels(DATES[0], FREE.name)
    lost = Changes(set={key: {f"cost:{FREE.name}:b": b"1"}})
    if damage == "levels are lost":
        lost = Changes(set={levels: dict.fromkeys(of.store.rows[levels])})
    assert at_once(of.store.apply(lost))
    (rejected,) = decided(of, FREE, (DATES[0], "b", 1)).result
    assert isinstance(rejected, DamagedRow)


def test_a_commit_that_finds_all_of_its_records_changes_nothing() -> None:
    of = machine()
    assert applied(of, decided(of, FREE, (DATES[0], "a", FULL)))
    again = decided(of, FREE, (DATES[0], "a", FULL))
    assert again.changes.is_empty
    assert not again.result[0].new


@pytest.mark.parametrize(
    "kind", ["costs", "ledger", "levels", "nonces", "releases", "sealed", "sequences", "successors"]
)
def test_a_row_that_was_not_read_never_counts_as_empty(kind: str) -> None:
    of = machine()
    proposal, guard = of.hat(FREE, DATES[0], "a", 1, FULL), of.guard(FREE)
    wanted = commit_rows(FREE, [proposal], guard)
    read = {key: fields for key, fields in wanted.items() if key.partition(":")[0] != kind}
    assert read.keys() < wanted.keys()
    with pytest.raises(Unread):
        commit(at_once(of.store.read(read)), FREE, [proposal], guard)
