"""Exports of databases, spreadsheets and programs: each is read right, or left out with a reason that names the fix.
Values as people have them: numbers and texts that say that there is none, and rows that lack a field.
"""

import base64
import bz2
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hatcast.agents.cli.budget_explained import _hidden
from hatcast.stream.errors import HatcastError
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.readings.formats import FORMATS, FormatChoice
from hatcast.stream.readings.reading import MISSING, Reading, place_doubts
from tests.invoked import run
from tests.wild import HEADER, batch, config, outcomes, policy_in, rows

T = "2024-05-06T10:00:00Z"
ROW = f"B1,{T},52.5,13.4,30\n"
TABLE = (HEADER + ROW).encode()
READING: dict[str, Any] = {"vehicle": "B1", "time": T, "lat": 52.5, "lon": 13.4, "speed": 30}
CSV, JSON = ("--format", "csv"), ("--format", "jsonl")
NUMBERED = ("--columns", "vehicle=1,time=2,lat=3,lon=4,speed=5", "--unit", "km/h")
GERMAN = "Fahrzeug;Zeit;Breite;Länge;Tempo\nB1;06.05.2024 10:00:00;52,5;13,4;30,5\n"
OF_GERMAN = ("--columns", "vehicle=Fahrzeug,time=Zeit,lat=Breite,lon=Länge,speed=Tempo", "--unit", "km/h")
PATTERN = ("--time-format", "%d.%m.%Y %H:%M:%S")
INSIDE = "vehicle=p.vehicle,lat=p.lat,lon=p.lon,speed=p.speed"
NO_TIME = "time is not a time of this format: name it with `--time-format`, such as '%d.%m.%Y %H:%M:%S'"
NO_NUMBER = "is not a number such as {}: no unit, no separator of thousands, no text"


def at(*times: str) -> bytes:
    return (HEADER + "".join(f'B{n},"{time}",52.5,13.4,30\n' for n, time in enumerate(times))).encode()


def speeds(*texts: str) -> bytes:
    return (HEADER + "".join(f'B{n},{T},52.5,13.4,"{text}"\n' for n, text in enumerate(texts))).encode()


def zipped(*names: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), TABLE)  # of one time: tests are named after it
    return packed.getvalue()


def read(folder: Path, content: bytes | str, options: tuple[str, ...], name: str = "file") -> Any:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return run("batch", path, *options, "--config", config(folder), "--contributions", "--json")


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"," + HEADER.encode() + b"0," + ROW.encode(), CSV),  # pandas with its index
        (at("1714989600", "1714989600.25", "1714989600000", "1714989600000000", "1714989600000000000"), CSV),
        (at("1.7149896e9", "1.7149896E+12"), CSV),
        (at(f"{T[:-1]}z", f"{T[:-1]}+00", f"{T[:-1]}+0000", f"{T[:-1]}-00:00", "2024-05-06 10:00:00.5 UTC"), CSV),
        (at("2024-05-06 10:00:00.123456789", "20240506T100000Z", "2024-W19-1T10:00:00Z"), CSV),  # DuckDB, ISO basic
        (f"B1\t{T}\t52.5\t13.4\t30\n", (*CSV, *NUMBERED)),  # COPY of Postgres
        (f'"vehicle", "time", "lat", "lon", "speed_kmh"\n"B1", "{T}", "52.5", "13.4", "30"\n', CSV),
        (f" vehicle | time | lat | lon | speed_kmh \n B1 | {T} | 52.5 | 13.4 | 30 \n", CSV),  # psql
        (b"\xef\xbb\xbf" * 2 + TABLE, CSV),
        (TABLE.replace(b"B1", b"\0B1"), CSV),
        (TABLE.replace(b"\n", b"\r\r\n"), CSV),
        (TABLE.replace(b"\n", b",\n"), CSV),
        (TABLE.replace(b",", b"\t").decode().encode("utf-16"), (*CSV, "--encoding", "utf-16")),  # Excel's Unicode text
        (TABLE.decode().encode("utf-16-le"), (*CSV, "--encoding", "utf-16-le")),
        (GERMAN.encode("cp1252"), (*CSV, *OF_GERMAN, *PATTERN, "--decimal", ",", "--encoding", "cp1252")),
        (TABLE.replace(b"speed_kmh", b"gps_speed_kph"), CSV),
        (TABLE.replace(b"speed_kmh", b"Speed in km/h"), CSV),
        (gzip.compress(HEADER.encode(), mtime=0) + gzip.compress(ROW.encode(), mtime=0), CSV),
        (zipped("day/a.csv", "__MACOSX/day/._a.csv", "day/.DS_Store"), CSV),
        (
            json.dumps({"time": {"$date": {"$numberLong": "1714989600000"}}} | {"p": READING | {"time": 0}}),  # MongoDB
            (*JSON, "--unit", "km/h", "--columns", f"time=time.$date.$numberLong,{INSIDE}"),
        ),
    ],
)
def test_what_has_one_meaning_is_read(tmp_path: Path, content: bytes | str, options: tuple[str, ...]) -> None:
    done = read(tmp_path, content, options)
    assert done.exit_code == 0, done.output
    assert set(outcomes(done)) == {"accepted"}, done.stderr
    [slot] = {hat.partition("/")[2] for hat in json.loads(done.stdout)["hats"]}
    assert slot == "2024-05-06/10:00"


@pytest.mark.parametrize(
    ("content", "options", "reason"),
    [
        (at("45418.41667", "2024-05-06", "05/06/2024 10:00:00 AM"), CSV, NO_TIME),  # Excel's days, a date, Socrata
        (at("202405061000", "20240506100000", "0", "-1"), CSV, NO_TIME),  # in no other century
        (at("2024-05-06T24:00:00Z", "2024-05-06T23:59:60Z", f"{T[:-1]}+02:00[Europe/Berlin]"), CSV, NO_TIME),
        (at(f"{T[:-1]} CET", f"{T[:-1]} EST", "Mon, 06 May 2024 10:00:00 GMT", "2024-05-06T10:00 AM"), CSV, NO_TIME),
        (speeds("1,030.5", "30 km/h", "#DIV/0!"), CSV, "value " + NO_NUMBER.format("30.5")),
        (speeds("1.030", "1.030.000"), (*CSV, "--decimal", ","), "value " + NO_NUMBER.format("30.5")),
        (TABLE.replace(b"52.5", b'52\xc2\xb030\'00""N'), CSV, "lat " + NO_NUMBER.format("52.5")),
        (TABLE.replace(b"52.5", b"52.5N"), CSV, "lat " + NO_NUMBER.format("52.5")),
        (TABLE.replace(b"13.4", b"POINT (13.4 52.5)"), CSV, "lon " + NO_NUMBER.format("13.4")),
        (HEADER + "1," + ROW, CSV, "has 6 fields, the header 5: one is left out, or has a separator without quotes"),
        (HEADER + f'B1,{T},52.5,13.4,"30\n', CSV, "has an open quote: one too many, or a line break in a cell"),
        (
            json.dumps(READING | {"time": {"$date": T}}),
            JSON,
            "time is an object or an array: name what is in it with `--columns time=time.KEY`",
        ),
        (
            json.dumps(READING | {"time": {"low": 1714989600}}),  # a Long of JavaScript
            (*JSON, "--columns", "vehicle=vehicle", "--unit", "km/h"),
            "time is an object or an array: name what is in it with `--columns time=COLUMN.KEY`",
        ),
        (json.dumps(READING) + '\n{"vehicle": "B2", "speed": NaN}', JSON, "is not JSON: write null for NaN"),
    ],
)
def test_what_has_none_or_two_is_left_out_with_a_reason(
    tmp_path: Path, content: bytes | str, options: tuple[str, ...], reason: str
) -> None:
    done = read(tmp_path, content, options)
    assert done.exit_code == 0, done.output
    assert "undecodable" in outcomes(done)
    assert f"undecodable: {reason}" in done.stderr


@pytest.mark.parametrize(
    ("content", "options", "problem"),
    [
        (TABLE.decode().encode("utf-16"), CSV, "is UTF-16; name it with `--encoding utf-16`, or save it as UTF-8"),
        (TABLE.decode().encode("utf-32"), CSV, "is UTF-32; name it with `--encoding utf-32`, or save it as UTF-8"),
        (TABLE.decode().encode("utf-16-le"), CSV, "is UTF-16 without its mark; name it with `--encoding utf-16-le`"),
        (TABLE.decode().encode("utf-16-be"), CSV, "is UTF-16 without its mark; name it with `--encoding utf-16-be`"),
        (TABLE.decode().encode("utf-16-le"), (*CSV, "--encoding", "utf-16"), "is not utf-16; name another with"),
        (
            json.dumps(READING).encode("utf-16"),
            JSON,
            "is UTF-16; save it as UTF-8, or name it with `--encoding utf-16`",
        ),
        (GERMAN.encode("cp1252"), (*CSV, *OF_GERMAN), "has a header that is not UTF-8; name its encoding, as"),
        (TABLE.replace(b"\n", b"\r"), CSV, "has lines that end with a carriage return alone; save it with usual line"),
        ('"vehicle" "time" "lat"\n"1" "B1" "x"\n', CSV, "has one column, or other signs than , ; | and tabs between"),
        ("<!DOCTYPE html>\n<table></table>", CSV, "is a web page; fetch the data itself"),
        ("<kml/>", CSV, "is XML, such as SIRI or GPX; use `--format siri` for SIRI, and convert others to CSV"),
        (
            "<?xml version='1.0'?><gpx></gpx>",
            ("--format", "siri"),
            "has no whole SIRI delivery; fetch it again, or name",
        ),
        ('{"entity": []}', ("--format", "gtfs-rt"), "is JSON, and no GTFS-Realtime poll; use `--format jsonl`"),
        ("<html></html>", ("--format", "gtfs-rt"), "is a web page, and no GTFS-Realtime poll; fetch the data itself"),
        (
            base64.b64encode(b"\x0a\x05"),
            ("--format", "gtfs-rt"),
            "is not a complete GTFS-Realtime poll; fetch it again",
        ),
        (gzip.compress(gzip.compress(TABLE, mtime=0), mtime=0), CSV, "is gzip inside gzip; unpack it first"),
        (gzip.compress(b"RDX3\nX\n", mtime=0), CSV, "is data of R; export it as CSV"),
        (b"\x80\x04\x95abc", CSV, "is a pickle of Python; export it as CSV"),
        (lzma.compress(TABLE, format=lzma.FORMAT_ALONE), CSV, "is packed with lzma; unpack it"),
        (b"\x1f\x9d\x90abc", CSV, "is packed with compress; unpack it"),
        (b"ORC\x08" + bytes(20), CSV, "is ORC; convert it to Parquet"),
        (b"\0\0\x27\x0a" + bytes(20), CSV, "is binary; name its format, unpack it, or export it as CSV"),
        (zipped("mimetype", "content.xml"), CSV, "is a workbook of Excel or LibreOffice; export it as CSV"),
        (zipped("a.csv", "b.csv"), CSV, "is a zip file of 2 files; unpack it, and name them"),
    ],
)
def test_what_is_another_kind_of_file_is_named(
    tmp_path: Path, content: bytes | str, options: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(HatcastError) as refused:
        read(tmp_path, content, options)
    assert str(refused.value).startswith(f"{tmp_path / 'file'}: {problem}")


@pytest.mark.parametrize(
    ("name", "content"), [("day.csv.bz2", bz2.compress(TABLE)), ("day.CSV.zip", zipped("day.csv")), ("day.tsv", TABLE)]
)
def test_the_name_of_a_packed_file_says_its_format(tmp_path: Path, name: str, content: bytes) -> None:
    assert outcomes(read(tmp_path, content, (), name)) == {"accepted": 1}


def test_a_dump_of_a_topic_is_one_whatever_its_name(tmp_path: Path) -> None:
    head = {"topic": "hats.telemetry", "partitions": 1, "start_offsets": [0]}
    line = {"topic": "hats.telemetry", "partition": 0, "offset": 0, "ts": 1714989600000, "key": None}
    value = base64.b64encode(json.dumps(READING).encode()).decode()
    content = f"{json.dumps(head)}\n{json.dumps(line | {'value': value})}\n"
    done = read(tmp_path, content, (), "dump.jsonl")
    assert sum(outcomes(done).values()) == 1, done.output


@pytest.mark.parametrize(
    ("place", "zone", "swapped"),
    [
        ((13.4, 52.5), "Europe/Berlin", True),
        ((52.5, 13.4), "Europe/Berlin", False),
        ((39.5, 76.0), "Asia/Shanghai", False),  # Kashgar has Beijing's clocks
        ((64.1, -21.9), "Atlantic/Reykjavik", False),
        ((40.4, -3.7), "Europe/Madrid", False),
        ((-31.4, -68.5), "America/Argentina/San_Juan", False),
        ((40.7, -74.0), "America/New_York", False),
        ((-74.0, 40.7), "America/New_York", True),
    ],
)
def test_swapped_places_get_a_hint_where_no_city_is(place: tuple[float, float], zone: str, *, swapped: bool) -> None:
    readings = [Reading("B1", 0, *place, 30.0)] * 3
    assert [("swapped" in each) for each in place_doubts(readings, zone)] == [True] * swapped


def test_check_says_what_batch_says_and_shows_no_row(tmp_path: Path) -> None:
    def checked(content: str, *options: str) -> str:
        path = tmp_path / "file.csv"
        path.write_text(content)
        return run("check", path, *options).output

    assert f"left out: 1: {NO_TIME}\n" in checked(HEADER + ROW.replace(T, "06.05.2024 10:00"))
    assert "places: 1 are not latitudes and longitudes in degrees\n" in checked(HEADER + ROW.replace("52.5", "5230.1"))
    assert "columns: vehicle, time, lat, lon, speed_kmh\n" in checked(f"sep=,\n\n{HEADER}{ROW}")
    bare = checked(ROW, *NUMBERED)
    assert "columns: 5, without a header\n" in bare
    assert "B1" not in bare
    speedless = checked("vehicle,time,lat,lon\n" + ROW.rpartition(",")[0] + "\n")
    assert "do not plainly show value; write columns such as value=COLUMN, or derive the speeds" in speedless
    with pytest.raises(HatcastError, match="do not plainly show vehicle, value; write columns"):
        checked("x,time,lat,lon,v\n" + ROW)


PM = """
[policy.value]
name = "pm25"
unit = "ug/m3"
lower = 0
upper = 500
missing = [{}]
"""
SENSORS = "vehicle,time,lat,lon,pm25\n"


def sensors(folder: Path, *values: object) -> Path:
    return rows(
        folder, *(f"S{n},2024-05-06T10:00:00Z,48.6,9.4,{each}" for n, each in enumerate(values)), header=SENSORS
    )


def pm_config(folder: Path, missing: str = "-999") -> Path:
    return config(folder, "Europe/Berlin", more=PM.format(missing))


def test_f06_a_number_that_says_that_there_is_none_does_not_count(tmp_path: Path) -> None:
    file = sensors(tmp_path, 20, 22, -999, "-999.0")
    done = batch(pm_config(tmp_path), file, "--format", "csv")
    assert outcomes(done) == {"accepted": 2, "bad_value": 2}
    [[users, readings, total, greatest]] = json.loads(done.stdout)["hats"].values()
    assert (users, readings, total / readings, greatest) == (2, 2, 21_000, 22_000)
    assert outcomes(batch(pm_config(tmp_path, ""), file, "--format", "csv")) == {"accepted": 4}


def test_f06_what_is_missing_is_part_of_the_policy(tmp_path: Path) -> None:
    ids = [policy_in(pm_config(tmp_path, missing)).policy_id for missing in ("", "-999", "-999, -1", "-1, -999.0, -1")]
    assert ids[2] == ids[3]
    assert len(set(ids)) == 3
    plain = pm_config(tmp_path, "")
    plain.write_text(plain.read_text().replace("missing = []\n", ""))
    assert policy_in(plain).policy_id == ids[0]


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ("0", "0 is a value from lower to upper; list numbers outside that range, such as -999"),
        ("500.0", "500 is a value from lower to upper; list numbers outside that range, such as -999"),
        ("inf", "inf is too large; use at most 1e+12"),
        (", ".join(map(str, range(-9, 0))), "lists 9 numbers; list at most 8"),
    ],
)
def test_f06_a_value_of_the_range_is_not_missing(tmp_path: Path, missing: str, problem: str) -> None:
    with pytest.raises(HatcastError) as refused:
        policy_in(pm_config(tmp_path, missing))
    assert str(refused.value).endswith(f": policy.value.missing: {problem}")


def test_f06_of_several_values_a_record_with_a_missing_one_counts_for_none(tmp_path: Path) -> None:
    values = 'values = ["speed", "delay"]\nupper_bound = 65.0\nreject_above = "none"'
    table = '[[policy.value]]\nname = "delay"\nunit = "s"\nlower = -600\nupper = 3600\nmissing = [-999]\n'
    header = "vehicle,time,lat,lon,speed_kmh,delay\n"
    file = rows(tmp_path, *(f"B{each},2024-05-06T10:00:00Z,52.5,13.4,30,{each}" for each in (30, -999)), header=header)
    done = batch(config(tmp_path, more=f"{values}\n{table}"), file, "--format", "csv")
    assert outcomes(done) == {"accepted": 1, "undecodable": 1}


def test_f06_it_is_listed_as_public(tmp_path: Path) -> None:
    assert "which of its readings lack a value" in _hidden(policy_in(pm_config(tmp_path)))
    assert "which of its readings lack a value" not in _hidden(policy_in(pm_config(tmp_path, "")))


SHIFTED = ("2024-05-06T10:00:00Z;B1;open;52.5;13.4;30;90", "2024-05-06T10:01:00Z;B1;52.5;13.4;28;90")


def test_f05_a_row_without_one_of_its_fields_is_not_read_shifted(tmp_path: Path) -> None:
    file = rows(tmp_path, *SHIFTED, header="time;vehicle;door;lat;lon;speed_kmh;heading\n")
    done = batch(config(tmp_path), file, "--format", "csv")
    assert outcomes(done) == {"accepted": 1, "undecodable": 1}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("B1,2024-05-06T10:00:00Z,52.5,13.4,30", None),
        ("B1,2024-05-06T10:00:00Z,52.5,13.4,30,, ", None),
        (
            "B1,2024-05-06T10:00:00Z,52.5,13.4,30,Mitte",
            "has 6 fields, the header 5: one is left out, or has a separator without quotes",
        ),
        (
            "B1,2024-05-06T10:00:00Z,52.5,13.4",
            "has 4 fields, the header 5: one is left out, or has a separator without quotes",
        ),
        ('B1,2024-05-06T10:00:00Z,52.5,13.4,"30', "has an open quote: one too many, or a line break in a cell"),
    ],
)
def test_f05_fields_beyond_the_header_are_empty_or_shift_a_row(tmp_path: Path, row: str, problem: str | None) -> None:
    feed = policy_format(FormatChoice("csv"), policy_in(config(tmp_path)))
    [record] = feed.records(io.BytesIO(f"vehicle,time,lat,lon,speed_kmh\n{row}\n".encode()), "file")
    assert record.problem == problem
    assert (record.reading is None) == (problem is not None)


FIXED = {
    "capmetro": "vehicle_id,timestamp,speed,route_id,trip_id,latitude,longitude,trip_headsign\n"
    "2619,2017-03-21T00:00:31-05:00,17.4,1,30.1,-97.7,S\n",
    "itms": "license_plate,trip,observationDateTime,speed,location.coordinates\n"
    '7,2022-01-02T05:29:43+05:30,8,"[72.8, 21.2]"\n',
}


@pytest.mark.parametrize("name", sorted(FIXED))
def test_f05_fixed_formats_of_csv_see_it_too(name: str) -> None:
    [record] = FORMATS[name].records(io.BytesIO(FIXED[name].encode()), "file")
    assert record.reading is None
    assert record.problem is not None
    assert record.problem.startswith("has ")


@pytest.mark.parametrize("cell", ["NULL", r"\N", "", "N/A", "-", "None"])
def test_f19_a_text_for_no_speed_is_an_empty_cell_and_is_derived(tmp_path: Path, cell: str) -> None:
    file = rows(tmp_path, *(f"B1,2024-05-06T10:0{n}:00Z,52.5{n},13.4,{cell}" for n in range(5)))
    done = batch(config(tmp_path), file, "--format", "csv", "--derive-speed")
    assert outcomes(done) == {"accepted": 4, "undecodable": 1}


POSITIONS = {
    "capmetro": b"2619,2017-03-21T00:00:31-05:00,NULL,1,1723912,30.1,-97.7,S",
    "jsonl": b'{"vehicle":"B1","time":"2024-05-06T12:00:00Z","lat":52.5,"lon":13.4,"speed":"NULL"}',
    "siri": b'{"RecordedAtTime":"2026-03-12T09:30:47Z","MonitoredVehicleJourney":{"VehicleRef":"1","Velocity":"NULL",'
    b'"VehicleLocation":{"Longitude":10.7,"Latitude":59.9}}}',
}


@pytest.mark.parametrize("name", sorted(POSITIONS))
def test_f19_fixed_formats_take_it_for_empty_too(name: str) -> None:
    positions: Any = FORMATS[name].without_speed
    reading = positions.decode(POSITIONS[name])
    assert reading is not None
    assert reading.speed is MISSING
    assert FORMATS[name].decode(POSITIONS[name]) is None
