"""Scheduled speeds of cells as the prior of a tracker's cells."""

import pytest

from hatcast.stream.tracker.timetable import REFERENCE, Timetable, deviation

SLOW, FAST = "8848e4826bfffff", "8848e48265fffff"


def test_equal_speeds_have_equal_digests_in_any_order_and_other_speeds_another() -> None:
    timetable = Timetable.of({SLOW: 121, FAST: 380})
    assert timetable == Timetable.of({FAST: 380, SLOW: 121})
    assert list(timetable.speeds) == sorted((SLOW, FAST))
    others = [{SLOW: 122, FAST: 380}, {SLOW: 121}, {SLOW: 380, FAST: 121}, {}]
    assert len({timetable.digest, *(Timetable.of(each).digest for each in others)}) == 5


def test_a_speed_below_a_tenth_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"below 0\.1 km/h"):
        Timetable.of({SLOW: 0})


def test_a_deviation_is_in_km_h_from_the_reference_and_clipped() -> None:
    of = round(REFERENCE * 10)
    assert deviation(of) == 0
    assert [deviation(of + tenths) for tenths in (-37, 1, 249, 250, 251, 900)] == pytest.approx(
        [-3.7, 0.1, 24.9, 25, 25, 25]
    )
    assert [deviation(of - tenths) for tenths in (199, 200, 201)] == pytest.approx([-19.9, -20, -20])
