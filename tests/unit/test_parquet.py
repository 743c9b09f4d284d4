"""Parquet recordings: what the same rows as lines give, in bounded memory; one clear line for a damaged file."""

import gzip
import io
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from hatcast.agents.cli.batch import command as batch
from hatcast.agents.kafka.dump import DUMP
from hatcast.agents.recordings import parquet
from hatcast.agents.recordings.files import open_records
from hatcast.agents.recordings.parquet import parquet_records
from hatcast.lab.cli.survey import command as survey
from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats import FORMATS, Format, Recorded
from hatcast.stream.readings.magic import container_of
from hatcast.stream.readings.reading import parse_time
from tests.batching import CONFIG
from tests.services.data import DATA

SAMPLES = DATA / "feeds"
JSONL = FORMATS["jsonl"]
TYPES = {"int": pa.int64(), "text": pa.string(), "zoned": pa.timestamp("us", "UTC")}
HOUR_MS = 1_714_793_400_000
TRAM = {"vehicle": "tram 1", "time": HOUR_MS, "lat": 60.2, "lon": 24.9, "speed": 30.5}


def written(table: pa.Table, write: str = "pyarrow") -> bytes:
    file = io.BytesIO()
    if write == "polars":
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        frame.write_parquet(file)
    else:
        pq.write_table(table, file)
    return file.getvalue()


def read(data: bytes, feed: Format = JSONL) -> list[Recorded]:
    file = io.BytesIO(data)
    assert container_of(file.getvalue()) == "Parquet"
    return list(parquet_records(file, "file", feed))


def meant(records: Sequence[Recorded]) -> list[object]:
    """Readings with their times as instants, which the two say in different ways, and arrivals."""
    return [
        (
            found.reading
            and (found.reading.vehicle, found.reading.lat, found.reading.lon, found.reading.speed, found.reading.unit),
            found.reading and parse_time(found.reading.time),
            found.arrival,
        )
        for found in records
    ]


def outcome(give: Callable[[], Sequence[Recorded]]) -> object:
    """What is meant, or that the file is refused."""
    try:
        return meant(give())
    except RecordingError:
        return "refused"


def line(row: dict[str, Any]) -> bytes:
    """A row as a person would write it in JSON: without what is missing."""
    said = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
    return json.dumps({name: value for name, value in said.items() if value is not None}).encode()


def lines(rows: Sequence[dict[str, Any]]) -> bytes:
    text = b"\n".join(map(line, rows))
    for word, name in ((b"-Infinity", b'"-inf"'), (b"Infinity", b'"inf"'), (b"NaN", b'"nan"')):
        text = text.replace(word, name)
    return text


moments = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - the zone is given by timezones
words = st.text(st.characters(codec="utf-8", exclude_characters="yaN"), max_size=5)  # no "Infinity", no "NaN"
floats = st.none() | st.floats() | st.floats(-180, 180, width=32)


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Rows as Parquet would have them, and as they are."""
    kind = draw(st.sampled_from(sorted(TYPES)))
    time = {"int": st.integers(-(2**63), 2**63 - 1), "text": words, "zoned": moments}[kind]
    columns: dict[str, st.SearchStrategy[Any]] = {
        "vehicle": st.none() | words,
        "time": st.none() | time,
        "lat": floats,
        "lon": floats,
        "speed": floats,
        "unit": st.none() | st.sampled_from(["km/h", "m/s", "furlong"]),
        "arrival": st.none() | moments,
        "route": st.none() | st.booleans(),
    }
    names = draw(st.lists(st.sampled_from(sorted(columns)), unique=True, min_size=1))
    rows = draw(st.lists(st.fixed_dictionaries({name: columns[name] for name in names}), max_size=5))
    types = {"time": TYPES[kind], "arrival": TYPES["zoned"], "route": pa.bool_()}
    types |= dict.fromkeys(("vehicle", "unit"), pa.string()) | dict.fromkeys(("lat", "lon", "speed"), pa.float64())
    return pa.Table.from_pylist(rows, pa.schema([(name, types[name]) for name in names])), rows


@given(made=tables(), write=st.sampled_from(["pyarrow", "polars"]))
def test_a_parquet_file_gives_what_the_same_rows_give_as_json_lines(
    made: tuple[pa.Table, list[dict[str, Any]]], write: str
) -> None:
    table, rows = made
    as_lines = outcome(lambda: list(JSONL.records(io.BytesIO(lines(rows)), "file")))
    assert outcome(lambda: read(written(table, write))) == as_lines


def test_a_missing_value_that_was_written_as_null_breaks_the_law() -> None:
    row = {"vehicle": "a", "time": 5, "lat": 1.0, "lon": 2.0, "speed": 3.0, "unit": None}
    null = json.dumps(row).encode()
    assert meant(list(JSONL.records(io.BytesIO(null), "file"))) != meant(read(written(pa.Table.from_pylist([row]))))


@pytest.mark.parametrize("name", ["itms_nested.json", "itms_flattened.json"])
def test_nested_and_flattened_columns_give_what_their_json_gives(name: str) -> None:
    rows = [row for row in json.loads((SAMPLES / name).read_bytes()) if isinstance(row["speed"], int | float)]
    feed = FORMATS["itms"]
    table = pa.Table.from_pylist(rows)
    expected = list(feed.records(io.BytesIO(json.dumps(rows).encode()), "file"))
    assert meant(read(written(table), feed)) == meant(expected)
    assert sum(record.reading is not None for record in expected) >= 4


@pytest.mark.parametrize("typed", [False, True])
def test_csv_that_became_parquet_gives_what_it_gave(*, typed: bool) -> None:
    path, feed = SAMPLES / "capmetro.csv", FORMATS["capmetro"]
    file = io.BytesIO()
    pl.read_csv(path, infer_schema=typed, try_parse_dates=typed).write_parquet(file)
    with path.open("rb") as stream:
        assert meant(read(file.getvalue(), feed)) == meant(list(feed.records(stream, "file")))


def test_a_line_break_in_a_text_ends_no_record_of_a_format_of_lines() -> None:
    frame = pl.read_csv(SAMPLES / "capmetro.csv").with_columns(trip_headsign=pl.lit('To "the\r\nend", now'))
    found = read(written(frame.to_arrow()), FORMATS["capmetro"])
    assert len(found) == len(frame)
    assert found[0].reading is not None


@given(st.integers(-(2**62), 2**62), st.sampled_from(["s", "ms", "us", "ns"]))
@example(1_500, "us")
@example(2_500, "us")
def test_a_time_of_any_precision_is_rounded_half_to_even(ticks: int, unit: str) -> None:
    ticks //= {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    table = pa.table({name: [value] for name, value in TRAM.items()}).set_column(
        1, "time", pa.array([ticks]).cast(pa.timestamp(unit, "Asia/Kolkata"))
    )
    [record] = read(written(table))
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    assert record.arrival == round(Fraction(1000 * ticks, per_second))


def test_a_time_without_a_zone_is_no_instant() -> None:
    table = pa.Table.from_pylist([TRAM | {"time": datetime(2024, 5, 4, 9)}])  # noqa: DTZ001 - no zone is what is tested
    [record] = read(written(table))
    assert record.reading is not None
    assert (record.arrival, parse_time(record.reading.time)) == (None, None)


def test_numbers_of_other_types_are_taken_exactly() -> None:
    table = pa.table({name: [value] for name, value in TRAM.items()})
    for kind in (pa.float16(), pa.float32(), pa.int8(), pa.decimal128(5, 2)):
        [record] = read(written(table.set_column(4, "speed", pa.array([5]).cast(pa.int8()).cast(kind))))
        assert record.reading is not None
        assert record.reading.speed == 5.0
    [record] = read(written(table.set_column(4, "speed", pa.array([9.3], pa.float32()))))
    assert record.reading is not None
    assert record.reading.speed == 9.300000190734863


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_the_size_of_a_batch_changes_nothing(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.Table.from_pylist([TRAM | {"time": HOUR_MS + number} for number in range(7)])
    whole = read(written(table))
    monkeypatch.setattr(parquet, "_BATCH_ROWS", rows)
    assert read(written(table)) == whole
    assert len(whole) == 7


class _Counted(io.BytesIO):
    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.taken += len(found)
        return found


def test_only_what_is_asked_for_is_read() -> None:
    file = io.BytesIO()
    numbers = pa.array(range(10 << 14))
    table = pa.table({"vehicle": numbers.cast(pa.string()), "time": numbers})
    pq.write_table(table, file, row_group_size=1 << 14)
    counted = _Counted(file.getvalue())
    records = parquet_records(counted, "file", JSONL)
    next(records)
    assert counted.taken < len(file.getvalue()) / 3
    assert sum(1 for _ in records) + 1 == len(table)


@pytest.mark.parametrize("feed", [FORMATS["gtfs-rt"], FORMATS["hfp"], DUMP])
def test_a_format_without_columns_refuses_parquet(feed: Format) -> None:
    with pytest.raises(
        RecordingError, match=rf"^file: is Parquet, and {feed.name} has no columns; name the format that"
    ):
        read(written(pa.table({"a": [1]})), feed)


@pytest.mark.parametrize("feed", [feed for feed in FORMATS.values() if feed.table is not None])
def test_columns_of_another_format_are_refused(feed: Format) -> None:
    with pytest.raises(RecordingError, match=r"^file: [^\n]*$"):
        read(written(pa.table({"a": [1]})), feed)


def test_a_file_without_rows_is_an_empty_recording() -> None:
    assert read(written(pa.table({"vehicle": pa.array([], pa.string())}))) == []


GOOD = written(pa.Table.from_pylist([TRAM | {"speed": float(number), "at": {"x": [1]}} for number in range(50)]))


@given(st.lists(st.tuples(st.integers(4, len(GOOD) - 1), st.integers(0, 255)), max_size=4), st.integers(0, len(GOOD)))
@example([], len(GOOD) - 1)
def test_a_damaged_file_gives_records_or_one_refusal(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(GOOD)
    for place, value in changes:
        data[place] = value
    file: BinaryIO = io.BytesIO(bytes(data[: max(cut, 4)]))
    try:
        records = list(parquet_records(file, "file", JSONL))
    except RecordingError as refusal:
        assert str(refusal).startswith("file: ")
        assert "\n" not in str(refusal)
        return
    assert all(record.raw for record in records)


def test_a_disk_that_fails_is_not_called_damage(tmp_path: Path) -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        list(parquet_records(Failing(GOOD), "file", JSONL))


def test_batch_and_survey_print_the_same_of_parquet_as_of_lines(tmp_path: Path) -> None:
    start = datetime.fromtimestamp(HOUR_MS / 1000, UTC)
    rows = [
        TRAM
        | {"vehicle": f"tram {number % 7}", "time": start + timedelta(seconds=5 * number), "lat": 60 + number / 1e3}
        for number in range(200)
    ]
    (tmp_path / "lines").write_bytes(lines(rows))
    (tmp_path / "parquet").write_bytes(written(pa.Table.from_pylist(rows)))
    (tmp_path / "hatcast.toml").write_text(CONFIG)
    config = ["--config", tmp_path / "hatcast.toml"]
    printed = {}
    for name in ("lines", "parquet"):
        given_file = [tmp_path / name, "--format", "jsonl", "--json"]
        for command, options in (
            (batch, ["--contributions", *config]),
            (survey, ["--timezone", "UTC", "--hours", "0,24"]),
        ):
            done = CliRunner(catch_exceptions=False).invoke(command, [str(each) for each in (*given_file, *options)])
            assert done.exit_code == 0, done.output
            printed[name, command.name] = done.stdout
    assert printed["lines", batch.name] == printed["parquet", batch.name]
    assert printed["lines", survey.name] == printed["parquet", survey.name]
    assert json.loads(printed["parquet", batch.name])["outcomes"] == {"accepted": 200}


def test_parquet_inside_gzip_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file.gz").write_bytes(gzip.compress(GOOD))
    with (
        open_records([tmp_path / "file.gz"], JSONL) as records,
        pytest.raises(
            RecordingError,
            match=r"file.gz: is Parquet inside gzip; unpack it first",
        ),
    ):
        list(records())


def test_parquet_stands_beside_other_files_of_a_recording(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(written(pa.Table.from_pylist([TRAM])))
    (tmp_path / "b").write_bytes(line(TRAM))
    with open_records([tmp_path / "a", tmp_path / "b"], JSONL) as records:
        first, second = records()
    assert meant([first]) == meant([second])
