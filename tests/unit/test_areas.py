"""Cells of lines and areas, against points that are drawn on them."""

import itertools
import math
import random

import h3.api.basic_int as h3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hatcast.stream import areas
from hatcast.stream.areas import BadArea, cells_of_area, cells_of_box, cells_of_lines, widened
from tests.support import examples

latitudes = st.floats(-84, 84)
longitudes = st.floats(-180, 180)
steps = st.floats(-0.3, 0.3)


def wrapped(longitude: float) -> float:
    return (longitude + 180) % 360 - 180


@given(latitudes, longitudes, st.lists(st.tuples(steps, steps), max_size=4), st.integers(3, 8))
@settings(deadline=None)
def test_each_point_of_a_line_is_in_a_cell_of_it_or_at_its_border(
    latitude: float, longitude: float, moves: list[tuple[float, float]], resolution: int
) -> None:
    line = [(latitude, longitude)]
    for north, east in moves:
        line.append((line[-1][0] + north, wrapped(line[-1][1] + east)))
    cells = cells_of_lines([line], resolution)
    tolerated = h3.average_hexagon_edge_length(resolution) / 64 / 111.2  # degrees of latitude
    for (lat_a, lng_a), (lat_b, lng_b) in itertools.pairwise(line):
        turn = wrapped(lng_b - lng_a)
        for _ in range(50):
            at = random.random()
            lat, lng = lat_a + at * (lat_b - lat_a), lng_a + at * turn
            near = [
                (lat + tolerated * math.sin(angle), wrapped(lng + tolerated * math.cos(angle))) for angle in range(7)
            ]
            assert {h3.latlng_to_cell(lat, wrapped(lng), resolution)} & cells or {
                h3.latlng_to_cell(*each, resolution) for each in near
            } & cells
    # No cell without a point of the line: each has an end of a segment that was halved.
    for cell in cells:
        assert any(
            _distance_km(cell, *pair) <= 2.2 * h3.average_hexagon_edge_length(resolution) for pair in _pairs(line)
        )


def _pairs(line: list[tuple[float, float]]) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    return [*itertools.pairwise(line)] or [(line[0], line[0])]


def _distance_km(cell: int, a: tuple[float, float], b: tuple[float, float]) -> float:
    """The distance of a cell's centre from a segment's nearest of 2,000 points."""
    centre = h3.cell_to_latlng(cell)
    turn = wrapped(b[1] - a[1])
    points = ((a[0] + i / 2000 * (b[0] - a[0]), wrapped(a[1] + i / 2000 * turn)) for i in range(2001))
    return min(float(h3.great_circle_distance(centre, point)) for point in points)


@given(st.floats(-80, 75), longitudes, st.floats(0.01, 3), st.floats(0.01, 3))
@settings(deadline=None, max_examples=examples(40))
def test_every_point_of_a_box_is_in_a_cell_of_it_also_across_the_180th_meridian(
    south: float, west: float, height: float, width: float
) -> None:
    box = (west, south, wrapped(west + width), south + height)
    cells = cells_of_box(box, 5)
    for _ in range(200):
        lat, lng = south + random.random() * height, wrapped(west + random.random() * width)
        assert h3.latlng_to_cell(lat, lng, 5) in cells


def test_the_box_of_the_earth_has_all_cells() -> None:
    assert cells_of_box((-180, -90, 180, 90), 2) == set(h3.uncompact_cells(h3.get_res0_cells(), 2))


def test_geojson_gives_the_cells_that_its_parts_touch() -> None:
    square = [[[72.8, 21.1], [72.9, 21.1], [72.9, 21.2], [72.8, 21.2], [72.8, 21.1]]]
    hole = [[[72.82, 21.12], [72.88, 21.12], [72.88, 21.18], [72.82, 21.18], [72.82, 21.12]]]
    whole = cells_of_area({"type": "Polygon", "coordinates": square}, 9)
    ring = cells_of_area({"type": "Polygon", "coordinates": [*square, *hole]}, 9)
    assert ring < whole
    assert h3.latlng_to_cell(21.15, 72.85, 9) in whole - ring
    line = {"type": "LineString", "coordinates": [[72.7, 21.0, 12.5], [72.7, 21.1]]}  # with an altitude
    collection = {
        "type": "FeatureCollection",
        "features": [
            {"type": "Feature", "properties": None, "geometry": {"type": "MultiPolygon", "coordinates": [square]}},
            {"type": "Feature", "properties": {}, "geometry": None},
            {"type": "Feature", "geometry": {"type": "GeometryCollection", "geometries": [line]}},
            {"type": "Feature", "geometry": {"type": "MultiPoint", "coordinates": [[10.0, 50.0]]}},
        ],
    }
    expected = whole | cells_of_lines([[(21.0, 72.7), (21.1, 72.7)]], 9) | {h3.latlng_to_cell(50.0, 10.0, 9)}
    assert cells_of_area(collection, 9) == expected


@pytest.mark.parametrize(
    ("geometry", "says"),
    [
        ({}, "type None"),
        ({"type": "Topology"}, "'Topology', which is not GeoJSON"),
        ({"type": "FeatureCollection", "features": [3]}, "not a GeoJSON object"),
        ({"type": "Polygon", "coordinates": []}, "not those of a Polygon"),
        ({"type": "Polygon", "coordinates": [[[1, 2], [3, 4]]]}, "not those of a Polygon"),
        ({"type": "Polygon", "coordinates": [[["a", 2], [3, 4], [5, 6]]]}, "not those of a Polygon"),
        ({"type": "LineString", "coordinates": [[1], [2]]}, "not those of a LineString"),
        ({"type": "Point", "coordinates": [21.2, 172.8]}, "latitude 172.8, longitude 21.2 is not on the earth"),
        ({"type": "Point", "coordinates": [float("nan"), 1]}, "not on the earth"),
    ],
)
def test_what_is_not_an_area_is_refused_in_words(geometry: dict[str, object], says: str) -> None:
    with pytest.raises(BadArea, match=says):
        cells_of_area(geometry, 7)


@pytest.mark.parametrize("box", [(1, 2, 1, 3), (1, 3, 2, 2), (0, 0, 181, 1), (0, -91, 1, 1), (0, float("nan"), 1, 1)])
def test_a_box_that_is_empty_or_not_on_the_earth_is_refused(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(BadArea, match="west,south,east,north"):
        cells_of_box(box, 7)


def test_a_list_that_is_too_long_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadArea, match="more than 1,000,000 cells of resolution 15"):
        cells_of_box((-180, -90, 180, 90), 15)
    monkeypatch.setattr(areas, "CELLS_MAX", 100)
    with pytest.raises(BadArea, match="more than 100 cells"):
        cells_of_lines([[(21.0, 72.0), (22.0, 72.0)]], 9)
    with pytest.raises(BadArea, match="more than 100 cells"):
        widened([h3.latlng_to_cell(21.0, 72.0, 7)], 6)


def test_rings_add_the_neighbours() -> None:
    cell = h3.latlng_to_cell(21.2, 72.8, 7)
    assert widened([cell], 0) == {cell}
    assert widened([cell], 2) == set(h3.grid_disk(cell, 2))
