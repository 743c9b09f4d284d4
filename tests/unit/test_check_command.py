"""`hatcast check`: what a file is, without a policy."""

import bz2
import json
import shutil
from pathlib import Path

import pytest

from hatcast.stream.errors import HatcastError
from tests.wild import HEADER, WILD, rows, run

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
        "places: the sun's time there is about UTC+5\nspeeds: median 9 km/h, 95 % up to 9 km/h\n"
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
    assert "(unit not stated: read as km/h)" in found
    file.write_bytes(text.encode("utf-16"))
    assert "encoding: utf-16\n" in checked(file)


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
    with pytest.raises(HatcastError, match="is not a file; name one"):
        run("check", tmp_path)
