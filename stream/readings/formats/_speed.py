"""The speed of a record, whatever number it is: its value never decides whether the record counts.    [privacy.md]

A policy with `drop_zero = false` and `reject_above = "none"` protects the speed's value from deciding that. So a number
that a double cannot hold is the greatest one that it can hold, of the same sign: it counts as U, or as 0 if negative.
"""

import math
import sys
from typing import Final

import msgspec

from hatcast.stream.readings.reading import NOT_FINITE

_read: Final = msgspec.json.Decoder(str).decode


def finite(number: float) -> float:
    """Return what a decimal number came to as a double, with infinity replaced by the greatest double of its sign."""
    return math.copysign(sys.float_info.max, number) if math.isinf(number) else number


def speed_of(raw: msgspec.Raw) -> float | str | None:
    """Return the speed in a JSON value: any number, or one of the texts of `NOT_FINITE`; None if it is neither."""
    text = bytes(raw)
    if text[:1] in b"-0123456789":
        return finite(float(text))
    try:
        named = _read(text)
    except msgspec.ValidationError:
        return None
    return named if named in NOT_FINITE else None
