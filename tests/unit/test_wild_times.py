"""Times as people have them: names of zones, repeated hours, headers; and places that contradict a policy's zone.
Timetables as people have them: stops at 0,0, tables in a folder, extended types of routes.
"""

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import h3.api.basic_str as h3
import pytest

import hatcast
from hatcast.agents.cli import recordings
from hatcast.agents.timetable.network import read_network
from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.readings.formats import FORMATS, Columns, FormatChoice
from hatcast.stream.readings.formats._times import time_reader
from hatcast.stream.readings.reading import ValueUnits, parse_time
from hatcast.stream.time_zones import similar_time_zone, time_zone
from tests.invoked import run
from tests.unit.test_policy_add_remove import policy as hidden
from tests.wild import WILD, batch, config, outcomes, policy_in, rows, slots

NOON = 1714989600000  # 2024-05-06 10:00:00 UTC


@pytest.mark.parametrize(
    "time",
    [
        "2024-05-06 10:00:00 UTC",
        "2024-05-06 10:00:00 GMT",
        "2024-05-06 10:00:00 +0000 UTC",
        "2024-05-06 15:30:00 +0530",
    ],
)
def test_f04_a_time_with_the_name_of_utc_is_that_instant_in_every_format(tmp_path: Path, time: str) -> None:
    done = batch(config(tmp_path, "Asia/Kolkata"), rows(tmp_path, f"B1,{time},21.2,72.8,30"), "--format", "csv")
    assert slots(done) == ["2024-05-06/15:00"]
    assert parse_time(time) == NOON
    record = json.dumps({"vehicle": "B1", "time": time, "lat": 21.2, "lon": 72.8, "speed": 30}).encode()
    reading = FORMATS["jsonl"].decode(record)
    assert reading is not None
    assert parse_time(reading.time) == NOON


@pytest.mark.parametrize("name", ["UTC", "GMT", "Z"])
def test_f04_a_pattern_that_ends_in_utc_is_utc(name: str) -> None:
    read = time_reader(f"%Y-%m-%d %H:%M:%S {name}", time_zone("Asia/Kolkata"))
    assert read(f"2024-05-06 10:00:00 {name}") == NOON


@pytest.mark.parametrize(
    "time",
    ["2024-05-06 UTC", "2024-05-06 10:00:00 IST", "2024-05-06 10:00:00 +0530 UTC", "2024-05-06 10:00:00 UTC UTC"],
)
def test_f04_other_names_and_two_zones_are_no_time(time: str) -> None:
    assert parse_time(time) is None


REPEATED = [f"B1,2024-10-27 {time}:00,52.5,13.4,{speed}" for time, speed in
            (("01:30", 10), ("02:15", 20), ("02:45", 20), ("02:15", 40), ("02:45", 40), ("03:15", 50))]  # fmt: skip


def test_f22_in_the_repeated_hour_the_order_of_a_vehicles_rows_decides(tmp_path: Path) -> None:
    done = batch(config(tmp_path, "Europe/Berlin"), rows(tmp_path, *REPEATED), "--format", "csv")
    assert outcomes(done) == {"accepted": 6}


def test_f22_rows_of_another_vehicle_change_nothing_and_a_row_out_of_order_is_not_the_second_hour(
    tmp_path: Path,
) -> None:
    late = "B1,2024-10-27 02:14:55,52.5,13.4,20"
    of_others = [row.replace("B1", "B2") for row in REPEATED]
    done = batch(
        config(tmp_path, "Europe/Berlin"), rows(tmp_path, *of_others, REPEATED[1], late, REPEATED[1]), "--format", "csv"
    )
    assert outcomes(done) == {"accepted": 8, "duplicate": 1}


def test_f22_an_arrival_in_the_repeated_hour_is_not_before_its_reading(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.jsonl"
    times = [row.split(",")[1] for row in REPEATED]
    given = [{"vehicle": "B1", "lat": 52.5, "lon": 13.4, "v": 30, "time": time, "arrival": time} for time in times]
    path.write_text("".join(json.dumps(each) + "\n" for each in given))
    done = batch(config(tmp_path, "Europe/Berlin"), path, "--format", "jsonl", "--columns", "speed=v", "--unit", "km/h")
    assert outcomes(done) == {"accepted": 6}


def test_f18_siri_without_offsets_is_read_in_a_named_zone(tmp_path: Path) -> None:
    file = WILD / "siri_no_offset.xml"
    assert outcomes(batch(config(tmp_path), file, "--format", "siri")) == {"bad_time": 2}
    done = batch(config(tmp_path), file, "--format", "siri", "--times-in", "Europe/Oslo")
    assert outcomes(done) == {"accepted": 2}
    assert slots(done) == ["2024-05-06/10:00"]


TIMES = {
    "jsonl": b'{"vehicle":"B1","time":"2024-05-06T12:00:00","lat":52.5,"lon":13.4,"value":3,"speed":3,"unit":"km/h"}',
    "itms": b'{"license_plate":"B","observationDateTime":"2024-05-06T12:00:00","speed":3,"location.coordinates":[1,2]}',
    "hfp": b'/hfp/v2/journey/ongoing/vp/bus/0040/1 {"VP":{"tst":"2024-05-06T12:00:00","spd":5,"lat":60,"long":24}}',
    "capmetro": b"2619,2024-05-06T12:00:00,17.4,1,1723912,30.1,-97.7,1",
}


@pytest.mark.parametrize("name", sorted(TIMES))
def test_f18_every_format_with_texts_of_times_has_the_option(tmp_path: Path, name: str) -> None:
    columns = Columns(times_in="Europe/Berlin", unit="km/h" if name == "jsonl" else None)
    feed = policy_format(FormatChoice(name, columns), policy_in(config(tmp_path)))
    reading = feed.decode(TIMES[name])
    assert reading is not None
    assert reading.time == NOON


def test_f18_the_zone_of_a_fixed_format_is_pinned_in_a_ledger(tmp_path: Path) -> None:
    arguments = ["batch", WILD / "siri_no_offset.xml", "--format", "siri", "--config", config(tmp_path)]
    ledger = ["--ledger", tmp_path / "ledger", "--times-in"]
    assert run(*arguments, *ledger, "Europe/Oslo").exit_code == 0
    with pytest.raises(HatcastError, match="times_in is UTC, and earlier runs had Europe/Oslo"):
        run(*arguments, *ledger, "UTC")


def test_f14_a_header_of_time_0_is_as_if_absent(tmp_path: Path) -> None:
    done = batch(config(tmp_path), WILD / "rt_header_zero.pb", "--format", "gtfs-rt")
    assert outcomes(done) == {"accepted": 3}


@pytest.mark.parametrize("file", ["rt_no_vehicle_time.pb", "rt_vehicle_time_zero.pb"])
def test_f15_a_vehicle_without_a_time_is_named_and_an_option_takes_the_headers(tmp_path: Path, file: str) -> None:
    done = batch(config(tmp_path), WILD / file, "--format", "gtfs-rt")
    assert outcomes(done) == {"undecodable": 3}
    assert "has no timestamp of its own: `--header-time` takes that of the poll's header" in done.stderr
    read = batch(config(tmp_path), WILD / file, "--format", "gtfs-rt", "--header-time")
    assert outcomes(read) == {"accepted": 3}


def test_f15_a_bridge_splits_polls_into_entities_with_the_headers_time() -> None:
    body = (WILD / "rt_no_vehicle_time.pb").read_bytes()
    with_time = FormatChoice("gtfs-rt", header_time=True).format(ValueUnits(), time_zone("UTC"))
    assert [with_time.decode(each) is not None for each in with_time.split(body)] == [True] * 3
    without = FORMATS["gtfs-rt"]
    assert [without.decode(each) for each in without.split(body)] == [None] * 3


def test_f15_the_headers_time_is_refused_under_add_remove_and_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="header_time: a header's time may follow from other vehicles"):
        policy_format(FormatChoice("gtfs-rt", header_time=True), hidden())
    for name in ("siri", "csv"):
        with pytest.raises(SettingError, match=f"header_time: {name} messages have no header with a time"):
            policy_format(FormatChoice(name, header_time=True), policy_in(config(tmp_path)))


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        ("IST", "Asia/Kolkata"),
        ("PST", "America/Los_Angeles"),
        ("Berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("Asia/Kolkatta", "Asia/Kolkata"),
        ("utc", "UTC"),
        ("Austin", None),
        ("XYZ", None),
    ],
)
def test_f26_a_zone_is_guessed_by_its_city_or_abbreviation_or_not_at_all(name: str, zone: str | None) -> None:
    assert similar_time_zone(name) == zone


SWAPPED = [f"B{n},2024-05-06T10:00:00Z,72.8,21.2,30" for n in range(3)]
FAR = (
    "hint: {}: the places are far from the longitudes of Asia/Kolkata: latitude and longitude are swapped, or they are"
)


def test_f26_swapped_places_get_a_hint_and_right_ones_none(tmp_path: Path) -> None:
    policy, path = config(tmp_path, "Asia/Kolkata"), rows(tmp_path, *SWAPPED)
    assert FAR.format(path) in batch(policy, path, "--format", "csv").stderr
    right = rows(tmp_path, *(row.replace("72.8,21.2", "21.2,72.8") for row in SWAPPED))
    assert "hint" not in batch(policy, right, "--format", "csv").stderr


@pytest.mark.parametrize(("speeds", "hint"), [([9.0] * 19 + [0.0, 16.0], True), ([9.0] * 18 + [16.0] * 2, False)])
def test_f26_speeds_that_look_like_metres_a_second_get_a_hint_on_a_terminal_and_never_in_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, speeds: Sequence[float], *, hint: bool
) -> None:
    path = rows(tmp_path, *(f"B{n},2024-05-06T10:00:00Z,21.2,72.8,{speed}" for n, speed in enumerate(speeds)))
    in_a_log = batch(config(tmp_path, "Asia/Kolkata"), path, "--format", "csv")
    assert "nearly all speeds" not in in_a_log.stderr, "speeds are private: one bus could decide what a log has"
    monkeypatch.setattr(recordings, "_on_terminal", lambda: True)
    done = batch(config(tmp_path, "Asia/Kolkata"), path, "--format", "csv")
    assert ("nearly all speeds are below 15 km/h" in done.stderr) == hint


def test_f26_other_commands_have_the_hints(tmp_path: Path) -> None:
    path = rows(tmp_path, *SWAPPED)
    done = run("survey", path, "--format", "csv", "--config", config(tmp_path, "Asia/Kolkata"), "--json")
    assert FAR.format(path) in done.stderr


def test_named_vehicles_of_the_package_read_zones_too(tmp_path: Path) -> None:
    """In Python the zone is `Columns.times_in`, for fixed formats as for others."""
    columns = hatcast.Columns(times_in="Europe/Oslo")
    means = hatcast.raw_means(WILD / "siri_no_offset.xml", config(tmp_path), format="siri", columns=columns)
    assert len(means) == 1


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
