"""Parsing of speeds: any number is accepted, so that its value does not decide whether the record counts.

A policy with `drop_zero = false` and `reject_above = "none"` guarantees this (docs/proofs.md). So a number too large
for a double becomes the largest double of the same sign: it counts as U, or as 0 if negative.
"""

import math
import sys
from typing import Final

import msgspec

from hatcast.stream.errors import UNREADABLE
from hatcast.stream.readings.reading import NOT_FINITE

_read: Final = msgspec.json.Decoder(str).decode


def finite(number: float) -> float:
    """Replace an infinity, the result of parsing too large a number, by the largest double of its sign."""
    return math.copysign(sys.float_info.max, number) if math.isinf(number) else number


def speed_of(raw: msgspec.Raw) -> float | str | None:
    """Return the speed of a JSON value: any number, or a text of `NOT_FINITE`; None if it is neither.

    The bytes of a text are not checked yet when they arrive here: they may be invalid UTF-8.
    """
    text = bytes(raw)
    if text[:1] in b"-0123456789":
        return finite(float(text))
    try:
        named = _read(text)
    except UNREADABLE:
        return None
    return named if named in NOT_FINITE else None
