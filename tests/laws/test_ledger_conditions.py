"""What a decision of the ledger is compared with when it is applied, and what rejects one proposal or all of them."""

from dataclasses import replace
from typing import Any

import pytest

from hatcast.agents.ledger.store import RecentRows, at_once
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.commits import Guard, commit, commit_rows
from hatcast.stream.ledger.proposals import StateChange
from hatcast.stream.ledger.rejections import Behind, DaySealed, Replaced, Unrecovered
from hatcast.stream.ledger.view import DamagedRow, Decision, RowChanges, Unread
from hatcast.stream.policy.policy import Policy
from hatcast.stream.units import NANO
from tests.laws.test_ledger_decisions import DATES, PARTITIONS, SUMS, Writers, a_policy, not_stale, recover
from tests.ledgers import MemoryStore, Model

FREE = a_policy(0, (9, 9, None, [], None))
TOTAL = a_policy(1, (9, 9, 9, [], None))
FULL = NANO  # a charge that leaves no room for another on its day


class Counts(MemoryStore):
    """A store that replaces a nonce by the next number: one that went back counts to the same again."""

    async def apply(self, changes: RowChanges) -> bool:
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
    assert at_once(of.store.apply(RowChanges(set={key: {name: value}})))
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
    assert at_once(of.store.apply(RowChanges(set={key: {"b/00:00": value}})))
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
    lost = RowChanges(set={key: {f"cost:{FREE.name}:b": b"1"}})
    if damage == "levels are lost":
        lost = RowChanges(set={levels: dict.fromkeys(of.store.rows[levels])})
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


def test_what_remembered_rows_reject_is_decided_again_from_rows_that_are_read() -> None:
    """A rejection changes nothing, so no apply compares the rows that it follows from."""
    of = machine()
    recent = RecentRows(of.store)

    def committed(*dates: str) -> list[Any]:
        proposals, guard = [of.hat(FREE, date, "a", 0, 1) for date in dates], of.guard(FREE)
        wanted = commit_rows(FREE, proposals, guard)
        return at_once(recent.decide(lambda: wanted, lambda view: commit(view, FREE, proposals, guard), not_stale))

    assert at_once(of.store.apply(RowChanges(set={rows.SEALED: {FREE.name: DATES[0].encode()}})))
    sealed, other = committed(*DATES)
    assert isinstance(sealed, DaySealed)
    assert other.new
    assert at_once(of.store.apply(RowChanges(set={rows.SEALED: {FREE.name: None}})))  # an older copy came back
    (found,) = committed(DATES[0])
    assert not isinstance(found, DaySealed)
    assert found.new


def test_a_record_that_is_stored_but_not_remembered_is_found_and_not_charged_again() -> None:
    of = machine()
    recent = RecentRows(of.store)

    def committed(cell: str) -> Any:
        proposals, guard = [of.hat(FREE, DATES[0], cell, 0, 1)], of.guard(FREE)
        wanted = commit_rows(FREE, proposals, guard)
        (found,) = at_once(recent.decide(lambda: wanted, lambda view: commit(view, FREE, proposals, guard), not_stale))
        return found

    first, second = committed("a"), committed("b")
    assert first.new
    assert second.new
    spent = dict(of.store.rows[rows.ledger(DATES[0])])
    for cell, known in (("a", first), ("b", second)):
        again = committed(cell)
        assert not again.new
        assert again.record == known.record
    assert of.store.rows[rows.ledger(DATES[0])] == spent
