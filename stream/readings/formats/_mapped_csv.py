"""CSV of any columns, found by a header or by number, with comma, semicolon, tab or bar between them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import BinaryIO, Final

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats._columns import ARRIVAL, Columns
from hatcast.stream.readings.formats._csv import fields, parse_number, shifted_problem
from hatcast.stream.readings.formats._mapped import Cells, Target, Wanted, cells_reader, recorded
from hatcast.stream.readings.formats._recorded import lines, split_lines
from hatcast.stream.readings.formats._times import RepeatedHours
from hatcast.stream.readings.formats.interface import Format, Recorded
from hatcast.stream.readings.reading import Reading

NAME: Final = "csv"
_DELIMITERS: Final = ";\t|,"
# Also with a decimal comma or a unit, and times: 21,2 or 52.5N or 2022-01-02T05:29:43.
_DATA: Final = re.compile(r"[-+]?[0-9]+[.,:/-][0-9]")
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")

_CellsOf = Callable[[list[str]], Cells]
"""the fields of a line -> the cells, "" if one is missing"""


def mapped_csv(columns: Columns, wanted: Wanted) -> Format:
    """Return the format of CSV with these columns.

    Without a header, which only a recording has, the columns have to be numbers: `decode` and `split` are for these.
    Raises SettingError if columns that are numbers are not complete, or their unit is unknown.
    """
    if columns.numbered:
        return _numbered(columns, wanted)

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        rest = lines(stream)
        text = _first(rest, path).decode(errors="replace")
        delimiter, header = _header_of(text, columns)
        if any(_is_data(name) for name in header):  # an error that lists the columns would print a raw row
            raise RecordingError(
                path,
                "has a number or a time in its first line, so no header",
                "write columns by number, such as vehicle=1,time=2",
            )
        complete = wanted.completed(columns, header, path)
        places = {name: header.index(column) for name, column in complete.names.items()}
        yield from _rows(rest, lambda _: delimiter, _cells_of(places, wanted), wanted.target(complete), len(header))

    return Format(NAME, lambda _: None, records, split_lines)


def _numbered(columns: Columns, wanted: Wanted) -> Format:
    """Return the format of CSV without a header. Each line is decoded by itself, so no vehicle changes another's."""
    columns.check_complete(wanted.required)
    target = wanted.target(columns)
    cells_of = _cells_of({name: int(number) - 1 for name, number in columns.names.items()}, wanted)

    def records(stream: BinaryIO, path: str) -> Iterator[Recorded]:
        rest = lines(stream)
        yield from _rows(chain((_first(rest, path),), rest), delimiter_of, cells_of, target)

    def decode(value: bytes) -> Reading | None:
        line = value.rstrip(b"\r\n")
        return None if b"\n" in line else next(_rows((line,), delimiter_of, cells_of, target)).reading

    return Format(NAME, decode, records, split_lines)


def delimiter_of(line: str) -> str:
    """Return what separates the fields of a line: the character that separates most of them."""
    if '"' not in line:
        return max(_DELIMITERS, key=line.count)
    return max(_DELIMITERS, key=lambda each: len(fields(line, each) or ()))


def _header_of(line: str, columns: Columns) -> tuple[str, list[str]]:
    """Return the delimiter of a header and its names: the one by which most of the given columns are names."""
    headers = {each: [name.strip() for name in fields(line, each) or ()] for each in _DELIMITERS}
    given = set(columns.names.values())
    delimiter = max(headers, key=lambda each: (len(given.intersection(headers[each])), len(headers[each])))
    return delimiter, headers[delimiter]


def _is_data(name: str) -> bool:
    """Return True if a cell of the first line starts like a number or a time, unlike a column's name."""
    return isinstance(parse_number(name), float) or _DATA.match(name) is not None


def _first(rest: Iterator[bytes], path: str) -> bytes:
    first = next(rest, b"")
    if not first:
        raise RecordingError(path, "is empty", "use a CSV file with a header")
    if first.startswith(_UTF_16):
        raise RecordingError(path, "is UTF-16", "save it as UTF-8")
    return first


def _rows(
    raws: Iterable[bytes], delimiter: Callable[[str], str], cells_of: _CellsOf, target: Target, width: int | None = None
) -> Iterator[Recorded]:
    """Yield the records of lines.

    width   number of the header's fields; None: there is no header
    """
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
        cells = () if row is None else cells_of(row)
        reading = read(cells) if cells and whole else None
        yield recorded(raw, cells, reading, target)


def _cells_of(places: Mapping[str, int], wanted: Wanted) -> _CellsOf:
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

    return cells_of
