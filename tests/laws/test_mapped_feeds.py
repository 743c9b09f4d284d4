"""Laws of formats with named columns: what a file's writer meant is read, and nothing else changes a record."""

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hatcast.agents.recordings.parquet import parquet_records
from hatcast.stream.errors import HatcastError, RecordingError
from hatcast.stream.readings.formats import Columns, Format, FormatChoice, Recorded, jsonl
from hatcast.stream.readings.reading import Reading, ValueUnits, is_complete, number, to_milli
from hatcast.stream.readings.vehicles import canonical_vehicle
from hatcast.stream.time_zones import time_zone
from tests.laws.test_feeds import BROKEN, SAMPLES, is_reading_or_nothing, messages, mutated_records, survives, texts

BERLIN = time_zone("Europe/Berlin")
FOLDER = SAMPLES / "mapped"
PLACES = "lat=position.coordinates.1,lon=position.coordinates.0"


class Mapped(NamedTuple):
    """A sample, how it is read, and its first speed in milli-units of km/h."""

    path: Path
    format: str
    columns: Columns
    first_milli: int

    @property
    def feed(self) -> Format:
        return FormatChoice(self.format, self.columns).format(ValueUnits(), BERLIN)


def columns_of(text: str, **others: Any) -> Columns:
    return Columns(Columns.parse(text).names, **others)


MAPPED = (
    Mapped(FOLDER / "semicolons.csv", "csv", columns_of("lat=Y,lon=X,speed=v", unit="km/h"), 38_000),
    Mapped(
        FOLDER / "numbered.tsv",
        "csv",
        columns_of("vehicle=1,time=2,lat=3,lon=4,value=5", unit="m/s", time_format="%d.%m.%Y %H:%M:%S"),
        62_764,
    ),
    Mapped(
        FOLDER / "nested.jsonl", "jsonl", columns_of(f"vehicle=bus.no,time=at,{PLACES},value=spd", unit="m/s"), 62_640
    ),
)
every_sample = pytest.mark.parametrize("sample", MAPPED, ids=lambda each: each.path.name)


def recorded_in(data: bytes, feed: Format, name: str = "file") -> list[Recorded]:
    return list(feed.records(io.BytesIO(data), name))


@every_sample
def test_a_mapped_sample_has_good_and_bad_records(sample: Mapped) -> None:
    records = recorded_in(sample.path.read_bytes(), sample.feed)
    assert {record.reading is None for record in records} == {True, False}
    first = next(record.reading for record in records if record.reading is not None)
    assert to_milli(number(first.speed), first.unit) == sample.first_milli
    assert all((record.problem is None) == (record.reading is not None) for record in records)


@every_sample
def test_what_a_mapped_feed_read_decodes_again_from_the_canonical_record(sample: Mapped) -> None:
    for record in recorded_in(sample.path.read_bytes(), sample.feed):
        if record.reading is None:
            assert jsonl.canonical_value(record) == record.raw
        else:
            assert survives(record.reading, jsonl.canonical_value)
            assert record.arrival == record.reading.time


@every_sample
@given(value=st.binary() | mutated_records(), topic=texts)
def test_a_mapped_decoder_gives_a_reading_or_nothing_and_splits_without_heartbeats(
    sample: Mapped, value: bytes, topic: str
) -> None:
    feed = sample.feed
    assert is_reading_or_nothing(feed.decode, value)
    assert all(is_reading_or_nothing(feed.decode, record) and record for record in feed.split(value, topic))


@every_sample
@given(value=messages)
def test_reading_any_bytes_by_named_columns_gives_records_or_one_refusal(sample: Mapped, value: bytes) -> None:
    try:
        records = recorded_in(value, sample.feed)
    except RecordingError as refusal:
        assert "\n" not in str(refusal)
        return
    for record in records:
        assert record.raw
        assert record.reading is None or is_complete(record.reading)


@every_sample
@pytest.mark.parametrize("path", BROKEN, ids=attrgetter("name"))
def test_a_broken_file_read_by_named_columns_gives_records_or_one_refusal(sample: Mapped, path: Path) -> None:
    try:
        records = recorded_in(path.read_bytes(), sample.feed, path.name)
    except RecordingError as refusal:
        assert str(refusal).startswith(f"{path.name}: ")
        assert "\n" not in str(refusal)
        return
    assert all(record.raw for record in records)


@pytest.mark.parametrize("sample", [each for each in MAPPED if each.path.name != "semicolons.csv"])
def test_a_record_is_decoded_live_as_in_a_recording(sample: Mapped) -> None:
    data = sample.path.read_bytes()
    records = recorded_in(data, sample.feed)
    assert [sample.feed.decode(record.raw) for record in records] == [record.reading for record in records]
    assert sample.feed.split(data) == [record.raw for record in records]


# A line break ends a record, white space around a name is not part of it, a name that is a number means a place, and a
# first line with a cell that starts like a number or a time (such as 0/0) is refused as a row.
names = st.text(
    st.characters(exclude_categories=["C", "Z"], include_characters=" ,;|.=\"'"), min_size=1, max_size=12
).filter(lambda name: name == name.strip() and not name.replace(".", "").isdigit() and not _is_data(name))
ids = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" ,;"), min_size=1, max_size=12)
degrees = st.floats(-180, 180)
speeds = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes(datetime.fromisoformat("1980-01-01"), datetime.fromisoformat("2068-01-01")).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
)
rows = st.lists(st.tuples(ids, moments, degrees, degrees, speeds), min_size=1, max_size=5)
TIMES: dict[str | None, Callable[[datetime], str]] = {
    None: lambda moment: moment.isoformat(),
    "iso": lambda moment: moment.isoformat().replace("T", " "),
    "ms": lambda moment: str(round(moment.timestamp() * 1000)),
    "us": lambda moment: str(round(moment.timestamp() * 1000) * 1000),
    "%d.%m.%Y %H:%M:%S.%f %z": lambda moment: moment.strftime("%d.%m.%Y %H:%M:%S.%f %z"),
    "%y%m%d;%H,%M,%S.%fZ": lambda moment: moment.strftime("%y%m%d;%H,%M,%S.%fZ"),
}
FIELDS = ("vehicle", "time", "lat", "lon", "value")


def _is_data(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return re.match(r"[-+]?[0-9]+[.,:/-][0-9]", text) is not None
    return True


def readings_of(given_rows: Sequence[tuple[str, datetime, float, float, float]], unit: str) -> list[Reading | None]:
    return [
        Reading(vehicle, round(moment.timestamp() * 1000), lat, lon, speed, unit)
        if (vehicle := canonical_vehicle(sent)) is not None
        else None
        for sent, moment, lat, lon, speed in given_rows
    ]


@given(
    header=st.lists(names, min_size=6, max_size=6, unique=True),
    order=st.permutations(range(6)),
    given_rows=rows,
    delimiter=st.sampled_from(",;\t|"),
    unit=st.sampled_from(["km/h", "m/s", "mph", "kn"]),
    time_format=st.sampled_from(list(TIMES)),
)
@example(["a,b", 'say "x"', "=", "lat", "lon", "no"], [5, 4, 3, 2, 1, 0], [], ",", "kn", None)
@example(["<", "[", "{", "lat", "lon", "no"], [0, 1, 2, 3, 4, 5], [], ",", "kn", None)
@example(["[", "<3", "{", "lat", "lon", "no"], [0, 1, 2, 3, 4, 5], [], ";", "kn", None)
@example(["{", "<3", "[", "lat", "lon", "no"], [0, 1, 2, 3, 4, 5], [], "\t", "kn", None)
def test_a_csv_file_of_any_names_order_and_delimiter_is_read_as_its_writer_meant(
    header: list[str],
    order: Sequence[int],
    given_rows: list[tuple[str, datetime, float, float, float]],
    delimiter: str,
    unit: str,
    time_format: str | None,
) -> None:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\r\n")
    writer.writerow([header[at] for at in order])
    for vehicle, moment, lat, lon, speed in given_rows:
        row = (vehicle, TIMES[time_format](moment), repr(lat), repr(lon), repr(speed), "unused")
        writer.writerow([row[at] for at in order])
    columns = Columns(dict(zip(FIELDS, header, strict=False)), unit=unit, time_format=time_format)
    feed = FormatChoice("csv", columns).format(ValueUnits(), BERLIN)
    found = [record.reading for record in recorded_in(file.getvalue().encode(), feed)]
    assert found == readings_of(given_rows, unit)


@given(header=st.lists(names, min_size=5, max_size=5, unique=True), given_rows=rows, array=st.booleans())
def test_json_and_parquet_of_any_names_are_read_as_their_writer_meant(
    *, header: list[str], given_rows: list[tuple[str, datetime, float, float, float]], array: bool
) -> None:
    records = [
        dict(zip(header, (vehicle, moment.timestamp() * 1000, lat, lon, speed), strict=True))
        for vehicle, moment, lat, lon, speed in given_rows
    ]
    columns = Columns(dict(zip(FIELDS, header, strict=True)), unit="m/s", time_format="ms")
    text = json.dumps(records) if array else "\n".join(map(json.dumps, records))
    feed = FormatChoice("jsonl", columns).format(ValueUnits(), BERLIN)
    expected = readings_of(given_rows, "m/s")
    assert [record.reading for record in recorded_in(text.encode(), feed)] == expected
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), file)
    for name in ("parquet", "csv", "jsonl"):
        file.seek(0)
        feed = FormatChoice(name, columns).format(ValueUnits(), BERLIN)
        assert [record.reading for record in parquet_records(file, "rows", feed)] == expected


@given(st.dictionaries(names | st.sampled_from(FIELDS), texts, max_size=7))
def test_any_names_give_columns_or_one_line(given_names: dict[str, str]) -> None:
    try:
        columns = Columns(given_names)
        FormatChoice("csv", columns).format(ValueUnits({"delay": "s"}), BERLIN)
        FormatChoice("jsonl", columns).format(ValueUnits({"delay": "s"}), BERLIN)
    except HatcastError as refusal:
        assert "\n" not in str(refusal)
