"""Capital Metro's archive: CSV in m/s."""

import gzip
import io
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import capmetro
from hatcast.stream.readings.formats._csv import fields
from hatcast.stream.readings.formats._values import parse_number
from hatcast.stream.readings.reading import Reading
from tests.services.data import DATA

LINE = b"2619,2017-03-21T00:00:31-05:00,17.43456,1,1723912,30.19826,-97.77679,1-Metric/South Congress-SB"
AS_READ = Reading("2619", "2017-03-21T00:00:31-05:00", 30.19826, -97.77679, 17.43456, "m/s")
RECORDED = sorted((DATA / "capmetro").glob("*.csv.gz"))


def test_a_line_is_read_in_the_standard_order_of_columns() -> None:
    assert capmetro.decode(LINE) == AS_READ
    assert capmetro.decode(LINE + b"\r\n") == AS_READ
    assert capmetro.decode(LINE.replace(b"1-Metric", b'"1-Metric, 2').replace(b"-SB", b'-SB"')) == AS_READ


@pytest.mark.parametrize("column", [0, 1, 2, 5, 6])
def test_an_empty_field_is_missing(column: int) -> None:
    row = LINE.split(b",")
    row[column] = b""
    assert capmetro.decode(b",".join(row)) is None


@pytest.mark.parametrize("column", [3, 4, 7])
def test_an_empty_field_that_is_not_used_does_not_matter(column: int) -> None:
    row = LINE.split(b",")
    row[column] = b""
    assert capmetro.decode(b",".join(row)) == AS_READ


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b",".join(name.encode() for name in capmetro.COLUMNS),
        LINE[:40],
        LINE.replace(b"17.4", b"17_4"),
        LINE.replace(b"1-Metric", b'"1-Metric'),
        LINE.replace(b"1-Metric", b"\xff"),
        LINE + b"\n" + LINE,
    ],
)
def test_a_header_or_a_damaged_line_is_undecodable(value: bytes) -> None:
    assert capmetro.decode(value) is None


def test_before_2016_the_unit_is_unknown_so_the_record_is_undecodable() -> None:
    assert capmetro.decode(LINE.replace(b"2017", b"2015")) is None
    assert capmetro.decode(LINE.replace(b"2017", b"2016")) is not None


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: str(path.name))
def test_an_archived_day_has_a_reading_for_every_line_after_the_header(path: object) -> None:
    data = gzip.decompress(next(other for other in RECORDED if other == path).read_bytes())
    records = list(capmetro.records(io.BytesIO(data), "day"))
    assert len(records) == len(data.splitlines()) - 1
    assert all(record.reading == capmetro.decode(record.raw) for record in records)
    assert all(record.reading is not None and record.arrival is not None for record in records)


def test_columns_in_another_order_are_found_by_their_header() -> None:
    names, row = [name.encode() for name in capmetro.COLUMNS], LINE.split(b",")
    text = b",".join(reversed(names)) + b"\n" + b",".join(reversed(row))
    [record] = capmetro.records(io.BytesIO(text), "file")
    assert record.reading == AS_READ


def test_a_stray_quote_damages_one_line_only() -> None:
    header = ",".join(capmetro.COLUMNS).encode()
    text = b"\n".join((header, LINE.replace(b"1-Metric", b'"1-Metric'), LINE))
    assert [record.reading for record in capmetro.records(io.BytesIO(text), "file")] == [None, AS_READ]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (b"", "vehicle_id, timestamp, latitude, longitude, speed"),
        (b"vehicle_id,timestamp,speed,lat,lon\n", "latitude, longitude"),
        (b'[{"vehicle_id": 5}]', "vehicle_id"),
    ],
)
def test_a_file_without_the_header_is_refused(text: bytes, missing: str) -> None:
    with pytest.raises(RecordingError, match=rf"^file: its first line has no column {missing}.*; use a CSV file with"):
        list(capmetro.records(io.BytesIO(text), "file"))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_decimal_number_is_the_nearest_double(value: float) -> None:
    assert parse_number(repr(value)) == value
    assert parse_number(f" {value:.20e}\t") == float(Fraction(f"{value:.20e}"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, "nan") for text in ("nan", "NaN", "-nan")),
        *((text, "inf") for text in ("inf", "Infinity", "+INF")),
        ("-inf", "-inf"),
        *((text, None) for text in ("", " ", "1_0", "١", "1e400", "-1e400", "0x1", "1,5", "null", "1\x00")),
    ],
)
def test_text_that_is_no_finite_number_is_named_or_refused(text: str, value: str | None) -> None:
    assert parse_number(text) == value


@given(st.text().filter(lambda line: "\n" not in line and "\r" not in line))
def test_splitting_any_line_into_fields_never_raises(line: str) -> None:
    row = fields(line)
    assert row is None or all(isinstance(text, str) for text in row)
