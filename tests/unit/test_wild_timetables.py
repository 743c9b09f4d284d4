"""Timetables as people have them: stops at 0,0, tables in a folder, extended types of routes."""

import zipfile
from pathlib import Path

import h3.api.basic_str as h3
import pytest

from hatcast.agents.timetable.network import read_network
from hatcast.stream.errors import HatcastError
from tests.wild import run

TABLES = {
    "routes.txt": "route_id,agency_id,route_short_name,route_type\nr1,1,5,3\n",
    "trips.txt": "route_id,service_id,trip_id\nr1,s,t1\n",
    "stops.txt": "stop_id,stop_name,stop_lat,stop_lon\na,A,52.5,13.4\nz,Z,0,0.0\nb,B,52.55,13.5\n",
    "stop_times.txt": "trip_id,arrival_time,departure_time,stop_id,stop_sequence\n"
    "t1,8:00:00,8:00:00,a,1\nt1,8:05:00,8:05:00,z,2\nt1,8:10:00,8:10:00,b,3\n",
}


def timetable(folder: Path, at: str = "", **changes: str) -> Path:
    path = folder / "timetable.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in (TABLES | {f"{name}.txt": text for name, text in changes.items()}).items():
            archive.writestr(at + name, text)
    return path


def cells(path: Path, *options: object) -> tuple[set[str], str]:
    done = run("cells", "--gtfs", path, *options)
    assert done.exit_code == 0, done.output
    return {line for line in done.stdout.splitlines() if line[:1] == "8"}, done.stderr


WITH_SHAPE = {
    "trips": "route_id,service_id,trip_id,shape_id\nr1,s,t1,s1\n",
    "shapes": "shape_id,shape_pt_sequence,shape_pt_lat,shape_pt_lon\ns1,1,52.5,13.4\ns1,2,0,0\ns1,3,52.55,13.5\n",
}


@pytest.mark.parametrize("changes", [{}, WITH_SHAPE], ids=["stops", "shape"])
def test_f07_a_stop_at_0_0_is_left_out_and_the_line_goes_on(tmp_path: Path, changes: dict[str, str]) -> None:
    found, told = cells(timetable(tmp_path, **changes))
    assert 3 < len(found) < 30
    assert all(abs(h3.cell_to_latlng(each)[0] - 52.5) < 1 for each in found)
    if not changes:
        assert told.startswith(f"hint: {tmp_path / 'timetable.zip'}: 1 stops at latitude 0, longitude 0 are left out")


def test_f07_the_map_leaves_it_out_too(tmp_path: Path) -> None:
    lines: list[str] = []
    network = read_network(timetable(tmp_path), lines.append)
    assert [stop.name for stop in network.stops] == ["A", "B"]
    assert [list(route.lines) for route in network.routes] == [[[(52.5, 13.4), (52.55, 13.5)]]]
    assert len(lines) == 1


@pytest.mark.parametrize("folder", ["", "gtfs/", "export/2024/"])
def test_f20_tables_may_be_in_a_folder(tmp_path: Path, folder: str) -> None:
    assert cells(timetable(tmp_path, at=folder))[0] == cells(timetable(tmp_path))[0]


def test_f20_a_table_at_the_top_comes_before_one_in_a_folder(tmp_path: Path) -> None:
    path = timetable(tmp_path)
    expected = cells(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("old/stops.txt", "broken")
    assert cells(path) == expected


@pytest.mark.parametrize(("kind", "asked"), [("700", 3), ("702", 3), ("700", 700), ("900", 0), ("100", 2), ("3", 3)])
def test_f20_an_extended_type_is_one_of_its_basic_type(tmp_path: Path, kind: str, asked: int) -> None:
    routes = f"route_id,route_short_name,route_type\nr1,5,{kind}\n"
    assert cells(timetable(tmp_path, routes=routes), "--route-type", asked)[0] == cells(timetable(tmp_path))[0]


def test_f20_a_type_that_there_is_not_lists_those_that_there_are(tmp_path: Path) -> None:
    routes = "route_id,route_short_name,route_type\nr1,5,700\nr2,6,0\nr3,7,GJ05AB1234\n"
    with pytest.raises(HatcastError, match=r"has routes of type 0, 700 only; name one as --route-type"):
        cells(timetable(tmp_path, routes=routes), "--route-type", 4)
