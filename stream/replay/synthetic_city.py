"""Simulation of a city's buses: their positions and speeds over time.

The data are synthetic, so not private. Roads run out from a centre and two rings join them; buses run to and fro on
routes along them. Each stretch of road has its own free-flow speed: slow in the centre, faster outside and on the
rings, slightly different in each quarter. Rush hours slow all traffic, most of all in the centre. Buses wait at stops.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from hatcast.stream.readings.reading import Reading

REPORT_MS: Final = 10_000  # approximate interval between readings of a bus
_METRES_PER_DEGREE: Final = 111_195.0
_STEP_M: Final = 100.0  # length of a stretch of a route
_RADIALS: Final = 9
_RADIAL_M: Final = 11_000.0
_RINGS_M: Final = (2_600.0, 6_200.0)
_GPS_M: Final = 5.0
_SPEED_NOISE: Final = 0.7  # km/h
_SPEED_MAX: Final = 70.0  # km/h
_REST_MS: Final = 60_000  # interval at which a bus off duty checks for duty
_DELAY_MS: Final = 400.0  # typical delay from a reading to its arrival

Point = tuple[float, float]  # metres east and north of the centre


class RandomSource(Protocol):
    """Random numbers for a simulation, such as `random.Random`."""

    def random(self) -> float:
        """Return a uniform number in [0, 1)."""

    def gauss(self, mu: float, sigma: float, /) -> float:
        """Return a normal number."""


@dataclass(frozen=True, slots=True)
class BusLine:
    """A bus line: points every 100 m and, for each stretch between two points, its speeds."""

    points: Sequence[Point]
    free_kmh: Sequence[float]  # speed without traffic
    exposure: Sequence[float]  # share of the speed that is lost in the worst rush hour
    stops_m: Sequence[float]  # metres from the start, ascending; the last stop is the terminal
    circular: bool  # whether the last point is the first point

    @property
    def length_m(self) -> float:
        """Length from the first point to the last."""
        return self.stops_m[-1]

    def at(self, metres: float) -> Point:
        """Return the point at a distance from the start."""
        step = min(int(metres / _STEP_M), len(self.points) - 2)
        share = metres / _STEP_M - step
        (x, y), (to_x, to_y) = self.points[step], self.points[step + 1]
        return x + share * (to_x - x), y + share * (to_y - y)

    def kmh(self, metres: float, rush: float) -> float:
        """Return the speed at a distance from the start. rush: density of the traffic, 0 to 1."""
        step = min(int(metres / _STEP_M), len(self.free_kmh) - 1)
        return self.free_kmh[step] * (1 - self.exposure[step] * rush)


@dataclass(slots=True)
class _Bus:
    """State of a bus: position on its route, speed factor, remaining wait."""

    vehicle: str
    route: BusLine
    rank: float  # on duty while this is below the share of buses on duty
    metres: float
    forward: bool
    next_stop: int
    wait_s: float = 0.0
    log_speed_factor: float = 0.0  # log of its speed over the route's
    updated_ms: int = 0


class City:
    """Buses on routes. Each object simulates one period: call `readings` once."""

    def __init__(self, centre: Point, vehicles: int, random: RandomSource, local: Callable[[int], datetime]) -> None:
        """Args:
        centre:   degrees (latitude, longitude)
        vehicles: number of buses, 1 or more
        random:   source of random numbers; the same numbers give the same city and readings
        local:    converts an instant (ms UTC) to the city's local time, for its rush hours
        """
        self.routes = make_routes(random)
        self._centre = centre
        self._random = random
        self._local = local
        self._buses = [self._bus(number, vehicles) for number in range(vehicles)]
        self._minute = -1
        self._rush = 0.0
        self._duty = 1.0

    @property
    def vehicles(self) -> list[str]:
        """Ids of all buses."""
        return [bus.vehicle for bus in self._buses]

    def _bus(self, number: int, vehicles: int) -> _Bus:
        route = self.routes[number % len(self.routes)]
        metres = self._random.random() * route.length_m
        forward = route.circular or self._random.random() < 0.5
        ahead = sum(stop <= metres for stop in route.stops_m)
        return _Bus(f"BUS-{number + 1:04d}", route, number / vehicles, metres, forward, ahead if forward else ahead - 1)

    def readings(self, start_ms: int) -> Iterator[tuple[int, Reading]]:
        """Yield (arrival in ms UTC, reading) from `start_ms` on, arrivals ascending, endlessly.

        Each bus on duty sends a reading about every 10 s; the first is always on duty. Times are ms UTC, speeds km/h.
        """
        random = self._random
        due = [(start_ms + int(random.random() * REPORT_MS), number) for number in range(len(self._buses))]
        for first, number in due:
            self._buses[number].updated_ms = first
        heapq.heapify(due)
        while True:
            now, number = due[0]
            bus = self._buses[number]
            if now // 60_000 != self._minute:
                self._update_traffic(now)
            if bus.rank >= self._duty:
                heapq.heapreplace(due, (now + _REST_MS, number))
                bus.updated_ms = now
                continue
            speed = self._drive(bus, (now - bus.updated_ms) / 1000)
            bus.updated_ms = now
            yield now, self._reading(bus, now, speed)
            heapq.heapreplace(due, (now + REPORT_MS + int(400 * (random.random() - 0.5)), number))

    def _update_traffic(self, now_ms: int) -> None:
        self._minute = now_ms // 60_000
        local = self._local(now_ms)
        self._rush, self._duty = traffic(local.hour + local.minute / 60, weekend=local.weekday() >= 5)

    def _drive(self, bus: _Bus, seconds: float) -> float:
        """Move a bus for some seconds; return its final speed (km/h), 0 while it waits."""
        bus.log_speed_factor = 0.93 * bus.log_speed_factor + self._random.gauss(0.0, 0.06)
        while True:
            if bus.wait_s >= seconds:
                bus.wait_s -= seconds
                return 0.0
            seconds -= bus.wait_s
            bus.wait_s = 0.0
            kmh = self._speed(bus)
            left = abs(bus.route.stops_m[bus.next_stop] - bus.metres)
            way = kmh / 3.6 * seconds
            if way < left:
                bus.metres += way if bus.forward else -way
                return kmh
            seconds -= left / (kmh / 3.6)
            self._stop(bus)

    def _speed(self, bus: _Bus) -> float:
        """Return the speed (km/h) of a moving bus where it is, in this minute's traffic."""
        return min(bus.route.kmh(bus.metres, self._rush) * math.exp(bus.log_speed_factor), _SPEED_MAX)

    def _stop(self, bus: _Bus) -> None:
        """Arrive at the next stop; turn round at a terminal, or start again on a ring."""
        bus.metres = bus.route.stops_m[bus.next_stop]
        bus.wait_s = 8 + 22 * self._random.random()
        last = len(bus.route.stops_m) - 1
        if bus.route.circular and bus.next_stop == last:
            bus.metres, bus.next_stop = 0.0, 1
        elif bus.next_stop == (last if bus.forward else 0):
            bus.wait_s += 180 * self._random.random()
            bus.forward = not bus.forward
            bus.next_stop = last - 1 if bus.next_stop else 1
        else:
            bus.next_stop += 1 if bus.forward else -1

    def _reading(self, bus: _Bus, now_ms: int, speed: float) -> Reading:
        random = self._random
        x, y = bus.route.at(bus.metres)
        north, east = random.gauss(0.0, _GPS_M), random.gauss(0.0, _GPS_M)
        lat, lng = place(self._centre, (x + east, y + north))
        if speed:
            speed = max(0.0, speed + random.gauss(0.0, _SPEED_NOISE))
        delay = int(_DELAY_MS * (0.5 + random.random()))
        return Reading(bus.vehicle, now_ms - delay, round(lat, 6), round(lng, 6), round(speed, 1))


def place(centre: Point, point: Point) -> Point:
    """Return latitude and longitude, in degrees, of a point in a city with this centre."""
    east = _METRES_PER_DEGREE * max(math.cos(math.radians(centre[0])), 0.01)
    return centre[0] + point[1] / _METRES_PER_DEGREE, centre[1] + point[0] / east


def traffic(hour: float, *, weekend: bool) -> tuple[float, float]:
    """Return (rush, duty) at a local hour in [0, 24): traffic density in [0, 1], and the share of buses on duty."""
    rush = max(math.exp(-(((hour - 9.0) / 1.2) ** 2)), math.exp(-(((hour - 18.5) / 1.6) ** 2)))
    rush = max(rush, 0.35 if 7 <= hour < 22 else 0.05)
    day = 1 / (1 + math.exp(-(hour - 5.5) / 0.4)) - 1 / (1 + math.exp(-(hour - 22.5) / 0.5))
    return (0.45 if weekend else 1.0) * rush, 0.25 + (0.55 if weekend else 0.75) * max(day, 0.0)


def make_routes(random: RandomSource) -> list[BusLine]:
    """Return the city's lines: across the centre, around the rings, and out along one road and back by another."""
    roads = [_radial(index, random) for index in range(_RADIALS)]
    rings = [_ring(radius, random) for radius in _RINGS_M]
    paths = [list(reversed(road[1:])) + roads[(index + 4) % _RADIALS] for index, road in enumerate(roads)]
    paths += [_around(roads[index], roads[(index + 2) % _RADIALS], rings[1]) for index in range(0, _RADIALS, 3)]
    quarters = tuple(2 * math.pi * random.random() for _ in range(2))
    lines = [_route(path, quarters, random, circular=False) for path in paths]
    return lines + [_route([*ring, ring[0]], quarters, random, circular=True) for ring in rings]


def _radial(index: int, random: RandomSource) -> list[Point]:
    """Return a slightly winding road from the centre outwards."""
    angle = 2 * math.pi * (index + 0.3 * (random.random() - 0.5)) / _RADIALS
    phase, wave = 2 * math.pi * random.random(), 3_000 + 2_500 * random.random()
    length = _RADIAL_M * (0.8 + 0.4 * random.random())
    points = []
    for step in range(int(length / _STEP_M)):
        out = step * _STEP_M
        aside = 320 * min(out / 2_000, 1.0) * math.sin(2 * math.pi * out / wave + phase)
        points.append(
            (out * math.cos(angle) - aside * math.sin(angle), out * math.sin(angle) + aside * math.cos(angle))
        )
    return points


def _ring(radius: float, random: RandomSource) -> list[Point]:
    phase = 2 * math.pi * random.random()
    steps = int(2 * math.pi * radius / _STEP_M)
    angles = [2 * math.pi * step / steps for step in range(steps)]
    radii = [radius * (1 + 0.07 * math.sin(3 * angle + phase)) for angle in angles]
    return [(r * math.cos(angle), r * math.sin(angle)) for r, angle in zip(radii, angles, strict=True)]


def _around(out: Sequence[Point], back: Sequence[Point], ring: Sequence[Point]) -> list[Point]:
    """Return a path from the end of one road in to the ring, along it, and out by another road."""
    leave, enter = _nearest(out, ring), _nearest(back, ring)
    there, here = _nearest(ring, [out[leave]]), _nearest(ring, [back[enter]])
    span = (here - there) % len(ring)
    steps = range(span + 1) if span <= len(ring) // 2 else range(0, span - len(ring) - 1, -1)
    return [*reversed(out[leave:]), *(ring[(there + step) % len(ring)] for step in steps), *back[enter:]]


def _nearest(points: Sequence[Point], others: Sequence[Point]) -> int:
    """Return the index in `points` of the point nearest to any of `others`."""
    return min(range(len(points)), key=lambda index: min(math.dist(points[index], other) for other in others))


def _route(path: Sequence[Point], quarters: Sequence[float], random: RandomSource, *, circular: bool) -> BusLine:
    """Return the route along a path, with the speeds of the places that it passes."""
    points = _evenly(path)
    free, exposure = [], []
    for x, y in points[:-1]:
        outside = 1 - math.exp(-((math.hypot(x, y) / 4_000) ** 1.5))
        quarter = 1 + 0.22 * math.sin(x / 2_100 + quarters[0]) * math.sin(y / 1_700 + quarters[1])
        free.append((20 + 24 * outside + (7 if circular else 0)) * quarter)
        exposure.append(0.55 - 0.35 * outside)
    length = (len(points) - 1) * _STEP_M
    stops = [0.0]
    while (stop := stops[-1] + 350 + 350 * random.random()) < length - 300:
        stops.append(stop)
    return BusLine(points, free, exposure, [*stops, length], circular)


def _evenly(path: Sequence[Point]) -> list[Point]:
    """Return points every 100 m along a path; a shorter rest is dropped, except where it closes a ring."""
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
