"""CSV with fixed or with named columns, one record per physical line: a stray quote damages only its own record.

Named columns are found by a header or by number, with comma, semicolon, tab or bar between them.
"""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import BinaryIO, Final, NamedTuple

from hatcast.stream.errors import RecordingError, as_option
from hatcast.stream.readings.formats._columns import ARRIVAL, TIME_AT, Columns
from hatcast.stream.readings.formats._mapped import (
    Cells,
    CellsTarget,
    WantedValues,
    cells_reader,
    recorded,
    with_points,
)
from hatcast.stream.readings.formats._times import RepeatedHours
from hatcast.stream.readings.formats._values import parse_number
from hatcast.stream.readings.formats.interface import BYTE_ORDER_MARK, Format, Recorded, arrival_ms, lines, split_lines
from hatcast.stream.readings.magic import other_text
from hatcast.stream.readings.reading import Reading

CSV: Final = "csv"
_DELIMITERS: Final = ";\t|,"
# Also with a decimal comma or a unit, and times: 21,2 or 52.5N or 2022-01-02T05:29:43.
_DATA: Final = re.compile(r"[-+]?[0-9]+[.,:/-][0-9]")
_SHOWN_MIN: Final = 2  # fields that a header shows: a row of data may have the cell "bus"
_LOOKED_AHEAD: Final = 50  # lines

_CellsOf = Callable[[list[str]], Cells]
"""the fields of a line -> the cells, "" if one is missing"""


@dataclass(frozen=True, slots=True)
class CsvTable:
    """CSV reader of a format.

    columns   columns; numbered `VEHICLE_AT` and `TIME_AT` are the vehicle and the time
    read      converts the texts of these columns to a reading; None if undecodable
    optional  those of the columns that a file may lack: their texts are empty then
    """

    columns: tuple[str, ...]
    read: Callable[[Sequence[str]], Reading | None]
    optional: tuple[str, ...] = ()

    def records(self, lines: Iterable[bytes], path: str) -> Iterator[Recorded]:
        """Yield the records after the header, in file order.

        Raises RecordingError if the file is empty or its header lacks a required column.
        """
        rest = iter(lines)
        header = [name.strip() for name in fields(next(rest, b"").decode(errors="replace")) or ()]
        missing = [column for column in self.columns if column not in header and column not in self.optional]
        if missing:
            fix = "use a CSV file with a header"
            if missing == ["speed"]:
                fix += ", or derive the speeds from positions with `--derive-speed` (in Python `derive_speed`)"
            raise RecordingError(path, f"its first line has no column {', '.join(missing)}", fix)
        places = [header.index(column) if column in header else sys.maxsize for column in self.columns]
        for raw in rest:
            # Bad UTF-8 is replaced, not rejected: the time of an undecodable line may still be readable.
            row = fields(raw.decode(errors="replace")) or ()
            if (shifted := shifted_problem(row, len(header))) is not None:
                yield Recorded(raw, None, None, shifted)
                continue
            cells = [row[place] if place < len(row) else "" for place in places]
            yield Recorded(raw, self.read(cells) if _is_text(raw) else None, arrival_ms(cells[TIME_AT]))


def shifted_problem(row: Sequence[str], width: int) -> str | None:
    """Return the problem of a row with fewer or more fields than its header, or None.

    A field that was left out, or a delimiter within one, shifts all that follow: they would be read as others. Empty
    fields at the end shift none.
    """
    if len(row) == width or (len(row) > width and not any(map(str.strip, row[width:]))):
        return None
    return f"has {len(row)} fields, the header {width}: one is left out, or has a separator without quotes"


def fields(line: str, delimiter: str = ",") -> list[str] | None:
    """Return the fields of one line; None if its quotes are malformed."""
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader((line,), delimiter=delimiter, skipinitialspace=True, strict=True), None)
    except csv.Error:
        return None


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def mapped_csv(columns: Columns, wanted: WantedValues) -> Format:
    """Return the format of CSV with these columns.

    Without a header, which only a recording has, the columns have to be numbers: `decode` and `split` are for these.
    Raises SettingError if columns that are numbers are not complete, or their unit is unknown.
    """
    if columns.numbered:
        return _numbered(columns, wanted)

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        first, number = _first_line(stream, columns, path)
        delimiter, header = header_of(first.decode(errors="replace"), columns)
        if not (_is_text(first) or set(columns.names.values()).issubset(header)):
            raise RecordingError(path, "has a header that is not UTF-8", "name its encoding, as `--encoding cp1252`")
        if columns.shown(header, wanted.fields, wanted.value) < _SHOWN_MIN:
            _check_header(header, stream, number, columns, wanted, path)
        complete = wanted.completed(columns, header, path, is_schema=False)
        places = {name: header.index(column) for name, column in complete.names.items()}
        where = [(header.index(column), value) for column, value in columns.where.items()]
        cells_of = _cells_of(places, wanted, columns)
        rows = _Rows(lambda _: delimiter, cells_of, wanted.target(complete), where, len(header))
        yield from rows.records(lines(stream))

    return Format(CSV, lambda _: None, records, split_lines)


def _numbered(columns: Columns, wanted: WantedValues) -> Format:
    """Return the format of CSV without a header. Each line is decoded by itself, so no vehicle changes another's."""
    columns.check_complete(wanted.required)
    places = {name: int(number) - 1 for name, number in columns.names.items()}
    where = [(int(number) - 1, value) for number, value in columns.where.items()]
    rows = _Rows(delimiter_of, _cells_of(places, wanted, columns), wanted.target(columns), where)

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        first, _ = _first_line(stream, columns, path)
        yield from rows.records(chain((first.rstrip(b"\r\n"),), lines(stream)))

    def decode(value: bytes) -> Reading | None:
        line = value.rstrip(b"\r\n")
        return None if b"\n" in line else next((each.reading for each in rows.records((line,))), None)

    return Format(CSV, decode, records, split_lines)


def delimiter_of(line: str) -> str:
    """Return the separator of a line: the character between most fields."""
    if '"' not in line:
        return max(_DELIMITERS, key=line.count)
    return max(_DELIMITERS, key=lambda each: len(fields(line, each) or ()))


def header_of(line: str, columns: Columns) -> tuple[str, list[str]]:
    """Return the delimiter of a header and its names: the one by which most of the given columns are names."""
    headers = {each: [name.strip() for name in fields(line, each) or ()] for each in _DELIMITERS}
    given = set(columns.names.values())
    delimiter = max(headers, key=lambda each: (len(given.intersection(headers[each])), len(headers[each])))
    return delimiter, headers[delimiter]


def is_data(name: str) -> bool:
    """Return True if a cell of the first line starts like a number or a time, unlike a column's name."""
    return isinstance(parse_number(name), float) or _DATA.match(name) is not None


def _first_line(stream: BinaryIO, columns: Columns, path: str) -> tuple[bytes, int]:
    """Read the first line that is not blank, after those that are left out; return it and its number in the file.

    Excel's line `sep=;` is left out, too. Raises RecordingError: there is none, or it is of another kind of file.
    """
    for _ in range(columns.skip):
        stream.readline()
    number, line = columns.skip, b"\n"
    while line and (
        not line.strip(b" \t\r\n\xef\xbb\xbf") or line.removeprefix(BYTE_ORDER_MARK)[:4].lower() == b"sep="
    ):
        line, number = stream.readline(), number + 1
    if not line:
        raise RecordingError(path, "is empty", "use a CSV file with a header")
    found = other_text(line)
    if found is not None:
        raise RecordingError(path, f"is {found[0]}", found[1])
    if b"\r" in line.rstrip(b"\r\n"):
        raise RecordingError(path, "has lines that end with a carriage return alone", "save it with usual line ends")
    return line.removeprefix(BYTE_ORDER_MARK), number


def _check_header(
    header: list[str], stream: BinaryIO, number: int, columns: Columns, wanted: WantedValues, path: str
) -> None:
    """Raise RecordingError about a first line that shows no fields: its cells may be data, so no error has them.

    number   of the line in the file
    """
    for ahead in range(number, number + _LOOKED_AHEAD):
        _, names = header_of(stream.readline().decode(errors="replace"), columns)
        if columns.shown(names, wanted.fields, wanted.value) >= _SHOWN_MIN:
            raise RecordingError(
                path, f"line {ahead + 1} looks like the header", f"{as_option('skip', ahead)} begins there"
            )
    if any(map(is_data, header)):
        raise RecordingError(
            path,
            "has a number or a time in its first line, so no header",
            "write columns by number, such as vehicle=1,time=2",
        )
    if len(header) <= 1:
        raise RecordingError(path, "has one column, or other signs than , ; | and tabs between them", "check the file")
    missing = [name for name in wanted.required if name not in columns.names]
    raise RecordingError(
        path,
        f"its first line does not plainly show {', '.join(missing) or 'the columns'}",
        f"write columns such as {','.join(f'{name}=COLUMN' for name in missing)}; `hatcast check` prints that line",
    )


class _Rows(NamedTuple):
    """Reader of lines.

    delimiter   returns what separates the fields of a line
    where       place and value of columns: lines with other values are left out
    width       number of the header's fields; None: there is no header
    """

    delimiter: Callable[[str], str]
    cells_of: _CellsOf
    target: CellsTarget
    where: Sequence[tuple[int, str]]
    width: int | None = None

    def records(self, raws: Iterable[bytes]) -> Iterator[Recorded]:
        """Yield the records of the lines of one recording."""
        delimiter, cells_of, target, where, width = self
        read = cells_reader(target, RepeatedHours())
        for raw in raws:
            try:
                text, whole = raw.decode(), True
            except UnicodeDecodeError:  # its time may still be readable
                text, whole = raw.decode(errors="replace"), False
            row = fields(text, delimiter(text))
            if row is not None and width is not None and len(row) != width and (shifted := shifted_problem(row, width)):
                yield Recorded(raw, None, None, shifted)
                continue
            if where and row is not None and any(len(row) <= at or row[at].strip() != value for at, value in where):
                continue
            cells = () if row is None else cells_of(row)
            reading = read(cells) if cells and whole else None
            yield recorded(raw, cells, reading, target)


def _cells_of(places: Mapping[str, int], wanted: WantedValues, columns: Columns) -> _CellsOf:
    """Return a function that finds the cells of the fields at these places of a line."""
    # A field without a place is behind the last one, which is appended and empty.
    ordered = [places.get(name, -1) for name in (*wanted.fields, ARRIVAL)]
    width = 1 + max(ordered)
    pick: Callable[[list[str]], Cells] = itemgetter(*ordered)

    def cells_of(row: list[str]) -> Cells:
        if len(row) < width:
            row += [""] * (width - len(row))
        row.append("")
        return pick(row)

    return with_points(cells_of, columns)
