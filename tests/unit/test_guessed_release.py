"""A tracker policy of a value whose prior is a guess: the scale in its records, in its state and after a crash."""

import msgspec
import pytest

from hatcast.stream.records import ReleaseRecord
from hatcast.stream.records.fields import Status
from hatcast.stream.release.tracker import PolicyTracker
from hatcast.stream.tracker.state import TrackerState
from hatcast.stream.tracker.tracker import Tracker
from tests.unit import test_tracker_release as of_speeds
from tests.unit.guessed_city import DATES, POLICY, Constant, ledger, slots
from tests.unit.test_tracker_release import Counting, Crash, Ledger

_RECORD = msgspec.json.Decoder(ReleaseRecord)
THREE = DATES[:3]


def state_of(found: Ledger) -> TrackerState:
    state = TrackerState.decoded(found.state, POLICY.policy_id)
    assert state is not None
    return state


def scales(found: Ledger, date: str) -> set[int | None]:
    """Those in the records of a date, of its HATs and of queries alone."""
    return {_RECORD.decode(record).prior_scale for record in found.records[date].values()}


def test_all_hats_of_a_date_have_the_scale_of_the_state_before_it() -> None:
    found, before = ledger(), 0
    for date in THREE:
        found.run(Constant(), [date], POLICY)
        assert {_RECORD.decode(record).status for record in found.records[date].values()} > {"released", "deferred"}
        assert scales(found, date) == {before}
        assert state_of(found).model.prior_scale < before, "the buses differ by less than the model of the date says"
        before = state_of(found).model.prior_scale


def test_records_of_speeds_have_no_scale() -> None:
    found = Ledger()
    found.run(Counting())
    assert not any(b"prior_scale" in record for day in found.records.values() for record in day.values())
    state = TrackerState.decoded(found.state, of_speeds.POLICY.policy_id)
    assert state is not None
    assert (state.model.prior_scale, state.evidence) == (0, b"")


def test_a_state_is_read_with_its_scale_and_evidence() -> None:
    found = ledger()
    found.run(Constant(), DATES[:2], POLICY)
    state = state_of(found)
    read = PolicyTracker(POLICY, found.state)._tracker
    assert read.prior_scale == state.model.prior_scale < 0
    evidence = read.tracks[0].evidence
    assert evidence is not None
    assert evidence.sums.astype("<f8").tobytes() == state.evidence != bytes(len(state.evidence))
    assert read.state(POLICY.policy_id, DATES[1]) == state


def test_a_run_that_ends_after_any_commit_goes_on_with_the_same_records_and_scales() -> None:
    whole, constant = ledger(), Constant()
    whole.run(constant, THREE, POLICY)
    number = sum(map(len, whole.records.values()))
    assert scales(whole, THREE[2]) != scales(whole, THREE[1]) != scales(whole, THREE[0])
    for commits in (*range(0, number, 29), number - 1):
        found, noise = ledger(commits), Constant()
        with pytest.raises(Crash):
            found.run(noise, THREE, POLICY)
        found.left = number
        found.run(noise, THREE, POLICY)
        assert found.records == whole.records
        assert found.state == whole.state
        assert noise.draws >= constant.draws


def test_a_run_that_goes_on_with_other_noise_learns_the_stored_numbers_and_no_lost_ones() -> None:
    """The next date's scale and queries follow from the records alone."""
    for commits in (20, 45, 70):
        found, noise = ledger(commits), Counting()
        with pytest.raises(Crash):
            found.run(noise, THREE, POLICY)
        found.left = 10**9
        found.run(noise, THREE, POLICY)
        again = ledger()
        again.records = {date: dict(day) for date, day in found.records.items()}
        again.run(Counting(), THREE, POLICY)
        assert again.records == found.records
        assert again.state == found.state


@pytest.mark.parametrize("commits", [1, 3, 15])
def test_a_date_that_was_begun_at_another_scale_has_no_more_queries_when_the_state_is_lost(commits: int) -> None:
    found = ledger()
    found.run(Constant(), DATES[:1], POLICY)
    found.left = commits
    with pytest.raises(Crash):
        found.run(Constant(), DATES[:2], POLICY)
    stored, before = dict(found.records[DATES[1]]), state_of(found).model.prior_scale
    assert before < 0
    found.left, noise = 10**9, Constant()
    tracker = PolicyTracker(POLICY, None)
    tracker.begin_day(DATES[1], stored.items())
    assert tracker.is_different
    for slot, hats in slots(DATES[1]):
        found.commit(tracker.close_slot(slot, hats, noise))
    found.commit(tracker.settle(noise))
    assert noise.draws == 0
    assert stored.items() <= found.records[DATES[1]].items()
    after = [_RECORD.decode(record) for name, record in found.records[DATES[1]].items() if name not in stored]
    assert {each.status for each in after} == {"deferred", "suppressed"}


def test_a_date_without_queries_leaves_the_scale_as_it_was() -> None:
    found = ledger()
    found.run(Constant(), DATES[:1], POLICY)
    before = state_of(found)
    tracker = PolicyTracker(POLICY, found.state)
    tracker.begin_day(DATES[1], [])
    tracker.close_day(Status.INCOMPLETE)
    for slot, hats in slots(DATES[1]):
        found.commit(tracker.close_slot(slot, hats, Constant()))
    found.commit(tracker.settle(Constant()))
    found.state = tracker.end_day()
    assert scales(found, DATES[1]) == {before.model.prior_scale} != {0}
    assert (state_of(found).model.prior_scale, state_of(found).evidence) == (before.model.prior_scale, before.evidence)
    found.run(Constant(), DATES[2:3], POLICY)
    assert scales(found, DATES[2]) == {before.model.prior_scale}
    assert state_of(found).model.prior_scale < before.model.prior_scale


def test_a_date_that_is_closed_after_some_of_its_queries_leaves_the_scale_as_it_was() -> None:
    found = ledger()
    found.run(Constant(), DATES[:1], POLICY)
    before = state_of(found)
    tracker, noise = PolicyTracker(POLICY, found.state), Constant()
    tracker.begin_day(DATES[1], [])
    for number, (slot, hats) in enumerate(slots(DATES[1])):
        if number == 6:
            assert noise.draws
            tracker.close_day(Status.INCOMPLETE)
        found.commit(tracker.close_slot(slot, hats, noise))
    assert tracker.settle(noise) == []
    found.state = tracker.end_day()
    assert scales(found, DATES[1]) == {before.model.prior_scale}
    assert (state_of(found).model.prior_scale, state_of(found).evidence) == (before.model.prior_scale, before.evidence)


def test_a_tracker_that_learns_the_scale_within_the_date_writes_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: readers of the records would take another model than the tracker's."""
    close_slot = Tracker.close_slot

    def chosen(tracker: Tracker, *given: object) -> object:
        tracker.end_day()
        return close_slot(tracker, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Tracker, "close_slot", chosen)
    found = ledger()
    found.run(Constant(), THREE, POLICY)
    assert max(len(scales(found, date)) for date in THREE) > 1
