"""Alarms: hexagons, neighbourhoods and cities at half the speed that was expected; a function of records alone."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import h3
import numpy as np
import pytest

from hatcast.stream.records import EstimateRecord, ReleaseRecord
from hatcast.stream.tracker.alarms import Alarms, Area
from hatcast.stream.tracker.observations import slots_of
from hatcast.stream.tracker.smoother import Smoother, estimates_of
from tests.contracts.goldens import SPEED
from tests.unit.test_smoother import CELLS, DATES, HOURS, SETTING, encoded, release

CENTRE = CELLS[0]
RING = sorted(h3.grid_ring(CENTRE, 1))
FAR = sorted(h3.grid_ring(CENTRE, 9))[:30:10]
SLOW_HOURS = range(13, 16)
THRESHOLD = 6.0


def city(
    slow: Sequence[str] = (), hours: Sequence[int] = SLOW_HOURS, dates: Sequence[str] = DATES[2:]
) -> list[ReleaseRecord]:
    """Releases of three days, of mean 30; on some dates some cells are at half their speed in these hours."""
    random = np.random.default_rng(4)  # simulation
    return [
        release(cell, date, hour, round(speed + float(random.laplace(0, 2)), 3), scale=2.0)
        for date in DATES
        for hour in HOURS
        for cell in (CENTRE, *RING, *FAR)
        for speed in [15.0 if cell in slow and hour in hours and date in dates else 30.0]
    ]


def alarms(records: Sequence[ReleaseRecord], stage: str = "live") -> dict[tuple[str, int], set[tuple[str, Area]]]:
    """Cells with an alarm and what it is about, by date and hour."""
    found: dict[tuple[str, int], set[tuple[str, Area]]] = {}
    for each in estimates_of(SPEED, records):
        if each.alarm is not None and each.stage == stage:
            found.setdefault((each.date, int(each.slot[:2])), set()).add((each.cell, each.alarm))
    return found


def test_a_city_as_expected_has_no_alarm_and_no_field() -> None:
    estimates = [*estimates_of(SPEED, city())]
    assert b"alarm" not in encoded(estimates)
    assert len(estimates) == 2 * len(city())


def test_a_hexagon_at_half_its_speed_has_an_alarm_which_ends_with_it() -> None:
    found = alarms(city([FAR[0]]))
    assert found[DATES[2], SLOW_HOURS[-1]] == {(FAR[0], "hexagon")}
    assert {hour for _, hour in found} <= {*SLOW_HOURS}
    assert set.union(*found.values()) == {(FAR[0], "hexagon")}


def test_hexagons_around_one_have_the_alarm_together_in_the_first_hour() -> None:
    found = alarms(city([CENTRE, *RING], SLOW_HOURS[:1]))
    assert found[DATES[2], SLOW_HOURS[0]] >= {(CENTRE, "neighbours")}
    assert not any(cell in FAR and area != "city" for of_hour in found.values() for cell, area in of_hour)


def test_an_alarm_of_the_whole_city_is_in_every_record_of_the_hour() -> None:
    found = alarms(city([CENTRE, *RING, *FAR]))[DATES[2], SLOW_HOURS[0]]
    assert {cell for cell, _ in found} == {CENTRE, *RING, *FAR}
    assert "city" in {area for _, area in found}


def test_a_settled_estimate_has_the_alarm_of_its_hour() -> None:
    records = city([FAR[0]])
    assert alarms(records, "settled") == alarms(records) != {}


def test_the_order_of_records_and_copies_of_them_change_no_alarm() -> None:
    records = city([CENTRE, *RING])
    shuffled = [records[at] for at in np.random.default_rng(2).permutation(len(records))]  # simulation
    assert encoded([*estimates_of(SPEED, [*shuffled, *records[::3]])]) == encoded([*estimates_of(SPEED, records)])


def test_a_smoother_that_is_restarted_makes_the_same_alarms_though_the_evening_before_was_slow() -> None:
    evening = [each for each in city([FAR[0]], HOURS[-1:], DATES[1:2]) if each.date != DATES[2]]
    morning = [each for each in city([FAR[0]], HOURS[:4]) if each.date == DATES[2]]
    slots = [*slots_of(evening + morning)]
    whole, snapshots = Smoother(SETTING), {}
    made: list[EstimateRecord] = []
    for slot in slots:
        estimates = whole.add(slot)
        made += estimates if slot.key.date == DATES[2] else []
        snapshots[whole.date] = whole.snapshot
    again = Smoother(SETTING, snapshots[DATES[2]])
    remade = [each for slot in slots if slot.key.date == DATES[2] for each in again.add(slot)]
    assert any(each.alarm for each in remade)
    assert encoded(remade) == encoded(made)


def test_values_other_than_speeds_have_no_alarm() -> None:
    guessed = replace(SETTING.prior, variances=replace(SETTING.prior.variances, is_guess=True))
    smoother = Smoother(replace(SETTING, prior=guessed))
    assert not any(each.alarm for slot in slots_of(city([FAR[0]])) for each in smoother.add(slot))


def fed(ratios: Sequence[float], others: int = 0) -> Iterator[dict[str, Area]]:
    """Alarms after slots in which the first cell's number has these log likelihood ratios, and those of others 0."""
    running = Alarms(THRESHOLD)
    cells = [CENTRE, *sorted(h3.grid_ring(CENTRE, 20))[:others]]
    for ratio in ratios:
        # A number of mean 20 is expected to move by -10: with variance 1 the ratio is -10 (innovation + 5).
        for number in range(len(cells)):
            running.add(np.array([number]), 1.0, 20.0, -5 - (0.0 if number else ratio / 10), 1.0)
        yield running.close_slot(cells)


def test_a_sum_is_never_below_zero_so_that_good_hours_do_not_hide_an_incident() -> None:
    assert [bool(each) for each in fed([-100.0, THRESHOLD / 2, THRESHOLD])] == [False, False, True]


def test_a_sum_is_at_most_its_threshold_so_that_an_alarm_ends_with_the_first_hour_against_it() -> None:
    assert [bool(each) for each in fed([1000.0, 0.0, -0.1])] == [True, True, False]


@pytest.mark.parametrize("others", [0, 9, 99])
def test_a_hexagon_of_more_with_numbers_has_a_higher_threshold(others: int) -> None:
    of_hexagons = THRESHOLD + math.log(1 + others)
    (below,), (above,) = fed([of_hexagons - 0.01], others), fed([of_hexagons + 0.01], others)
    assert (below.get(CENTRE), above[CENTRE]) == ("city" if others else None, "hexagon")


def test_a_number_about_earlier_hours_is_no_evidence() -> None:
    running = Alarms(THRESHOLD)
    running.add(np.array([0]), 0.0, 20.0, -1000.0, 1.0)
    assert running.close_slot([CENTRE]) == {}


def test_a_pulse_is_evidence_of_the_city_alone() -> None:
    running = Alarms(THRESHOLD)
    running.add(np.array([0, 1]), 1.0, 20.0, -10.0, 1.0)
    assert running.close_slot([CENTRE, FAR[0]]) == {CENTRE: "city", FAR[0]: "city"}
