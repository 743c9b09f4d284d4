"""Containers and dialects as people have them: JSON around records, packed files, headers, encodings, decimal signs."""

import bz2
import io
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hatcast.stream.errors import HatcastError, SettingError
from hatcast.stream.policy.formats import policy_format
from hatcast.stream.readings.formats import Columns, FormatChoice
from hatcast.stream.readings.formats._json_values import concatenated, split_json
from hatcast.stream.readings.reading import Reading
from tests.invoked import run
from tests.replayed import policy_of
from tests.wild import HEADER, batch, config, outcomes, policy_in, rows

RECORDS: list[dict[str, Any]] = [
    {"vehicle": f"B{n}", "time": "2024-05-06T10:00:00Z", "lat": 52.5, "lon": 13.4, "speed": 20 + n} for n in range(3)
]
GEOJSON = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [13.4, 52.5]},
            "properties": {"id": f"v{n}", "t": "2024-05-06T10:00:00Z", "speed": 20 + n},
        }
        for n in range(3)
    ],
}
PLACES = "time=properties.t,lat=geometry.coordinates.1,lon=geometry.coordinates.0,speed=properties.speed"
OF_GEOJSON = ("--format", "jsonl", "--columns", f"vehicle=properties.id,{PLACES}", "--unit", "km/h")
FIELDS = ("--format", "jsonl", "--columns", "vehicle=vehicle", "--unit", "km/h")


def written(folder: Path, content: object, name: str = "file.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def refusal(folder: Path, file: Path, *options: object) -> str:
    with pytest.raises(HatcastError) as refused:
        run("batch", file, *options, "--config", config(folder), "--contributions")
    return str(refused.value).removeprefix(f"{file}: ")


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("vehicles", {"vehicles": RECORDS}),
        ("data.bikes", {"ttl": 60, "data": {"bikes": RECORDS}}),
        ("routes.vehicles", {"routes": [{"vehicles": RECORDS[:1]}, {"vehicles": RECORDS[1:]}, {}]}),
        (".", {each["vehicle"]: each for each in RECORDS}),
        ("fleet", {"at": 1, "fleet": {"at": 7, **{each["vehicle"]: each for each in RECORDS}}}),
        (".", [*RECORDS, None]),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_f08_records_inside_an_object_are_read_by_their_path(
    tmp_path: Path, path: str, document: Any, indent: int | None
) -> None:
    file = written(tmp_path, json.dumps(document, indent=indent))
    assert outcomes(batch(config(tmp_path), file, *FIELDS, "--records", path)) == {"accepted": 3}


def test_f08_geojson_is_read_and_without_the_option_the_error_names_it(tmp_path: Path) -> None:
    file = written(tmp_path, GEOJSON)
    assert outcomes(batch(config(tmp_path), file, *OF_GEOJSON, "--records", "features")) == {"accepted": 3}
    advice = "has an array of objects at features: `--records features` reads each of them"
    assert refusal(tmp_path, file, *OF_GEOJSON) == f"has none of the columns; it {advice}"
    assert refusal(tmp_path, file, *OF_GEOJSON, "--records", "bikes") == f"has no records at bikes; it {advice}"


def test_f08_one_document_a_line_and_one_without_records_are_records_of_their_own(tmp_path: Path) -> None:
    polls = [{"vehicles": RECORDS[:2]}, {"error": "down", **RECORDS[0]}, {"vehicles": RECORDS[2:]}]
    file = written(tmp_path, "\n".join(map(json.dumps, polls)))
    done = batch(config(tmp_path), file, *FIELDS, "--records", "vehicles")
    assert outcomes(done) == {"accepted": 3, "undecodable": 1}


def test_f08_the_key_of_a_vehicle_is_a_column_and_no_error_shows_it(tmp_path: Path) -> None:
    file = written(tmp_path, {f"SECRET{n}": {**each, "vehicle": None} for n, each in enumerate(RECORDS)})
    named = ("--format", "jsonl", "--columns", "vehicle=@key", "--unit", "km/h")
    assert outcomes(batch(config(tmp_path), file, *named, "--records", ".")) == {"accepted": 3}
    assert refusal(
        tmp_path, file, "--format", "jsonl", "--columns", "vehicle=bus,time=x,lat=y,lon=z,speed=v", "--unit", "m/s"
    ) == (
        "has none of the columns; it is an object of objects: `--records .` reads each of them, and names its key @key"
    )


def test_f08_an_index_into_an_array_of_objects_reads_none_of_them(tmp_path: Path) -> None:
    columns = ",".join(f"{name}=vehicles.0.{name}" for name in RECORDS[0])
    found = refusal(
        tmp_path, written(tmp_path, {"vehicles": RECORDS}), "--format", "jsonl", "--columns", columns, "--unit", "km/h"
    )
    assert "`--records vehicles` reads each of them" in found


def test_f08_a_bridge_splits_messages_by_the_path(tmp_path: Path) -> None:
    choice = FormatChoice("jsonl", Columns(unit="km/h", records="vehicles", where={"vehicle": "B1"}))
    feed = policy_format(choice, policy_in(config(tmp_path)), live=True)
    read = [feed.decode(each) for each in feed.split(json.dumps({"vehicles": RECORDS}).encode())]
    assert read == [Reading("B1", 1714989600000, 52.5, 13.4, 21.0, "km/h")]
    assert [feed.decode(each) for each in feed.split(b'{"error":"down"}')] == [None]
    assert feed.split(b" ") == []


def test_a_long_table_is_read_by_the_value_of_a_column(tmp_path: Path) -> None:
    lines = [
        f"S{n},2024-05-06T10:00:00Z,52.5,13.4,{value},{kind}"
        for n in range(3)
        for kind, value in (("P1", 9), ("P2", 20))
    ]
    file = rows(tmp_path, *lines, header="vehicle,time,lat,lon,value,kind\n")
    pm = config(tmp_path, more='[policy.value]\nname = "pm25"\nunit = "ug/m3"\nlower = 0\nupper = 500\n')
    done = batch(pm, file, "--format", "csv", "--where", "kind=P2")
    assert outcomes(done) == {"accepted": 3}
    assert [each[2] for each in json.loads(done.stdout)["hats"].values()] == [60_000]
    assert refusal(tmp_path, file, "--format", "csv", "--unit", "km/h", "--where", "parameter=P2") == (
        "has no column parameter, named as `--where`; name one of those that `hatcast check` prints"
    )


def test_where_of_a_file_without_a_header_takes_numbers_of_columns() -> None:
    numbered = {"vehicle": "1", "time": "2", "lat": "3", "lon": "4", "value": "5"}
    with pytest.raises(SettingError, match="has a number that no column has"):
        policy_format(FormatChoice("csv", Columns(numbered, unit="km/h", where={"line": "5"})), policy_of())


@pytest.mark.parametrize("sent", ["7", 7, 7.0])
def test_a_value_of_a_column_may_be_a_number(tmp_path: Path, sent: object) -> None:
    file = written(
        tmp_path, "\n".join(json.dumps({**each, "line": sent if at else 8}) for at, each in enumerate(RECORDS))
    )
    assert outcomes(batch(config(tmp_path), file, *FIELDS, "--where", "line=7")) == {"accepted": 2}


@pytest.mark.parametrize("between", ["", " ", "\n", "\r\n", "\n\n"])
def test_f23_objects_one_after_the_other_are_read(tmp_path: Path, between: str) -> None:
    file = written(tmp_path, between.join(map(json.dumps, RECORDS)))
    assert outcomes(batch(config(tmp_path), file, "--format", "jsonl")) == {"accepted": 3}
    assert len(split_json(file.read_bytes())) == 3


def test_f23_a_broken_object_damages_no_other() -> None:
    assert concatenated(b'{"a":1}{"b":}{"c":"}{"} {"d":[1]') == [b'{"a":1}', b'{"b":}', b'{"c":"}{"}', b'{"d":[1]']


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"vehicle": 7}, "vehicle is a number, not text: `--columns vehicle=vehicle` and `--unit km/h` read both"),
        ({"speed": "30"}, "speed is text, not a number: `--columns speed=speed` and `--unit km/h` read both"),
        ({"lat": "52.5"}, "lat is text, not a number: `--columns lat=lat` and `--unit km/h` read both"),
        ({"time": None}, "has no time: name its field with `--columns time=FIELD`"),
    ],
)
def test_f17_a_field_of_another_type_is_named_with_the_option_that_reads_it(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    file = written(tmp_path, "\n".join(json.dumps(each | change) for each in RECORDS))
    done = batch(config(tmp_path), file, "--format", "jsonl")
    assert done.stderr.endswith(f"hint: none of 3 records accepted; 3 are undecodable: {reason}\n")
    if change.get("time", "") is not None:
        name = next(iter(change))
        read = batch(config(tmp_path), file, "--format", "jsonl", "--columns", f"{name}={name}", "--unit", "km/h")
        assert outcomes(read)["accepted"] >= 1


def test_f17_an_array_is_read_as_jsonl(tmp_path: Path) -> None:
    assert outcomes(batch(config(tmp_path), written(tmp_path, RECORDS), "--format", "jsonl")) == {"accepted": 3}


ROW = "B1,2024-05-06T10:00:00Z,52.5,13.4,30"


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("vehicle,time,lat,lon,speed_kmh,0.3_um_count,2.5_um_count", f"{ROW},1,2"),
        ("0,vehicle,time,lat,lon,speed_kmh", f"9,{ROW}"),
    ],
)
def test_f09_a_header_may_have_names_that_are_numbers(tmp_path: Path, header: str, row: str) -> None:
    file = rows(tmp_path, row, header=f"{header}\n")
    assert outcomes(batch(config(tmp_path), file, "--format", "csv")) == {"accepted": 1}


@pytest.mark.parametrize("before", ["sep=;\n", "\ufeffsep=;\r\n", "\n\n"])
def test_f13_the_line_that_names_the_separator_and_blank_lines_are_left_out(tmp_path: Path, before: str) -> None:
    file = rows(tmp_path, ROW.replace(",", ";"), header=before + HEADER.replace(",", ";"))
    assert outcomes(batch(config(tmp_path), file, "--format", "csv")) == {"accepted": 1}


@pytest.mark.parametrize(
    ("before", "line"),
    [
        ("Report: AVL export\nGenerated: 06.05.2024\n\n", 4),
        ("# GJ05AB1234, 52.5\n", 2),
        (",,,Sensor_Name\n,,,AirBeam-PM\n,,,Units\n,,,microgram\n", 5),
        ("bus,GJ05AB1234,x\n", 2),
    ],
)
def test_f13_lines_before_the_header_lead_to_skipping_them(tmp_path: Path, before: str, line: int) -> None:
    file = rows(tmp_path, ROW, header=before + HEADER)
    assert (
        refusal(tmp_path, file, "--format", "csv")
        == f"line {line} looks like the header; `--skip {line - 1}` begins there"
    )
    done = batch(config(tmp_path), file, "--format", "csv", "--skip", line - 1)
    assert outcomes(done) == {"accepted": 1}


def zipped(content: bytes, *more: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("folder/day.csv", "__MACOSX/._day.csv", *more):
            archive.writestr(name, content)
        archive.mkdir("empty")
    return file.getvalue()


def zstd(content: bytes) -> bytes:
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


PACKED: dict[str, Callable[[bytes], bytes]] = {"bz2": bz2.compress, "xz": lzma.compress, "zip": zipped, "zst": zstd}


@pytest.mark.parametrize("kind", sorted(PACKED))
def test_f11_packed_files_are_read_whatever_their_names(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "named_like_no_archive"
    file.write_bytes(PACKED[kind](f"{HEADER}{ROW}\n".encode()))
    assert outcomes(batch(config(tmp_path), file, "--format", "csv")) == {"accepted": 1}


@pytest.mark.parametrize("kind", sorted(PACKED))
@pytest.mark.parametrize("place", [12, -6])
def test_f11_a_damaged_or_cut_file_is_one_line(tmp_path: Path, kind: str, place: int) -> None:
    packed = bytearray(PACKED[kind](f"{HEADER}{ROW}\n".encode() * 50))
    for content in (bytes(packed[:place]), bytes(packed[:place]) + b"\xff\0\xfe" + bytes(packed[place + 3 :])):
        (tmp_path / "file").write_bytes(content)
        try:
            run("batch", tmp_path / "file", "--format", "csv", "--config", config(tmp_path), "--contributions")
        except HatcastError as error:
            assert "\n" not in str(error)
            assert "B1" not in str(error)


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("day.csv"), io.BytesIO(b""))
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (zipped(b"x", "other.csv"), "is a zip file of 2 files; unpack it, and name them"),
        (
            zipped(b"x", "stop_times.txt"),
            "is a GTFS timetable; give it as `--gtfs FILE` or `--timetable FILE`, or name a recording",
        ),
        (zipped(b"x", "[Content_Types].xml"), "is a workbook of Excel or LibreOffice; export it as CSV"),
        (tarred(), "is a tar archive; unpack it"),
        (b"SQLite format 3\0" + bytes(100), "is a SQLite database; export it as CSV"),
        (b"Obj\x01avro", "is Avro; convert it to Parquet"),
        (b"7z\xbc\xaf\x27\x1c", "is a 7z archive; unpack it"),
    ],
    ids=["zip", "gtfs", "xlsx", "tar", "sqlite", "avro", "7z"],
)
def test_f11_what_cannot_be_unpacked_is_named_in_every_format(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "file").write_bytes(content)
    for name in ("csv", "jsonl", "itms", "gtfs-rt"):
        assert refusal(tmp_path, tmp_path / "file", "--format", name) == problem


SECRET = "GJ05AB1234"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (json.dumps([{"vehicle": SECRET, "lat": 21.19}]), "is JSON; use `--format jsonl`"),
        (f'<?xml version="1.0"?><gpx><name>{SECRET}</name></gpx>', "is XML, such as SIRI or GPX"),
        (f"{SECRET}\x00\x01\x02", "is binary; name its format"),
        (f"{SECRET},somewhere", "its first line does not plainly show vehicle, time, lat, lon, value"),
        (f"{SECRET} somewhere", "has one column, or other signs than , ; | and tabs between them; check the file"),
    ],
)
@pytest.mark.parametrize("numbered", [False, True])
def test_f10_another_kind_of_text_is_named_and_no_cell_is_shown(
    tmp_path: Path, text: str, problem: str, *, numbered: bool
) -> None:
    if numbered and not problem.startswith("is "):
        return
    options = ("--columns", "vehicle=1,time=2,lat=3,lon=4,value=5", "--unit", "m/s") if numbered else ()
    found = refusal(tmp_path, written(tmp_path, text), "--format", "csv", *options)
    assert problem in found
    assert SECRET not in found


def test_f21_latin_1_is_named_at_any_share_and_read_by_its_name(tmp_path: Path) -> None:
    lines = [f"B{n},2024-05-06T10:00:00Z,52.5,13.4,20,{'Köpenick' if n == 1 else 'Mitte'}" for n in range(9)]
    file = tmp_path / "latin.csv"
    text = "\n".join([f"{HEADER.strip()},Straße", *lines])
    file.write_bytes(text.replace("Straße", "dest").encode("latin-1"))
    done = batch(config(tmp_path), file, "--format", "csv")
    assert outcomes(done) == {"accepted": 8, "undecodable": 1}
    reason = "is not UTF-8: name its encoding with `--encoding`, such as latin-1 or cp1252"
    assert f"hint: 1 of 9 records are undecodable: {reason}" in done.stderr
    for encoding in ("latin-1", "cp1252", "utf-16"):
        file.write_bytes(text.encode(encoding))
        read = batch(config(tmp_path), file, "--format", "csv", "--encoding", encoding, "--where", "Straße=Köpenick")
        assert outcomes(read) == {"accepted": 1}


def test_f21_an_unknown_encoding_is_one_line() -> None:
    for name in ("latin-x", "rot13", "a\0"):
        with pytest.raises(SettingError, match="is not an encoding; use latin-1, cp1252, utf-16"):
            Columns(encoding=name)


def test_decimal_commas_are_refused_with_the_option_and_read_by_it(tmp_path: Path) -> None:
    file = rows(tmp_path, "B1;2024-05-06T10:00:00Z;52,5;13,4;30,5", header=HEADER.replace(",", ";"))
    done = batch(config(tmp_path), file, "--format", "csv")
    assert "lat has a decimal comma: `--decimal ,` reads it" in done.stderr
    read = batch(config(tmp_path), file, "--format", "csv", "--decimal", ",")
    assert list(json.loads(read.stdout)["hats"].values()) == [[1, 1, 30_500, 30_500]]


def test_f27_decimal_commas_in_siri_are_the_reason(tmp_path: Path) -> None:
    activity = (
        '{"RecordedAtTime":"2024-05-06T10:00:01Z","MonitoredVehicleJourney":{"VehicleRef":"8901","Velocity":"9,5",'
        '"VehicleLocation":{"Longitude":"10,39","Latitude":{"value":"63,43"}}}}'
    )
    file = written(tmp_path, f'{{"VehicleActivity":[{activity}]}}')
    done = batch(config(tmp_path), file, "--format", "siri")
    assert "1 are undecodable: lat has a decimal comma: SIRI has a decimal point" in done.stderr


OTHERS: list[dict[str, Any]] = [
    {"where": {"vehicle": "B1"}},
    {"records": "vehicles"},
    {"encoding": "cp1252"},
    {"decimal": ","},
    {"skip": 1},
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda each: next(iter(each)))
def test_each_option_that_decides_a_record_is_pinned_with_its_content(other: dict[str, Any]) -> None:
    [option] = Columns(**other).options
    assert option.startswith(f"{next(iter(other))} ")
    assert Columns().options == []


def test_a_ledger_refuses_the_same_content_with_another_option(tmp_path: Path) -> None:
    file = rows(tmp_path, ROW, "B2" + ROW[2:])
    arguments = ("batch", file, "--format", "csv", "--config", config(tmp_path), "--ledger", tmp_path / "ledger")
    assert run(*arguments, "--where", "vehicle=B1").exit_code == 0
    with pytest.raises(
        HatcastError, match="an earlier run used readings of the same content as format csv, where vehicle=B1"
    ):
        run(*arguments, "--where", "vehicle=B2")


@pytest.mark.parametrize(("option", "name"), [("records", "csv"), ("records", "parquet"), ("skip", "jsonl")])
def test_options_of_other_formats_are_refused(tmp_path: Path, option: str, name: str) -> None:
    columns = Columns(unit="km/h", **{option: "x" if option == "records" else 1})  # type: ignore[arg-type]  # one of two
    with pytest.raises(SettingError, match=f"{option}: {name} has none"):
        policy_format(FormatChoice(name, columns), policy_in(config(tmp_path)))
