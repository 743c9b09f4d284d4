"""Checksums of stored values, such as contributions and states: of key and value, so a value fits its own key alone."""

import struct
import zlib
from typing import Final

_CHECKSUM: Final = struct.Struct("<I")


def with_checksum(key: str, value: bytes) -> bytes:
    """Return a value followed by the CRC-32 of its key and itself."""
    return value + _CHECKSUM.pack(zlib.crc32(value, zlib.crc32(key.encode())))


def without_checksum(key: str, stored: bytes) -> bytes | None:
    """Return a value that `with_checksum` returned for this key; None for any other."""
    value = stored[: -_CHECKSUM.size]
    return value if stored == with_checksum(key, value) else None
