"""What the feeds share when they read a recording: lines, arrivals, and the refusal of another format's file."""

from collections.abc import Iterator
from itertools import chain
from typing import BinaryIO, Final

from stream.errors import BadRecording
from stream.reading import parse_time

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
WHITE_SPACE: Final = b" \t\r\n"
_INT64: Final = 1 << 63  # a Kafka timestamp is an int64: what is none cannot be an arrival

# All that msgspec raises on bytes that are no such record: malformed JSON and wrong types (ValueErrors both, like bad
# UTF-8), and JSON nested deeper than Python's stack.
UNREADABLE: Final = (ValueError, RecursionError)


def lines(stream: BinaryIO, head: bytes = b"") -> Iterator[bytes]:
    """Lines without their ends, in file order. A blank line is no record; a byte order mark is no part of one.

    head   what was already taken from the stream
    """
    first = (head + stream.readline()).removeprefix(BYTE_ORDER_MARK)
    for line in chain((first,), stream):
        text = line.rstrip(b"\r\n")
        if text and not text.isspace():
            yield text


def first_byte(stream: BinaryIO) -> bytes:
    """The first byte that is neither white space nor of a byte order mark; empty at the end of the file."""
    while (byte := stream.read(1)) and byte in WHITE_SPACE + BYTE_ORDER_MARK:
        pass
    return byte


def arrival_ms(stamp: object) -> int | None:
    """Milliseconds UTC of an `arrival` or time field, whatever else its record holds; None if unreadable."""
    if isinstance(stamp, bool) or not isinstance(stamp, str | int | float):
        return None
    instant = parse_time(stamp)
    return instant if instant is not None and -_INT64 <= instant < _INT64 else None


def another_format(path: str, name: str, expected: str) -> BadRecording:
    """The refusal of a file in which nothing looks like a record of the format that was named."""
    return BadRecording(path, f"holds no {name} record", f"name its own format, or give a file of {expected}")
