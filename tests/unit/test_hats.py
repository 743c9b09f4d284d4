"""Slots of the local clock: repeated and skipped hours, half-hour zones, steps of any length.
The fold and days: who is one user across them, and which of them a policy counts.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.policy.policy import Policy
from tests.folding import DAY, HOUR, MINUTE, NOON, apply, contributions, entered, occurring, record
from tests.replayed import policy_of
from tests.unit.test_contributions import KM_NORTH, folded

HELSINKI, LORD_HOWE, KOLKATA = "Europe/Helsinki", "Australia/Lord_Howe", "Asia/Kolkata"
LENGTHS = {"15m": 15, "30m": 30, "1h": 60, "24h": 24 * 60}


def calendar(timezone: str, slot_length: str = "1h", **changes: Any) -> Calendar:
    return Calendar(policy(timezone, slot_length, **changes))


def policy(timezone: str, slot_length: str, **changes: Any) -> Policy:
    return policy_of(timezone=timezone, slot_length=slot_length, min_interval="1s", **changes)


def utc(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


# zone, slot length, slot, its start and end in UTC
TABLE = [
    # clocks go back at 01:00Z, from 04:00 to 03:00: the hour 03 is shown twice
    (HELSINKI, "1h", "2024-10-27/02:00", "2024-10-26T23:00", "2024-10-27T00:00"),
    (HELSINKI, "1h", "2024-10-27/03:00", "2024-10-27T00:00", "2024-10-27T02:00"),
    (HELSINKI, "1h", "2024-10-27/04:00", "2024-10-27T02:00", "2024-10-27T03:00"),
    # the first half of it, twice, with the second half in between
    (HELSINKI, "30m", "2024-10-27/03:00", "2024-10-27T00:00", "2024-10-27T01:30"),
    (HELSINKI, "30m", "2024-10-27/03:30", "2024-10-27T00:30", "2024-10-27T02:00"),
    (HELSINKI, "15m", "2024-10-27/03:45", "2024-10-27T00:45", "2024-10-27T02:00"),
    (HELSINKI, "24h", "2024-10-27/00:00", "2024-10-26T21:00", "2024-10-27T22:00"),
    # clocks go forward at 01:00Z, from 03:00 to 04:00
    (HELSINKI, "1h", "2024-03-31/02:00", "2024-03-31T00:00", "2024-03-31T01:00"),
    (HELSINKI, "1h", "2024-03-31/04:00", "2024-03-31T01:00", "2024-03-31T02:00"),
    (HELSINKI, "24h", "2024-03-31/00:00", "2024-03-30T22:00", "2024-03-31T21:00"),
    # back by half an hour at 15:00Z, from 02:00 to 01:30
    (LORD_HOWE, "1h", "2024-04-07/01:00", "2024-04-06T14:00", "2024-04-06T15:30"),
    (LORD_HOWE, "1h", "2024-04-07/02:00", "2024-04-06T15:30", "2024-04-06T16:30"),
    (LORD_HOWE, "30m", "2024-04-07/01:00", "2024-04-06T14:00", "2024-04-06T14:30"),
    (LORD_HOWE, "30m", "2024-04-07/01:30", "2024-04-06T14:30", "2024-04-06T15:30"),
    (LORD_HOWE, "15m", "2024-04-07/01:30", "2024-04-06T14:30", "2024-04-06T15:15"),
    (LORD_HOWE, "24h", "2024-04-07/00:00", "2024-04-06T13:00", "2024-04-07T13:30"),
    # forward by half an hour at 15:30Z, from 02:00 to 02:30: half of the hour 02 is left
    (LORD_HOWE, "1h", "2024-10-06/02:00", "2024-10-05T15:30", "2024-10-05T16:00"),
    (LORD_HOWE, "30m", "2024-10-06/02:30", "2024-10-05T15:30", "2024-10-05T16:00"),
    (KOLKATA, "1h", "2022-01-02/05:00", "2022-01-01T23:30", "2022-01-02T00:30"),
    (KOLKATA, "30m", "2022-01-02/05:30", "2022-01-02T00:00", "2022-01-02T00:30"),
    (KOLKATA, "15m", "2022-01-02/23:45", "2022-01-02T18:15", "2022-01-02T18:30"),
    (KOLKATA, "24h", "2022-01-02/00:00", "2022-01-01T18:30", "2022-01-02T18:30"),
]
every_row = pytest.mark.parametrize(("zone", "length", "key", "start", "end"), TABLE)


@every_row
def test_a_slot_lasts_from_the_first_instant_of_its_name_to_the_last(
    zone: str, length: str, key: str, start: str, end: str
) -> None:
    for instant in (utc(start), utc(end) - 1):
        slot = calendar(zone, length).slot_at(instant)
        assert (slot.key, slot.start_ms, slot.end_ms) == (key, utc(start), utc(end))
    assert calendar(zone, length).slot_at(utc(start) - 1).key != key
    assert calendar(zone, length).slot_at(utc(end)).key != key


@every_row
def test_a_slot_is_found_by_its_name_before_any_instant_of_it_was_asked_for(
    zone: str, length: str, key: str, start: str, end: str
) -> None:
    slot = calendar(zone, length).slot_named(*key.split("/"))
    assert slot is not None
    assert (slot.key, slot.start_ms, slot.end_ms) == (key, utc(start), utc(end))


@pytest.mark.parametrize(
    ("zone", "length", "date", "name"),
    [
        (HELSINKI, "1h", "2024-03-31", "03:00"),
        (HELSINKI, "30m", "2024-03-31", "03:30"),
        (LORD_HOWE, "30m", "2024-10-06", "02:00"),
        ("Pacific/Apia", "24h", "2011-12-30", "00:00"),
    ],
)
def test_a_skipped_slot_does_not_exist(zone: str, length: str, date: str, name: str) -> None:
    assert calendar(zone, length).slot_named(date, name) is None


@pytest.mark.parametrize("name", ["", "9", "9:00", "24:00", "nine"])
def test_what_is_no_name_of_a_slot_names_none(name: str) -> None:
    assert calendar(KOLKATA).slot_named("2022-01-02", name) is None
    assert calendar(KOLKATA).slot_named("2022-13-02", "09:00") is None


@pytest.mark.parametrize(("length", "name"), [("1h", "09:30"), ("30m", "09:15"), ("24h", "01:00"), ("15m", "09:01")])
def test_a_time_between_two_steps_names_no_slot(length: str, name: str) -> None:
    assert calendar(KOLKATA, length).slot_named("2022-01-02", name) is None


zones = st.sampled_from([HELSINKI, LORD_HOWE, KOLKATA, "UTC", "America/St_Johns", "Africa/Casablanca", "Pacific/Apia"])
instants = st.integers(utc("2011-12-01T00:00"), utc("2026-12-31T00:00"))


@given(zones, st.sampled_from(sorted(LENGTHS)), instants)
def test_named_is_the_inverse_of_slot_at(zone: str, length: str, instant: int) -> None:
    slot = calendar(zone, length).slot_at(instant)
    assert slot.start_ms <= instant < slot.end_ms
    assert calendar(zone, length).slot_named(slot.date, slot.name) == slot


@given(zones, st.sampled_from(sorted(LENGTHS)), instants)
def test_a_slot_is_named_by_the_local_clock(zone: str, length: str, instant: int) -> None:
    found = calendar(zone, length)
    local = found.local(instant)
    minutes = (local.hour * 60 + local.minute) // LENGTHS[length] * LENGTHS[length]
    assert found.slot_at(instant).key == f"{local:%Y-%m-%d}/{minutes // 60:02}:{minutes % 60:02}"


@given(zones, st.sampled_from(sorted(LENGTHS)), instants)
def test_the_whole_minute_lies_in_the_slot_of_its_instant(zone: str, length: str, instant: int) -> None:
    found = calendar(zone, length)
    assert found.is_whole_minute(instant)
    start = instant // MINUTE * MINUTE
    assert found.slot_at(start) == found.slot_at(instant) == found.slot_at(start + MINUTE - 1)


def test_an_offset_with_seconds_is_told() -> None:
    assert not calendar("Africa/Monrovia").is_whole_minute(utc("1930-01-01T12:00"))


@pytest.mark.parametrize(
    ("zone", "date", "end"),
    [
        (HELSINKI, "2024-10-27", "2024-10-27T22:00"),
        (HELSINKI, "2024-03-31", "2024-03-31T21:00"),
        (KOLKATA, "2022-01-02", "2022-01-02T18:30"),
        # clocks go back from midnight to 23:00: the day's last hour comes twice
        ("America/Havana", "2024-11-02", "2024-11-03T04:00"),
        ("Asia/Beirut", "2021-10-30", "2021-10-30T22:00"),
    ],
)
@pytest.mark.parametrize("length", sorted(LENGTHS))
def test_a_day_ends_with_its_last_slot(zone: str, date: str, end: str, length: str) -> None:
    assert calendar(zone, length).day_end(date) == utc(end)


@pytest.mark.parametrize(
    ("zone", "date", "end"),
    [
        ("UTC", "2022-01-03", "2022-01-03T00:00"),
        (KOLKATA, "2022-01-03", "2022-01-02T18:30"),
        ("Pacific/Apia", "2011-12-31", "2011-12-30T10:00"),  # there was no 30 December
    ],
)
def test_what_is_before_a_day_ends_with_the_last_slot_of_the_day_that_there_was(zone: str, date: str, end: str) -> None:
    assert calendar(zone, "1h").previous_day_end(date) == utc(end)


def test_a_slot_is_in_hours_if_its_local_start_is() -> None:
    half_hours = calendar(KOLKATA, "30m", hours=[9, 21])
    midnight = utc("2022-01-01T18:30")
    slots = [half_hours.slot_at(midnight + step * 30 * MINUTE) for step in range(48)]
    inside = [slot.name for slot in slots if slot.outside is None]
    assert (inside[0], inside[-1], len(inside)) == ("09:00", "20:30", 24)


def test_a_slot_of_a_day_is_in_hours_only_if_they_begin_at_midnight() -> None:
    noon = utc("2022-01-02T12:00")
    assert calendar("UTC", "24h", hours=[0, 24]).slot_at(noon).outside is None
    assert calendar("UTC", "24h", hours=[9, 21]).slot_at(noon).outside == "outside_hours"


@given(instants)
def test_the_slots_of_a_day_without_a_change_tile_it(instant: int) -> None:
    found = calendar(KOLKATA, "15m")
    slot = found.slot_at(instant)
    assert (slot.end_ms - slot.start_ms, found.slot_at(slot.end_ms).start_ms) == (15 * MINUTE, slot.end_ms)
    assert (found.day_end(slot.date) + 5 * HOUR + 30 * MINUTE) % DAY == 0


@pytest.mark.parametrize(("unit", "users"), [("user_day", 2), ("user", 1)])
def test_a_vehicle_is_another_user_on_another_day_unless_the_unit_is_the_user(unit: str, users: int) -> None:
    fold = folded(record(), unit=unit, max_hats_per_day=1)
    apply(fold, [(NOON + DAY, record(time=NOON + DAY)), (NOON + DAY, record(time=NOON + DAY, lat=KM_NORTH))])
    assert occurring(fold) == {"accepted": 2, "over_cap": 1}  # K is a day's under both
    assert len({pseudonym for _, _, pseudonym in contributions(fold)}) == users


def test_a_policy_keeps_nothing_of_the_days_before_its_first() -> None:
    fold = folded(record(), max_hats_per_day=1, from_date="2022-01-03", timezone="Asia/Kolkata")
    midnight = NOON + 6 * HOUR + 30 * MINUTE
    apply(fold, [(midnight, record(time=midnight - 1)), (midnight, record(time=midnight))])
    assert occurring(fold) == {"outside_dates": 2, "accepted": 1}
    assert [slot for slot, _, _ in contributions(fold)] == ["2022-01-03/00:00"]
    assert [date for date, _ in entered(fold)] == ["2022-01-03"]
