"""Telemetry formats: decoders of records to readings. One module per format; only it knows the format's field names.

To add a format: a module here, an entry below, a sample in tests/data/feeds and a row in docs/feeds.md, which explains
the steps. A decoder never raises on a record: it returns None for one that it cannot decode (outcome `undecodable`).
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import BinaryIO, Final

from hatcast.stream.errors import RecordingError, SettingError, as_option
from hatcast.stream.readings.formats import capmetro, gtfs_rt, hfp, itms, jsonl, siri
from hatcast.stream.readings.formats._columns import Columns as Columns
from hatcast.stream.readings.formats._csv import CSV as CSV
from hatcast.stream.readings.formats._csv import header_of, mapped_csv
from hatcast.stream.readings.formats._csv import is_header as is_header
from hatcast.stream.readings.formats._mapped import NO_VALUE as NO_VALUE
from hatcast.stream.readings.formats._mapped import WantedValues
from hatcast.stream.readings.formats._mapped_json import JSONL, first_records, mapped_json
from hatcast.stream.readings.formats._mapped_json import first_members as first_members
from hatcast.stream.readings.formats._times import Repeated, RepeatedHours, time_reader, zone_of
from hatcast.stream.readings.formats.interface import OUT_OF_SERVICE, arrival_ms
from hatcast.stream.readings.formats.interface import Format as Format
from hatcast.stream.readings.formats.interface import Recorded as Recorded
from hatcast.stream.readings.formats.interface import Table as Table
from hatcast.stream.readings.magic import is_utf16
from hatcast.stream.readings.positions import DeriveSpeed as DeriveSpeed
from hatcast.stream.readings.reading import Reading, ValueUnits, parse_time

PARQUET: Final = "parquet"
IN_SERVICE: Final = "-in-service"  # ends the names of formats without the vehicles that have no trip or journey


def _in_service(feed: Format, counts: Callable[[bytes], bool]) -> Format:
    """Return the format without the records that do not count. Their positions are still there to derive speeds from.

    counts   reads the record and nothing else
    """

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        for each in feed.records(stream, path):
            left_out = each.reading is not None and not counts(each.raw)
            yield Recorded(each.raw, None, each.arrival, OUT_OF_SERVICE) if left_out else each

    carrying, dated = feed.carrying, feed.header_times
    return replace(
        feed,
        name=f"{feed.name}{IN_SERVICE}",
        decode=lambda value: feed.decode(value) if counts(value) else None,
        records=records,
        counts=counts,
        carrying=None if carrying is None else lambda units: _in_service(carrying(units), counts),
        header_times=None if dated is None else lambda: _in_service(dated(), counts),
    )


MAPPED: Final = (CSV, PARQUET, JSONL)
FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        each.name: each
        for each in (
            jsonl.FORMAT,
            itms.FORMAT,
            gtfs_rt.FORMAT,
            gtfs_rt.PLATES,
            gtfs_rt.LABELS,
            hfp.FORMAT,
            siri.FORMAT,
            capmetro.FORMAT,
            *(_in_service(each, gtfs_rt.has_trip) for each in (gtfs_rt.FORMAT, gtfs_rt.PLATES, gtfs_rt.LABELS)),
            _in_service(siri.FORMAT, siri.has_journey),
        )
    }
)

FORMAT_NAMES: Final = (*FORMATS, *(name for name in MAPPED if name not in FORMATS))
"""All formats: of fixed fields, and with named columns"""


def mapped_format(name: str, columns: Columns, wanted: WantedValues, *, live: bool = False) -> Format:
    """Return the format `csv`, `parquet` or `jsonl` with these columns.

    live   single records have to be decodable, so nothing is left to a header
    Raises SettingError if the columns name an unknown field, or this format has fixed columns. Without a unit or column
    of speeds only `without_speed` can be read.
    """
    if name not in MAPPED:
        raise SettingError(
            columns.first_option(), f"{name} records have fixed columns", f"remove it, or use {', '.join(MAPPED)}"
        )
    columns = columns.for_values(wanted.value, wanted.units.others)
    for option, only in (("records", JSONL), ("skip", CSV)):
        if getattr(columns, option) and name != only:
            raise SettingError(option, f"{name} has none", f"remove it, or use {only}")
    if live and name == PARQUET:
        raise SettingError("format", f"{PARQUET} is a format of files", "use jsonl or csv")
    if live and name == CSV and not columns.numbered:
        fix = "write them by number, such as vehicle=1,time=2"
        raise SettingError("columns", "a message of CSV has no header", fix)
    if wanted.units.single is not None:
        return _mapped(name, columns, wanted)
    positions = _mapped(name, columns, replace(wanted, without_speed=True))
    try:
        return replace(_mapped(name, columns, wanted), without_speed=positions)
    except SettingError as error:
        if live:
            raise
        # Only of the speeds, which may be derived from the positions.
        return Format(name, lambda _: None, partial(_rejected, error), without_speed=positions)


def _mapped(name: str, columns: Columns, wanted: WantedValues) -> Format:
    def rows(header: Sequence[str], path: str) -> Format:
        paths = [each for each in columns.names.values() if "." in each and each.partition(".")[0] in header]
        known = [*header, *(each for each in paths if each not in header)]  # into columns of structs
        return mapped_json(columns.completed(known, wanted.required, wanted.value, path, is_schema=True), wanted)

    if name == PARQUET:
        return Format(PARQUET, lambda _: None, _not_parquet, rows=rows)
    # Rows of Parquet keep their types: as texts, the vehicles 7 and 7.0 would be two.
    feed = replace((mapped_csv if name == CSV else mapped_json)(columns, wanted), rows=rows)
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
            yield Recorded(each.raw, reading, arrival, each.problem)

    positions = None if feed.without_speed is None else in_zone(feed.without_speed, zone)
    return replace(feed, decode=lambda value: placed(feed.decode(value)), records=records, without_speed=positions)


@dataclass(frozen=True, slots=True)
class FormatChoice:
    """A format by name."""

    name: str
    # for `csv`, `parquet` and `jsonl`, and `times_in` of all; None: the fixed fields of the format, and for `csv` and
    # `parquet` those that the header shows
    columns: Columns | None = None
    derive: DeriveSpeed | None = None  # which speeds are derived from positions; None: none
    header_time: bool = False  # whether records without a time have that of their message's header

    @property
    def mapped(self) -> bool:
        """Whether columns are named, or found by a header. A time zone alone leaves a format its fixed fields."""
        if self.name not in FORMATS or self.columns is None:
            return self.name not in FORMATS
        return self.name in MAPPED or self.columns != Columns(times_in=self.columns.times_in or "")

    @property
    def words(self) -> list[str]:
        """The options of a command that choose it."""
        derived = {None: [], "missing": ["--derive-speed"], "always": ["--derive-speed-always"]}[self.derive]
        words = ["--format", self.name, *derived, *(["--header-time"] if self.header_time else [])]
        for option in (self.columns or Columns()).options:
            name, _, text = option.partition(" ")
            words += [f"--{name.replace('_', '-')}", text]
        return words

    def format(self, units: ValueUnits, zone: tzinfo, *, live: bool = False) -> Format:
        """Return the format whose readings carry the values of a policy.

        zone   of times without an offset
        live   it decodes single records, such as messages, and not only recordings
        Raises SettingError.
        """
        if self.mapped:
            wanted = WantedValues(zone, units)
            feed, dated = mapped_format(self.name, self.columns or Columns(), wanted, live=live), None
        else:
            feed = format_with(self.name, units)
            if self.columns is not None and self.columns.times_in is not None:
                feed = in_zone(feed, zone_of(self.columns.times_in))
            dated = feed.header_times
        if not self.header_time:
            return feed
        if dated is None:
            raise SettingError("header_time", f"{self.name} messages have no header with a time", "leave it out")
        return dated()


_MEMBER: Final = re.compile(r'"([^"\\]{1,64})"\s*:')


def format_of(head: bytes, path: str, columns: Columns | None = None, also: Sequence[Format] = ()) -> FormatChoice:
    """Return the format of a recording: the one that shows itself; else that of JSON or CSV with named columns.

    head      its first bytes, unpacked, with the header or the first record
    columns   named ones: a table is read by them then, not by the fixed columns of a format
    also      further formats
    Raises RecordingError if its records are of several formats.
    """
    columns = columns or Columns()
    encoding = columns.encoding or ("utf-16" if is_utf16(head) else None)
    text = head.decode(encoding or "utf-8", errors="replace").removeprefix("\ufeff")
    is_json = text.lstrip().startswith(("{", "["))
    if is_json:
        records = [each.decode(errors="replace") for each in first_records(text.encode(), columns.path)]
        # A document that is cut off may still show itself; of records all have to, or one bus could choose for others.
        names = [_MEMBER.findall(each) for each in records or [text]]
    else:
        names = [header_line(text, columns)[1]]
    shown = {format_of_columns(each, text, None if columns.are_named() else also) for each in names}
    if len(shown) > 1:
        raise RecordingError(path, "has records of several formats", f"name one with {as_option('format', 'NAME')}")
    (found,) = shown
    if found is None:
        columns = replace(columns, encoding=encoding)
    default = JSONL if is_json else CSV
    return FormatChoice(found or default, columns if columns != Columns() else None)


def format_of_columns(names: Collection[str], text: str = "", also: Sequence[Format] | None = ()) -> str | None:
    """Return the format that shows itself by the names of columns or members; None: its columns have to be found.

    text   of its first bytes
    also   further formats; None: none with columns, which are named
    """
    known = [*(also or ()), *(each for each in FORMATS.values() if also is not None or each.table is None)]
    return next((each.name for each in known if each.shows(text, names)), None)


def format_of_table(names: Collection[str], columns: Columns | None, default: str = PARQUET) -> FormatChoice:
    """Return the format of a table or a Parquet file: the one that its names of columns show, or `default`."""
    is_named = columns is not None and columns.are_named()
    return FormatChoice((None if is_named else format_of_columns(names)) or default, columns)


def header_line(text: str, columns: Columns) -> tuple[str, list[str]]:
    """Return the separator and the names of the header of a CSV text."""
    lines = (each for each in islice(text.splitlines(), columns.skip, None) if each.strip())
    return header_of(next((each for each in lines if not each.lower().startswith("sep=")), ""), columns)


def format_with(name: str, units: ValueUnits) -> Format:
    """Return a format whose readings carry the values that a policy releases.

    Raises SettingError if records of this format do not have them.
    """
    feed = FORMATS[name]
    if not units.named:
        return feed
    if feed.carrying is None:
        able = ", ".join(each.name for each in FORMATS.values() if each.carrying is not None and each.counts is None)
        key = "policy.values" if units.single is None else "policy.value"
        raise SettingError(key, f"{name} records have no value but the speed", f"use {able}, or remove it")
    return feed.carrying(units)
