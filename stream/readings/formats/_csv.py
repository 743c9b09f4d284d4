"""CSV with fixed or with named columns, one record per physical line: a stray quote damages only its own record.

Named columns are found by a header or by number, with comma, semicolon, tab or bar between them.
"""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import BinaryIO, Final, NamedTuple, Self

from hatcast.stream.errors import RecordingError, as_option
from hatcast.stream.readings.formats._columns import ARRIVAL, REQUIRED, SPEED, TIME_AT, Columns, example
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
from hatcast.stream.readings.formats.interface import (
    BYTE_ORDER_MARK,
    DERIVE_FIX,
    Format,
    Recorded,
    arrival_ms,
    lines,
    split_lines,
)
from hatcast.stream.readings.magic import other_text
from hatcast.stream.readings.reading import Reading

CSV: Final = "csv"
_DELIMITERS: Final = ";\t|,"
# Also with a decimal comma or a unit, and times: 21,2 or 52.5N or 2022-01-02T05:29:43.
_DATA: Final = re.compile(r"[-+]?[0-9]+[.,:/-][0-9]")
_SHOWN_MIN: Final = 2  # fields that a header shows: a row of data may have the cell "bus"
_LOOKED_AHEAD: Final = 50  # lines


def csv_records(
    lines: Iterable[bytes],
    path: str,
    columns: Sequence[str],
    read: Callable[[Sequence[str], str | None], Reading | None],
    missing: str | None,
) -> Iterator[Recorded]:
    """Yield the records after a header, in file order.

    columns   those that are read; numbered `VEHICLE_AT` and `TIME_AT` are vehicle and time, the last is the speed
    read      converts the texts of these columns to a reading; None if undecodable. Its second argument is `missing`
    missing   the speed of a record without one, so that the file may lack the column; None: it is undecodable
    Raises RecordingError if the file is empty or its header lacks a required column.
    """
    rest = iter(lines)
    header = [name.strip() for name in fields(next(rest, b"").decode(errors="replace")) or ()]
    required = columns if missing is None else columns[:-1]
    if absent := [column for column in required if column not in header]:
        fix = "use a CSV file with a header" + (f", or {DERIVE_FIX}" if absent == ["speed"] else "")
        raise RecordingError(path, f"its first line has no column {', '.join(absent)}", fix)
    places = [header.index(column) if column in header else sys.maxsize for column in columns]
    for raw in rest:
        text = raw.decode(errors="replace")
        row = fields(text) or ()
        if (shifted := shifted_problem(row, len(header))) is not None:
            yield Recorded(raw, None, None, shifted)
            continue
        cells = [row[place] if place < len(row) else "" for place in places]
        yield Recorded(raw, read(cells, missing) if _is_text(raw, text) else None, arrival_ms(cells[TIME_AT]))


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


def _is_text(raw: bytes, decoded: str) -> bool:
    """Return whether a line is UTF-8. The time of one that is not may still be readable.

    decoded   the line with other bytes replaced
    """
    return "\ufffd" not in decoded or raw == decoded.encode()


def mapped_csv(columns: Columns, wanted: WantedValues) -> Format:
    """Return the format of CSV with these columns.

    Without a header, which only a recording has, the columns have to be numbers: `decode` and `split` are for these.
    Raises SettingError if columns that are numbers are not complete, or their unit is unknown.
    """
    if columns.numbered:
        return _numbered(columns, wanted)

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        first, number = _first_line(stream, columns, path)
        line = first.decode(errors="replace")
        delimiter, header = header_of(line, columns)
        if not (_is_text(first, line) or set(columns.names.values()).issubset(header)):
            raise RecordingError(path, "has a header that is not UTF-8", "name its encoding, as `--encoding cp1252`")
        if columns.shown(header, wanted.fields, wanted.value) < _SHOWN_MIN:
            _check_header(header, stream, number, columns, wanted, path)
        complete = columns.completed(header, wanted.required, wanted.value, path, is_schema=False)
        yield from _Rows.of(complete, wanted, header.index, lambda _: delimiter, len(header)).records(lines(stream))

    return Format(CSV, lambda _: None, records, split_lines)


def _numbered(columns: Columns, wanted: WantedValues) -> Format:
    """Return the format of CSV without a header. Each line is decoded by itself, so no vehicle changes another's."""
    columns.check_complete(wanted.required)
    rows = _Rows.of(columns, wanted, lambda number: int(number) - 1, delimiter_of)
    read = cells_reader(rows.target)

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        first, _ = _first_line(stream, columns, path)
        yield from rows.records(chain((first.rstrip(b"\r\n"),), lines(stream)))

    def decode(value: bytes) -> Reading | None:
        line = value.rstrip(b"\r\n")
        text = line.decode(errors="replace")
        row = fields(text, delimiter_of(text)) if "\n" not in text and _is_text(line, text) else None
        return None if row is None or rows.leaves_out(row) else read(rows.cells_of(row))

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


def is_header(names: Sequence[str], columns: Columns) -> bool:
    """Return whether a first line is a header: it has names of fields, or no number."""
    return columns.shown(names, REQUIRED, SPEED) >= _SHOWN_MIN or not any(map(is_data, names))


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
        f"write columns such as {example(missing)}; `hatcast check` prints that line",
    )


class _Rows(NamedTuple):
    """Reader of lines."""

    # finds the cells of the fields in the fields of a line, "" if one is missing
    cells_of: Callable[[list[str]], Cells]
    target: CellsTarget
    where: Sequence[tuple[int, str]]  # place and value of columns: lines with other values are left out
    delimiter: Callable[[str], str]  # returns what separates the fields of a line
    width: int | None  # number of the header's fields; None: there is no header

    @classmethod
    def of(
        cls,
        columns: Columns,
        wanted: WantedValues,
        place_of: Callable[[str], int],
        delimiter: Callable[[str], str],
        width: int | None = None,
    ) -> Self:
        """Return the reader of these columns. place_of: returns a column's place in a line."""
        # A field without a column is behind the last one, which is appended and empty.
        places = [place_of(columns.names[name]) if name in columns.names else -1 for name in (*wanted.fields, ARRIVAL)]
        least = 1 + max(places)
        pick: Callable[[list[str]], Cells] = itemgetter(*places)

        def cells_of(row: list[str]) -> Cells:
            if len(row) < least:
                row += [""] * (least - len(row))
            row.append("")
            return pick(row)

        where = [(place_of(column), value) for column, value in columns.where.items()]
        return cls(with_points(cells_of, columns), wanted.target(columns), where, delimiter, width)

    def leaves_out(self, row: Sequence[str]) -> bool:
        """Return whether `where` leaves a line out."""
        return any(len(row) <= at or row[at].strip() != value for at, value in self.where)

    def records(self, raws: Iterable[bytes]) -> Iterator[Recorded]:
        """Yield the records of the lines of one recording."""
        cells_of, target, where, delimiter, width = self
        read = cells_reader(target, RepeatedHours())
        for raw in raws:
            text = raw.decode(errors="replace")
            row = fields(text, delimiter(text))
            if row is not None and width is not None and len(row) != width and (shifted := shifted_problem(row, width)):
                yield Recorded(raw, None, None, shifted)
                continue
            if where and row is not None and self.leaves_out(row):
                continue
            cells = () if row is None else cells_of(row)
            yield recorded(raw, cells, read(cells) if cells and _is_text(raw, text) else None, target)
