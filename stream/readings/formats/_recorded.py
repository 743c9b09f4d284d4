"""What the feeds share: lines, messages of several records, arrivals, and the refusal of another format's file."""

import io
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import BinaryIO, Final

import msgspec

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats.interface import Recorded
from hatcast.stream.readings.reading import Reading, parse_time

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
WHITE_SPACE: Final = b" \t\r\n"
_INT64: Final = 1 << 63  # a Kafka timestamp is an int64: what is none cannot be an arrival

# All that msgspec raises on bytes that are no such record: malformed JSON and wrong types (ValueErrors both, like bad
# UTF-8), and JSON nested deeper than Python's stack.
UNREADABLE: Final = (ValueError, RecursionError)

_elements: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_value: Final = msgspec.json.Decoder(msgspec.Raw).decode


def lines(stream: BinaryIO, head: bytes = b"") -> Iterator[bytes]:
    """Lines without their ends, in file order. A blank line is no record; a byte order mark is no part of one.

    head   what was already taken from the stream
    """
    first = (head + stream.readline()).removeprefix(BYTE_ORDER_MARK)
    for line in chain((first,), stream):
        text = line.rstrip(b"\r\n")
        if text and not text.isspace():
            yield text


def split_lines(body: bytes, topic: str = "") -> list[bytes]:
    """A message of one record a line; one that is blank holds none."""
    return list(lines(io.BytesIO(body)))


def split_json(body: bytes, topic: str = "") -> list[bytes]:
    """A message of JSON: the elements of an array, one value however it is laid out, or one value a line."""
    text = body.removeprefix(BYTE_ORDER_MARK).strip(WHITE_SPACE)
    try:
        return list(map(bytes, _elements(text)))
    except UNREADABLE:
        pass
    # Lines only if the first is a value by itself: a broken message is one undecodable record, not one a line.
    head, _, rest = text.partition(b"\n")
    try:
        _value(head)
    except UNREADABLE:
        rest = b""
    return split_lines(text) if rest else [text] if text else []


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


Decode = Callable[[bytes], Reading | None]
Look = Callable[[bytes, Reading | None], tuple[object, bool]]
"""(record, its reading) -> its time of any type, None if it has none; and whether it is of this format at all."""


def recorded(raws: Iterable[bytes], decode: Decode, look: Look, refusal: RecordingError) -> Iterator[Recorded]:
    """The records of a recording. Raises `refusal`, at the end, if there are some and none is of this format."""
    seen = alike = False
    for raw in raws:
        seen = True
        reading = decode(raw)
        stamp, is_alike = look(raw, reading)
        alike = alike or is_alike
        yield Recorded(raw, reading, arrival_ms(stamp))
    if seen and not alike:
        raise refusal


def another_format(path: str, name: str, expected: str) -> RecordingError:
    """The refusal of a file in which nothing looks like a record of the format that was named."""
    return RecordingError(path, f"holds no {name} record", f"name its own format, or give a file of {expected}")
