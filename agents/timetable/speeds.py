"""Scheduled speeds of the cells of a GTFS timetable: distance over time.    [gtfs.org, Schedule]

A leg of a trip goes from a stop with a time to the next one with a later time, straight from stop to stop; stops
without a time in between are passed at the leg's speed, as GTFS says. A leg's length and time are divided over the
cells that it crosses, by length. Every trip counts once, on however many days it runs (calendar.txt, frequencies.txt):
a cell's speed depends on how its trips divide over the day only a little.
"""

import re
from array import array
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import h3.api.basic_int as h3
import numpy as np
from numpy.typing import NDArray

from hatcast.agents.timetable.tables import BadTimetable, Tables, Tell, open_timetable
from hatcast.stream.policy.policy import Policy, TrackerKeys
from hatcast.stream.tracker.timetable import Timetable

_Integers = NDArray[np.int64]
_Floats = NDArray[np.float64]

_BUSES: Final = (3, 11)  # GTFS route types: bus and trolleybus
_TIME: Final = re.compile(r"([0-9]{1,3}):([0-9]{2}):([0-9]{2})")
_LONGEST_S: Final = 3600
_FASTEST_KMH: Final = 150
_FAST_SHARE: Final = 0.01  # of the legs, from which on the file is doubtful: Austin's has 13 of 400,000
_KMH: Final = 3.6  # of a metre in a second
_EARTH_M: Final = 6_371_007.2  # radius
_PIECE_M: Final = 150.0
_PIECES_OF_EDGE: Final = 4  # of small cells, so that a straight line skips no large part of one


class _Visits(NamedTuple):
    """Rows of stop_times.txt, by trip and sequence. Times in s, NaN: there is none."""

    trip: _Integers
    stop: _Integers
    arrival: _Floats
    departure: _Floats


class _Hops(NamedTuple):
    """Straight lines between two stops, each pair once: length (m) and time (s) of all legs along it, in sum."""

    start: _Integers
    end: _Integers
    metres: _Floats
    seconds: _Floats


def timetable_of(policy: Policy, tell: Tell = str) -> Timetable | None:
    """Read the scheduled speeds of a policy's cells from its file; None if it names none. Raises BadTimetable.

    tell   called with a line about what is left out
    """
    if not isinstance(policy.method, TrackerKeys) or policy.method.timetable is None:
        return None
    return scheduled_speeds(Path(policy.method.timetable), resolutions_of(policy), tell)


def resolutions_of(policy: Policy) -> tuple[int, ...]:
    """Return the H3 resolutions of a policy's cells."""
    return policy.h3_resolution, *(() if policy.fine is None else policy.fine.resolutions)


def scheduled_speeds(path: Path, resolutions: Collection[int], tell: Tell = str) -> Timetable:
    """Read the scheduled speed of each cell that a bus crosses; without buses in the timetable, any vehicle.

    resolutions   H3, of the cells
    tell          called with a line about what is left out
    A million stop times take some 4 s, and 40 bytes each.
    Raises BadTimetable if the file is not a GTFS zip, a row is damaged, or no trip has times at two stops.
    """
    with open_timetable(path, tell) as tables:
        numbers, known, _ = tables.stop_places()
        places = np.array([(np.nan, np.nan) if place is None else place for place in known]).reshape(-1, 2)
        tables.check_on_earth("stops.txt", *places[~np.isnan(places).all(axis=1)].T)
        visits = _visits(tables, numbers, ~np.isnan(places[:, 0]))
    hops, fast = _hops(visits, places)
    if not len(hops.start):
        raise BadTimetable(path, "has no trip with plausible times at two stops", "name one with arrival times")
    if fast >= _FAST_SHARE:
        tell(
            f"hint: {path}: {fast:.0%} of its legs are faster than {_FASTEST_KMH} km/h, and left out: correct times,"
            " or places of stops"
        )
    return Timetable.of(dict(each for resolution in set(resolutions) for each in _speeds(hops, places, resolution)))


def _visits(tables: Tables, stops: Mapping[str, int], is_placed: NDArray[np.bool_]) -> _Visits:
    routes = tables.route_ids(_BUSES, or_all=True)
    listed = enumerate(tables.rows("trips.txt", ("route_id", "trip_id")))
    trips = {trip: number for number, (route, trip) in listed if route in routes}
    numbers, at_stops = array("q"), array("q")
    order, arrivals, departures = array("d"), array("d"), array("d")

    @cache
    def seconds(text: str) -> float:
        if not text:
            return np.nan
        found = _TIME.fullmatch(text)
        if found is None:
            raise BadTimetable(tables.path, f"has {text!r} in stop_times.txt, where a time such as 08:05:00 belongs")
        hours, minutes, rest = map(int, found.groups())
        return float(3600 * hours + 60 * minutes + rest)

    names = ("trip_id", "stop_sequence"), "stop_id", "arrival_time", "departure_time"
    for trip_id, sequence, stop_id, arrives, departs in tables.rows("stop_times.txt", *names):
        number = trips.get(trip_id)
        if number is None or not stop_id or not is_placed[stop := tables.stop_number(stops, stop_id)]:
            continue
        arrival, departure = seconds(arrives.strip()), seconds(departs.strip())
        numbers.append(number)
        at_stops.append(stop)
        order.append(tables.number(sequence, "stop_times.txt"))
        arrivals.append(departure if np.isnan(arrival) else arrival)
        departures.append(arrival if np.isnan(departure) else departure)
    trip, stops_of, arrives_at, departs_at = (np.asarray(each) for each in (numbers, at_stops, arrivals, departures))
    rows = np.lexsort((np.asarray(order), trip))
    return _Visits(trip[rows], stops_of[rows], arrives_at[rows], departs_at[rows])


def _hops(visits: _Visits, places: _Floats) -> tuple[_Hops, float]:
    """Return the hops of all plausible legs, and the share of the legs that are too fast."""
    trip, stop, arrival, departure = visits
    timed = np.flatnonzero(~np.isnan(arrival))
    # Times are often of whole minutes, and equal at near stops: a leg goes on to the first stop that is later than it
    # began. Of stops in a row that are not later the first is dropped, then the others are compared again.
    while True:
        is_not_later = (arrival[timed[1:]] <= departure[timed[:-1]]) & (np.diff(trip[timed]) == 0)
        if not is_not_later.any():
            break
        is_not_later[1:] &= ~is_not_later[:-1]
        timed = timed[np.r_[True, ~is_not_later]]
    before, after = timed[:-1], timed[1:]
    row = np.arange(max(len(trip) - 1, 0))
    leg = np.searchsorted(timed, row, "right") - 1
    row, leg = (each[(leg >= 0) & (leg < len(before))] for each in (row, leg))
    metres = _metres(places[stop[row]], places[stop[row + 1]])
    length = np.bincount(leg, metres, len(before))
    seconds = arrival[after] - departure[before]
    is_leg = (trip[before] == trip[after]) & (seconds > 0) & (seconds < _LONGEST_S) & (length > 0)
    is_fast = _KMH * length > _FASTEST_KMH * seconds
    used = (is_leg & ~is_fast)[leg] & (metres > 0)
    row, leg, metres = row[used], leg[used], metres[used]
    pairs, which = np.unique(np.stack((stop[row], stop[row + 1])), axis=1, return_inverse=True)
    shares = seconds[leg] * metres / length[leg]
    hops = _Hops(*pairs, *(np.bincount(which.ravel(), each) for each in (metres, shares)))
    return hops, float((is_leg & is_fast).sum() / max(is_leg.sum(), 1))


def _metres(starts: _Floats, ends: _Floats) -> _Floats:
    """Return great-circle distances of places in degrees, float64 [N, 2]."""
    (lats, lngs), (others, other_lngs) = np.radians(starts).T, np.radians(ends).T
    half = np.sin((others - lats) / 2) ** 2 + np.cos(lats) * np.cos(others) * np.sin((other_lngs - lngs) / 2) ** 2
    return np.asarray(2 * _EARTH_M * np.arcsin(np.sqrt(half)))


def _speeds(hops: _Hops, places: _Floats, resolution: int) -> Iterator[tuple[str, int]]:
    """Yield the cells that are crossed, with their speeds in 0.1 km/h."""
    starts, ends = places[hops.start], places[hops.end]
    length = min(_PIECE_M, h3.average_hexagon_edge_length(resolution, "m") / _PIECES_OF_EDGE)
    number = np.ceil(_metres(starts, ends) / length).astype(np.int64).clip(1)
    hop = np.repeat(np.arange(len(number)), number)
    at = (np.arange(len(hop)) - np.repeat(np.cumsum(number) - number, number) + 0.5) / number[hop]
    way = ends - starts
    way[:, 1] -= 360 * np.round(way[:, 1] / 360)  # the shorter way round the earth
    middles = starts[hop] + way[hop] * at[:, None]
    crossed, cell = np.unique([h3.latlng_to_cell(*each, resolution) for each in middles.tolist()], return_inverse=True)
    metres, seconds = (np.bincount(cell, (each / number)[hop]) for each in (hops.metres, hops.seconds))
    for name, speed in zip(crossed.tolist(), np.round(10 * _KMH * metres / seconds).tolist(), strict=True):
        yield h3.int_to_str(name), max(1, int(speed))
