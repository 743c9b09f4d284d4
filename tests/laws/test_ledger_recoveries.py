"""Laws of recovery's decisions alone: two workers recover, each with time between its read and its apply.

What is on the topic was drawn here, by another history of the store, or both. Meanwhile older copies of the store
return and recoveries replace each other. Whoever finishes one has every sent record, with the bytes that were sent, and
the costs are those of the records.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date as local_date
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from hatcast.agents.ledger.store import at_once
from hatcast.stream.ledger import rows
from hatcast.stream.ledger.adopt import adopt, adopt_rows
from hatcast.stream.ledger.adoption import AdoptionBatch, Answered, OutputPartition, Position, Published
from hatcast.stream.ledger.checks import check_rows
from hatcast.stream.ledger.commits import Guard, commit, commit_rows
from hatcast.stream.ledger.day import Reserved
from hatcast.stream.ledger.progress import progress_of
from hatcast.stream.ledger.proposals import Proposal
from hatcast.stream.ledger.recovery import (
    Attempt,
    RecoveryCheck,
    begin,
    finish,
    output_partition_of,
    position_of,
    positions,
    store_ends,
)
from hatcast.stream.ledger.rejections import AlreadyAdopted, RecordsMissing, RecoveryEnded
from hatcast.stream.ledger.sealed_days import (
    Sealed,
    SealedDay,
    restore_days,
    restore_seals,
    seal,
    shrink,
    starts_of,
)
from hatcast.stream.ledger.summary import summary_of
from hatcast.stream.ledger.transitions import NextPolicy, restore_next_policies
from hatcast.stream.ledger.unsent import discard, end_keeping, keep, keep_reserved, supersede, unreserve
from hatcast.stream.ledger.view import DamagedRow, Decision, RowChanges, Unread, View, Wanted, merged
from hatcast.stream.policy.query import Period
from hatcast.stream.units import NANO
from tests.integration.recovering import budget_record
from tests.laws.test_ledger_conditions import FREE
from tests.laws.test_ledger_decisions import DATES, recover
from tests.ledgers import MemoryStore, Rows

NAME = FREE.name
PLACE = OutputPartition("means", 0)
WORKERS = range(2)
CELLS = "abc"


def published(cell: str, drawn: int, charge: int) -> Published:
    """A record of a HAT: `drawn` distinguishes its values."""
    name, place = f"{NAME}/{DATES[0]}T12:00/{cell}", f"{cell}/12:00"
    record = json.dumps({"release_id": name, "drawn": drawn, "place": place, "charge": charge}).encode()
    return Published(name, NAME, DATES[0], place, charge, 0, 3, record)


def parsed(record: bytes) -> Published:
    found = json.loads(record)
    return published(found["place"][0], found["drawn"], found["charge"])


@dataclass
class Worker:
    """A worker amid a recovery: its attempt, and what it has decided and not applied."""

    attempt: str = ""
    check: RecoveryCheck | None = None  # what each step requires, once the worker has looked where to start
    pending: tuple[Decision[Any], Callable[[], None]] | None = None


class Recoveries(RuleBasedStateMachine):
    """A store, a topic, and two workers that recover the one from the other."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.new_store()
        self.topic: list[Published] = []
        self.topic_id = ""
        self.workers = [Worker() for _ in WORKERS]
        self.copies: list[Rows] = []
        self.attempts = self.drawn = 0
        recover(self.store)

    def new_store(self) -> Any:
        return MemoryStore()

    def read(self, wanted: Wanted, decision: Callable[[View], Any]) -> Any:
        while True:
            try:
                return decision(at_once(self.store.read(wanted)))
            except Unread as more:
                wanted = merged(wanted, {more.key: more.fields})

    def row(self, key: str, name: str) -> bytes | None:
        found: View = at_once(self.store.read({key: {name}}))
        return found.get(key, name)

    @rule(cell=st.sampled_from(CELLS), charge=st.sampled_from([0, NANO, 2 * NANO]))
    def send_from_elsewhere(self, cell: str, charge: int) -> None:
        """A lost history of the store sent a record, once or the same bytes again. Nobody sends amid a recovery."""
        if self.row(rows.RECOVERY, "attempt") is not None:
            return
        name = published(cell, 0, 0).release_id
        sent = next((each for each in self.topic if each.release_id == name), None)
        self.drawn += 1
        self.topic.append(sent or published(cell, self.drawn, charge))

    @rule(cell=st.sampled_from(CELLS), charge=st.sampled_from([0, NANO, 2 * NANO]))
    def commit(self, cell: str, charge: int) -> None:
        """A worker commits a record and never sends it."""
        if self.row(rows.RECOVERY, "token") is not None:
            self.drawn += 1
            record = published(cell, self.drawn, charge)
            parts = (record.record, b""), (published(cell, self.drawn, 0).record, b"")
            proposal = Proposal(record.release_id, DATES[0], record.place, charge, *parts, 3, release_partition=0)
            written = int(self.row(rows.SEQUENCES, rows.sequence_field(NAME, 0)) or 0)
            guard = Guard((self.row(rows.RECOVERY, "token") or b"").decode(), {0: written}, 0)
            wanted = commit_rows(FREE, [proposal], guard)
            decision = self.read(wanted, lambda view: commit(view, FREE, [proposal], guard))
            assert decision.changes.is_empty or at_once(self.store.apply(decision.changes))

    @rule(replace=st.booleans(), worker=st.sampled_from(WORKERS))
    def begin(self, *, replace: bool, worker: int) -> None:
        self.attempts += 1
        replaced = (self.row(rows.RECOVERY, "attempt") or b"").decode() if replace else ""
        own = self.workers[worker]
        decision = self.read({}, lambda view: begin(view, f"attempt {self.attempts}", replaced, 0))
        if decision.changes.is_empty or at_once(self.store.apply(decision.changes)):
            own.attempt, own.check, own.pending = decision.result.token, None, None
            if not decision.result.is_fenced:
                ends = {PLACE: Position(self.topic_id, len(self.topic))}
                at_once(self.store.apply(self.read({}, lambda view: store_ends(view, own.attempt, ends)).changes))

    @precondition(lambda self: any(each.attempt and each.pending is None for each in self.workers))
    @rule(data=st.data(), size=st.integers(1, 3))
    def decide(self, data: st.DataObject, size: int) -> None:
        """A worker decides what comes next in its recovery."""
        ready = [each for each in self.workers if each.attempt and each.pending is None]
        own = data.draw(st.sampled_from(ready))
        try:
            own.pending = self._next(own, size)
        except (RecoveryEnded, AlreadyAdopted):
            own.attempt = ""

    def _next(self, own: Worker, size: int) -> tuple[Decision[Any], Callable[[], None]]:
        ends, stored = self.row(rows.ENDS, PLACE.field), self.row(rows.ADOPTED, PLACE.field)
        topic_id, end = (self.topic_id, 0) if ends is None else position_of(rows.ENDS, ends)
        known = None if stored is None else position_of(rows.ADOPTED, stored)
        if own.check is None:
            if topic_id != self.topic_id:
                raise RecoveryEnded
            if known is not None and known.topic_id != topic_id:
                return self._keep(own)
            is_kept = self.row(rows.RECOVERY, "kept") == own.attempt.encode()
            own.check = Attempt(own.attempt, ours=True, is_fenced=True, is_kept=is_kept).check
        check = own.check
        if known is None or known.topic_id != topic_id:
            return self._adopt(check, AdoptionBatch(PLACE, known, Position(topic_id, 0), []), frozenset()), _nothing
        if known.offset < end:
            return self._adopt_next(check, known, min(known.offset + size, end)), _nothing
        for record in self.unsent():
            return self.read({}, partial(discard, check=check, record=record)), _nothing
        nonces = dict(at_once(self.store.read({rows.NONCES: None})).whole(rows.NONCES))
        decision = self.read({}, lambda view: finish(view, check, {}, nonces))
        # An older recovery that a copy brought back ends earlier: workers know its generation, and begin another one.
        return decision, self.is_whole if decision.result and end == len(self.topic) else _nothing

    def _adopt_next(self, check: RecoveryCheck, known: Position, end: int) -> Decision[Any]:
        some = list(enumerate(self.topic[known.offset : end], known.offset))
        batch = AdoptionBatch(PLACE, known, Position(known.topic_id, known.offset + len(some)), some)
        try:
            return self._adopt(check, batch, frozenset())
        except RecordsMissing as lacking:
            if not lacking.different:
                return self._adopt(check, batch, lacking.missing)
            sent = next(each for _, each in some if each.release_id in lacking.different)
            here = parsed(self.row(rows.releases(DATES[0], NAME), sent.release_id) or b"")
            superseded: Decision[Any] = self.read({}, lambda view: supersede(view, check, here, sent, in_kafka=False))
            return superseded

    def _keep(self, own: Worker) -> tuple[Decision[Any], Callable[[], None]]:
        """Keep what a lost topic may have had, one by one, then store that all is kept."""
        for record in self.unsent():
            step = partial(keep, attempt=own.attempt, name=NAME, date=DATES[0], ids=[record.release_id])
            return self.read({}, step), _nothing

        def start() -> None:
            own.check = Attempt(own.attempt, ours=True, is_fenced=True, is_kept=True).check

        nonces = dict(at_once(self.store.read({rows.NONCES: None})).whole(rows.NONCES))
        return self.read({}, partial(end_keeping, attempt=own.attempt, nonces=nonces)), start

    def unsent(self) -> list[Published]:
        """The records of the store without a mark."""
        keys = [row(DATES[0], NAME) for row in (rows.releases, rows.published, rows.seen)]
        view = at_once(self.store.read(dict.fromkeys(keys)))
        here, published, seen = (view.whole(key) for key in keys)
        return [parsed(record) for name, record in here.items() if name not in published.keys() | seen.keys()]

    def _adopt(self, check: RecoveryCheck, batch: AdoptionBatch, missing: frozenset[str]) -> Decision[None]:
        found: Decision[None] = self.read(
            adopt_rows(batch, check, missing), lambda view: adopt(view, check, batch, missing)
        )
        return found

    @precondition(lambda self: any(each.pending for each in self.workers))
    @rule(data=st.data())
    def apply(self, data: st.DataObject) -> None:
        self._apply(data.draw(st.sampled_from([each for each in self.workers if each.pending])))

    def _apply(self, own: Worker) -> None:
        assert own.pending is not None
        (decision, then), own.pending = own.pending, None
        if decision.changes.is_empty or at_once(self.store.apply(decision.changes)):
            before = self.store.rows
            assert not at_once(self.store.apply(decision.changes)) or self.store.rows == before, "it was applied twice"
            self.costs_are_those_of_the_records()
            if not decision.changes.is_empty:  # else it was finished before, and others may have committed since
                then()

    @rule()
    def copy(self) -> None:
        self.copies.append(self.store.rows)

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        self.store.restore(self.copies[data.draw(st.integers(0, len(self.copies) - 1))])

    def is_whole(self) -> None:
        """After a recovery: the records of the ledger are those of the topic, with the bytes that were sent."""
        key = rows.releases(DATES[0], NAME)
        here = at_once(self.store.read({key: None})).whole(key)
        assert {each.release_id: each.record for each in self.topic} == dict(here)

    def costs_are_those_of_the_records(self) -> None:
        found = {key: fields for key, fields in self.store.rows.items() if key.partition(":")[0] in _CHECKED}
        records = found.pop(rows.releases(DATES[0], NAME), {})
        numbered = _numbered(found)
        check_rows(found, {rows.releases(DATES[0], NAME): numbered} if numbered else {})
        e = Counter({parsed(each).place: parsed(each).charge for each in records.values()})
        day = self.read({}, lambda view: summary_of(view, FREE, DATES[0]))
        cap = None if day.releases == 0 else FREE.max_hats_per_day
        charges = sorted((+e).values(), reverse=True)
        assert day.epsilon_sum == sum(charges)
        assert day.epsilon_user_day in {sum(charges), sum(charges[:cap])}, "K may be lost: then all count"
        assert day.total.spent == day.epsilon_user_day


_CHECKED = {"ledger", "costs", "levels", "total", "nonces", "last", "unsealed", "releases"}


def _numbered(found: Rows) -> int:
    """The number of commits: a discarded record leaves its number assigned."""
    return int(found.get(rows.ledger(DATES[0]), {}).get(f"commits:{NAME}", 0))


def _nothing() -> None:
    pass


STEPS = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_whoever_finishes_a_recovery_has_what_was_sent_whatever_others_do_meanwhile() -> None:
    run_state_machine_as_test(Recoveries, settings=STEPS)


# What a recovery does, one by one. Each compares the recovery that calls it.

SENT, OTHER = published("a", 1, NANO), published("a", 2, 2 * NANO)
CHECK = RecoveryCheck.in_progress("attempt 1")
LOST = SealedDay(
    policy="lost", date=DATES[0], cost=5, sequence=9, limit="7", total_limit="8", fields={"cap:lost": "1"}, levels={}
)
STEPS_OF_A_RECOVERY: dict[str, Callable[[View], Decision[Any]]] = {
    "adopt": lambda view: adopt(
        view, CHECK, AdoptionBatch(PLACE, None, Position("", 1), [(0, OTHER)]), {OTHER.release_id}
    ),
    "adopt a budget": lambda view: adopt(
        view, CHECK, AdoptionBatch(PLACE, None, Position("", 1), [], budgets=[budget_record(NAME, DATES[0], 9)])
    ),
    "adopt an answer": lambda view: adopt(
        view,
        CHECK,
        AdoptionBatch(PLACE, None, Position("", 1), [], answered=[Answered(NAME, "q", _period(), 2, NANO)]),
    ),
    "supersede": lambda view: supersede(view, CHECK, SENT, OTHER, in_kafka=True),
    "discard": lambda view: discard(view, CHECK, SENT),
    "keep": lambda view: keep(view, "attempt 1", NAME, DATES[0], [SENT.release_id]),
    "keep what is reserved": lambda view: keep_reserved(view, "attempt 1", [(NAME, DATES[0])]),
    "end keeping": lambda view: end_keeping(view, "attempt 1", {}),
    "unreserve": lambda view: unreserve(view, CHECK, [(NAME, DATES[0])]),
    "restore a sealed day": lambda view: restore_days(view, CHECK, [LOST], {"lost": DATES[0]}),
    "restore a seal": lambda view: restore_seals(
        view, CHECK, [Sealed(policy="lost", through=DATES[0], rules="", partitions=1, starts={})]
    ),
    "restore a transition": lambda view: restore_next_policies(view, CHECK, {"old": NextPolicy(DATES[0], "new")}),
}


def _period() -> Period:
    return Period(local_date.fromisoformat(DATES[0]), 1)


def recovering() -> Recoveries:
    """A recovery in progress, of a ledger with one record that was never sent and a reservation that none has told."""
    of = Recoveries()
    of.commit("a", NANO)
    changes = RowChanges(
        set={
            rows.releases(DATES[0], NAME): {SENT.release_id: SENT.record},
            rows.ledger(DATES[0]): {f"query:{NAME}:q": Reserved(1, NANO).stored, f"cost:{NAME}": b"%d" % (2 * NANO)},
            rows.TOTAL: {DATES[0]: b"%d" % (2 * NANO)},
        }
    )
    assert at_once(of.store.apply(changes))
    of.begin(replace=False, worker=0)
    return of


@pytest.mark.parametrize("step", STEPS_OF_A_RECOVERY)
def test_a_step_of_a_recovery_is_stale_once_the_recovery_has_ended(step: str) -> None:
    of = recovering()
    if step == "adopt":  # another record is stored: with it the step is one of `supersede`
        at_once(of.store.apply(of.read({}, lambda view: discard(view, CHECK, SENT)).changes))
    decision = of.read({}, STEPS_OF_A_RECOVERY[step])
    assert not decision.changes.is_empty
    copy = of.store.rows
    assert at_once(of.store.apply(decision.changes))
    of.store.restore(copy)
    of.begin(replace=True, worker=1)
    before = of.store.rows
    assert not at_once(of.store.apply(decision.changes))
    assert of.store.rows == before
    with pytest.raises(RecoveryEnded):
        of.read({}, STEPS_OF_A_RECOVERY[step])


def test_a_date_that_changed_between_read_and_apply_stops_each_step_that_read_it() -> None:
    for step in ("supersede", "discard", "keep what is reserved", "unreserve", "adopt a budget", "adopt an answer"):
        of = recovering()
        decision = of.read({}, STEPS_OF_A_RECOVERY[step])
        assert at_once(of.store.apply(RowChanges(nonces={DATES[0]: None})))
        assert not at_once(of.store.apply(decision.changes)), step


def test_a_record_that_is_found_on_a_topic_between_read_and_apply_is_not_discarded() -> None:
    for mark in (rows.published, rows.seen):
        of = recovering()
        decision = of.read({}, STEPS_OF_A_RECOVERY["discard"])
        assert at_once(of.store.apply(RowChanges(set={mark(DATES[0], NAME): {SENT.release_id: b""}})))
        assert not at_once(of.store.apply(decision.changes))
        assert not of.read({}, STEPS_OF_A_RECOVERY["discard"]).result


def test_a_record_that_is_kept_keeps_what_its_date_has_reserved() -> None:
    of = recovering()
    before = of.read({}, lambda view: summary_of(view, FREE, DATES[0]))
    for step in ("keep", "keep what is reserved", "unreserve"):
        assert at_once(of.store.apply(of.read({}, STEPS_OF_A_RECOVERY[step]).changes))
    after = of.read({}, lambda view: summary_of(view, FREE, DATES[0]))
    assert (after.queries, after.total.spent) == (before.queries, before.total.spent)
    assert after.queries
    assert not of.read({}, STEPS_OF_A_RECOVERY["discard"]).result
    assert of.read({}, lambda view: keep(view, "attempt 1", NAME, DATES[0], ["another"])).changes.set == {}


def test_a_copy_that_brings_an_unsent_record_back_amid_a_recovery_lets_nobody_finish_it() -> None:
    """Else its charge and those of what was sent in its place could be more than a limit, all within one ledger."""
    of = recovering()
    of.topic.clear()
    batch = AdoptionBatch(PLACE, None, Position("", 0), [])
    assert at_once(of.store.apply(of._adopt(CHECK, batch, frozenset()).changes))
    copy = of.store.rows
    assert at_once(of.store.apply(of.read({}, STEPS_OF_A_RECOVERY["discard"]).changes))
    nonces = dict(at_once(of.store.read({rows.NONCES: None})).whole(rows.NONCES))
    done = of.read({}, lambda view: finish(view, CHECK, {}, nonces))
    assert done.result
    of.store.restore(copy)
    assert not at_once(of.store.apply(done.changes))
    assert not of.read({}, lambda view: finish(view, CHECK, {}, nonces)).result


def test_a_recovery_finishes_only_where_it_began() -> None:
    of = recovering()
    of.topic.clear()
    batch = AdoptionBatch(PLACE, None, Position("", 0), [])
    assert at_once(of.store.apply(of._adopt(CHECK, batch, frozenset()).changes))
    done = of.read({}, lambda view: finish(view, CHECK, {}, {}))
    assert done.result
    for field in ("run_id", "replid"):
        copy = of.store.rows
        assert at_once(of.store.apply(RowChanges(set={rows.RECOVERY: {f"attempt_{field}": b"another"}})))
        assert not at_once(of.store.apply(done.changes))
        assert not of.read({}, lambda view: finish(view, CHECK, {}, {})).result
        of.store.restore(copy)
    assert not of.read({}, lambda view: finish(view, CHECK, {"lost": DATES[0]}, {})).result, "a seal is missing"
    assert at_once(of.store.apply(done.changes))


def test_a_day_is_sealed_once_and_its_summary_stays() -> None:
    of = Recoveries()
    of.commit("a", NANO)
    before = of.read({}, lambda view: summary_of(view, FREE, DATES[0]))
    assert not of.read({}, lambda view: seal(view, NAME, DATES[0], "another", {})).result
    assert not of.read({}, lambda view: seal(view, NAME, DATES[0], "token", {PLACE: Position("", 1)})).result
    assert not of.read({}, lambda view: shrink(view, NAME, DATES[0])).result
    waiting = of.read({}, lambda view: seal(view, NAME, DATES[0], "token", {}))
    assert at_once(of.store.apply(waiting.changes))
    assert at_once(of.store.apply(of.read({}, lambda view: shrink(view, NAME, DATES[0])).changes))
    assert rows.releases(DATES[0], NAME) not in of.store.rows
    assert of.read({}, lambda view: summary_of(view, FREE, DATES[0])) == before


def test_a_seal_leaves_the_first_record_of_the_next_days_also_where_a_topic_was_cut_off_before_it() -> None:
    of, known = recovering(), None
    for first, record in ((5, published("b", 2, NANO)), (1, published("c", 3, NANO)), (2, published("b", 2, NANO))):
        before = Position("", first)
        at_once(of.store.apply(of._adopt(CHECK, AdoptionBatch(PLACE, known, before, []), frozenset()).changes))
        known = Position("", first + 1)
        batch = AdoptionBatch(PLACE, before, known, [(first, record)])
        assert at_once(of.store.apply(of._adopt(CHECK, batch, frozenset({record.release_id})).changes))
    view = at_once(of.store.read({rows.ADOPTED: None, rows.OLDEST: None}))
    assert starts_of(view, DATES[0], "another")["means"].offsets == {0: 1}


def test_a_record_that_was_sent_replaces_the_one_here_with_its_charge() -> None:
    of = recovering()
    assert at_once(of.store.apply(of.read({}, STEPS_OF_A_RECOVERY["supersede"]).changes))
    day = of.read({}, lambda view: summary_of(view, FREE, DATES[0]))
    assert (day.epsilon_sum, day.releases) == (OTHER.charge, 1)
    assert msgspec.json.decode(of.row(rows.releases(DATES[0], NAME), SENT.release_id) or b"")["drawn"] == 2


@pytest.mark.parametrize("digits", ["1_0", "+1", " 1", "\u0661", "01", ""])
def test_a_number_that_hatcast_does_not_write_is_damaged_wherever_it_is_stored(digits: str) -> None:
    key, progress = rows.ledger(DATES[0]), rows.progress(NAME)
    of_day = {f"fineness:{NAME}:{digits}": b"1"}
    found = {rows.ADOPTED: {"means/0": f"id:{digits}".encode()}, progress: {f"published:{digits}": b"1"}, key: of_day}
    view = View(dict.fromkeys([*found, rows.TOTAL, rows.levels(DATES[0], NAME)]), found)
    with pytest.raises(DamagedRow):
        positions(view, rows.ADOPTED)
    with pytest.raises(DamagedRow):
        output_partition_of(rows.ADOPTED, f"means/{digits}")
    if digits:  # without a partition it is a field that is not read
        with pytest.raises(DamagedRow):
            progress_of(view, NAME)
    with pytest.raises(DamagedRow):
        summary_of(view, FREE, DATES[0])
