"""A reading that comes too late, or from outside, costs no more than itself: it opens no slot and no day."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.fold.checkpoint import take_changes
from hatcast.stream.fold.reading_fold import _UNOPENED_MAX, Fold
from hatcast.stream.policy.policy import Policy
from tests.folding import DAY, HOUR, NOON, apply, contributions, fold_of, occurring, record
from tests.replayed import policy_of

POLICY: Policy = replace(policy_of(), hours=(0, 24), lateness_ms=5 * 60_000)
MINUTES = replace(POLICY, slot_length_ms=60_000)


def opened(fold: Fold) -> tuple[set[str], set[str]]:
    return set(fold.slots), set(fold.periods)


@given(st.lists(st.integers(1, 20 * 365 * 24 * 60), min_size=1, max_size=50), st.sampled_from([POLICY, MINUTES]))
def test_late_readings_open_nothing(minutes_ago: list[int], policy: Policy) -> None:
    fold = fold_of(policy)
    apply(fold, [(NOON, record())])
    before, known = opened(fold), contributions(fold)
    late = [NOON - 2 * HOUR - minutes * 60_000 for minutes in minutes_ago]
    apply(fold, [(NOON, record(vehicle=f"bus {time}", time=time)) for time in late])
    assert occurring(fold) == {"accepted": 1, "late": len(late)}
    assert opened(fold) == before
    assert contributions(fold) == known


def test_a_fold_keeps_few_of_the_slots_that_late_readings_name() -> None:
    fold = fold_of(MINUTES)
    apply(fold, [(NOON, record(time=NOON - DAY - minutes * 60_000)) for minutes in range(5_000)])
    assert occurring(fold) == {"late": 5_000}
    assert max(len(fold._unopened), len(fold._minutes)) <= _UNOPENED_MAX
    apply(fold, [(NOON, record())])
    assert occurring(fold) == {"late": 5_000, "accepted": 1}


def test_readings_outside_of_the_hours_open_nothing() -> None:
    fold = fold_of(replace(POLICY, hours=(0, 1)))
    apply(fold, [(NOON, record(time=NOON - minutes * 60_000)) for minutes in range(60)])
    assert occurring(fold) == {"outside_hours": 60}
    assert opened(fold) == (set(), set())


def test_late_readings_leave_the_journal_on() -> None:
    """Of a slot that is open and closes, all chunks are written; a late reading closes nothing."""
    fold = fold_of(POLICY)
    apply(fold, [(NOON, record())])
    take_changes(fold, journal=True)
    apply(fold, [(NOON, record(vehicle="other")), (NOON, record(vehicle="late", time=NOON - DAY))])
    changes = take_changes(fold, journal=True)
    assert changes.block is not None
    assert not changes.chunks
    assert not changes.days_over


def test_a_slot_that_was_late_at_one_minute_is_late_at_another_and_stays_so() -> None:
    fold = fold_of(POLICY)
    hours = [record(time=NOON - DAY + minute * 60_000, vehicle=f"bus {minute}") for minute in (0, 1, 59)]
    apply(fold, [(NOON, value) for value in hours])
    apply(fold, [(NOON - HOUR, value) for value in hours])  # an arrival before the watermark moves nothing back
    assert occurring(fold) == {"late": 6}
