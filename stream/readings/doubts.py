"""Doubts about readings that are well formed: swapped latitudes and longitudes, another city, another unit of speed.

A doubt is a hint for the operator. It changes no reading: then one bus could change how those of others are read.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from statistics import median
from typing import Final

from hatcast.stream.readings.reading import MISSING, UNITS, Reading, ValueReading, number
from hatcast.stream.time_zones import time_zone

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
