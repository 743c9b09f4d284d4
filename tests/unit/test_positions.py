"""Speeds from positions: bounds, order, and on what a speed depends."""

from datetime import UTC, datetime, timedelta
from math import isclose

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.positions import (
    GAP_MAX_MS,
    GAP_MIN_MS,
    KEPT_MS,
    Derivation,
    SpeedDeriver,
    distance_km,
)
from hatcast.stream.readings.reading import MISSING, Reading, ValuesReading
from hatcast.stream.readings.recording import Recording

DERIVATION = Derivation("Europe/Helsinki", 150.0, 60_000)
START = int(datetime(2022, 1, 2, 10, tzinfo=UTC).timestamp() * 1000)
MIDNIGHT = int(datetime(2022, 1, 2, 22, tzinfo=UTC).timestamp() * 1000)  # in Helsinki
METRE = 1 / 111_194.93  # of latitude, in degrees


def position(seconds: float, metres: float = 0.0, vehicle: str = "bus", start: int = START) -> Reading:
    return Reading(vehicle, start + round(seconds * 1000), 60.0 + metres * METRE, 25.0, MISSING)


def speeds(*readings: Reading, derivation: Derivation = DERIVATION) -> list[float | str | None]:
    """The speeds of positions that arrive when they are dated."""
    deriver = SpeedDeriver(derivation)
    found = [deriver.reading(int(each.time), each) for each in readings]
    return [None if each is None else each.speed for each in found]


def test_a_speed_is_the_distance_from_the_position_before_over_the_time_since() -> None:
    assert speeds(position(0), position(30, 250), position(60, 500)) == [None, 30.0, 30.0]


def test_a_derived_reading_is_the_second_position_in_kilometres_per_hour() -> None:
    deriver = SpeedDeriver(DERIVATION)
    first, second = position(0), position(60, 500)
    assert deriver.reading(START, first) is None
    assert deriver.reading(START + 60_000, second) == Reading("bus", second.time, second.lat, second.lon, 30.0, "km/h")


def test_a_bus_that_stands_has_the_speed_0() -> None:
    assert speeds(position(0), position(30)) == [None, 0.0]


def test_positions_too_close_in_time_keep_the_first_and_those_too_far_apart_start_afresh() -> None:
    least, most = GAP_MIN_MS / 1000, GAP_MAX_MS / 1000
    assert speeds(position(0), position(least - 0.001, 9), position(least, 10)) == [None, None, 3.6]
    assert speeds(position(0), position(most, 0)) == [None, 0.0]
    assert speeds(position(0), position(most + 0.001), position(most + 30)) == [None, None, 0.0]


def test_a_jump_gives_no_speed() -> None:
    assert speeds(position(0), position(60, 2_499), position(120, 5_000)) == [None, 149.94, None]


@pytest.mark.parametrize("again", [position(0), position(0, 500), position(-30, 500)])
def test_a_position_that_is_repeated_or_older_changes_nothing(again: Reading) -> None:
    assert speeds(position(0), again, position(60, 500)) == [None, None, 30.0]


def test_positions_of_two_local_dates_give_no_speed() -> None:
    around = [position(seconds, start=MIDNIGHT) for seconds in (-60, -30, 0, 30)]
    assert speeds(*around) == [None, 0.0, None, 0.0]


def test_a_late_position_of_yesterday_follows_yesterdays() -> None:
    first, today, late = (position(seconds, start=MIDNIGHT) for seconds in (-60, 5, -1))
    deriver = SpeedDeriver(DERIVATION)
    found = [deriver.reading(MIDNIGHT + 10_000, each) for each in (first, today, late)]
    assert [each is None for each in found] == [True, True, False]


def test_a_local_date_with_seconds_in_its_offset_begins_at_its_midnight() -> None:
    midnight = int((datetime(1930, 1, 2, tzinfo=UTC) + timedelta(seconds=44 * 60 + 30)).timestamp() * 1000)
    around = [position(seconds, start=midnight) for seconds in (-20, -8, 4, 16)]
    monrovia = Derivation("Africa/Monrovia", 150.0, 60_000)
    assert speeds(*around, derivation=monrovia) == [None, 0.0, None, 0.0]


@pytest.mark.parametrize(
    "bad",
    [
        Reading("bus", START + 30_000, "nan", 25.0, MISSING),
        Reading("bus", START + 30_000, 91.0, 25.0, MISSING),
        Reading("bus", START + 30_000, 0.0, 0.0, MISSING),
        Reading("bus", "soon", 60.0, 25.0, MISSING),
        Reading("bus", 10**20, 60.0, 25.0, MISSING),
        Reading("", START + 30_000, 60.0, 25.0, MISSING),
        Reading("bus", START + 60_000_000, 60.0, 25.0, MISSING),  # far ahead of its arrival
    ],
)
def test_a_position_that_the_fold_would_reject_is_not_used(bad: Reading) -> None:
    deriver = SpeedDeriver(DERIVATION)
    assert deriver.reading(START, position(0)) is None
    assert deriver.reading(START + 30_000, bad) is None
    derived = deriver.reading(START + 60_000, position(60, 500))
    assert derived is not None
    assert derived.speed == 30.0


def test_reported_speeds_stay_unless_all_are_derived() -> None:
    reported = Reading("bus", START + 60_000, 60.0 + 500 * METRE, 25.0, 4.0, "m/s")
    assert speeds(position(0), reported, position(120, 500)) == [None, 4.0, 0.0]
    always = Derivation("Europe/Helsinki", 150.0, 60_000, always=True)
    assert speeds(position(0), reported, position(120, 500), derivation=always) == [None, 30.0, 0.0]


def test_a_reading_keeps_its_other_values() -> None:
    first, second = (
        ValuesReading("bus", START + at, 60.0, 25.0, MISSING, "m/s", {"delay": float(at)}) for at in (0, 30_000)
    )
    deriver = SpeedDeriver(DERIVATION)
    assert deriver.reading(START, first) is None
    derived = deriver.reading(START + 30_000, second)
    assert isinstance(derived, ValuesReading)
    assert (derived.speed, derived.others) == (0.0, {"delay": 30_000.0})


def test_an_id_in_another_spelling_is_the_same_vehicle() -> None:
    assert speeds(position(0, vehicle="b\u00e9"), position(30, vehicle=" be\u0301 ")) == [None, 0.0]


positions = st.builds(
    position,
    st.integers(-40_000, 46_400).map(lambda tenths: tenths / 10),
    st.integers(0, 3_000),
    st.sampled_from(["a", "b"]),
    st.just(MIDNIGHT),
)
arrivals = st.integers(0, 1_500).map(lambda seconds: MIDNIGHT + seconds * 1000)
streams = st.lists(st.tuples(arrivals, positions), max_size=30).map(lambda each: sorted(each, key=lambda x: x[0]))


def derived(stream: list[tuple[int, Reading]], unit: object = None) -> list[object]:
    """What follows from a stream, in order; only for positions whose vehicle and date are not `unit`."""
    deriver = SpeedDeriver(DERIVATION)
    found = [(unit_of(reading), deriver.reading(arrival, reading)) for arrival, reading in stream]
    return [each for owner, each in found if owner != unit]


def unit_of(reading: Reading) -> tuple[str, bool]:
    return reading.vehicle, int(reading.time) >= MIDNIGHT


@given(streams, st.tuples(st.sampled_from(["a", "b"]), st.booleans()), st.data())
def test_one_vehicles_one_date_changes_no_reading_of_any_other(
    stream: list[tuple[int, Reading]], unit: tuple[str, bool], data: st.DataObject
) -> None:
    without = [each for each in stream if unit_of(each[1]) != unit]
    assert derived(stream, unit) == derived(without)
    other = data.draw(streams)
    replaced = sorted(
        [*without, *(each for each in other if unit_of(each[1]) == unit)], key=lambda each: each[0]
    )  # another order among equal arrivals, which is no vehicle's own
    assert derived(replaced, unit) == derived(without)


def test_a_deriver_that_pairs_across_midnight_breaks_the_law() -> None:
    far_west = Derivation("Etc/GMT+12", 150.0, 60_000)
    around = [position(seconds, start=MIDNIGHT) for seconds in (-30, 0)]
    assert speeds(*around, derivation=far_west) == [None, 0.0]


def test_positions_are_dropped_once_none_may_follow_them() -> None:
    deriver = SpeedDeriver(DERIVATION)
    for number in range(2_000):
        at = START + number * 10_000
        deriver.reading(at, Reading(f"bus {number}", at, 60.0, 25.0, MISSING))
    assert len(deriver._positions) <= KEPT_MS // 10_000 + 2


@pytest.mark.parametrize("others", [(), (KEPT_MS - 5_000,)])
def test_a_position_that_is_too_old_gives_no_speed_whoever_else_has_sent(others: tuple[int, ...]) -> None:
    """Old positions are dropped every ten seconds, at another vehicle's arrival: that must not decide."""
    deriver, delayed = SpeedDeriver(DERIVATION), position(60, 500)
    deriver.reading(START, position(0))
    for arrival in others:
        deriver.reading(START + arrival, position(arrival / 1000, vehicle="another"))
    assert deriver.reading(START + KEPT_MS + 1, delayed) is None


def test_a_full_table_stores_no_new_vehicle_and_keeps_those_that_it_has() -> None:
    deriver = SpeedDeriver(DERIVATION, vehicles_max=1)
    for seconds in (0, 30):
        for vehicle in ("a", "b"):
            found = deriver.reading(START + seconds * 1000, position(seconds, vehicle=vehicle))
            assert (found is not None) == (seconds == 30 and vehicle == "a")
    assert deriver.unstored == 2


@given(
    st.tuples(st.floats(-89, 89), st.floats(-180, 180)),
    st.tuples(st.floats(-89, 89), st.floats(-180, 180)),
)
def test_the_distance_is_that_of_the_spherical_law_of_cosines(
    one: tuple[float, float], two: tuple[float, float]
) -> None:
    import h3

    expected = h3.great_circle_distance(one, two, unit="km")
    assume(expected > 1e-6)
    assert isclose(distance_km(*one, *two), expected, rel_tol=1e-5)


def recorded(reading: Reading, arrival: int | None) -> Recorded:
    return Recorded(b"raw", reading, arrival)


def test_a_recording_derives_in_the_order_of_arrival_the_same_in_each_pass() -> None:
    rows = [recorded(position(seconds, metres), START + seconds * 1000) for seconds, metres in ((60, 500), (0, 0))]
    recording = Recording(lambda: rows, "file", derivation=DERIVATION)
    for _ in range(2):
        assert [each.reading and each.reading.speed for _, each in recording] == [None, 30.0]


def test_a_record_whose_arrival_is_that_of_others_is_no_position() -> None:
    rows = [recorded(position(0), START), recorded(position(30), None), recorded(position(60, 500), START + 60_000)]
    found = [each.reading and each.reading.speed for _, each in Recording(lambda: rows, "file", derivation=DERIVATION)]
    assert found == [None, None, 30.0]
