"""`hatcast cells`: public lists from timetables, areas and boxes, as a policy reads them."""

import json
import zipfile
from pathlib import Path

import h3.api.basic_int as h3
import pytest
from click.testing import CliRunner, Result

from hatcast.agents.cli import hatcast
from hatcast.stream.areas import cells_of_lines
from hatcast.stream.policy.cells_file import read_cells_file

Tables = dict[str, str]

TABLES: Tables = {
    "routes.txt": "route_id,route_type\nbus,3\nmetro,1\n",
    "trips.txt": "trip_id,route_id,shape_id\nt1,bus,s1\nt2,bus,s1\nt3,metro,s2\nt4,bus,\n",
    # Out of order, and with a shape that no trip has.
    "shapes.txt": "shape_id,shape_pt_lat,shape_pt_lon,shape_pt_sequence\n"
    "s1,21.20,72.85,2\ns1,21.20,72.80,1\ns2,21.30,72.80,1\ns1,21.25,72.85,10\ns2,21.30,72.90,2\ns9,0,0,1\n",
    "stops.txt": "stop_id,stop_lat,stop_lon\na,21.0,72.8\nb,21.0,72.9\nc,21.1,72.9\nd,,\n",
    "stop_times.txt": "trip_id,stop_id,stop_sequence\nt4,b,20\nt4,a,3\nt4,c,100\nt1,c,1\n",
}
BUS = [(21.20, 72.80), (21.20, 72.85), (21.25, 72.85)]
METRO = [(21.30, 72.80), (21.30, 72.90)]
STOPS = [(21.0, 72.8), (21.0, 72.9), (21.1, 72.9)]


def timetable(path: Path, tables: Tables, mark: str = "") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in tables.items():
            archive.writestr(name, mark + text)
    return path


def cells(*arguments: object) -> Result:
    return CliRunner().invoke(hatcast, ["cells", *map(str, arguments)])


def listed(text: str, resolution: int = 7) -> frozenset[int]:
    read = read_cells_file(text, "policy.cells", resolution)
    assert read.source == "public"
    return read.cells


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_timetable_gives_the_cells_that_its_trips_cross(tmp_path: Path, mark: str) -> None:
    target = tmp_path / "cells.txt"
    done = cells("--gtfs", timetable(tmp_path / "feed.zip", TABLES, mark), "-o", target)
    assert done.exit_code == 0, done.output
    assert listed(target.read_text()) == cells_of_lines([BUS, METRO, STOPS], 7)
    assert f"{len(listed(target.read_text()))} cells" in done.stderr
    assert 'add cells = "cells.txt" and h3_resolution = 7 to [policy]' in done.stderr


def test_only_routes_of_the_named_types_count(tmp_path: Path) -> None:
    path = timetable(tmp_path / "feed.zip", TABLES)
    assert listed(cells("--gtfs", path, "--route-type", 1).stdout) == cells_of_lines([METRO], 7)
    both = cells("--gtfs", path, "--route-type", 1, "--route-type", 3, "--resolution", 8)
    assert listed(both.stdout, 8) == cells_of_lines([BUS, METRO, STOPS], 8)
    none = cells("--gtfs", path, "--route-type", 7)
    assert "has routes of type 1, 3 only; name one as --route-type" in str(none.exception)


def test_an_area_and_a_box_give_the_same_list_and_rings_widen_it(tmp_path: Path) -> None:
    ring = [[72.7, 21.1], [73.0, 21.1], [73.0, 21.3], [72.7, 21.3], [72.7, 21.1]]
    area = tmp_path / "area.json"
    area.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    box = listed(cells("--bbox", "72.7,21.1,73.0,21.3").stdout)
    assert listed(cells("--geojson", area).stdout) == box
    wide = listed(cells("--geojson", area, "--rings", 1).stdout)
    assert wide == {near for cell in box for near in h3.grid_disk(cell, 1)}


@pytest.mark.parametrize(
    ("table", "text", "says"),
    [
        ("routes.txt", None, "has no table routes.txt"),
        ("shapes.txt", None, "has no table shapes.txt"),
        ("stops.txt", "stop_id,stop_lat\n", "has no column stop_lon in stops.txt"),
        ("shapes.txt", TABLES["shapes.txt"].replace("21.25", "north"), "has 'north' in shapes.txt, where a number"),
        ("shapes.txt", TABLES["shapes.txt"].replace("21.25", "212.5"), "latitude 212.5, longitude 72.85 is not on"),
        (
            "stop_times.txt",
            TABLES["stop_times.txt"].replace("t4,b", "t4,x"),
            "names a stop in stop_times.txt that is not",
        ),
    ],
)
def test_a_damaged_timetable_is_one_line_that_names_the_table(
    tmp_path: Path, table: str, text: str | None, says: str
) -> None:
    tables = {name: content for name, content in (TABLES | {table: text}).items() if content is not None}
    done = cells("--gtfs", timetable(tmp_path / "feed.zip", tables), "-o", tmp_path / "cells.txt")
    assert says in str(done.exception)
    assert "feed.zip" in str(done.exception)
    assert not (tmp_path / "cells.txt").exists()


def test_a_cut_off_zip_file_is_refused(tmp_path: Path) -> None:
    path = timetable(tmp_path / "feed.zip", TABLES)
    path.write_bytes(path.read_bytes()[:-40])
    assert "is not a whole zip file; fetch it again" in str(cells("--gtfs", path).exception)


def test_a_damaged_entry_an_encrypted_one_and_a_table_that_is_not_csv_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "feed.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in TABLES.items():
            archive.writestr(name, text * 50)
    whole = path.read_bytes()
    start = whole.index(b"routes.txt") + len(b"routes.txt")
    path.write_bytes(whole[:start] + bytes(each ^ 0xFF for each in whole[start : start + 30]) + whole[start + 30 :])
    assert "is not a whole zip file" in str(cells("--gtfs", path).exception)
    directory = whole.index(b"PK\x01\x02")  # flags are at 8 of an entry of the directory
    path.write_bytes(whole[: directory + 8] + b"\x01" + whole[directory + 9 :])
    assert "is encrypted; unpack it" in str(cells("--gtfs", path).exception)
    timetable(path, TABLES | {"routes.txt": "route_id,route_type\n" + "x" * 200_000 + ",3\n"})
    assert "has a table that is not CSV" in str(cells("--gtfs", path).exception)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give one of --gtfs, --geojson and --bbox"),
        (["--bbox", "1,2,3,4", "--gtfs", "x.zip"], "give one of"),
        (["--bbox", "1,2,3"], "write WEST,SOUTH,EAST,NORTH"),
        (["--bbox", "1,2,3,4", "--route-type", "3"], "--route-type is for --gtfs"),
    ],
)
def test_options_that_do_not_go_together_are_a_usage_error(arguments: list[str], says: str) -> None:
    done = cells(*arguments)
    assert done.exit_code == 2
    assert says in done.output


def test_an_existing_list_is_never_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "cells.txt"
    target.write_text("mine")
    assert "exists already" in str(cells("--bbox", "72.7,21.1,73.0,21.3", "-o", target).exception)
    assert target.read_text() == "mine"


def test_a_box_whose_west_and_east_are_swapped_is_refused() -> None:
    swapped = cells("--bbox", "72.9,21.1,72.7,21.3")
    assert str(swapped.exception) == "--bbox: west, 72.9, is east of east, 72.7: swap them"
    for box, problem in (
        ("21.1,172.7,21.3,173.0", "south, 172.7, is not within -90 to 90"),
        ("272.7,21.1,73.0,21.3", "west, 272.7, is not within -180 to 180"),
        ("72.7,21.3,73.0,21.1", "south, 21.3, is not south of north, 21.1"),
        ("72.7,21.1,72.7,21.3", "west and east are both 72.7"),
    ):
        fix = "write west,south,east,north in degrees, such as 72.7,21.1,73.0,21.3"
        assert str(cells("--bbox", box).exception) == f"--bbox: {problem}: {fix}"
    assert listed(cells("--bbox", "179.9,-17,-179.9,-16.9").stdout), "a box across the 180th meridian"
