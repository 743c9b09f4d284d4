"""The rules of docs/specification/fold.md, one by one; laws over whole logs are in tests/laws/test_fold.py."""

from dataclasses import replace
from typing import Any

import h3.api.basic_int as h3
import pytest

from hatcast.stream.fold.reading_fold import Fold
from hatcast.stream.readings.vehicles import by_murmur2
from tests.folding import ABSENT, DAY, HOUR, MINUTE, NOON, NOW, apply, contributions, fold_of, occurring, record
from tests.replayed import policy_of

POLICY = policy_of(lateness="5m", max_ahead="2m", min_interval="1s")
KM_NORTH = 21.3  # in another cell than the bus


def outcome(value: bytes | None, arrival: int = NOON, now: int = NOW, **changes: Any) -> str:
    """What becomes of one record that is alone in the log."""
    fold = fold_of(policy_of(**changes))
    apply(fold, [(arrival, value)], now)
    (found,) = occurring(fold)
    return found


def folded(*values: bytes | None, arrival: int = NOON, **changes: Any) -> Fold:
    fold = fold_of(replace(POLICY, **changes))
    apply(fold, [(arrival, value) for value in values])
    return fold


def test_a_reading_is_counted_with_its_value_in_milli_units() -> None:
    fold = folded(record(), record(time=NOON + 1000, speed=40.5))
    assert list(contributions(fold).values()) == [(2, 70_500, 40_500, 0b11)]
    assert occurring(fold) == {"accepted": 2}


def test_a_record_from_the_future_is_rejected_and_moves_no_clock() -> None:
    fold = fold_of(POLICY)
    apply(fold, [(NOON, record()), (NOON + 2 * MINUTE + 1, record()), (NOON + 2 * MINUTE + 1, None)], NOON)
    assert (occurring(fold), fold.watermark) == ({"accepted": 1, "arrived_in_future": 2}, NOON)
    assert outcome(record(), NOON + 2 * MINUTE, NOON) == "accepted"


@pytest.mark.parametrize("value", [None, b""])
def test_an_empty_value_is_a_tick_and_moves_the_clock(value: bytes | None) -> None:
    fold = fold_of(POLICY)
    apply(fold, [(NOON, value)])
    assert (occurring(fold), fold.watermark) == ({"tick": 1}, NOON)


def test_the_clock_is_the_greatest_arrival_and_never_goes_back() -> None:
    fold = fold_of(POLICY)
    assert fold.watermark is None
    apply(fold, [(NOON, None), (NOON - HOUR, record(time=NOON - HOUR))])
    assert fold.watermark == NOON


@pytest.mark.parametrize("value", [record(), None, b"", b"{"])
def test_a_negative_timestamp_is_undecodable_and_moves_no_clock(value: bytes | None) -> None:
    fold = fold_of(POLICY)
    assert apply(fold, [(-1, value)]) == [0]
    assert (occurring(fold), fold.watermark) == ({"undecodable": 1}, None)


@pytest.mark.parametrize("value", [b"{", b"\xff", b"[]", b"7", b"null", b"{}"])
def test_what_the_decoder_cannot_read_is_undecodable_and_moves_the_clock(value: bytes) -> None:
    fold = fold_of(POLICY)
    assert apply(fold, [(NOON, record()), (NOON + 1, value), (NOON + 2, None)]) == [1]
    assert fold.outcomes["undecodable"] == 1
    assert fold.watermark == NOON + 2


@pytest.mark.parametrize("field", ["vehicle", "time", "lat", "lon", "speed"])
@pytest.mark.parametrize("bad", [ABSENT, None, True, [], {}])
def test_a_field_missing_or_of_the_wrong_type_is_undecodable(field: str, bad: object) -> None:
    assert outcome(record(**{field: bad})) == "undecodable"


@pytest.mark.parametrize("field", ["lat", "lon", "speed"])
def test_a_number_as_text_is_undecodable(field: str) -> None:
    assert outcome(record(**{field: "21.2"})) == "undecodable"


def test_an_unknown_unit_is_undecodable_and_a_missing_one_is_km_h() -> None:
    assert outcome(record(unit="furlongs")) == "undecodable"
    assert contributions(folded(record(unit=ABSENT))) == contributions(folded(record(unit="km/h")))


@pytest.mark.parametrize("vehicle", ["", " \t\n", "x" * 129, "é" * 65])
def test_a_vehicle_id_that_is_empty_or_over_128_bytes_is_undecodable(vehicle: str) -> None:
    assert outcome(record(vehicle=vehicle)) == "undecodable"


def test_spellings_with_one_canonical_form_are_one_user() -> None:
    spellings = ["caf\u00e9", "cafe\u0301", " café\n"]
    fold = folded(*(record(vehicle=name, time=NOON + i * 1000) for i, name in enumerate(spellings)))
    assert [count for count, *_ in contributions(fold).values()] == [3]


@pytest.mark.parametrize(
    ("lat", "lon", "expected"),
    [
        (90, 180, "accepted"),
        (-90, -180, "accepted"),
        (0, 72.8, "accepted"),
        (21.2, 0, "accepted"),
        (90.0001, 72.8, "bad_place"),
        (21.2, -180.0001, "bad_place"),
        (0, 0, "bad_place"),
        (-0.0, 0.0, "bad_place"),
        ("nan", 72.8, "bad_place"),
        (21.2, "-inf", "bad_place"),
    ],
)
def test_a_place_off_the_globe_or_at_its_zero_is_bad(lat: float | str, lon: float | str, expected: str) -> None:
    assert outcome(record(lat=lat, lon=lon)) == expected


@pytest.mark.parametrize(
    ("speed", "expected"),
    [
        (150.0005, "accepted"),
        (150.00051, "bad_value"),
        (-0.0004, "zero"),
        (-0.0006, "bad_value"),
        ("nan", "bad_value"),
        ("inf", "bad_value"),
        ("-inf", "bad_value"),
        (1e308, "bad_value"),
    ],
)
def test_a_value_above_reject_above_negative_or_not_finite_is_bad(speed: float | str, expected: str) -> None:
    assert outcome(record(speed=speed)) == expected


@pytest.mark.parametrize(
    ("speed", "total"), [(151, 65_000), (1e308, 65_000), (-3, 0), ("nan", 0), ("inf", 0), ("-inf", 0)]
)
def test_without_reject_above_nothing_ends_as_bad_value(speed: float | str, total: int) -> None:
    fold = folded(record(speed=speed), reject_above=None, drop_zero=False)
    assert [known[1] for known in contributions(fold).values()] == [total]


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (NOON + 2 * MINUTE, "accepted"),
        (NOON + 2 * MINUTE + 1, "bad_time"),
        (NOON + 2 * MINUTE + 0.5, "accepted"),
        (NOON + 2 * MINUTE + 0.6, "bad_time"),
        (str(NOON), "accepted"),
        ("2022-01-02T12:00:00Z", "accepted"),
        ("2022-01-02T17:30:00+05:30", "accepted"),
        ("2022-01-02T12:00:00", "bad_time"),
        ("yesterday", "bad_time"),
        ("", "bad_time"),
        (10**18, "bad_time"),
    ],
)
def test_a_time_that_says_no_instant_or_lies_ahead_is_bad(time: object, expected: str) -> None:
    assert outcome(record(time=time)) == expected


def test_zero_is_dropped_only_if_the_policy_says_so() -> None:
    assert outcome(record(speed=0.0004)) == "zero"
    assert outcome(record(speed=0.0006)) == "accepted"
    assert outcome(record(speed=0), drop_zero=False) == "accepted"


def test_a_slot_counts_if_its_local_start_is_within_hours() -> None:
    for local, expected in (
        ("08:59", "outside_hours"),
        ("09:00", "accepted"),
        ("20:59", "accepted"),
        ("21:00", "outside_hours"),
    ):
        value = record(time=f"2022-01-02T{local}:00+05:30")
        found = outcome(value, NOON + 12 * HOUR, timezone="Asia/Kolkata", hours=[9, 21], lateness="1d")
        assert found == expected


def test_a_cell_that_is_not_listed_is_outside() -> None:
    listed = frozenset({h3.latlng_to_cell(21.2, 72.8, 7)})
    assert occurring(folded(record(), record(lat=KM_NORTH), cells=listed)) == {"accepted": 1, "outside_cells": 1}


@pytest.mark.parametrize(("arrival", "expected"), [(65 * MINUTE - 1, "accepted"), (65 * MINUTE, "late")])
def test_a_reading_is_late_from_slot_end_plus_lateness_on(arrival: int, expected: str) -> None:
    assert outcome(record(), NOON + arrival) == expected


def test_lateness_goes_by_the_clock_and_not_by_the_records_own_arrival() -> None:
    fold = fold_of(POLICY)
    apply(fold, [(NOON + 65 * MINUTE, None), (NOON, record())])
    assert occurring(fold) == {"tick": 1, "late": 1}


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_a_user_counts_in_the_partition_of_its_canonical_id_alone(partitioner: str) -> None:
    found = []
    for partition in range(8):
        fold = fold_of(POLICY, partition, 8, partitioner)
        apply(fold, [(NOON, record(vehicle=" bus "))])
        found.append(next(iter(occurring(fold))))
    assert sorted(found) == ["accepted", *["wrong_partition"] * 7]


def test_an_interval_counts_once_for_a_user_and_a_hat() -> None:
    fold = folded(
        record(time=NOON + 10_999),
        record(time=NOON + 10_000),
        record(time=NOON + 11_000),
        record(time=NOON + 10_500, vehicle="other"),
        record(time=NOON + 10_500, lat=KM_NORTH),
    )
    assert occurring(fold) == {"accepted": 4, "duplicate": 1}


def test_a_user_enters_at_most_k_hats_a_local_day() -> None:
    fold = folded(
        record(),
        record(time=NOON - HOUR),
        record(time=NOON - 2 * HOUR),
        record(time=NOON + 1000),
        record(time=NOON - 3 * HOUR, vehicle="other"),
        max_hats_per_day=2,
        lateness_ms=DAY,
    )
    assert occurring(fold) == {"accepted": 4, "over_cap": 1}


def test_the_next_local_day_has_a_cap_of_its_own() -> None:
    midnight = NOON + 12 * HOUR
    fold = folded(record(time=midnight - 1), record(time=midnight), arrival=midnight, max_hats_per_day=1)
    assert occurring(fold) == {"accepted": 2}


def test_a_duplicate_takes_nothing_of_the_cap() -> None:
    fold = folded(record(), record(), record(lat=KM_NORTH), max_hats_per_day=2)
    assert occurring(fold) == {"accepted": 2, "duplicate": 1}


def test_values_above_the_bound_count_as_the_bound() -> None:
    assert list(contributions(folded(record(speed=100))).values()) == [(1, 65_000, 65_000, 1)]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"lat": 91}, {"speed": -1}),
        ({"speed": -1}, {"time": "soon"}),
        ({"time": "soon"}, {"speed": 0}),
        ({"time": NOON + HOUR}, {"speed": 0}),
        ({"vehicle": ""}, {"lat": 91}),
        ({"unit": "furlongs"}, {"lat": 91}),
    ],
)
def test_of_two_faults_the_earlier_rule_is_named(first: dict[str, object], then: dict[str, object]) -> None:
    assert outcome(record(**then | first)) == outcome(record(**first))


def test_zero_comes_before_dates_dates_before_hours_hours_before_cells_and_cells_before_late() -> None:
    elsewhere = frozenset({h3.latlng_to_cell(KM_NORTH, 72.8, 7)})
    at = NOON + DAY
    night = {"hours": (0, 1), "cells": elsewhere}
    later = {"from_date": "2022-01-03"}
    assert occurring(folded(record(speed=0), arrival=at, **later)) == {"zero": 1}
    assert occurring(folded(record(), arrival=at, **later, **night)) == {"outside_dates": 1}
    assert occurring(folded(record(), arrival=at, **night)) == {"outside_hours": 1}
    assert occurring(folded(record(), arrival=at, cells=elsewhere)) == {"outside_cells": 1}
    assert occurring(folded(record(), arrival=at)) == {"late": 1}


def test_a_wrong_partition_is_told_before_a_duplicate_and_late_before_it() -> None:
    fold = fold_of(POLICY, (by_murmur2(b"bus", 8) + 1) % 8, 8)
    apply(fold, [(NOON, record()), (NOON, record()), (NOON + DAY, record())])
    assert occurring(fold) == {"wrong_partition": 2, "late": 1}


def test_what_the_clock_has_closed_is_forgotten_and_stays_late() -> None:
    fold = folded(record())
    apply(fold, [(NOON + 65 * MINUTE, None)])
    fold.drop_closed()
    assert fold.slots == {}
    apply(fold, [(NOON, record(vehicle="other"))])
    assert occurring(fold) == {"accepted": 1, "tick": 1, "late": 1}


def test_a_day_whose_hats_are_forgotten_still_has_its_cap() -> None:
    fold = folded(record(), max_hats_per_day=1)
    apply(fold, [(NOON + 65 * MINUTE, None)])
    fold.drop_closed()
    apply(fold, [(NOON + 65 * MINUTE, record(time=NOON + HOUR))])
    assert occurring(fold) == {"accepted": 1, "tick": 1, "over_cap": 1}
