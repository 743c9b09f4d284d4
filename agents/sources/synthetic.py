"""Synthetic city as a telemetry source, to try hatcast without a feed. Arrival times go by the city's own clock.

Its timetable has the speeds of its roads in usual traffic, with errors. No reading enters it.
"""

import math
import random  # simulation: moves buses, never draws noise
import threading
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.sources.pacing import FeedSummary, Pace, ProgressBar
from hatcast.agents.sources.replay import RecordedProducer
from hatcast.agents.sources.target import FeedTarget, open_target, reject_if_late
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.calendar import Calendar, closes_at
from hatcast.stream.policy.policy import Policy
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.formats.jsonl import canonical_value
from hatcast.stream.readings.reading import Reading
from hatcast.stream.release.schedule import slots_between
from hatcast.stream.replay.heartbeats import HEARTBEAT_MS, Router, TelemetryMessage, heartbeats
from hatcast.stream.replay.synthetic_city import BusLine, City, RandomSource, make_routes, place
from hatcast.stream.units import DAY_MS, MINUTE_MS

CENTRE: Final = (21.1959, 72.8302)  # Surat
PAST_MS: Final = 30 * DAY_MS
_OMIT_START: Final = "omit --start to continue at the end of the topic"


@dataclass(frozen=True, slots=True)
class CityOptions:
    """Options of a synthetic city."""

    vehicles: int = 300
    speedup: float = 1.0  # as in `Pace`; unless it is 1 the city begins in the past
    start: int | None = None  # ms UTC; None: `default_start_ms`
    centre: tuple[float, float] | None = None  # degrees (latitude, longitude)
    seed: int | None = None  # None: another city each time


def check_speeds_only(policy: Policy) -> None:
    """Raise HatcastError if the policy releases values that a synthetic city does not have."""
    if len(policy.released_values) > 1:
        raise HatcastError(
            "policy.values: a synthetic city has speeds only; remove them, or replay a recording that has these values"
        )
    if policy.value_name is not None:
        raise HatcastError(
            f"policy.value: a synthetic city has speeds only; replay a recording that has {policy.value_name!r}"
        )


def make_city(options: CityOptions, calendar: Calendar) -> City:
    """Return a city whose rush hours follow the policy's time zone."""
    return City(options.centre or CENTRE, options.vehicles, chance_of(options.seed), calendar.local)


def chance_of(seed: int | None) -> RandomSource:
    """Return the random numbers of a city; None: others each time."""
    return random.Random(seed)  # simulation: makes roads, moves buses


def city_messages(readings: Iterable[tuple[int, Reading]], router: Router, start_ms: int) -> Iterator[TelemetryMessage]:
    """Yield readings in order of arrival from `start_ms` on, and heartbeat records of all partitions every 10 s.

    Lazy, in constant memory, and endless if the readings are: pass it to `RecordedProducer.send_all`.
    """
    next_tick = start_ms - start_ms % HEARTBEAT_MS + HEARTBEAT_MS
    for arrival, reading in readings:
        while next_tick <= arrival:
            yield from heartbeats(router.partitions, next_tick)
            next_tick += HEARTBEAT_MS
        key, partition = router.route(reading.vehicle) or router.no_vehicle
        yield TelemetryMessage(partition, arrival, key, canonical_value(Recorded(b"", reading, arrival)))


def default_start_ms(now_ms: int, speedup: float, retention_ms: int | None, newest_ms: int | None) -> int:
    """Return the default start of a city (ms UTC).

    Now at real pace; with a speed-up 30 days ago, or half of the topic's retention if that is shorter, but not before
    `newest_ms`, the newest record of the topic: a restarted feed continues where it was.
    """
    if speedup == 1:
        return now_ms
    start = now_ms - (PAST_MS if retention_ms is None else min(PAST_MS, retention_ms // 2))
    return start if newest_ms is None else min(max(start, newest_ms), now_ms)


def first_means(policy: Policy, calendar: Calendar, start_ms: int, now_ms: int, speedup: float) -> str | None:
    """Return a sentence on when the first means of a city are to be expected; None if not in two days.

    start_ms   first moment of the city's time (ms UTC), which never overtakes the time of day
    """
    first, last = (calendar.local(instant).date() for instant in (start_ms, start_ms + 2 * DAY_MS))
    slot = next((slot for slot in slots_between(calendar, first, last) if slot.end_ms > start_ms), None)
    if slot is None:
        return None
    due_ms = closes_at(slot, policy)
    hour = f"{calendar.local(slot.start_ms):%H:%M}-{calendar.local(slot.end_ms):%H:%M} ({policy.timezone})"
    if speedup == 0:
        return f"the first means are those of {hour}"
    minutes = max((due_ms - start_ms) / speedup, due_ms - now_ms) / MINUTE_MS
    return f"the first means, of {hour}, come in about {max(1, round(minutes))} minute{'' if minutes < 1.5 else 's'}"


def run_city(settings: Settings, options: CityOptions, stop: threading.Event) -> FeedSummary:
    """Run `hatcast feed synthetic`: check the target, then send until `stop`.

    Raises HatcastError as `open_target` and `reject_if_late` do, or if the broker rejects a record.
    """
    check_speeds_only(settings.policy)
    calendar = Calendar(settings.policy)
    target = open_target(settings, options.start)
    start = _start(settings, options, target, calendar)
    readings = make_city(options, calendar).readings(start)
    with (
        ProgressBar(calendar, None) as bar,
        RecordedProducer(confluent_options(settings), settings.topics.telemetry, stop) as sender,
    ):
        now = now_ms()
        if start < now - HEARTBEAT_MS:
            bar.note(
                f"the city's time begins at {calendar.local(start):%Y-%m-%d %H:%M:%S} ({settings.policy.timezone})"
            )
        expected = first_means(settings.policy, calendar, start, now, options.speedup)
        if expected is not None:
            bar.note(expected)
        sender.send_all(city_messages(readings, target.router, start), Pace(options.speedup, 0, stop), bar.show)
        sender.finish()
    return FeedSummary(
        topic=sender.topic,
        partitions=target.router.partitions,
        records=sender.records,
        ticks=sender.heartbeats,
        seconds=round(bar.seconds, 3),
        finished=True,
    )


def _start(settings: Settings, options: CityOptions, target: FeedTarget, calendar: Calendar) -> int:
    if options.start is not None:
        reject_if_late(settings, target, calendar, options.start, _OMIT_START)
        return options.start
    start = default_start_ms(now_ms(), options.speedup, target.retention_ms, target.newest_ms)
    if options.speedup != 1:
        open_target(settings, start)  # the same checks as for a replay
    return start


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
