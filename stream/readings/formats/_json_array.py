"""A JSON array of any size, element by element, each as the bytes that stand in the file."""

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

import msgspec

from hatcast.stream.errors import RecordingError
from hatcast.stream.readings.formats._recorded import UNREADABLE, WHITE_SPACE

CHUNK_BYTES: Final = 1 << 20
_CUTS_TRIED: Final = 8  # a cut may fall inside a record, after an inner object: some braces before is a better one

_split: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_between: Final = re.compile(rb"\}[ \t\r\n]*,")


def elements(stream: BinaryIO, path: str, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The elements of the array whose "[" was just taken from the stream.

    Memory: one chunk, if the elements are objects smaller than it.
    Raises RecordingError if the array is malformed, never ends, or is followed by something.
    """
    held, wanted, cut_before = b"", chunk_bytes, False
    while chunk := stream.read(wanted):
        held += chunk
        found, rest = _complete(held)
        # Nothing to cut off: the next chunk doubles what is held, so a huge element is not parsed once a chunk.
        wanted = chunk_bytes if found else max(chunk_bytes, len(held))
        cut_before = cut_before or bool(found)
        held = rest
        yield from map(bytes, found)
    try:
        last = _split(b"[" + held)
    except UNREADABLE:
        last = []
    if not last and (cut_before or held.strip(WHITE_SPACE) != b"]"):
        raise RecordingError(path, "is not a complete JSON array", "it may be cut off: fetch it again")
    yield from map(bytes, last)


def _complete(held: bytes) -> tuple[list[msgspec.Raw], bytes]:
    """The whole elements at the start of `held`, which begins where an element does, and the bytes after them.

    A cut after "}" and before "," is between two elements if and only if what lies before it, closed by "]", is JSON.
    """
    end = len(held)
    for _ in range(_CUTS_TRIED):
        end = held.rfind(b"}", 0, end)
        if end < 0:
            break
        comma = _between.match(held, end)
        if comma is None:
            continue
        try:
            return _split(b"[%b]" % held[: end + 1]), held[comma.end() :]
        except UNREADABLE:
            continue
    return [], held
