"""Server-sent events as bytes that all viewers share.    [WHATWG HTML, 9.2]

Every change is encoded once, and compressed once for all viewers that want the same kinds. Each chunk is raw deflate
that ends in a full flush, so it has no back-references to earlier chunks, and chunks may follow one gzip header in any
order. A viewer costs one write to its socket.
"""

import zlib
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from hatcast.agents.map.record import Kind

GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW_DEFLATE: Final = -15  # zlib's window bits for deflate without a header


class Chunk:
    """Some complete events, and their number."""

    def __init__(self, events: Sequence[bytes]) -> None:
        self.plain = b"".join(events)
        self.events = len(events)

    @cached_property
    def packed(self) -> bytes:
        """The events as raw deflate that ends in a full flush."""
        packer = zlib.compressobj(6, zlib.DEFLATED, _RAW_DEFLATE)
        return packer.compress(self.plain) + packer.flush(zlib.Z_FULL_FLUSH)


class Batch:
    """Events of a batch of records. A viewer gets those of the kind that it wants; None stands for every kind."""

    def __init__(self, events: Sequence[tuple[Kind | None, bytes]]) -> None:
        """Args: `events`, each with the kind of its record, or None if every viewer gets it."""
        self._events = events
        self._chunks: dict[Kind | None, Chunk] = {}

    def chunk(self, kind: Kind | None) -> Chunk:
        """Return the events for viewers that want a kind. All such viewers share it."""
        chunk = self._chunks.get(kind)
        if chunk is None:
            wanted = [text for each, text in self._events if kind is None or each is None or each is kind]
            chunk = self._chunks[kind] = Chunk(wanted)
        return chunk


def event(name: str, data: bytes, position: str = "") -> bytes:
    """Encode one event. `data` is JSON: a line break in it can only be whitespace, and becomes a space."""
    if b"\n" in data or b"\r" in data:  # a producer may format its JSON in lines
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    id_line = f"id: {position}\n" if position else ""
    return b"%bevent: %b\ndata: %b\n\n" % (id_line.encode(), name.encode(), data)
