"""Scheduled speeds as the prior of a tracker's cells: which table holds when, and what is published of it."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from hatcast.agents.doctor.checks import Check, CheckState
from hatcast.agents.doctor.preflight import examine
from hatcast.stream.policy.tracker_keys import TIMETABLE_PRIOR
from hatcast.stream.records import EstimateRecord
from hatcast.stream.records.fields import query_kind
from hatcast.stream.release.tracker import PolicyTracker
from hatcast.stream.tracker.model import CITY, DAY, TIMETABLE, Covariance, Means, hour_part, prior_means
from hatcast.stream.tracker.observations import slots_of
from hatcast.stream.tracker.prior import Prior, Variances
from hatcast.stream.tracker.smoother import Smoother, SmootherSetting, estimates_of
from hatcast.stream.tracker.state import TrackerState
from hatcast.stream.tracker.timetable import REFERENCE, Timetable, deviation, tenths_of
from tests.timetables import write_speeds
from tests.unit.test_smoother_tracker import Key, numbers, sizes
from tests.unit.test_tracker_release import CELLS, DATES, Counting, Crash, Ledger, designed, policy, slots, sorted_of

TIMED = policy(timetable="gtfs.zip")
FIRST = Timetable.of({CELLS[1]: 121, "8760b0000ffffff": 300})
SECOND = Timetable.of({CELLS[1]: 402, CELLS[2]: 350})
NEXT = "2022-01-04"
CONFIG = """
[policy]
name = "timed"
upper_bound = 65.0
timezone = "Asia/Kolkata"
[policy.privacy]
daily_limit = 5.0
[policy.tracker]
timetable = "gtfs.zip"
"""


def test_equal_speeds_have_equal_digests_in_any_order_and_other_speeds_another() -> None:
    slow, fast, _ = CELLS
    timetable = Timetable.of({slow: 121, fast: 380})
    assert timetable == Timetable.of({fast: 380, slow: 121})
    assert list(timetable.speeds) == sorted((slow, fast))
    others = [{slow: 122, fast: 380}, {slow: 121}, {slow: 380, fast: 121}, {}]
    assert len({timetable.digest, *(Timetable.of(each).digest for each in others)}) == 5


def test_a_speed_below_a_tenth_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"below 0\.1 km/h"):
        Timetable.of({CELLS[0]: 0})


def test_a_deviation_is_in_km_h_from_the_reference_and_clipped() -> None:
    of = round(REFERENCE * 10)
    assert deviation(of) == 0
    assert [deviation(of + tenths) for tenths in (-37, 1, 249, 250, 251, 900)] == pytest.approx(
        [-3.7, 0.1, 24.9, 25, 25, 25]
    )
    assert [deviation(of - tenths) for tenths in (199, 200, 201)] == pytest.approx([-19.9, -20, -20])


@pytest.mark.parametrize("tenths", [1, 3, 119, 236, 1004])
def test_a_records_scheduled_speed_is_read_exactly(tenths: int) -> None:
    assert tenths_of(tenths / 10) == tenths


def test_a_cell_is_expected_at_its_scheduled_speed_by_a_slope_that_all_cells_share() -> None:
    covariance, means, prior = Covariance(Variances()), Means(prior_means(Prior.of(65.0))), TIMETABLE_PRIOR
    covariance.add_cells(2)
    covariance.add_scheduled({1: round(REFERENCE * 10) + 100})
    means.resize(covariance)
    rows = [covariance.row_of(cell, 9, np.zeros(2)) for cell in (0, 1)]
    plain, scheduled = (row @ means.shared + means.intercepts[cell] for cell, row in enumerate(rows))
    assert scheduled - plain == pytest.approx(10 * prior.slope)
    # City, hour and day are those of every HAT.
    common = covariance.shared[np.ix_((CITY, hour_part(9), DAY), (CITY, hour_part(9), DAY))].sum()
    assert rows[0] @ covariance.shared @ rows[0] + covariance.variance[0] == pytest.approx(common + 32)
    assert rows[1] @ covariance.shared @ rows[1] + covariance.variance[1] == pytest.approx(
        common + 18 + (10 * prior.slope_sd) ** 2
    )


def test_a_cell_of_which_something_is_known_keeps_what_it_has() -> None:
    covariance = Covariance(Variances())
    covariance.add_cells(1)
    covariance.add_scheduled({0: 300})
    before = covariance.slopes.copy()
    covariance.add_scheduled({0: 400})
    assert np.array_equal(covariance.slopes, before)
    assert covariance.slopes[0, TIMETABLE] == deviation(300)


def run(timetables: list[Timetable]) -> Ledger:
    """Run dates one after the other, each with the file that there is then."""
    ledger, noise = Ledger(), Counting()
    for date, timetable in zip((*DATES, NEXT), timetables, strict=False):
        ledger.timetable = timetable
        ledger.run(noise, [date], TIMED)
    return ledger


def scheduled(ledger: Ledger, date: str) -> dict[str, set[float | None]]:
    """What the HATs of a date say of each cell."""
    found: dict[str, set[float | None]] = {}
    for each in ledger.decoded():
        if each.date == date and not query_kind(each.release_id):
            found.setdefault(each.cell, set()).add(each.scheduled)
    return found


def test_each_hat_of_a_cell_with_a_scheduled_speed_says_it_and_no_query_of_several_hats_does() -> None:
    ledger = run([FIRST, FIRST])
    for date in DATES:
        assert scheduled(ledger, date) == {CELLS[0]: {None}, CELLS[1]: {12.1}, CELLS[2]: {None}}
    several = [each for each in ledger.decoded() if query_kind(each.release_id)]
    assert several
    assert {each.scheduled for each in several} == {None}


def test_a_file_that_is_there_when_a_date_ends_holds_from_the_next_one() -> None:
    ledger = run([FIRST, SECOND, SECOND])
    assert [scheduled(ledger, date)[CELLS[1]] for date in (*DATES, NEXT)] == [{12.1}, {12.1}, {40.2}]
    assert scheduled(ledger, NEXT)[CELLS[2]] == {35.0}


def test_another_timetable_changes_no_prediction_of_a_cell_that_was_queried() -> None:
    ledger = run([FIRST])
    ledger.timetable = SECOND
    queried = {cell for each in ledger.decoded() if each.query for cell in each.query.cells or (each.cell,)}
    assert queried >= {CELLS[1], CELLS[2]}
    state = ledger.state
    kept = Ledger()
    kept.state, kept.timetable = state, FIRST
    for each in (ledger, kept):
        each.run(Counting(), DATES[1:], TIMED)
    tables = [TrackerState.decoded(each.state, TIMED.policy_id) for each in (ledger, kept)]
    assert [None if each is None else each.timetable for each in tables] == [SECOND, FIRST]
    ends = []
    for each in (ledger, kept):
        each.records.clear()
        each.run(Counting(), [NEXT], TIMED)
        ends.append([(*designed(record), record.raw) for record in sorted_of(each)])
    assert ends[0] == ends[1]


@pytest.mark.parametrize(("second", "expected"), [(FIRST, 0.0), (SECOND, deviation(350))])
def test_a_cell_that_is_seen_later_enters_with_the_timetable_of_its_date(second: Timetable, expected: float) -> None:
    first = PolicyTracker(TIMED, None, FIRST).first_state(DATES[0])
    assert first is not None
    tracker, of_day = PolicyTracker(TIMED, first[1], second), [*slots(DATES[0])]
    tracker.begin_day(DATES[0], [])
    for slot, hats in of_day[:2]:
        tracker.close_slot(slot, hats[:2], Counting())
    tracker.end_day()
    tracker.begin_day(DATES[1], [])
    inner, (slot, hats) = tracker._tracker, of_day[0]
    inner.close_slot(slot.start_ms, 9, hats[2:])  # no query is taken: the slope is that before any
    assert inner.schedule.covariance.slopes[-1, TIMETABLE] == expected


def test_a_state_that_is_read_again_has_its_timetable() -> None:
    ledger = run([FIRST])
    state = TrackerState.decoded(ledger.state, TIMED.policy_id)
    assert state is not None
    assert state.timetable == FIRST
    assert TrackerState.decoded(state.encoded(), TIMED.policy_id) == state
    assert PolicyTracker(TIMED, ledger.state, SECOND).timetable == FIRST


def test_a_policy_without_a_timetable_stores_nothing_before_its_first_date() -> None:
    assert PolicyTracker(policy(), None).first_state(DATES[0]) is None
    first = PolicyTracker(TIMED, None, FIRST).first_state(DATES[0])
    assert first is not None
    assert first[0] == "2022-01-01"
    assert PolicyTracker(TIMED, first[1], SECOND).first_state(DATES[0]) is None


def test_a_hat_of_a_settled_date_says_no_scheduled_speed() -> None:
    """Which timetable held on its date is not known any more."""
    tracker = PolicyTracker(TIMED, run([FIRST]).state, FIRST)
    tracker.begin_day(DATES[1], [])
    slot, hats = next(slots(DATES[0]))
    late = tracker.close_slot(slot, hats, Counting())
    assert [each.scheduled for each in late] == [None] * len(CELLS)


@pytest.mark.parametrize("commits", [1, 7, 30])
def test_whoever_goes_on_with_a_date_after_a_crash_uses_its_timetable_whatever_the_file_is(commits: int) -> None:
    whole = run([FIRST])
    ledger = Ledger(commits)
    ledger.timetable = FIRST
    with pytest.raises(Crash):
        ledger.run(Counting(), DATES, TIMED)
    ledger.left, ledger.timetable = 10**9, SECOND
    tracker = ledger.run(Counting(), DATES[:1], TIMED)
    assert not tracker.is_different
    assert [designed(each) for each in sorted_of(ledger)] == [designed(each) for each in sorted_of(whole)]
    assert scheduled(ledger, DATES[0]) == scheduled(whole, DATES[0])


def test_estimates_from_records_alone_are_those_of_the_tracker_also_when_its_timetable_changes() -> None:
    """The state of the tracker has the table; a reader has `scheduled`."""
    ledger, noise = Ledger(), Counting()
    own: dict[Key, tuple[float, ...]] = {}
    first = PolicyTracker(TIMED, None, FIRST).first_state(DATES[0])
    assert first is not None
    tracker = PolicyTracker(TIMED, first[1], SECOND)
    for number, date in enumerate(DATES):
        tracker.begin_day(date, [])
        for slot, hats in slots(date):
            seen = hats if number else hats[:2]  # the last cell is new on the second date
            ledger.commit(tracker.close_slot(slot, seen, noise))
            own |= {(date, name, cell, "live"): size for name, cell, size in numbers(tracker) if name == slot.name}
        ledger.commit(tracker.settle(noise))
        own |= {(date, name, cell, "settled"): size for name, cell, size in numbers(tracker)}
        tracker.end_day()
    found = {
        (each.date, each.slot, each.cell, "settled" if each.stage == "settled" else "live"): each
        for each in estimates_of(TIMED, ledger.decoded())
        if each.mean is not None
    }
    assert found.keys() == own.keys()
    for key, estimate in found.items():
        assert sizes(estimate) == pytest.approx(tuple(np.clip(own[key], 0, 65)), abs=0.02), key


def test_a_listed_cell_takes_its_scheduled_speed_at_its_first_hat() -> None:
    """Listed cells are estimated from the start, before a record says what their timetable is."""
    records = run([FIRST, FIRST]).decoded()
    setting = SmootherSetting.of(TIMED)

    def made(cells: tuple[str, ...]) -> list[EstimateRecord]:
        smoother = Smoother(replace(setting, cells=cells))
        return [each for group in slots_of(records) for each in smoother.add(group) if each.mean is not None]

    for listed, plain in zip(made(CELLS), made(()), strict=True):
        # A listed cell is older by the hours before its first HAT, which add 0.002 each; the timetable moves it by 10.
        assert sizes(listed) == pytest.approx(sizes(plain), abs=0.1)


def test_doctor_reads_the_timetable_that_the_configuration_names(tmp_path: Path) -> None:
    (tmp_path / "hatcast.toml").write_text(CONFIG)

    def check() -> Check:
        _, found, *_ = islice(examine(tmp_path / "hatcast.toml"), 2)
        return found

    missing = f"{tmp_path / 'gtfs.zip'} does not exist; name the zip file of a GTFS timetable"
    assert check() == Check("timetable", CheckState.PROBLEM, "not usable", missing)
    write_speeds(tmp_path / "gtfs.zip", {CELLS[1]: 18.0, CELLS[2]: 36.0})
    assert check() == Check("timetable", CheckState.OK, "hexagons with a scheduled speed 2")
