"""Routes and stops of a timetable, as the map draws them."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.agents.timetable import network as network_module
from hatcast.agents.timetable.network import kept_points, read_network
from hatcast.agents.timetable.tables import BadTimetable, Points
from tests.surroundings import CENTRE, HUB, ROUTES, at, write_timetable

Flat = tuple[float, float]
METRES = 111_195.0  # of a degree, at the equator


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    return write_timetable(tmp_path / "feed.zip")


def test_a_route_has_its_names_its_colour_and_the_corners_of_its_line(feed: Path) -> None:
    routes = {route.name: route for route in read_network(feed).routes}
    assert set(routes) == set(ROUTES)
    for name, (colour, corners) in ROUTES.items():
        assert (routes[name].colour, routes[name].long_name) == (colour, f"Route {name}")
        (line,) = routes[name].lines  # its trips share one shape
        turns = [b for a, b, c in zip(corners, corners[1:], corners[2:], strict=False) if a[0] != c[0] and a[1] != c[1]]
        wanted = [at(*corner) for corner in (corners[0], *turns, corners[-1])]  # no point on a straight line
        assert list(line) == [pytest.approx((lat, lng), abs=1e-5) for lng, lat in wanted]


def test_a_stop_has_the_routes_that_serve_it_in_the_order_of_their_numbers(feed: Path) -> None:
    hub = next(stop for stop in read_network(feed).stops if stop.name == HUB)
    assert hub.routes == ["1", "12", "801"]
    assert hub.place == pytest.approx((CENTRE[1], CENTRE[0]), abs=1e-5)


def test_without_shapes_a_route_goes_straight_from_stop_to_stop_once_for_both_directions(tmp_path: Path) -> None:
    tables = {
        "routes.txt": "route_id,route_long_name,route_color\nr,Night bus,white\n",
        "trips.txt": "route_id,trip_id\nr,there\nr,back\n",
        "stops.txt": "stop_id,stop_name,stop_lat,stop_lon\na,A,21.1,72.8\nb,B,21.2,72.9\nc,,21.3,72.9\nd,D,,\n",
        "stop_times.txt": "trip_id,stop_id,stop_sequence\n"
        "there,a,1\nthere,b,2\nthere,c,3\nback,b,9\nback,a,10\nback,d,11\n",
        "shapes.txt": None,
    }
    network = read_network(write_timetable(tmp_path / "feed.zip", tables))
    (route,) = network.routes
    assert (route.name, route.colour) == ("Night bus", "")
    assert route.lines == [[(21.1, 72.8), (21.2, 72.9)], [(21.2, 72.9), (21.3, 72.9)]]
    assert [(stop.name, stop.routes) for stop in network.stops] == [("A", ["Night bus"]), ("B", ["Night bus"])]


def test_stops_of_one_name_on_both_sides_of_a_road_are_one_and_far_ones_are_not(tmp_path: Path) -> None:
    tables = {
        "stops.txt": "stop_id,stop_name,stop_lat,stop_lon\n"
        "a,Main St,21.10000,72.8\nb,Main St,21.10040,72.8\nc,Main St,21.20000,72.8\nunserved,Depot,21.1,72.8\n",
        "stop_times.txt": "trip_id,stop_id,stop_sequence\nt1a,a,1\nt12a,b,1\nt1a,c,2\n",
    }
    found = [(s.name, s.place, s.routes) for s in read_network(write_timetable(tmp_path / "f.zip", tables)).stops]
    assert found == [("Main St", (21.1002, 72.8), ["1", "12"]), ("Main St", (21.2, 72.8), ["1"])]


@pytest.mark.parametrize(
    ("table", "text", "says"),
    [
        ("stops.txt", "stop_id,stop_lat,stop_lon\na,95,72.8\n", "has latitude 95, longitude 72.8 in stops.txt"),
        ("stops.txt", "stop_id,stop_lat,stop_lon\na,nan,72.8\n", "has latitude nan"),
        (
            "shapes.txt",
            "shape_id,shape_pt_sequence,shape_pt_lat,shape_pt_lon\ns1,1,21,72\ns1,2,21,inf\n",
            "has latitude 21, longitude inf in shapes.txt",
        ),
        (
            "stop_times.txt",
            "trip_id,stop_id,stop_sequence\nt1a,nowhere,1\n",
            "names a stop in stop_times.txt that is not",
        ),
        ("stop_times.txt", None, "has no table stop_times.txt"),
        ("routes.txt", "route_id\n", "has no route with a line and no stop"),
    ],
)
def test_a_timetable_that_cannot_be_drawn_is_one_line(tmp_path: Path, table: str, text: str | None, says: str) -> None:
    with pytest.raises(BadTimetable, match=says) as raised:
        read_network(write_timetable(tmp_path / "feed.zip", {table: text}))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("limit", "says"), [("STOPS_MAX", "has 89 stops"), ("POINTS_MAX", "of more than 4 points")])
def test_a_timetable_of_a_country_is_rejected_in_place_of_filling_the_page(
    feed: Path, monkeypatch: pytest.MonkeyPatch, limit: str, says: str
) -> None:
    monkeypatch.setattr(network_module, limit, 4)
    with pytest.raises(BadTimetable, match=says):
        read_network(feed)


def slow_douglas_peucker(line: Sequence[Flat], tolerance: float) -> list[Flat]:
    """The recursion of the paper, of places in metres."""
    if len(line) < 3:
        return list(line)
    away = [distance(each, line[0], line[-1]) for each in line[1:-1]]
    at_most = max(range(len(away)), key=away.__getitem__)
    if away[at_most] <= tolerance:
        return [line[0], line[-1]]
    split = at_most + 1
    return slow_douglas_peucker(line[: split + 1], tolerance)[:-1] + slow_douglas_peucker(line[split:], tolerance)


def distance(point: Flat, start: Flat, end: Flat) -> float:
    (x, y), (dx, dy) = ((point[i] - start[i] for i in (0, 1)), (end[i] - start[i] for i in (0, 1)))
    length2 = dx * dx + dy * dy
    along = min(1.0, max(0.0, (x * dx + y * dy) / length2)) if length2 else 0.0
    return math.hypot(x - along * dx, y - along * dy)


lines = st.lists(st.lists(st.tuples(*[st.integers(-300, 300)] * 2), min_size=1, max_size=12), min_size=1, max_size=4)


@given(lines)
def test_many_lines_at_once_are_simplified_as_each_alone(lines: list[list[tuple[int, int]]]) -> None:
    number = np.repeat(np.arange(len(lines)), [len(line) for line in lines])
    flat = np.array([place for line in lines for place in line], dtype=np.float64)
    # Near the equator a degree of longitude is as long as one of latitude, to 1 part in 10^9.
    keep = kept_points(Points(number, flat[:, 1] / METRES, flat[:, 0] / METRES), 40.5)
    found = [flat[keep & (number == i)].tolist() for i in range(len(lines))]
    slow = [[list(map(float, place)) for place in slow_douglas_peucker(line, 40.5)] for line in lines]
    assert [[line[0], line[-1]] for line in found] == [[line[0], line[-1]] for line in slow], "a line keeps its ends"
    for line, kept in zip(lines, found, strict=True):
        ends = list(pairwise(kept)) or [(kept[0], kept[0])]
        for place in line:
            assert min(distance(place, tuple(a), tuple(b)) for a, b in ends) <= 40.5 + 1e-3
    assert [len(line) for line in found] == [len(line) for line in slow]
