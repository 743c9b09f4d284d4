"""Streaming reader of a JSON array of any size: yields the raw bytes of each element."""

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec

from hatcast.stream.errors import UNREADABLE, RecordingError
from hatcast.stream.readings.formats._recorded import WHITE_SPACE

CHUNK_BYTES: Final = 1 << 20
_CUTS_TRIED: Final = 8  # a "}" may end an inner object: then an earlier one ends an element

_split: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_between: Final = re.compile(rb"\}[ \t\r\n]*,")


def elements(stream: BinaryIO, path: str, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Yield the elements of an array whose "[" has been read from the stream.

    Memory: one chunk, if the elements are objects smaller than a chunk.
    Raises RecordingError if the array is malformed, unterminated, or followed by other data.
    """
    buffer, read_size, any_split = b"", chunk_bytes, False
    while chunk := stream.read(read_size):
        buffer += chunk
        parsed, rest = _complete(buffer)
        # No whole element: the next read doubles the buffer, so that a huge element is not parsed once per chunk.
        read_size = chunk_bytes if parsed else max(chunk_bytes, len(buffer))
        any_split = any_split or bool(parsed)
        buffer = rest
        yield from map(bytes, parsed)
    try:
        last = _split(b"[" + buffer)
    except UNREADABLE:
        last = []
    if not last and (any_split or buffer.strip(WHITE_SPACE) != b"]"):
        raise RecordingError(path, "is not a complete JSON array", "it may be truncated: fetch it again")
    yield from map(bytes, last)


def _complete(buffer: bytes) -> tuple[list[msgspec.Raw], bytes]:
    """Return the whole elements at the start of `buffer`, which begins with an element, and the bytes after them.

    A cut after "}" and before "," is between two elements if and only if the bytes before it, closed by "]", are JSON.
    """
    end = len(buffer)
    for _ in range(_CUTS_TRIED):
        end = buffer.rfind(b"}", 0, end)
        if end < 0:
            break
        comma = _between.match(buffer, end)
        if comma is None:
            continue
        try:
            return _split(b"[%b]" % buffer[: end + 1]), buffer[comma.end() :]
        except UNREADABLE:
            continue
    return [], buffer
