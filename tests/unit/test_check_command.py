"""`hatcast check`: what a file is, without a policy."""

import bz2
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hatcast.stream.errors import HatcastError
from tests.invoked import run
from tests.services.data import DATA
from tests.wild import HEADER, WILD, config, rows

ROWS = [f"B{n % 4},2024-05-06T10:{n:02}:00Z,21.2,72.8,{9 + n / 100}" for n in range(24)]
RAW = "reads raw data; nothing that it prints is private\n"


def checked(file: Path, *options: object) -> str:
    done = run("check", file, *options)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(RAW)
    return done.stdout.removeprefix(RAW)


def test_a_csv_file_has_its_dialect_its_columns_and_evidence(tmp_path: Path) -> None:
    assert checked(rows(tmp_path, *ROWS, "B1,2024-05-06")) == (
        "format: csv\nencoding: utf-8\nseparator: ','\ncolumns: vehicle, time, lat, lon, speed_kmh\n"
        "records: 25; 24 can be decoded\nleft out: 1: has 2 fields, the header 5: one is left out, or has a separator"
        " without quotes\nvehicles: 4\nreports: a vehicle sends one every 240 s (median)\n"
        "time zone: not in a file. The longitude suggests about UTC+5, which may be two hours off: give"
        " `hatcast init --timezone` the city's, by name\nspeeds: median 9 km/h, 95 % up to 9 km/h\n"
        "hint: nearly all speeds are below 15 km/h: are they in another unit, such as m/s?\n"
    )


def test_containers_encodings_and_units_are_named(tmp_path: Path) -> None:
    file = rows(tmp_path, *ROWS, header=HEADER.replace("speed_kmh", "speed").replace("time", "Straße,time"))
    text = file.read_text().replace(",2024", ",Süd,2024")
    file.write_bytes(bz2.compress(text.encode("latin-1")))
    found = checked(file)
    assert "format: csv, in bzip2\nencoding: not UTF-8: latin-1 or cp1252, or no text\n" in found
    assert "left out: 24: is not UTF-8: name its encoding with `--encoding`" in found
    found = checked(file, "--format", "csv", "--encoding", "latin-1")
    assert "records: 24; 24 can be decoded" in found
    assert "(unit not stated: read as km/h; other commands need --unit)" in found
    file.write_bytes(text.encode("utf-16"))
    assert "encoding: utf-16\n" in checked(file)
    with pytest.raises(HatcastError, match="is UTF-16; name it with `--encoding utf-16`"):
        run("check", file, "--format", "csv")


def test_a_file_that_is_not_of_the_named_format_is_one_line(tmp_path: Path) -> None:
    for name in ("parquet", "gtfs-rt"):
        with pytest.raises(HatcastError, match=r"rows\.csv"):
            run("check", rows(tmp_path, *ROWS), "--format", name)


def test_a_path_that_cannot_be_looked_at_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HatcastError, match="cannot be read"):
        run("batch", tmp_path / ("x" * 300), "--config", config(tmp_path))


def test_other_formats_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    shutil.copy(WILD / "rt_header_zero.pb", tmp_path / "poll")
    assert "format: gtfs-rt\nrecords: 3; 3 can be decoded" in checked(tmp_path / "poll")
    found = checked(WILD / "siri_no_offset.xml")
    assert "format: siri\n" in found
    assert "times: 2 are no instants: name their zone with --times-in" in found
    (tmp_path / "array").write_text(json.dumps([{"vehicle": "B1", "time": 1, "lat": 1, "lon": 2, "speed": 3}]))
    assert "format: jsonl\n" in checked(tmp_path / "array")


def test_records_inside_a_document_lead_to_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({"data": {"bikes": [{"id": "SECRET"}]}}))
    with pytest.raises(HatcastError) as refused:
        run("check", tmp_path / "file")
    assert str(refused.value).endswith(
        "it has an array of objects at data.bikes: `--records data.bikes` reads each of them"
    )


def test_a_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HatcastError, match="is a directory; name the files in it"):
        run("check", tmp_path)


def test_records_of_json_and_parquet_have_their_columns_listed_as_those_of_csv(tmp_path: Path) -> None:
    records = [{"bus": {"id": "B1"}, "time": 1, "lat": 1, "lon": 2, "speed": 3}]
    (tmp_path / "lines").write_text("".join(f"{json.dumps(each)}\n" for each in records * 2))
    (tmp_path / "array").write_text(json.dumps(records, indent=1))
    pq.write_table(
        pa.Table.from_pylist([{"vehicle": "B1", "time": 1, "lat": 1.0, "lon": 2.0, "v": 3.0}]), tmp_path / "p"
    )
    for name in ("lines", "array"):
        options = "--columns", "vehicle=bus.id", "--unit", "km/h"
        assert "format: jsonl\nencoding: utf-8\ncolumns: bus.id, time, lat, lon, speed\n" in checked(
            tmp_path / name, *options
        )
    found = checked(tmp_path / "p", "--columns", "value=v", "--unit", "m/s")
    assert found.startswith("format: parquet, in Parquet\ncolumns: vehicle, time, lat, lon, v\n")


def test_the_formats_of_cities_are_known_by_their_columns_and_have_a_named_time_zone() -> None:
    found = checked(DATA / "capmetro" / "2016-11-24.csv.gz")
    assert found.startswith("format: capmetro, in gzip\n")
    assert "time zone: America/Chicago, " in found
    assert "(unit not stated" not in found
    assert checked(DATA / "feeds" / "itms_nested.json").startswith("format: itms\nencoding: utf-8\ncolumns: ")


def test_named_columns_read_a_table_that_has_those_of_a_city(tmp_path: Path) -> None:
    shutil.copy(DATA / "feeds" / "capmetro.csv", tmp_path / "day")
    assert "format: csv\n" in checked(tmp_path / "day", "--unit", "km/h")
    assert "format: capmetro\n" in checked(tmp_path / "day", "--times-in", "UTC")


def test_what_check_says_is_what_batch_reads(tmp_path: Path) -> None:
    utf16 = tmp_path / "utf16"
    utf16.write_text(rows(tmp_path, *ROWS).read_text(), encoding="utf-16")
    for file in (DATA / "feeds" / "itms_lines.json", WILD / "rt_header_zero.pb", utf16):
        outcomes = json.loads(run("batch", file, "--config", config(tmp_path), "--json").stdout)["outcomes"]
        assert f"\nrecords: {sum(outcomes.values())}; " in checked(file), file
        assert outcomes["accepted"] > 0, file


def test_files_of_two_formats_are_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    files = rows(tmp_path, *ROWS), DATA / "feeds" / "itms_lines.json"
    with pytest.raises(HatcastError) as refused:
        run("batch", *files, "--config", config(tmp_path))
    assert str(refused.value) == (
        f"{files[1]}: is read with --format itms, and {files[0]} with --format csv; read them in several runs, or"
        " name one with `--format NAME`"
    )
    utf16 = tmp_path / "utf16"
    utf16.write_text(files[0].read_text(), encoding="utf-16")
    with pytest.raises(
        HatcastError, match=r"is read with --format csv --encoding utf-16, and .* with --format csv; read"
    ):
        run("batch", files[0], utf16, "--config", config(tmp_path))


def test_no_record_among_others_decides_how_these_are_read(tmp_path: Path) -> None:
    own, other = (
        {"vehicle": "B1", "time": 1, "lat": 1, "lon": 2, "speed": 3},
        {"license_plate": 1, "observationDateTime": 2},
    )
    for records in ([other, own, own], [own, own, other]):
        (tmp_path / "day").write_text("".join(f"{json.dumps(each)}\n" for each in records))
        with pytest.raises(HatcastError, match="has records of several formats; name one with `--format NAME`"):
            run("check", tmp_path / "day")
        assert "left out: 1: has no vehicle" in checked(tmp_path / "day", "--format", "jsonl")


def test_an_empty_file_among_others_has_their_format(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for files in (
        (tmp_path / "empty", DATA / "feeds" / "jsonl.jsonl"),
        (DATA / "feeds" / "jsonl.jsonl", tmp_path / "empty"),
    ):
        done = run("batch", *files, "--config", config(tmp_path), "--json")
        assert json.loads(done.stdout)["outcomes"]["accepted"] > 0
    with pytest.raises(HatcastError, match="empty: is empty"):
        run("check", tmp_path / "empty")
    with pytest.raises(HatcastError, match="-: is missing"):
        run("batch", "-", "--config", config(tmp_path))


def test_a_pipe_needs_the_name_of_its_format(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(HatcastError, match="can be read only once; name its format with `--format NAME`"):
        run("batch", tmp_path / "pipe", "--config", config(tmp_path))


def test_a_dump_of_a_topic_is_recognised(tmp_path: Path) -> None:
    head, line = (
        '{"topic":"t","partitions":1,"start_offsets":[0]}',
        '{"topic":"t","partition":0,"offset":0,"ts":1,"key"',
    )
    (tmp_path / "dump").write_text(f'{head}\n{line}:"QQ==","value":"QQ=="}}\n')
    assert checked(tmp_path / "dump").startswith("format: kafka\n")
    done = run("batch", tmp_path / "dump", "--config", config(tmp_path), "--json")
    assert json.loads(done.stdout)["outcomes"] == {"undecodable": 1}
