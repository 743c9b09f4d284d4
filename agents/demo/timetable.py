"""Timetable of the synthetic city: its roads' speeds in usual traffic, with errors. No reading enters it."""

import math
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from hatcast.agents.sources.synthetic import CENTRE
from hatcast.stream.replay.synthetic_city import BusLine, RandomSource, make_routes, place

_USUAL_TRAFFIC: Final = 0.35  # of the worst: that of most of the day
_ERROR: Final = 0.1  # standard deviation of the logarithm of a time between two stops
_DWELL_S: Final = 19
_TABLES: Final = {
    "routes.txt": "route_id,route_type",
    "trips.txt": "route_id,trip_id",
    "stops.txt": "stop_id,stop_lat,stop_lon",
    "stop_times.txt": "trip_id,arrival_time,departure_time,stop_id,stop_sequence",
}


def write_timetable(path: Path, chance: RandomSource) -> None:
    """Write a GTFS zip file of the city that these random numbers make: one trip of each line."""
    rows: dict[str, list[str]] = {name: [header] for name, header in _TABLES.items()}
    for number, line in enumerate(make_routes(chance)):
        rows["routes.txt"].append(f"r{number},3")
        rows["trips.txt"].append(f"r{number},t{number}")
        for at, (metres, seconds) in enumerate(zip(line.stops_m, _arrivals(line, chance), strict=True)):
            lat, lng = place(CENTRE, line.at(metres))
            rows["stops.txt"].append(f"s{number}-{at},{lat:.6f},{lng:.6f}")
            times = f"{_clock(seconds)},{_clock(seconds + _DWELL_S)}"
            rows["stop_times.txt"].append(f"t{number},{times},s{number}-{at},{at}")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, lines in rows.items():
            archive.writestr(name, "\n".join([*lines, ""]))


def _arrivals(line: BusLine, chance: RandomSource) -> Iterator[float]:
    """Yield the arrival at each stop, in seconds after the trip's start."""
    seconds = 0.0
    yield seconds
    for start, end in pairwise(line.stops_m):
        error = math.exp(chance.gauss(0, _ERROR))
        seconds += _DWELL_S + error * (end - start) / (line.kmh((start + end) / 2, _USUAL_TRAFFIC) / 3.6)
        yield seconds


def _clock(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
