"""Readings whose plates, speeds, places and times occur nowhere else, and what must not be found of them.

Speeds are absurd, 250,000 to 950,000 km/h, so that each has nine digits of its own, and noise for an upper bound of a
million km/h hides them: a number of the output that equals one of them does not do so by chance.
"""

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final

import h3.api.basic_str as h3

from tests.integration.readings import HOUR_MS, NOON_MS, PLACES
from tests.services import Record

PLATE: Final = "KVXQZJWPHRTG"
"""Part of every plate. A name of a test, a library or a word has no such letters."""
UPPER_BOUND: Final = 1e6
LAG_MS: Final = 7_000  # of arrivals, which are public as watermarks, behind the times of readings
_SPEEDS: Final = (250_000_000, 950_000_000)  # milli-units
_SPREAD: Final = 20_000  # 1e-7 degrees: a place stays in its hexagon


def digits(*parts: Hashable) -> int:
    """Return a large number that looks random, the same one for the same parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8])


@dataclass(frozen=True)
class Marked:
    """One reading of a vehicle."""

    vehicle: str
    time_ms: int
    lat_e7: int
    lon_e7: int
    milli: int  # the speed in milli-units of km/h

    @property
    def arrival_ms(self) -> int:
        return self.time_ms // 1000 * 1000 + LAG_MS

    @property
    def cell(self) -> str:
        return str(h3.latlng_to_cell(self.lat_e7 / 1e7, self.lon_e7 / 1e7, 7))

    @property
    def line(self) -> str:
        """As a line of a recording."""
        return json.dumps(
            {
                "vehicle": self.vehicle,
                "time": self.time_ms,
                "lat": self.lat_e7 / 1e7,
                "lon": self.lon_e7 / 1e7,
                "speed": self.milli / 1000,
                "arrival": self.arrival_ms,
            }
        )

    @property
    def record(self) -> Record:
        """As a feed sends it."""
        return Record(self.line.encode(), self.vehicle.encode(), None, self.arrival_ms)


def marked(title: str, vehicles: Sequence[int], hours: int = 2, again: int = 2, day: int = 0) -> list[Marked]:
    """Return readings in order of time: `vehicles` in each place and hour from noon on, each `again` times.

    vehicles   their number in each place, so that each HAT has its own
    day        days after 2 January 2022
    """
    found = []
    for hour in range(hours):
        for place, number in enumerate(vehicles):
            lat, lon = PLACES[place]
            for vehicle in range(number + hour):
                for turn in range(again):
                    of = (title, day, hour, place, vehicle, turn)
                    start = NOON_MS + (24 * day + hour) * HOUR_MS + (turn * 25 + place * 5) * 60_000
                    found.append(
                        Marked(
                            f"{PLATE}-{vehicle:04}",
                            start + vehicle * 40 // 1000 * 1000 + 101 + digits(*of, "t") % 800,
                            round(lat * 1e7) + _odd(digits(*of, "lat") % (2 * _SPREAD) - _SPREAD),
                            round(lon * 1e7) + _odd(digits(*of, "lon") % (2 * _SPREAD) - _SPREAD),
                            _odd(_SPEEDS[0] + digits(*of, "v") % (_SPEEDS[1] - _SPEEDS[0])),
                        )
                    )
    return sorted(found, key=lambda each: each.time_ms)


def _odd(number: int) -> int:
    """The number, or the next one: it does not end with a zero, so it has all of its digits."""
    return number | 1


@dataclass(frozen=True)
class Truth:
    """Numbers that follow from the readings, by brute force.

    most   how many readings are marked by themselves; sums, means and counts are those of all
    """

    readings: Sequence[Marked]
    partition_of: Callable[[str], int]
    most: int = 120

    @cached_property
    def marked(self) -> Sequence[Marked]:
        step = max(1, len(self.readings) // self.most)
        return self.readings[::step][: self.most]

    @cached_property
    def groups(self) -> dict[Hashable, list[Marked]]:
        """Readings that something may be summed over: all of a key of `_keys`."""
        found: dict[Hashable, list[Marked]] = {}
        for each in self.readings:
            for key in self._keys(each):
                found.setdefault(key, []).append(each)
        return found

    def _keys(self, each: Marked) -> Iterator[Hashable]:
        hour, partition = each.time_ms // HOUR_MS, self.partition_of(each.vehicle)
        day, cell = hour // 24, each.cell
        yield from (("HAT", cell, hour), ("part of a HAT", cell, hour, partition), ("hour", hour), ("day", day))
        yield from (("cell", cell), ("cell of a day", cell, day))
        if each in self._marked:
            yield from (("user of a HAT", cell, hour, each.vehicle), ("user", day, each.vehicle))

    @cached_property
    def _marked(self) -> frozenset[Marked]:
        return frozenset(self.marked)

    @property
    def sums(self) -> set[Fraction]:
        """In km/h."""
        return {Fraction(sum(each.milli for each in of), 1000) for of in self.groups.values() if len(of) > 1}

    @property
    def means(self) -> set[Fraction]:
        """Of readings, and of users' means, in km/h."""
        several = [of for of in self.groups.values() if len(of) > 1]
        return {mean(each.milli for each in of) for of in several} | {mean(_user_means(of)) for of in several}

    @property
    def users(self) -> set[int]:
        """Numbers of users of whole HATs, hours, cells and days."""
        return {len({each.vehicle for each in of}) for of in self._wholes()}

    @property
    def counts(self) -> set[int]:
        """Numbers of readings of the same."""
        return {len(of) for of in self._wholes()}

    def _wholes(self) -> list[list[Marked]]:
        names = ("HAT", "hour", "cell", "day", "cell of a day")
        return [of for key, of in self.groups.items() if isinstance(key, tuple) and key[0] in names]


def mean(millis: Iterable[int] | Iterable[Fraction]) -> Fraction:
    """Return a mean in km/h, of milli-units."""
    of = [Fraction(each) for each in millis]
    return sum(of, Fraction(0)) / len(of) / 1000


def _user_means(of: Sequence[Marked]) -> list[Fraction]:
    users: dict[str, list[int]] = {}
    for each in of:
        users.setdefault(each.vehicle, []).append(each.milli)
    return [Fraction(sum(millis), len(millis)) for millis in users.values()]
