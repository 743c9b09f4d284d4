"""Integer units of time and of charges."""

import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
MINUTE_MS: Final = 60_000
INSTANT_DIGITS: Final = 14  # of a time in ms UTC, to the year 5138: no calendar has one that is much later
NANO: Final = 1_000_000_000  # charges are integers of 1e-9 epsilon, rounded up
EPOCHS: Final = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}
"""Units of time since 1970: ms of one unit = factor / divisor"""
_PLACES: Final = 40  # accepted digits before or after the point; 1E-999999999 would be a very long number


def half_even(number: int, divisor: int) -> int:
    """Divide integers, rounding half to even."""
    whole, rest = divmod(number, divisor)
    return whole + (2 * rest > divisor or (2 * rest == divisor and whole % 2 == 1))


@lru_cache(maxsize=64)  # few policies, but one call for every published record that ledger recovery reads
def nano_ceil(epsilon: float) -> int:
    """Convert an epsilon to a charge in 1e-9, rounded up: the ledger never shows less than was spent."""
    return math.ceil(Decimal(repr(epsilon)) * NANO)


@lru_cache(maxsize=64)  # each charge compares a limit
def nano_floor(limit: float) -> int:
    """Convert a limit to 1e-9, rounded down: the ledger never allows more than the policy does."""
    return int(Decimal(repr(limit)) * NANO)


def float_below(exact: Fraction) -> float:
    """Return the largest float of at most `exact`, which is above 0: parts are never more than the whole together."""
    rounded = float(exact)
    return rounded if Fraction(rounded) <= exact else math.nextafter(rounded, 0.0)


def is_short(value: Decimal) -> bool:
    """Return whether a received number has so few digits that exact arithmetic with it is cheap."""
    _, digits, exponent = value.as_tuple()
    return isinstance(exponent, int) and abs(exponent) <= _PLACES and len(digits) <= 2 * _PLACES
