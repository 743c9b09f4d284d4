"""JSON containers: the raw bytes of each record in a file or message, whatever is around the records.

Records are one a line, one after the other without line ends, the elements of an array of any size, or, with a path,
the elements of an array inside an object, or the members of an object whose keys are vehicles.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, BinaryIO, Final

import msgspec

from hatcast.stream.errors import UNREADABLE, RecordingError, as_option, readable
from hatcast.stream.readings.formats.interface import BYTE_ORDER_MARK, WHITE_SPACE, first_byte, lines

CHUNK_BYTES: Final = 1 << 20
_CUTS_TRIED: Final = 8  # a "}" may end an inner object: then an earlier one ends an element

_MARKS: Final = (b"\xff", b"\xfe")  # which begin no UTF-8
_FOLLOWED: Final = (b"}{", b"} {")
KEY: Final = "@key"  # column of the key of a record in an object whose keys are vehicles
_DEPTH: Final = 4  # objects in objects whose members an error names
_boundary: Final = re.compile(r"\}\s*(?=\{)").search
_whole: Final = json.JSONDecoder(parse_float=str, parse_int=str).raw_decode
_not_space: Final = re.compile(r"\S").search
_value: Final = msgspec.json.Decoder(msgspec.Raw).decode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_any: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_split: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_between: Final = re.compile(rb"\}[ \t\r\n]*,")


def json_values(
    stream: BinaryIO, path: str, records: Sequence[str] | None = None, head: bytes | None = None
) -> Iterator[bytes]:
    """Yield the records of a file.

    head      its first byte that is not white space, if it has been read
    records   keys from the outermost object to the records; None: the outermost values are records
    Raises RecordingError: an array is malformed or unterminated, or no object has records at this path.
    """
    head = first_byte(stream) if head is None else head
    if head in _MARKS:
        raise RecordingError(path, "is UTF-16", "save it as UTF-8, or name it with `--encoding utf-16` and its columns")
    if records is not None:
        yield from _all_inside(_documents(stream, head), path, records)
    elif head == b"[":
        yield from elements(stream, path)
    else:
        for line in lines(stream, head):
            end = line.find(b"}", 0, -1)  # several values are rare: four times as fast as looking for them
            while end >= 0 and not line.startswith(_FOLLOWED, end):
                end = line.find(b"}", end + 1, -1)
            yield from (line,) if end < 0 else concatenated(line)


def split_json(body: bytes, topic: str = "") -> list[bytes]:
    """Split a JSON message: the elements of an array, one value in any layout, or values one after the other."""
    text = body.removeprefix(BYTE_ORDER_MARK).strip(WHITE_SPACE)
    found = readable(_split, text)
    if found is not None:
        return list(map(bytes, found))
    # By lines only if the first has values by itself: a malformed message is one undecodable record, not one a line.
    head, _, rest = text.partition(b"\n")
    if rest and not any(map(is_value, concatenated(head))):
        return [text]
    return [each for line in text.splitlines() if line.strip(WHITE_SPACE) for each in concatenated(line)]


def split_inside(body: bytes, records: Sequence[str]) -> list[bytes]:
    """Split a JSON message with records inside: see `json_values`. A message without them is one undecodable record."""
    text = body.removeprefix(BYTE_ORDER_MARK).strip(WHITE_SPACE)
    if not text:
        return []
    found = records_inside(text, records)
    return [_undecodable(text)] if found is None else found


def concatenated(text: bytes) -> list[bytes]:
    """Split a text into its JSON values. A damaged one ends where the next object may begin."""
    if is_value(text):
        return [text.strip(WHITE_SPACE)]
    body = text.decode(errors="surrogateescape")
    found: list[bytes] = []
    first = _not_space(body)
    begin = len(body) if first is None else first.start()
    while begin < len(body):
        try:
            _, end = _whole(body, begin) if body[begin] in "{[" else (0, 0)
        except UNREADABLE:
            end = 0
        if not end:
            boundary = _boundary(body, begin)
            end = len(body) if boundary is None else boundary.start() + 1
        found.append(body[begin:end].encode(errors="surrogateescape"))
        following = _not_space(body, end)
        begin = len(body) if following is None else following.start()
    return found


def records_inside(document: bytes, keys: Sequence[str]) -> list[bytes] | None:
    """Return the records at a path in an object; None if there is nothing. An array on the way is gone through."""
    try:
        if document[:1] == b"[":
            elements_of = [bytes(each) for each in _split(document)]
            if not keys:
                return [each for each in elements_of if each != b"null"]
            parts = [found for each in elements_of if (found := records_inside(each, keys)) is not None]
            return [each for part in parts for each in part] if parts else None
        members = _members(document)
    except UNREADABLE:
        return None
    if keys:
        inner = members.get(keys[0])
        return None if inner is None else records_inside(bytes(inner), keys[1:])
    objects = ((key, bytes(each)) for key, each in members.items())
    return [with_member(each, KEY, key) for key, each in objects if each.startswith(b"{")]


def members_of(found: Mapping[str, Any], prefix: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield path and value of the members of an object and of the objects in it, unless their keys may be vehicles."""
    for key, member in () if is_keyed(found) else found.items():
        if isinstance(member, dict) and depth:
            yield from members_of(member, f"{prefix}{key}.", depth - 1)
        else:
            yield prefix + key, member


def is_keyed(members: Mapping[str, Any]) -> bool:
    """Return whether all members are objects: the keys may be vehicles then, and no message has them."""
    return len(members) > 1 and all(isinstance(each, dict) for each in members.values())


def records_advice(document: bytes) -> str | None:
    """Return which path to name for the records inside an object; None: there are none."""
    found = readable(_any, document)
    if not isinstance(found, dict):
        return None
    if is_keyed(found):
        return f"is an object of objects: `--records .` reads each of them, and names its key {KEY}"
    for path, member in members_of(found):
        if isinstance(member, list) and any(isinstance(each, dict) for each in member):
            return f"has an array of objects at {path}: {as_option('records', path)} reads each of them"
    return None


def _documents(stream: BinaryIO, head: bytes) -> Iterator[bytes]:
    """Yield the objects of a file: one a line, or one in any layout."""
    first = head + stream.readline()
    if is_value(first):
        yield from chain((first.strip(WHITE_SPACE),), lines(stream))
    elif whole := (first + stream.read()).strip(WHITE_SPACE):
        yield from concatenated(whole)


def _all_inside(documents: Iterable[bytes], path: str, keys: Sequence[str]) -> Iterator[bytes]:
    first = None
    matched = False
    for document in documents:
        first = document if first is None else first
        found = records_inside(document, keys)
        matched = matched or found is not None
        yield from [_undecodable(document)] if found is None else found
    if first is not None and not matched:
        fix = "it has none" if (advice := records_advice(first)) is None else f"it {advice}"
        raise RecordingError(path, f"has no records at {'.'.join(keys) or 'its outermost object'}", fix)


def _undecodable(document: bytes) -> bytes:
    """Return a document without records as a record: in an array, so that its own members are none."""
    return b"[%b]" % document


def with_member(value: bytes, name: str, text: str) -> bytes:
    """Add a member to a JSON object, in place of one of the same name; return another value unchanged."""
    if not (value.startswith(b"{") and value.endswith(b"}")):
        return value
    rest = value[1:-1].rstrip(WHITE_SPACE)
    return b"{%b%b%b:%b}" % (rest, b"," if rest else b"", _encode(name), _encode(text))


def is_value(text: bytes) -> bool:
    """Return whether a text is one JSON value."""
    return readable(_value, text) is not None


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
    last = readable(_split, b"[" + buffer) or []
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
        found = readable(_split, b"[%b]" % buffer[: end + 1])
        if found is not None:
            return found, buffer[comma.end() :]
    return [], buffer
