"""Scheduled speeds of a timetable's cells: by hand, by brute force, and of a city."""

import math
import zipfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import h3.api.basic_str as h3
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hatcast.agents.timetable.speeds import scheduled_speeds
from hatcast.agents.timetable.tables import BadTimetable, open_timetable
from tests.services.data import recording

CELL: Final = h3.latlng_to_cell(30.27, -97.74, 7)
CENTRE: Final = h3.cell_to_latlng(CELL)
DEGREE_M: Final = 2 * math.pi * 6_371_007.2 / 360  # of latitude
CAPMETRO: Final = "capmetro/gtfs_2016-08-21_2017-01-21.zip"


class Visit(NamedTuple):
    """A stop of a trip: metres north of the centre of `CELL`, and its times as in the file."""

    north: int
    arrival: str
    departure: str = ""


def clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def place(north: int) -> tuple[float, float]:
    return CENTRE[0] + north / DEGREE_M, CENTRE[1]


def written(folder: Path, trips: Sequence[Sequence[Visit]], changes: Mapping[str, str] | None = None) -> Path:
    """A timetable in which each distance from the centre is a stop; rows are in descending order."""
    stops = sorted({visit.north for trip in trips for visit in trip})
    rows = [
        f"t{number},{visit.arrival},{visit.departure},s{visit.north},{at}"
        for number, trip in enumerate(trips)
        for at, visit in enumerate(trip)
    ]
    tables = {
        "routes.txt": ["route_id,route_type", "r,3"],
        "trips.txt": ["route_id,trip_id", *(f"r,t{number}" for number in range(len(trips)))],
        "stops.txt": [
            "stop_id,stop_lat,stop_lon",
            *(f"s{each},{place(each)[0]!r},{place(each)[1]!r}" for each in stops),
        ],
        "stop_times.txt": ["trip_id,arrival_time,departure_time,stop_id,stop_sequence", *reversed(rows)],
    }
    path = folder / "timetable.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, lines in tables.items():
            archive.writestr(name, (changes or {}).get(name.removesuffix(".txt"), "\n".join([*lines, ""])))
    return path


def test_a_cell_has_the_distance_over_the_time_of_its_legs(tmp_path: Path) -> None:
    trip = [Visit(-500, "08:00:00"), Visit(0, "08:01:40"), Visit(500, "08:02:30")]
    assert scheduled_speeds(written(tmp_path, [trip]), [7]).speeds == {CELL: 240}  # 1 km in 150 s


def test_every_trip_counts_once(tmp_path: Path) -> None:
    slow, fast = ([Visit(0, "23:59:00"), Visit(500, time)] for time in ("24:01:00", "23:59:40"))
    assert scheduled_speeds(written(tmp_path, [slow, slow, fast]), [7]).speeds == {CELL: 193}  # 1.5 km in 280 s


def test_standing_at_a_stop_is_no_part_of_a_leg(tmp_path: Path) -> None:
    trip = [Visit(0, "08:00:00", "08:10:00"), Visit(500, "08:11:00", "08:30:00"), Visit(0, "08:31:00")]
    assert scheduled_speeds(written(tmp_path, [trip]), [7]).speeds == {CELL: 300}


@pytest.mark.parametrize("time", ["", "  ", "08:00:00"], ids=["none", "spaces", "that of the stop before"])
def test_a_stop_without_a_time_of_its_own_is_passed_on_the_way_to_the_next(tmp_path: Path, time: str) -> None:
    trip = [Visit(0, "08:00:00"), Visit(500, time), Visit(-500, "08:03:00")]
    assert scheduled_speeds(written(tmp_path, [trip]), [7]).speeds == {CELL: 300}  # 1.5 km in 180 s


def test_a_time_of_departure_alone_is_that_of_arrival(tmp_path: Path) -> None:
    trip = [Visit(0, "", "08:00:00"), Visit(500, "", "08:01:00")]
    assert scheduled_speeds(written(tmp_path, [trip]), [7]).speeds == {CELL: 300}


def test_implausible_legs_are_left_out_and_counted(tmp_path: Path) -> None:
    trip = [
        Visit(0, "08:00:00"),
        Visit(500, "08:01:00"),
        Visit(0, "08:01:11"),
        Visit(500, "10:00:00"),
        Visit(500, "10:05:00"),
    ]
    told: list[str] = []
    path = written(tmp_path, [trip])
    assert scheduled_speeds(path, [7], told.append).speeds == {CELL: 300}
    (line,) = told
    assert line.startswith(f"hint: {path}: 50% of its legs are faster than 150 km/h, and left out: ")


def test_a_few_implausible_legs_of_many_are_not_worth_a_line(tmp_path: Path) -> None:
    slow, fast = ([Visit(0, "08:00:00"), Visit(500, time)] for time in ("08:01:00", "08:00:11"))
    told: list[str] = []
    assert scheduled_speeds(written(tmp_path, [slow] * 100 + [fast]), [7], told.append).speeds == {CELL: 300}
    assert not told


def test_trains_count_only_where_there_are_no_buses(tmp_path: Path) -> None:
    trips = [[Visit(0, "08:00:00"), Visit(500, time)] for time in ("08:01:00", "08:00:20")]
    mixed = {"routes": "route_id,route_type\nr,3\nx,2\n", "trips": "route_id,trip_id\nr,t0\nx,t1\n"}
    assert scheduled_speeds(written(tmp_path, trips, mixed), [7]).speeds == {CELL: 300}
    rails = mixed | {"routes": "route_id,route_type\nr,0\nx,2\n"}
    assert scheduled_speeds(written(tmp_path, trips, rails), [7]).speeds == {CELL: 450}


def test_cells_of_several_resolutions_are_in_one_table(tmp_path: Path) -> None:
    trip = [Visit(-2000, "08:00:00"), Visit(2000, "08:04:00")]
    found = scheduled_speeds(written(tmp_path, [trip]), [7, 9])
    assert {h3.get_resolution(cell) for cell in found.speeds} == {7, 9}
    assert set(found.speeds.values()) == {600}
    crossed = {h3.latlng_to_cell(*place(north), 9) for north in range(-2000, 2001)}
    assert {cell for cell in found.speeds if h3.get_resolution(cell) == 9} <= crossed
    assert len(crossed & set(found.speeds)) > len(crossed) - 3  # a corner may be missed


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"stop_times": "trip_id,stop_id,stop_sequence\nt0,s0,1\nt0,s500,2\n"}, "has no trip with plausible times"),
        ({"stop_times": "trip_id,arrival_time,stop_id,stop_sequence\nt0,8h,s0,1\n"}, "has '8h' in stop_times"),
        ({"stop_times": "trip_id,arrival_time,stop_id,stop_sequence\nt0,8:00:00,x,1\n"}, "names a stop in stop_times"),
        ({"stops": "stop_id,stop_lat,stop_lon\ns0,95,1\ns500,1,1\n"}, "has latitude 95, longitude 1 in stops.txt"),
        ({"trips": "route_id\nr\n"}, "has no column trip_id in trips.txt"),
        ({"trips": "route_id,trip_id\n"}, "has no trip with plausible times"),
    ],
)
def test_a_timetable_without_speeds_is_one_line(tmp_path: Path, changes: dict[str, str], says: str) -> None:
    path = written(tmp_path, [[Visit(0, "08:00:00"), Visit(500, "08:01:00")]], changes)
    with pytest.raises(BadTimetable, match=says) as raised:
        scheduled_speeds(path, [7])
    assert "\n" not in str(raised.value)


def brute_force(trips: Sequence[Sequence[Visit]]) -> dict[str, float]:
    """Speeds by walking each trip in steps of at most 150 m, each with its part of the leg's time; km/h."""
    metres, seconds = defaultdict[str, float](float), defaultdict[str, float](float)
    for trip in trips:
        leg = trip[:1]
        for visit in trip[1:]:
            leg = [*leg, visit]
            if not visit.arrival:
                continue
            start, end = (
                sum(int(part) * unit for part, unit in zip(each.split(":"), (3600, 60, 1), strict=True))
                for each in (leg[0].departure, visit.arrival)
            )
            if end <= start:
                continue
            length = sum(abs(b.north - a.north) for a, b in pairwise(leg))
            if end - start < 3600 and 0 < 3.6 * length <= 150 * (end - start):
                for a, b in pairwise(leg):
                    steps = max(1, math.ceil(abs(b.north - a.north) / 150))
                    for step in range(steps):
                        cell = h3.latlng_to_cell(*place_between(a, b, (step + 0.5) / steps), 7)
                        metres[cell] += abs(b.north - a.north) / steps
                        seconds[cell] += (end - start) * abs(b.north - a.north) / steps / length
            leg = [visit]
    return {cell: 3.6 * metres[cell] / seconds[cell] for cell in metres if metres[cell] > 0}


def place_between(a: Visit, b: Visit, share: float) -> tuple[float, float]:
    (lat, lng), (other, _) = place(a.north), place(b.north)
    return lat + (other - lat) * share, lng


@st.composite
def trips_of_a_line(draw: st.DrawFn) -> list[list[Visit]]:
    """Trips north and south past some of the stops; the first has a time, others may have none or an equal one."""
    trips = []
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, 80_000))
        visits = []
        for number, north in enumerate(
            draw(st.lists(st.sampled_from([-4003, -1510, -700, 0, 320, 1010, 5001]), min_size=2, max_size=6))
        ):
            at += draw(st.sampled_from([0, 20, 60, 61, 300, 4000]))
            stay = draw(st.sampled_from([0, 0, 30]))
            is_timed = number == 0 or draw(st.booleans())
            visits.append(Visit(north, clock(at), clock(at + stay)) if is_timed else Visit(north, ""))
            at += stay if is_timed else 0
        trips.append(visits)
    return trips


# The second stop has the time of the first, and the bus stands there until the time of the third.
@example(
    trips=[
        [
            Visit(-4003, "00:00:00", "00:00:00"),
            Visit(-4003, "00:00:00", "00:00:30"),
            Visit(-4003, "00:00:30", "00:00:30"),
            Visit(-4003, ""),
            Visit(-1510, "00:01:30", "00:01:30"),
        ]
    ]
)
@given(trips=trips_of_a_line())
def test_speeds_are_those_of_walking_every_trip(
    tmp_path_factory: pytest.TempPathFactory, trips: list[list[Visit]]
) -> None:
    wanted = brute_force(trips)
    path = written(tmp_path_factory.mktemp("timetable"), trips)
    try:
        found = scheduled_speeds(path, [7]).speeds
    except BadTimetable:
        found = {}
    assert found.keys() == wanted.keys()
    assert {cell: speed / 10 for cell, speed in found.items()} == pytest.approx(wanted, abs=0.06)


def test_a_city_has_a_plausible_speed_wherever_it_has_a_stop() -> None:
    path = recording(CAPMETRO)
    found = scheduled_speeds(path, [7]).speeds
    with open_timetable(path, str) as tables:
        stops = {h3.latlng_to_cell(*place, 7) for place in tables.stop_places()[1] if place is not None}
    assert stops - found.keys() == set()
    speeds = sorted(found.values())
    assert (speeds[0], speeds[len(speeds) // 2], speeds[-1]) == (43, 260, 592)
