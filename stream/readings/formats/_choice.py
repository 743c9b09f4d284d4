"""The choice of a format by name, with the columns of foreign CSV, Parquet or JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from typing import BinaryIO, Final

from hatcast.stream.errors import RecordingError, SettingError
from hatcast.stream.readings.formats import _mapped_csv, _mapped_json
from hatcast.stream.readings.formats._columns import Columns
from hatcast.stream.readings.formats._mapped import Wanted
from hatcast.stream.readings.formats._mapped_csv import mapped_csv
from hatcast.stream.readings.formats._mapped_json import mapped_json
from hatcast.stream.readings.formats._recorded import arrival_ms
from hatcast.stream.readings.formats._times import Repeated, RepeatedHours, time_reader
from hatcast.stream.readings.formats.interface import Format, Recorded
from hatcast.stream.readings.reading import Reading, parse_time

PARQUET: Final = "parquet"
MAPPED: Final = (_mapped_csv.NAME, PARQUET, _mapped_json.NAME)


def mapped_format(name: str, columns: Columns, wanted: Wanted, *, live: bool = False) -> Format:
    """Return the format `csv`, `parquet` or `jsonl` with these columns.

    live   single records have to be decodable, so nothing is left to a header
    Raises SettingError if the columns name an unknown field, or this format has fixed columns. Without a unit or column
    of speeds only `without_speed` can be read.
    """
    if name not in MAPPED:
        raise SettingError("columns", f"{name} records have fixed columns", f"remove it, or use {', '.join(MAPPED)}")
    columns = columns.for_values(wanted.value, wanted.others)
    _check_options(name, columns)
    if live:
        _check_live(name, columns)
    if wanted.single is not None:
        return _mapped(name, columns, wanted)
    positions = _mapped(name, columns, replace(wanted, without_speed=True))
    try:
        return replace(_mapped(name, columns, wanted), without_speed=positions)
    except SettingError as error:
        if live:
            raise
        # Only of the speeds, which may be derived from the positions.
        return Format(name, lambda _: None, partial(_rejected, error), without_speed=positions)


def _check_options(name: str, columns: Columns) -> None:
    """Raise SettingError if an option is for another of the formats."""
    for option, formats in (("records", (_mapped_json.NAME,)), ("skip", (_mapped_csv.NAME,))):
        if getattr(columns, option) and name not in formats:
            raise SettingError(option, f"{name} has none", f"remove it, or use {', '.join(formats)}")


def _check_live(name: str, columns: Columns) -> None:
    if name == PARQUET:
        raise SettingError("format", f"{PARQUET} is a format of files", "use jsonl or csv")
    if name == _mapped_csv.NAME and not columns.numbered:
        raise SettingError(
            "columns", "a message of CSV has no header", "write them by number, such as vehicle=1,time=2"
        )


def _mapped(name: str, columns: Columns, wanted: Wanted) -> Format:
    def rows(header: Sequence[str], path: str) -> Format:
        paths = [each for each in columns.names.values() if "." in each and each.partition(".")[0] in header]
        known = [*header, *(each for each in paths if each not in header)]  # into columns of structs
        return mapped_json(wanted.completed(columns, known, path, is_schema=True), wanted)

    if name == PARQUET:
        return Format(PARQUET, lambda _: None, _not_parquet, rows=rows)
    # Rows of Parquet keep their types: as texts, the vehicles 7 and 7.0 would be two.
    feed = replace((mapped_csv if name == _mapped_csv.NAME else mapped_json)(columns, wanted), rows=rows)
    encoding, split = columns.encoding, feed.split
    if encoding is None:
        return feed
    return replace(
        feed,
        encoding=encoding,
        split=lambda body, topic="": split(body.decode(encoding, "replace").encode(errors="replace"), topic),
    )


def _rejected(error: SettingError, _: BinaryIO, __: str) -> Iterator[Recorded]:
    raise error


def _not_parquet(_: BinaryIO, path: str) -> Iterator[Recorded]:
    raise RecordingError(path, "is not a Parquet file", "name its format, such as csv or jsonl")


def in_zone(feed: Format, zone: tzinfo) -> Format:
    """Return a format of fixed fields whose times without an offset are local times of a zone."""
    read_time = time_reader(None, zone)

    def placed(reading: Reading | None, repeated: RepeatedHours | None = None) -> Reading | None:
        if reading is not None and isinstance(reading.time, str) and parse_time(reading.time) is None:
            time = read_time(reading.time)
            if isinstance(time, Repeated):
                time = int(time) if repeated is None else repeated.instant(reading.vehicle, time)
            reading.time = reading.time if time is None else time
        return reading

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        repeated = RepeatedHours()
        for each in feed.records(stream, path):
            reading = placed(each.reading, repeated)
            arrival = arrival_ms(reading.time) if each.arrival is None and reading is not None else each.arrival
            yield replace(each, reading=reading, arrival=arrival)

    positions = None if feed.without_speed is None else in_zone(feed.without_speed, zone)
    return replace(feed, decode=lambda value: placed(feed.decode(value)), records=records, without_speed=positions)
