"""CSV with a header, one record a physical line, so that a stray quote damages one record and not those after it."""

import csv
import math
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
class Table:
    """What a feed reads from a CSV recording.

    columns   those it needs; the first two are the vehicle's and the time's
    read      the texts of these columns to a reading; None if undecodable
    """

    columns: tuple[str, ...]
    read: Callable[[Sequence[str]], Reading | None]

    def records(self, lines: Iterable[bytes], path: str) -> Iterator[Recorded]:
        """The records after the header, in file order; a missing field counts as an empty one.

        Raises RecordingError if the file is empty or its header lacks a needed column.
        """
        rest = iter(lines)
        header = [name.strip() for name in fields(next(rest, b"").decode(errors="replace")) or ()]
        missing = [column for column in self.columns if column not in header]
        if missing:
            raise RecordingError(
                path, f"its first line names no column {', '.join(missing)}", "give a CSV file with its header"
            )
        places = [header.index(column) for column in self.columns]
        for raw in rest:
            # Replaced, not refused: the time of an undecodable line may still be readable.
            row = fields(raw.decode(errors="replace")) or ()
            cells = [row[place] if place < len(row) else "" for place in places]
            yield Recorded(raw, self.read(cells) if _is_text(raw) else None, arrival_ms(cells[1]))


def fields(line: str) -> list[str] | None:
    """The fields of one line; None if its quotes are broken."""
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader((line,), strict=True), None)
    except csv.Error:
        return None


def number(text: str) -> float | str | None:
    """A decimal number; "nan", "inf" or "-inf" for one that says it is not finite; None if the text is no number.

    Narrower than float(): no underscores, no digits of other scripts, and nothing too large for a double, as in JSON.
    """
    value = _decimal(text)
    return None if isinstance(value, float) and math.isinf(value) else value


def speed(text: str) -> float | str | None:
    """As `number`, but a number too large for a double is the greatest one: what decides is that it is a number."""
    value = _decimal(text)
    return finite(value) if isinstance(value, float) else value


def _decimal(text: str) -> float | str | None:
    """As `number`, but infinity for one too large for a double."""
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
