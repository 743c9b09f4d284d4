"""`hatcast cells`: public lists from timetables, areas and boxes, as a policy reads them.
The file that `policy.cells` names.
"""

import json
import zipfile
from datetime import date, timedelta
from pathlib import Path

import h3.api.basic_int as h3
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from hatcast.agents.cli import hatcast
from hatcast.stream.areas import cells_of_lines
from hatcast.stream.errors import SettingError
from hatcast.stream.estimators import ESTIMATORS
from hatcast.stream.policy.cells_file import SOURCES, CellsFile, SelectionCost, read_cells_file
from hatcast.stream.policy.policy import Policy, read_policy
from tests.replayed import policy_of

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


CELLS = frozenset(h3.grid_disk(0x87608B0D2FFFFFF, 1))
COST = 'epsilon = 0.5\ndays = "2022-01-02,2022-01-08"\ntimezone = "UTC"\n'
chosen = st.builds(
    lambda epsilon, first, days: SelectionCost(epsilon, first, first + timedelta(days=days)),
    st.floats(1e-3, 10),
    st.dates(date(2000, 1, 1), date(2100, 1, 1)),
    st.integers(0, 400),
)


@given(source=st.sampled_from(SOURCES), cost=chosen, cells=st.frozensets(st.sampled_from(sorted(CELLS))))
def test_a_file_is_read_again_with_its_source_and_its_cost_and_without_its_remarks(
    source: str, cost: SelectionCost, cells: frozenset[int]
) -> None:
    listed = CellsFile(source, cells, *((cost, "Asia/Kolkata") if source == "private" else ()))
    text = listed.text(["# a remark", "and another"])
    assert text.startswith(f'source = "{source}"\n# # a remark\n')
    assert read_cells_file(text, "cells", 7) == listed
    assert read_cells_file(text.replace("# and another", ""), "cells", 7).canonical == listed.canonical


@pytest.mark.parametrize(
    "cost",
    [
        "",
        COST.splitlines()[0],
        COST.replace("0.5", "0"),
        COST.replace("0.5", "x"),
        COST.replace("0.5", "nan"),
        COST.replace("0.5", "1e-999999999"),
        COST.replace(",2022-01-08", ",2021"),
    ],
)
def test_a_private_list_that_does_not_say_what_it_has_cost_is_refused(cost: str) -> None:
    with pytest.raises(SettingError, match="does not state its privacy cost; let `hatcast survey --private` write"):
        read_cells_file(f'source = "private"\n{cost}\n87608b0d2ffffff\n', "cells", 7)


def test_a_list_that_is_not_private_has_no_cost() -> None:
    with pytest.raises(SettingError, match="line 2 is not an H3 index of resolution 7"):
        read_cells_file(f'source = "survey"\n{COST}87608b0d2ffffff\n', "cells", 7)


@pytest.mark.parametrize("line", ["-1", "-87608b0d2ffffff", "f" * 17, "1" + "0" * 5000, "87608b0d2ffffff 1", "x"])
def test_a_line_that_is_no_unsigned_number_of_64_bits_is_no_index(line: str) -> None:
    with pytest.raises(SettingError, match="line 2 is not an H3 index of resolution 7"):
        read_cells_file(f'source = "public"\n{line}\n', "cells", 7)


def test_a_policy_with_a_private_list_is_another_one_when_the_list_has_cost_something_else() -> None:
    def policy(text: str) -> Policy:
        table = {"name": "p", "upper_bound": 65.0, "timezone": "UTC", "cells": "cells.txt"}
        privacy = {"epsilon": 1.0, "max_hats_per_day": 5, "daily_limit": 9.0}
        tables = {"privacy": privacy, "estimator": {"name": "baseline"}}
        return read_policy(table | tables, {"baseline": ESTIMATORS["baseline"].keys}, lambda _: text)

    text = f'source = "private"\n{COST}87608b0d2ffffff\n'
    first = policy(text)
    assert first.selection_cost == SelectionCost(0.5, date(2022, 1, 2), date(2022, 1, 8))
    assert first.policy_id != policy(text.replace("0.5", "0.25")).policy_id
    assert policy_of().selection_cost is None


@pytest.mark.parametrize("key", ["cells", "fine_cells"])
def test_a_private_list_of_another_time_zone_is_refused_since_other_days_would_be_charged(key: str) -> None:
    cell, resolutions = ("87608b0d2ffffff", {}) if key == "cells" else ("88608b0d21fffff", {"resolutions": [7, 8]})
    text = f'source = "private"\n{COST}{cell}\n'

    def policy(timezone: str, listed: str = text) -> Policy:
        return policy_of(files={"kept.txt": listed}, timezone=timezone, **{key: "kept.txt"}, **resolutions)

    assert policy("UTC").selection_cost is not None
    with pytest.raises(SettingError) as refused:
        policy("Asia/Kolkata")
    assert str(refused.value) == (
        f"policy.{key} (kept.txt): has cost days of UTC, and policy.timezone is Asia/Kolkata: other days would be"
        ' charged; use timezone = "UTC", or select again by `hatcast survey --private` under this one'
    )
    with pytest.raises(SettingError, match="does not state the time zone of its days; add the line timezone = "):
        policy("UTC", text.replace('timezone = "UTC"\n', ""))


@pytest.mark.parametrize(("last", "is_read"), [("2032-01-08", True), ("2032-01-09", False)])
def test_a_list_that_names_more_than_ten_years_of_days_is_refused(last: str, *, is_read: bool) -> None:
    text = f'source = "private"\nepsilon = 0.5\ndays = "2022-01-01,{last}"\ntimezone = "UTC"\n'
    if is_read:
        listed = read_cells_file(text, "cells", 7).cost
        assert listed is not None
        assert len(listed.dates) == 3_660
        return
    with pytest.raises(SettingError, match="names more than 3,660 days"):
        read_cells_file(text, "cells", 7)
