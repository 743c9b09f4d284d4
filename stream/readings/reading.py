"""Readings, outcomes, unit conversion, and doubts.    [docs/specification/fold.md, rules 3 to 6]

A `Reading` is a decoded record: its types are checked, no further rule is applied. The functions convert its fields to
integer milliseconds UTC and integer milli-units of km/h. A doubt about readings that are well formed (swapped latitudes
and longitudes, another city, another unit of speed) is a hint for the operator. It changes no reading: then one bus
could change how those of others are read.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from fractions import Fraction
from statistics import median
from typing import Final, TypeVar

import msgspec

from hatcast.stream.time_zones import time_zone

READING_RULES: Final = 4
"""Version of the code that decides the vehicle, place, time and value of a record. Raise it with every change by which
a record gets another one: it is fixed for a policy's life.    [docs/specification/fold.md, What is pinned]"""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# What programs write after a local time: BigQuery " UTC", Go " +0000 UTC", Ruby and git " +0530".
_SPACED_OFFSET: Final = re.compile(
    r"(\S{8,10}[T ][0-9:.,]+) ?([+-][0-9]{2}:?[0-9]{2})?( ?(?:UTC|GMT|Z))?", re.ASCII | re.IGNORECASE
)
_NO_OFFSET: Final = frozenset("+-0:")
_EPOCH_DIGITS_MIN: Final = 12  # fewer digits are a date in ISO basic format, not epoch milliseconds

# Milli-units of km/h in one unit, exactly.
UNITS: Final[dict[str, Fraction]] = {
    "km/h": Fraction(1000),
    "m/s": Fraction(3600),
    "mph": Fraction(1609344, 1000),
    "kn": Fraction(1852),
}
_FACTORS: Final[dict[str, float]] = {unit: float(factor) for unit, factor in UNITS.items()}
K = TypeVar("K")
V = TypeVar("V")

# More than anything that counts has: longer texts and larger numbers are not cached.
_CHARACTERS_MAX: Final = 128
_BITS_MAX: Final = 64


class Outcome(StrEnum):
    """Outcome of a record: each record has exactly one.    [docs/specification/fold.md]"""

    ACCEPTED = "accepted"
    HEARTBEAT = "tick"  # the metric label and the counter in Redis
    ARRIVED_IN_FUTURE = "arrived_in_future"
    UNDECODABLE = "undecodable"
    BAD_PLACE = "bad_place"
    BAD_VALUE = "bad_value"
    BAD_TIME = "bad_time"
    ZERO = "zero"
    OUTSIDE_DATES = "outside_dates"
    OUTSIDE_HOURS = "outside_hours"
    OUTSIDE_CELLS = "outside_cells"
    LATE = "late"
    WRONG_PARTITION = "wrong_partition"
    DUPLICATE = "duplicate"
    OVER_CAP = "over_cap"
    OVER_PARTICIPATION = "over_participation"
    OTHER_POLICY = "other_policy"
    BAD_SIGNATURE = "bad_signature"


class Reading(msgspec.Struct, gc=False):
    """One decoded record of one vehicle.

    Numbers that JSON cannot represent are the texts "nan", "inf" and "-inf".
    """

    vehicle: str  # the id as sent; `canonical_vehicle` of `vehicles` gives the user
    time: str | int | float  # ISO 8601 text, or milliseconds since 1970 as a number or as text of 12 or more digits
    # lat, lon: degrees (WGS 84)
    lat: float | str
    lon: float | str
    speed: float | str  # in `unit`
    unit: str = "km/h"


class ValueReading(Reading, gc=False):
    """A reading of another value than the speed: `speed` is that value, in the policy's `unit`."""


class ValuesReading(Reading, gc=False):
    """A reading with the values that a policy releases besides its speed, by name, in the unit of the policy."""

    others: dict[str, float | str] = msgspec.field(default_factory=dict)


MISSING: Final = "missing"
"""Speed of a reading that a `Format.without_speed` decoded from a record without one. It never reaches the fold."""


@dataclass(frozen=True, slots=True)
class ValueUnits:
    """Values that readings carry for a policy."""

    # unit by name, of values besides the speed
    others: Mapping[str, str] = field(default_factory=dict)
    # name and unit of the value that readings have instead of the speed; None: they have a speed
    single: tuple[str, str] | None = None

    @property
    def named(self) -> list[tuple[str, str, str]]:
        """Name and unit of each, and the key of the policy that has the name."""
        single = [(*self.single, "policy.value.name")] if self.single is not None else []
        return [*((name, unit, "policy.values") for name, unit in self.others.items()), *single]


# What databases, pandas, spreadsheets and JavaScript write for a missing value, and people do.
_EMPTY: Final = frozenset(
    "null none nil nat na n/a #n/a <na> (null) \\n undefined unknown - --".split()  # noqa: SIM905 - a column of words
)


def is_empty(cell: str) -> bool:
    """Return whether a text is what programs write for a missing value."""
    text = cell.strip()
    return not text or text.lower() in _EMPTY


NOT_FINITE: Final[dict[str, float]] = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def is_complete(reading: Reading) -> bool:
    """Return True if all types and the unit pass rule 3: the last check of every decoder."""
    return has_numbers(reading) and reading.unit in UNITS


def has_numbers(reading: Reading) -> bool:
    """Return True if place and value pass rule 3: numbers, or texts of `NOT_FINITE`."""
    return (
        (reading.lat.__class__ is float or reading.lat in NOT_FINITE)
        and (reading.lon.__class__ is float or reading.lon in NOT_FINITE)
        and (reading.speed.__class__ is float or reading.speed in NOT_FINITE)
    )


def number(value: float | str) -> float:
    """Convert a latitude, longitude or speed to a float; the texts of `NOT_FINITE` give nan, inf and -inf."""
    return NOT_FINITE[value] if isinstance(value, str) else value


def parse_time(time: str | int | float) -> int | None:
    """Convert a reading's time to milliseconds UTC; None if it is not an instant (rule 6).

    Text needs a UTC offset. Fractions of a millisecond round half to even.
    """
    if isinstance(time, int):
        return time
    if isinstance(time, float):
        return round(time) if math.isfinite(time) else None
    if len(time) >= _EPOCH_DIGITS_MIN and time.isascii() and time.isdigit():
        return int(time) if len(time) < 20 else None
    instant = iso_moment(time)
    return None if instant is None or instant.tzinfo is None else instant_ms(instant)


def iso_moment(text: str) -> datetime | None:
    """Parse ISO 8601 as Python 3.11 does; None if it is none. Python 3.14 takes hour 24 for the next midnight.

    The offset may follow a space, and may be UTC, GMT or Z. Other names of zones are not unique.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        found = _SPACED_OFFSET.fullmatch(text)
        if found is None or (found[3] and found[2] and not _NO_OFFSET.issuperset(found[2])):
            return None
        try:
            moment = datetime.fromisoformat(found[1] + (found[2] or "+00:00"))
        except ValueError:
            return None
    is_midnight = moment.hour == moment.minute == 0
    return None if is_midnight and "24" in (text[9:11], text[11:13]) else moment


def instant_ms(instant: datetime) -> int:
    """Convert a time with a zone to milliseconds UTC. Fractions of a millisecond round half to even."""
    since = instant - _EPOCH
    # Half the time of dividing timedeltas. A half of a millisecond is exact, and the seconds are even milliseconds.
    return (since.days * 86_400 + since.seconds) * 1000 + round(since.microseconds / 1000)


def to_milli(speed: float, unit: str) -> int:
    """Convert a finite speed to integer milli-units of km/h, exactly as a fraction, rounding half to even.

    The float product replaces the exact fraction unless it lies within 1e-6 of a tie: below 2**31 its error is under
    2**-21.
    Raises KeyError on an unknown unit, OverflowError or ValueError if the speed is not finite.
    """
    product = speed * _FACTORS[unit]
    if -2147483648.0 < product < 2147483648.0:
        nearest = round(product)
        if -0.499999 < product - nearest < 0.499999:
            return nearest
    return round(Fraction(speed) * UNITS[unit])


def in_milli(number: float) -> int:
    """Convert a finite number to integer milli-units of its own unit, as `to_milli` does for a speed."""
    return to_milli(number, "km/h")  # milli-units of km/h are what 1 km/h has 1000 of


def cache(entries: dict[K, V], key: K, value: V, size: int) -> V:
    """Cache and return `value`, unless its key is long. A cache with `size` entries is emptied first.

    So a cache takes some hundred bytes for each of `size` entries at most, whatever records contain.
    """
    if isinstance(key, str) and len(key) > _CHARACTERS_MAX:
        return value
    if isinstance(key, int) and key.bit_length() > _BITS_MAX:
        return value
    if len(entries) >= size:
        entries.clear()
    entries[key] = value
    return value


_READINGS_MIN: Final = 3
_SPEEDS_MIN: Final = 20
DEGREES_AN_HOUR: Final = 15
_FAR_DEGREES: Final = 50  # western China's clocks are those of 45 degrees to the east
_SWAPPED_DEGREES: Final = (30, 15)  # no city is so far from the sun of its clocks, with a latitude so near to it
_SLOW: Final = 15_000  # milli-units of km/h
_SHARE: Final = 0.95


def places_of(readings: Sequence[Reading]) -> list[tuple[float, float]]:
    """Return latitude and longitude of the readings that have a place, as the fold counts it (rule 4)."""
    degrees = [(number(each.lat), number(each.lon)) for each in readings]
    return [(lat, lon) for lat, lon in degrees if abs(lat) <= 90 and abs(lon) <= 180 and (lat or lon)]


def place_doubts(readings: Sequence[Reading], timezone: str) -> Iterator[str]:
    """Yield warnings about the places of most readings, which are public under `replace`.

    timezone   of the policy
    """
    places = places_of(readings)
    if len(places) >= _READINGS_MIN:
        lat, lon = (median(each) for each in zip(*places, strict=True))
        least, most = _SWAPPED_DEGREES
        is_swapped = _is_far(lon, timezone, least) and not _is_far(lat, timezone, most)
        if is_swapped or _is_far(lon, timezone, _FAR_DEGREES):
            swapped = "latitude and longitude are swapped, or " if is_swapped else ""
            yield (
                f"the places are far from the longitudes of {timezone}: {swapped}they are of another city, or"
                " policy.timezone is wrong"
            )


def speed_doubts(readings: Sequence[Reading]) -> Iterator[str]:
    """Yield warnings about most speeds. They are private: one bus can decide whether a warning is printed."""
    speeds = [
        abs(speed * UNITS[each.unit])
        for each in readings
        if each.speed is not MISSING and not isinstance(each, ValueReading) and (speed := number(each.speed))
    ]
    if len(speeds) >= _SPEEDS_MIN and sum(each < _SLOW for each in speeds) >= _SHARE * len(speeds):
        yield "nearly all speeds are below 15 km/h: are they in another unit, such as m/s?"


def _is_far(lon: float, timezone: str, degrees: int) -> bool:
    """Return whether a longitude is so far from that whose sun a zone's clocks follow, without daylight saving."""
    if "/" not in timezone or timezone.startswith("Etc/"):
        return False  # such as UTC, which is used anywhere
    zone = time_zone(timezone)
    offsets = [datetime(2024, month, 1, tzinfo=zone).utcoffset() for month in (1, 7)]
    usual = min(DEGREES_AN_HOUR * each.total_seconds() / 3600 for each in offsets if each is not None)
    return abs((lon - usual + 180) % 360 - 180) > degrees
