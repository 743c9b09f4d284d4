"""Server-sent events as bytes that all viewers share.    [WHATWG HTML, 9.2]

A thousand viewers get the same change. It is written out once, and compressed once: each chunk is a piece of raw
deflate that ends in a full flush, so it looks back at nothing before it, and pieces may be strung together in any
order behind one gzip header. What a viewer costs is a write to its socket.
"""

import zlib
from collections.abc import Sequence
from functools import cached_property
from typing import Final

GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_RAW: Final = -15  # zlib's word for deflate without a header


class Chunk:
    """Some whole events, and how many."""

    def __init__(self, events: Sequence[bytes]) -> None:
        self.plain = b"".join(events)
        self.events = len(events)

    @cached_property
    def packed(self) -> bytes:
        """The same, as a piece of raw deflate."""
        packer = zlib.compressobj(6, zlib.DEFLATED, _RAW)
        return packer.compress(self.plain) + packer.flush(zlib.Z_FULL_FLUSH)


def event(name: str, data: bytes, position: str = "") -> bytes:
    """One event. `data` is a JSON text, which has no line breaks outside its strings and none inside them."""
    if b"\n" in data or b"\r" in data:  # a producer may set its JSON out in lines
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    stands = f"id: {position}\n" if position else ""
    return b"%bevent: %b\ndata: %b\n\n" % (stands.encode(), name.encode(), data)
