"""Varints: integers in base 128, least significant first, with the top bit set if more bytes follow."""

from typing import Final


def varint(value: int) -> bytes:
    """Encode a non-negative integer."""
    if value < 128:
        return SHORT_VARINTS[value]
    code = bytearray()
    while value > 127:
        code.append(value & 127 | 128)
        value >>= 7
    code.append(value)
    return bytes(code)


SHORT_VARINTS: Final = [bytes([value]) for value in range(128)]


def read_varint(chunk: bytes, at: int) -> tuple[int, int]:
    """Decode the varint at offset `at`; return it and the offset after it."""
    byte = chunk[at]
    if byte < 128:
        return byte, at + 1
    value, shift = byte & 127, 7
    while True:
        at += 1
        byte = chunk[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + 1
        shift += 7
