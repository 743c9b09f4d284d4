"""Which slots are due under `add_remove`: by public times alone, each once, in order."""

from dataclasses import replace
from datetime import date, datetime

import h3.api.basic_int as h3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.fold.calendar import Calendar, closes_at
from hatcast.stream.policy.policy import Policy
from hatcast.stream.release.schedule import (
    earliest_send_ms,
    first_slot_ms,
    listed_cells,
    released_at_ms,
    slots_between,
    slots_due,
)
from hatcast.stream.replay.heartbeats import HEARTBEAT_MS
from tests.folding import DAY, HOUR, MINUTE, NOON
from tests.replayed import policy_of

POLICY = policy_of(hours=[9, 21], timezone="Asia/Kolkata")  # 17:30 there at NOON
ZONES = ("UTC", "Asia/Kolkata", "Europe/Helsinki", "Australia/Lord_Howe", "Pacific/Apia")


def names(policy: Policy, first_ms: int, done_ms: int, clock_ms: int) -> list[str]:
    return [slot.key for slot in slots_due(Calendar(policy), policy, first_ms, done_ms, clock_ms)]


def test_the_first_slot_is_the_one_that_was_running_at_the_first_start() -> None:
    started = first_slot_ms(Calendar(POLICY), NOON)
    assert started == NOON - 30 * MINUTE
    assert names(POLICY, started, 0, NOON + 2 * HOUR) == ["2022-01-02/17:00", "2022-01-02/18:00"]


def test_a_slot_is_due_once_the_slowest_clock_has_passed_its_end_and_lateness() -> None:
    first = NOON - 30 * MINUTE
    closes = first + HOUR + 5 * MINUTE
    assert names(POLICY, first, 0, closes - 1) == []
    assert names(POLICY, first, 0, closes) == ["2022-01-02/17:00"]
    assert names(POLICY, first, first + HOUR, closes) == [], "it is done"


def test_after_two_days_of_silence_every_slot_between_is_due_and_none_outside_hours() -> None:
    due = names(POLICY, NOON - 30 * MINUTE, NOON + 30 * MINUTE, NOON + 2 * DAY + 35 * MINUTE)
    evening = ["18", "19", "20"]
    day = [f"{hour:02}" for hour in range(9, 21)]
    assert due == [
        *(f"2022-01-02/{hour}:00" for hour in evening),
        *(f"2022-01-03/{hour}:00" for hour in day),
        *(f"2022-01-04/{hour}:00" for hour in [*day[:8], "17"]),
    ]


@given(
    st.sampled_from(ZONES),
    st.sampled_from(["15m", "1h", "6h"]),
    st.integers(0, 3000),
    st.lists(st.integers(0, 40 * HOUR), min_size=2, max_size=5),
)
def test_however_often_one_looks_each_slot_comes_once_and_in_the_order_of_their_ends(
    zone: str, length: str, day: int, steps: list[int]
) -> None:
    # From 2009 on: changes of clocks in both directions, and a date that Samoa's clock skipped.
    policy = policy_of(timezone=zone, slot_length=length)
    calendar = Calendar(policy)
    clock = 1_234_567_890_000 + day * DAY
    first = first_slot_ms(calendar, clock)
    done, found = 0, []
    for step in steps:
        clock += step
        for slot in slots_due(calendar, policy, first, done, clock):
            found.append(slot)
            done = slot.end_ms
    assert found == list(slots_due(calendar, policy, first, 0, clock))
    assert [slot.end_ms for slot in found] == sorted({slot.end_ms for slot in found})
    between = slots_between(calendar, calendar.local(first).date(), calendar.local(clock).date())
    assert found == [slot for slot in between if slot.start_ms >= first and closes_at(slot, policy) <= clock]
    instants = range(first + HOUR, clock - 24 * HOUR, 20 * MINUTE)
    assert {calendar.slot_at(instant) for instant in instants} <= set(found), "a slot with readings would be left out"


def test_a_day_that_the_local_clock_skips_has_no_slots() -> None:
    calendar = Calendar(policy_of(timezone="Pacific/Apia"))
    skipped = date(2011, 12, 30)
    assert list(slots_between(calendar, skipped, skipped)) == []


@pytest.mark.parametrize(
    ("lateness", "at"), [(300_000, "13:05"), (300_001, "13:06"), (0, "13:00"), (59_999, "13:01"), (90_000, "13:02")]
)
def test_released_at_is_end_and_lateness_rounded_up_to_the_minute(lateness: int, at: str) -> None:
    policy = replace(policy_of(), lateness_ms=lateness)
    slot = Calendar(policy).slot_at(NOON)
    assert released_at_ms(slot, policy) == datetime.fromisoformat(f"2022-01-02T{at}:00Z").timestamp() * 1000
    assert earliest_send_ms(slot, policy) > released_at_ms(slot, policy) + HEARTBEAT_MS, "no tick would be waited for"


def test_cells_are_listed_in_the_order_of_their_names() -> None:
    cells = [h3.latlng_to_cell(21 + i / 10, 72.8, 7) for i in range(20)]
    listed = listed_cells(replace(POLICY, cells=frozenset(cells)))
    assert listed == sorted(map(h3.int_to_str, cells))


def test_without_a_list_of_cells_there_is_nothing_to_go_by() -> None:
    with pytest.raises(ValueError, match="is private"):
        listed_cells(POLICY)
