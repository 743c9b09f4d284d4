"""Shared by the formats: lines, messages of several records, arrivals, and the error for a file of another format."""

import io
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import BinaryIO, Final

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats.interface import Recorded
from hatcast.stream.readings.reading import Reading, parse_time

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
WHITE_SPACE: Final = b" \t\r\n"
_INT64: Final = 1 << 63  # Kafka timestamps are int64: an arrival outside is unreadable


def lines(stream: BinaryIO, head: bytes = b"") -> Iterator[bytes]:
    """Yield the lines without line ends, in file order; skip blank lines and a byte order mark.

    head   bytes already read from the stream
    """
    first = (head + stream.readline()).removeprefix(BYTE_ORDER_MARK)
    for line in chain((first,), stream):
        text = line.rstrip(b"\r\n")
        if text and not text.isspace():
            yield text


def split_lines(body: bytes, topic: str = "") -> list[bytes]:
    """Split a message with one record a line; blank lines are skipped."""
    return list(lines(io.BytesIO(body)))


def first_byte(stream: BinaryIO) -> bytes:
    """Read the first byte after white space and a byte order mark; empty at the end of the file."""
    while (byte := stream.read(1)) and byte in WHITE_SPACE + BYTE_ORDER_MARK:
        pass
    return byte


def arrival_ms(stamp: object) -> int | None:
    """Convert an `arrival` or time field of any type to milliseconds UTC; None if unreadable."""
    if isinstance(stamp, bool) or not isinstance(stamp, str | int | float):
        return None
    instant = parse_time(stamp)
    return instant if instant is not None and -_INT64 <= instant < _INT64 else None


Decode = Callable[[bytes], Reading | None]
Why = Callable[[bytes], str | None]
Inspect = Callable[[bytes, Reading | None], tuple[object, bool]]
"""(record, its reading) -> (its time or arrival field of any type or None, whether it looks like this format)"""


def decode_all(
    raws: Iterable[bytes], decode: Decode, inspect: Inspect, error: RecordingError, why: Why = lambda _: None
) -> Iterator[Recorded]:
    """Yield the decoded records. Raises `error` at the end if there are records and none has this format.

    why   says why a record is undecodable
    """
    seen = matched = False
    for raw in raws:
        seen = True
        reading = decode(raw)
        stamp, matches = inspect(raw, reading)
        matched = matched or matches
        yield Recorded(raw, reading, arrival_ms(stamp), why(raw) if reading is None else None)
    if seen and not matched:
        raise error


def wrong_format(path: str, name: str, expected: str) -> RecordingError:
    """Return the error for a file in which no record has the given format."""
    return RecordingError(path, f"has no {name} record", f"name the file's format, or use a file of {expected}")
