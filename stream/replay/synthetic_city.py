"""A city of buses that does not exist: where each one is, and how fast, at any moment.

A simulation: nothing here is private. Roads run out from a centre, two rings join them, and buses go to and fro on
routes along them. Each stretch of road has its own usual speed: slow in the centre, faster outside and on the rings,
a little different in every quarter. Rush hours slow everything, most of all the centre. Buses wait at stops.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from hatcast.stream.readings.reading import Reading

REPORT_MS: Final = 10_000  # a bus reports about this often
_METRES_PER_DEGREE: Final = 111_195.0
_STEP_M: Final = 100.0  # routes are cut into stretches of this length
_RADIALS: Final = 9
_RADIAL_M: Final = 11_000.0
_RINGS_M: Final = (2_600.0, 6_200.0)
_GPS_M: Final = 5.0
_SPEED_NOISE: Final = 0.7  # km/h
_SPEED_MAX: Final = 70.0  # km/h
_REST_MS: Final = 60_000  # a bus that is off duty looks at the clock this often
_DELAY_MS: Final = 400.0  # from a reading to its arrival, typically

Point = tuple[float, float]  # metres east and north of the centre


class Chance(Protocol):
    """Where a simulation's chance comes from: `random.Random` is one."""

    def random(self) -> float:
        """Uniform in [0, 1)."""

    def gauss(self, mu: float, sigma: float, /) -> float:
        """Normal."""


@dataclass(frozen=True, slots=True)
class Route:
    """A line: points every 100 m and, for each stretch between two, its usual speed and how much a rush slows it.

    free_kmh   without traffic
    exposure   share of the speed that the worst rush takes away
    stops_m    metres from the start, ascending; the last is the terminal
    circular   the last point is the first one
    """

    points: Sequence[Point]
    free_kmh: Sequence[float]
    exposure: Sequence[float]
    stops_m: Sequence[float]
    circular: bool

    @property
    def length_m(self) -> float:
        """From the first point to the last."""
        return self.stops_m[-1]

    def at(self, metres: float) -> Point:
        """The place that many metres from the start."""
        step = min(int(metres / _STEP_M), len(self.points) - 2)
        share = metres / _STEP_M - step
        (x, y), (to_x, to_y) = self.points[step], self.points[step + 1]
        return x + share * (to_x - x), y + share * (to_y - y)


@dataclass(slots=True)
class _Bus:
    """Where a bus is on its route, how it drives today, and how long it still waits."""

    vehicle: str
    route: Route
    rank: float  # it is on duty while this is below the share of buses that the hour needs
    metres: float
    forward: bool
    next_stop: int
    wait_s: float = 0.0
    mood: float = 0.0  # log of its speed over the usual one
    seen_ms: int = 0


class City:
    """Buses on routes. Use one object for one walk through time: `readings`."""

    def __init__(self, centre: Point, vehicles: int, chance: Chance, local: Callable[[int], datetime]) -> None:
        """Args:
        centre:   degrees (latitude, longitude)
        vehicles: how many buses, 1 or more
        chance:   moves them; the same chance gives the same city and the same day
        local:    an instant (ms UTC) on the city's clock, for its rush hours
        """
        self.routes = make_routes(chance)
        self._centre = centre
        self._chance = chance
        self._local = local
        self._east = 1.0 / (_METRES_PER_DEGREE * max(math.cos(math.radians(centre[0])), 0.01))
        self._buses = [self._bus(number, vehicles) for number in range(vehicles)]
        self._minute = -1
        self._rush = 0.0
        self._duty = 1.0

    def _bus(self, number: int, vehicles: int) -> _Bus:
        route = self.routes[number % len(self.routes)]
        metres = self._chance.random() * route.length_m
        forward = route.circular or self._chance.random() < 0.5
        ahead = sum(stop <= metres for stop in route.stops_m)
        return _Bus(f"BUS-{number + 1:04d}", route, number / vehicles, metres, forward, ahead if forward else ahead - 1)

    def readings(self, start_ms: int) -> Iterator[tuple[int, Reading]]:
        """(arrival in ms UTC, reading) from `start_ms` on, arrivals ascending, without end.

        Each bus on duty reports about every 10 s; the first one is always on duty. Times are ms UTC, speeds km/h.
        """
        chance = self._chance
        due = [(start_ms + int(chance.random() * REPORT_MS), number) for number in range(len(self._buses))]
        for first, number in due:
            self._buses[number].seen_ms = first
        heapq.heapify(due)
        while True:
            now, number = due[0]
            bus = self._buses[number]
            if now // 60_000 != self._minute:
                self._look_at_the_clock(now)
            if bus.rank >= self._duty:
                heapq.heapreplace(due, (now + _REST_MS, number))
                bus.seen_ms = now
                continue
            speed = self._drive(bus, (now - bus.seen_ms) / 1000)
            bus.seen_ms = now
            yield now, self._reading(bus, now, speed)
            heapq.heapreplace(due, (now + REPORT_MS + int(400 * (chance.random() - 0.5)), number))

    def _look_at_the_clock(self, now_ms: int) -> None:
        self._minute = now_ms // 60_000
        local = self._local(now_ms)
        self._rush, self._duty = traffic(local.hour + local.minute / 60, weekend=local.weekday() >= 5)

    def _drive(self, bus: _Bus, seconds: float) -> float:
        """Move a bus on; returns its speed at the end (km/h), 0 while it waits."""
        bus.mood = 0.93 * bus.mood + self._chance.gauss(0.0, 0.06)
        while True:
            if bus.wait_s >= seconds:
                bus.wait_s -= seconds
                return 0.0
            seconds -= bus.wait_s
            bus.wait_s = 0.0
            route = bus.route
            step = min(int(bus.metres / _STEP_M), len(route.free_kmh) - 1)
            kmh = min(route.free_kmh[step] * (1 - route.exposure[step] * self._rush) * math.exp(bus.mood), _SPEED_MAX)
            left = abs(route.stops_m[bus.next_stop] - bus.metres)
            way = kmh / 3.6 * seconds
            if way < left:
                bus.metres += way if bus.forward else -way
                return kmh
            seconds -= left / (kmh / 3.6)
            self._stop(bus)

    def _stop(self, bus: _Bus) -> None:
        """Arrive at the next stop; turn round at a terminal, or go on to the first stop of a ring."""
        bus.metres = bus.route.stops_m[bus.next_stop]
        bus.wait_s = 8 + 22 * self._chance.random()
        last = len(bus.route.stops_m) - 1
        if bus.route.circular and bus.next_stop == last:
            bus.metres, bus.next_stop = 0.0, 1
        elif bus.next_stop == (last if bus.forward else 0):
            bus.wait_s += 180 * self._chance.random()
            bus.forward = not bus.forward
            bus.next_stop = last - 1 if bus.next_stop else 1
        else:
            bus.next_stop += 1 if bus.forward else -1

    def _reading(self, bus: _Bus, now_ms: int, speed: float) -> Reading:
        chance = self._chance
        x, y = bus.route.at(bus.metres)
        north = (y + chance.gauss(0.0, _GPS_M)) / _METRES_PER_DEGREE
        east = (x + chance.gauss(0.0, _GPS_M)) * self._east
        if speed:
            speed = max(0.0, speed + chance.gauss(0.0, _SPEED_NOISE))
        delay = int(_DELAY_MS * (0.5 + chance.random()))
        return Reading(
            bus.vehicle,
            now_ms - delay,
            round(self._centre[0] + north, 6),
            round(self._centre[1] + east, 6),
            round(speed, 1),
        )


def traffic(hour: float, *, weekend: bool) -> tuple[float, float]:
    """(rush, duty) at a local hour in [0, 24): how bad the traffic is in [0, 1], and the share of buses on duty."""
    rush = max(math.exp(-(((hour - 9.0) / 1.2) ** 2)), math.exp(-(((hour - 18.5) / 1.6) ** 2)))
    rush = max(rush, 0.35 if 7 <= hour < 22 else 0.05)
    day = 1 / (1 + math.exp(-(hour - 5.5) / 0.4)) - 1 / (1 + math.exp(-(hour - 22.5) / 0.5))
    return (0.45 if weekend else 1.0) * rush, 0.25 + (0.55 if weekend else 0.75) * max(day, 0.0)


def make_routes(chance: Chance) -> list[Route]:
    """The city's lines: across the centre, around the rings, and out along one road and back in by another."""
    roads = [_radial(index, chance) for index in range(_RADIALS)]
    rings = [_ring(radius, chance) for radius in _RINGS_M]
    paths = [list(reversed(road[1:])) + roads[(index + 4) % _RADIALS] for index, road in enumerate(roads)]
    paths += [_around(roads[index], roads[(index + 2) % _RADIALS], rings[1]) for index in range(0, _RADIALS, 3)]
    quarters = tuple(2 * math.pi * chance.random() for _ in range(2))
    lines = [_route(path, quarters, chance, circular=False) for path in paths]
    return lines + [_route([*ring, ring[0]], quarters, chance, circular=True) for ring in rings]


def _radial(index: int, chance: Chance) -> list[Point]:
    """A road from the centre outwards that winds a little."""
    angle = 2 * math.pi * (index + 0.3 * (chance.random() - 0.5)) / _RADIALS
    phase, wave = 2 * math.pi * chance.random(), 3_000 + 2_500 * chance.random()
    length = _RADIAL_M * (0.8 + 0.4 * chance.random())
    points = []
    for step in range(int(length / _STEP_M)):
        out = step * _STEP_M
        aside = 320 * min(out / 2_000, 1.0) * math.sin(2 * math.pi * out / wave + phase)
        points.append(
            (out * math.cos(angle) - aside * math.sin(angle), out * math.sin(angle) + aside * math.cos(angle))
        )
    return points


def _ring(radius: float, chance: Chance) -> list[Point]:
    phase = 2 * math.pi * chance.random()
    steps = int(2 * math.pi * radius / _STEP_M)
    angles = [2 * math.pi * step / steps for step in range(steps)]
    radii = [radius * (1 + 0.07 * math.sin(3 * angle + phase)) for angle in angles]
    return [(r * math.cos(angle), r * math.sin(angle)) for r, angle in zip(radii, angles, strict=True)]


def _around(out: Sequence[Point], back: Sequence[Point], ring: Sequence[Point]) -> list[Point]:
    """From the end of one road in to the ring, along it, and out by another road."""
    leave, enter = _nearest(out, ring), _nearest(back, ring)
    there, here = _nearest(ring, [out[leave]]), _nearest(ring, [back[enter]])
    span = (here - there) % len(ring)
    steps = range(span + 1) if span <= len(ring) // 2 else range(0, span - len(ring) - 1, -1)
    return [*reversed(out[leave:]), *(ring[(there + step) % len(ring)] for step in steps), *back[enter:]]


def _nearest(points: Sequence[Point], others: Sequence[Point]) -> int:
    """The index in `points` of the one nearest to any of `others`."""
    return min(range(len(points)), key=lambda index: min(math.dist(points[index], other) for other in others))


def _route(path: Sequence[Point], quarters: Sequence[float], chance: Chance, *, circular: bool) -> Route:
    """Points at even distances along a path, with the speeds of the places they pass."""
    points = _evenly(path)
    free, exposure = [], []
    for x, y in points[:-1]:
        outside = 1 - math.exp(-((math.hypot(x, y) / 4_000) ** 1.5))
        quarter = 1 + 0.22 * math.sin(x / 2_100 + quarters[0]) * math.sin(y / 1_700 + quarters[1])
        free.append((20 + 24 * outside + (7 if circular else 0)) * quarter)
        exposure.append(0.55 - 0.35 * outside)
    length = (len(points) - 1) * _STEP_M
    stops = [0.0]
    while (stop := stops[-1] + 350 + 350 * chance.random()) < length - 300:
        stops.append(stop)
    return Route(points, free, exposure, [*stops, length], circular)


def _evenly(path: Sequence[Point]) -> list[Point]:
    """Points every 100 m along a path; what is left at its end is dropped, except where it closes a ring."""
    closed = path[0] == path[-1]
    points, at = [path[0]], path[0]
    for target in path[1:]:
        while (far := math.dist(at, target)) >= _STEP_M:
            share = _STEP_M / far
            at = (at[0] + share * (target[0] - at[0]), at[1] + share * (target[1] - at[1]))
            points.append(at)
    if closed:
        points[-1] = path[-1]
    return points
