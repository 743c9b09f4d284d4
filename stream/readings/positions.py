"""Speeds from positions: the great-circle distance between two positions of a vehicle, over the time between them.

A derived reading has the place and the time of the second position. Its speed depends on the positions of that vehicle
on that local date, and on nothing else.    [docs/proofs.md, Derived speeds]
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import asin, cos, radians, sin, sqrt
from typing import Final, Literal

from msgspec.structs import replace

from hatcast.stream.readings.reading import MISSING, Reading, cache, number, parse_time
from hatcast.stream.readings.vehicles import canonical_vehicle
from hatcast.stream.time_zones import time_zone
from hatcast.stream.units import HOUR_MS, MINUTE_MS

GAP_MIN_MS: Final = 10_000  # over less, the error of two places is too large for their distance
GAP_MAX_MS: Final = (
    150_000  # over more, a bus has stopped or turned; feeds that report every 120 s are up to 142 s apart
)
KEPT_MS: Final = 600_000  # by arrival: a position is dropped when none that arrives later may follow it
VEHICLES_MAX: Final = 300_000  # positions kept: as many as the vehicles of the largest poll
_PURGE_MS: Final = 10_000
_EARTH_KM: Final = 6371.0088  # mean radius of WGS 84
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATES_CACHED: Final = 10_000  # minutes: a week

DeriveSpeed = Literal["missing", "always"]  # derive the speeds that records lack, or all of them

_Position = tuple[int, float, float, int]  # time (ms UTC), latitude, longitude, arrival (ms UTC)


@dataclass(frozen=True, slots=True)
class Derivation:
    """Settings of derived speeds."""

    timezone: str  # of the policy: two positions on different local dates give no speed
    fastest: float  # km/h: two positions that imply more give no speed
    max_ahead_ms: int  # a position dated later than this after its arrival is not used (rule 6)
    always: bool = False  # derive also the speeds of records that have one
    # returns whether a record counts, as that of a `Format`; its position is used all the same
    counts: Callable[[bytes], bool] | None = None


class SpeedDeriver:
    """Derives speeds from positions in the order of their arrival.

    State: one position for each vehicle and local date that sent one in the last ten minutes.
    """

    def __init__(self, derivation: Derivation, vehicles_max: int = VEHICLES_MAX) -> None:
        self.unstored = 0  # positions that were not stored, because `vehicles_max` others were
        self._derivation = derivation
        self._zone = time_zone(derivation.timezone)
        self._vehicles_max = vehicles_max
        self._positions: OrderedDict[tuple[str, int], _Position] = OrderedDict()
        self._dates: dict[int, int] = {}
        self._next_purge_ms = 0

    def reading(self, arrival_ms: int, reading: Reading) -> Reading | None:
        """Return a reading with its own or its derived speed; None if it has neither.

        arrival_ms   ms UTC, of this record, not of others
        """
        speed = self._speed(arrival_ms, reading)
        if reading.speed is not MISSING and not self._derivation.always:
            return reading
        return None if speed is None else replace(reading, speed=speed, unit="km/h")

    def _speed(self, arrival_ms: int, reading: Reading) -> float | None:
        """Store the position of a reading; return its speed in km/h since the position before it."""
        vehicle, time = canonical_vehicle(reading.vehicle), parse_time(reading.time)
        lat, lon = number(reading.lat), number(reading.lon)
        if vehicle is None or time is None or time > arrival_ms + self._derivation.max_ahead_ms:
            return None
        if not (-90.0 <= lat <= 90.0 and -180.0 <= lon <= 180.0 and (lat or lon)):  # nan compares as False
            return None
        date = self._date(time)
        return None if date is None else self._speed_since((vehicle, date), (time, lat, lon, arrival_ms))

    def _speed_since(self, key: tuple[str, int], position: _Position) -> float | None:
        time, lat, lon, arrival_ms = position
        if arrival_ms >= self._next_purge_ms:
            self._purge(arrival_ms)
        before = self._positions.get(key)
        if before is None or arrival_ms - before[3] > KEPT_MS:
            self._store(key, position)
            return None
        gap_ms = time - before[0]
        if gap_ms < GAP_MIN_MS:  # too close, the same, or older: the stored position stays
            return None
        self._store(key, position)
        if gap_ms > GAP_MAX_MS:
            return None
        speed = round(distance_km(before[1], before[2], lat, lon) * HOUR_MS / gap_ms, 3)
        return speed if speed <= self._derivation.fastest else None

    def _store(self, key: tuple[str, int], position: _Position) -> None:
        positions = self._positions
        if key in positions:
            positions.move_to_end(key)
        elif len(positions) >= self._vehicles_max:
            self.unstored += 1
            return
        positions[key] = position

    def _purge(self, arrival_ms: int) -> None:
        """Drop the positions that no position with this arrival or a later one may follow."""
        positions = self._positions
        while positions and arrival_ms - next(iter(positions.values()))[3] > KEPT_MS:
            positions.popitem(last=False)
        self._next_purge_ms = arrival_ms + _PURGE_MS

    def _date(self, instant_ms: int) -> int | None:
        """Return the number of the local date of an instant; None if it has none."""
        minute = instant_ms // MINUTE_MS
        date = self._dates.get(minute)
        if date is not None:
            return date
        try:
            local = (_EPOCH + timedelta(milliseconds=instant_ms)).astimezone(self._zone)
        except OverflowError:
            return None
        if (local.utcoffset() or timedelta(0)) % timedelta(minutes=1):  # before about 1972 some offsets had seconds
            return local.toordinal()
        return cache(self._dates, minute, local.toordinal(), _DATES_CACHED)


def distance_km(lat: float, lon: float, lat2: float, lon2: float) -> float:
    """Return the great-circle distance between two places in degrees, by the haversine formula."""
    north, south = radians(lat), radians(lat2)
    half_lat, half_lon = sin((south - north) / 2.0), sin(radians(lon2 - lon) / 2.0)
    chord = half_lat * half_lat + cos(north) * cos(south) * half_lon * half_lon
    return 2.0 * _EARTH_KM * asin(sqrt(min(1.0, chord)))
