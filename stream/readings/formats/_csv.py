"""CSV with a header and one record per physical line: a stray quote damages only its own record."""

import csv
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats._recorded import arrival_ms
from hatcast.stream.readings.formats._speed import finite
from hatcast.stream.readings.formats.interface import Recorded
from hatcast.stream.readings.reading import Reading

_NOT_FINITE: Final = frozenset({"nan", "inf", "infinity"})


@dataclass(frozen=True, slots=True)
class CsvTable:
    """CSV reader of a format.

    columns   columns; the first two are the vehicle and the time
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
            yield Recorded(raw, self.read(cells) if _is_text(raw) else None, arrival_ms(cells[1]))


def shifted_problem(row: Sequence[str], width: int) -> str | None:
    """Return the problem of a row with fewer or more fields than its header, or None.

    A field that was left out, or a delimiter within one, shifts all that follow: they would be read as others. Empty
    fields at the end shift none.
    """
    if len(row) == width or (len(row) > width and not any(map(str.strip, row[width:]))):
        return None
    return f"has {len(row)} fields, the header {width}"


def fields(line: str, delimiter: str = ",") -> list[str] | None:
    """Return the fields of one line; None if its quotes are malformed."""
    if '"' not in line:
        return line.split(delimiter)
    try:
        return next(csv.reader((line,), delimiter=delimiter, strict=True), None)
    except csv.Error:
        return None


def parse_number(text: str) -> float | str | None:
    """Parse a decimal number; "nan", "inf" or "-inf" if it is written as such; None if the text is not a number.

    Stricter than float(): no underscores, no digits of other scripts, and no number too large for a double, as in JSON.
    """
    value = _decimal(text)
    return None if isinstance(value, float) and math.isinf(value) else value


def parse_speed(text: str) -> float | str | None:
    """Parse like `parse_number`, but a number too large for a double gives the largest double: see `_speed`."""
    value = _decimal(text)
    return finite(value) if isinstance(value, float) else value


def _decimal(text: str) -> float | str | None:
    """Parse like `parse_number`, but a number too large for a double gives infinity."""
    try:
        value = float(text)
    except ValueError:
        return None
    if not text.isascii() or "_" in text:
        return None
    if math.isfinite(value):
        return value
    return str(value) if text.strip().lstrip("+-").lower() in _NOT_FINITE else value


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
