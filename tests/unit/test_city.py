"""The synthetic city: what it looks like to somebody who watches it."""

import random
import statistics
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import islice, pairwise, takewhile
from pathlib import Path

import h3.api.basic_int as h3
import pytest

from hatcast.agents.demo.defaults import demo_settings
from hatcast.agents.demo.embedded import Addresses
from hatcast.agents.demo.state import DemoOptions
from hatcast.agents.sources.synthetic import (
    CENTRE,
    PAST_MS,
    CityOptions,
    chance_of,
    city_messages,
    default_start_ms,
    first_means,
    make_city,
    write_timetable,
)
from hatcast.agents.timetable.speeds import scheduled_speeds, timetable_of
from hatcast.stream.fold.calendar import Calendar
from hatcast.stream.readings.formats import jsonl
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.vehicles import by_murmur2
from hatcast.stream.replay.heartbeats import HEARTBEAT_MS, Router
from hatcast.stream.replay.synthetic_city import REPORT_MS, City, make_routes, place, traffic
from tests.replayed import policy_of

HOUR = 3_600_000
MONDAY = 1_704_067_200_000  # 2024-01-01, UTC


def local(instant_ms: int) -> datetime:
    return datetime.fromtimestamp(instant_ms / 1000, UTC)


def city(vehicles: int = 60, seed: int = 1) -> City:
    return City(CENTRE, vehicles, random.Random(seed), local)


def an_hour(hour: int, minutes: int = 30, vehicles: int = 60) -> list[tuple[int, Reading]]:
    start = MONDAY + hour * HOUR
    return list(takewhile(lambda each: each[0] < start + minutes * 60_000, city(vehicles).readings(start)))


def test_arrivals_ascend_and_no_reading_is_made_after_it_arrived() -> None:
    readings = an_hour(9)
    assert all(before <= after for (before, _), (after, _) in pairwise(readings))
    assert all(isinstance(each.time, int) and each.time < arrival for arrival, each in readings)


def test_every_bus_reports_about_every_ten_seconds_by_day() -> None:
    arrivals = defaultdict(list)
    for arrival, each in an_hour(9):
        arrivals[each.vehicle].append(arrival)
    assert len(arrivals) == 60
    gaps = [after - before for one in arrivals.values() for before, after in pairwise(one)]
    assert statistics.mean(gaps) == pytest.approx(REPORT_MS, rel=0.02)


def test_fewer_buses_run_at_night_and_the_first_one_always() -> None:
    by_day, at_night = ({each.vehicle for _, each in an_hour(hour)} for hour in (12, 3))
    assert len(at_night) < len(by_day) / 2
    assert {each.vehicle for _, each in an_hour(3, vehicles=1)} == {"BUS-0001"}


def test_the_rush_hour_slows_the_centre_most() -> None:
    def mean(hour: int, *, inside: bool) -> float:
        speeds = [
            float(each.speed)
            for _, each in an_hour(hour, 50, 200)
            if each.speed and (h3.great_circle_distance(CENTRE, (float(each.lat), float(each.lon))) < 2.5) is inside
        ]
        return statistics.mean(speeds)

    inside, outside = mean(9, inside=True) / mean(13, inside=True), mean(9, inside=False) / mean(13, inside=False)
    assert inside < 0.8
    assert inside < outside < 0.97


def test_buses_stand_at_stops_and_drive_at_speeds_of_buses() -> None:
    speeds = [float(each.speed) for _, each in an_hour(13)]
    standing = sum(speed == 0 for speed in speeds) / len(speeds)
    assert 0.1 < standing < 0.5
    assert max(speeds) < 75
    assert 20 < statistics.mean(speed for speed in speeds if speed) < 45


def test_neighbouring_hexagons_have_different_usual_speeds() -> None:
    cells = defaultdict(list)
    for _, each in an_hour(13, 50, 200):
        if each.speed:
            cells[h3.latlng_to_cell(float(each.lat), float(each.lon), 7)].append(float(each.speed))
    means = [statistics.mean(speeds) for speeds in cells.values() if len(speeds) > 30]
    assert len(means) > 30
    assert statistics.stdev(means) > 4


def test_a_bus_moves_as_far_as_its_speed_says() -> None:
    """Between two reports it goes at most 75 km/h, GPS noise apart: no jumps across the map."""
    last: dict[str, tuple[int, tuple[float, float]]] = {}
    for arrival, each in an_hour(13):
        place = float(each.lat), float(each.lon)
        if each.vehicle in last:
            before, there = last[each.vehicle]
            assert h3.great_circle_distance(place, there, unit="m") <= 75 / 3.6 * (arrival - before) / 1000 + 60
        last[each.vehicle] = arrival, place


def test_routes_are_long_lines_of_even_steps_with_stops() -> None:
    for route in city().routes:
        assert route.length_m > 8_000
        assert list(route.stops_m) == sorted(route.stops_m)
        assert len(route.free_kmh) == len(route.exposure) == len(route.points) - 1
        assert all(8 < speed < 70 for speed in route.free_kmh)


def test_a_seed_gives_the_same_day_again() -> None:
    first, again, other = (list(islice(city(seed=seed).readings(MONDAY), 500)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_traffic_stays_within_its_bounds_at_any_hour() -> None:
    for tenth in range(240):
        for weekend in (False, True):
            rush, duty = traffic(tenth / 10, weekend=weekend)
            assert 0 <= rush <= 1
            assert 0.25 <= duty <= 1.001


@pytest.mark.parametrize("vehicles", [1, 40])
def test_every_partition_is_ticked_each_ten_seconds_of_the_citys_time(vehicles: int) -> None:
    start = MONDAY + 3 * HOUR + 1
    router = Router(4, by_murmur2)
    messages = list(islice(city_messages(city(vehicles).readings(start), router, start), 2_000))
    ticks = [message.timestamp_ms for message in messages if message.key is None]
    assert ticks[:8] == [MONDAY + 3 * HOUR + HEARTBEAT_MS] * 4 + [MONDAY + 3 * HOUR + 2 * HEARTBEAT_MS] * 4
    assert all(after - before in (0, HEARTBEAT_MS) for before, after in pairwise(ticks))
    assert all(before.timestamp_ms <= after.timestamp_ms for before, after in pairwise(messages))


def test_messages_are_canonical_records_on_the_partition_of_their_vehicle() -> None:
    messages = list(islice(city_messages(city().readings(MONDAY), Router(4, by_murmur2), MONDAY), 500))
    for message in messages:
        if message.key is not None:
            reading = jsonl.decode(message.value)
            assert reading is not None
            assert reading.vehicle.encode() == message.key
            assert message.partition == by_murmur2(message.key, 4)


def test_a_city_begins_now_at_real_pace_and_in_the_past_with_a_speedup() -> None:
    now = MONDAY
    assert default_start_ms(now, 1, None, None) == now
    assert default_start_ms(now, 60, None, None) == now - PAST_MS
    assert default_start_ms(now, 60, 72 * HOUR, None) == now - 36 * HOUR
    assert default_start_ms(now, 0, 72 * HOUR, now - HOUR) == now - HOUR
    assert default_start_ms(now, 0, 72 * HOUR, now + HOUR) == now


@pytest.mark.parametrize(
    ("passed", "speedup", "sentence"),
    [
        (0, 1.0, "the first means, of 09:00-10:00 (Asia/Kolkata), come in about 275 minutes"),
        (36 * HOUR, 60.0, "the first means, of 09:00-10:00 (Asia/Kolkata), come in about 5 minutes"),
        (36 * HOUR, 1000.0, "the first means, of 09:00-10:00 (Asia/Kolkata), come in about 1 minute"),
        (2 * HOUR, 60.0, "the first means, of 09:00-10:00 (Asia/Kolkata), come in about 155 minutes"),
        (36 * HOUR, 0.0, "the first means are those of 09:00-10:00 (Asia/Kolkata)"),
    ],
)
def test_a_city_says_when_its_first_means_are_to_be_expected(passed: int, speedup: float, sentence: str) -> None:
    policy = policy_of(timezone="Asia/Kolkata", hours=[9, 21], lateness="5m")
    assert first_means(policy, Calendar(policy), MONDAY, MONDAY + passed, speedup) == sentence


def test_a_policy_that_begins_later_promises_no_means_of_a_city_yet() -> None:
    policy = policy_of(**{"replaces": "old", "from": "2024-02-01"})
    assert first_means(policy, Calendar(policy), MONDAY, MONDAY, 1.0) is None


def test_a_city_lies_where_it_was_asked_to() -> None:
    from hatcast.stream.fold.calendar import Calendar
    from tests.replayed import policy_of

    made = make_city(CityOptions(vehicles=20, centre=(60.17, 24.94), seed=1), Calendar(policy_of()))
    places = [(float(each.lat), float(each.lon)) for _, each in islice(made.readings(MONDAY), 200)]
    assert all(h3.great_circle_distance(place, (60.17, 24.94)) < 16 for place in places)


def test_its_timetable_has_about_the_speeds_of_its_roads_in_usual_traffic(tmp_path: Path) -> None:
    write_timetable(tmp_path / "city.zip", chance_of(7))
    found = scheduled_speeds(tmp_path / "city.zip", [7]).speeds
    metres, seconds = defaultdict[str, float](float), defaultdict[str, float](float)
    for line in make_routes(chance_of(7)):
        for at in range(0, int(line.length_m), 20):
            cell = h3.int_to_str(h3.latlng_to_cell(*place(CENTRE, line.at(at)), 7))
            metres[cell] += 20
            seconds[cell] += 20 * 3.6 / line.kmh(at, 0.35)
    driven = [cell for cell in metres if metres[cell] > 2_000]
    ratios = [found[cell] / 10 / (3.6 * metres[cell] / seconds[cell]) for cell in driven]
    assert len(driven) > 20
    assert statistics.mean(ratios) == pytest.approx(1, abs=0.04)
    assert 0.01 < statistics.stdev(ratios) < 0.1  # it has errors


def test_the_demos_tracker_knows_the_timetable_of_its_own_city(tmp_path: Path) -> None:
    options, nowhere = DemoOptions(), Addresses("", "")
    path = options.timetable(tmp_path)
    assert path == tmp_path / "timetable.zip"
    policy = demo_settings(nowhere, None, None, timetable=path).policy
    table = timetable_of(policy)
    assert table is not None
    driven = make_city(CityOptions(seed=options.job(nowhere).seed), Calendar(policy))
    passed = Counter(
        h3.int_to_str(h3.latlng_to_cell(*place(CENTRE, line.at(metres)), 6))
        for line in driven.routes
        for metres in range(0, int(line.stops_m[-1]), 100)
    )
    assert {cell for cell, times in passed.items() if times >= 20} <= table.speeds.keys()  # 2 km, and not its corner
    hybrid = demo_settings(nowhere, None, None, hybrid=True, timetable=path).policy
    assert timetable_of(hybrid) is None
    recorded = DemoOptions(files=[tmp_path / "day.csv"], gtfs=tmp_path / "gtfs.zip")
    assert recorded.timetable(tmp_path) == tmp_path / "gtfs.zip"
