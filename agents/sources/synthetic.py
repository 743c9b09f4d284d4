"""A city that does not exist, as telemetry: to try hatcast without a feed. Its bridge's clock is the city's own."""

import random  # simulation: buses that do not exist, never noise
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from hatcast.agents.clock import now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.sources.pacing import Pace
from hatcast.agents.sources.progress import Bar, Summary
from hatcast.agents.sources.recorded_producer import RecordedProducer
from hatcast.agents.sources.target import Target, open_target, refuse_if_late
from hatcast.stream.fold.hats import Calendar
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.formats.jsonl import canonical_value
from hatcast.stream.readings.reading import Reading
from hatcast.stream.replay.heartbeats import TICK_MS, Addresses, Message, ticks
from hatcast.stream.replay.synthetic_city import City
from hatcast.stream.units import DAY_MS

CENTRE: Final = (21.1959, 72.8302)  # Surat, whose buses are the first that hatcast read
PAST_MS: Final = 30 * DAY_MS
_LATER: Final = "leave --start out, and it goes on where the topic is"


@dataclass(frozen=True, slots=True)
class CityOptions:
    """What a person may choose of a city.

    speedup   as of a Pace; other than 1 it begins in the past
    start     ms UTC, None: `default_start_ms`
    centre    degrees (latitude, longitude)
    seed      None: another city each time
    """

    vehicles: int = 300
    speedup: float = 1.0
    start: int | None = None
    centre: tuple[float, float] | None = None
    seed: int | None = None


def make_city(options: CityOptions, calendar: Calendar) -> City:
    """A city whose rush hours go by the policy's time zone."""
    chance = random.Random(options.seed)  # simulation: it moves buses
    return City(options.centre or CENTRE, options.vehicles, chance, calendar.local)


def city_messages(readings: Iterable[tuple[int, Reading]], addresses: Addresses, start_ms: int) -> Iterator[Message]:
    """Readings in order of arrival from `start_ms` on, and a tick for every partition each 10 s of their time.

    Lazy, in constant memory, and as endless as the readings: pass it to `RecordedProducer.send_all`.
    """
    next_tick = start_ms - start_ms % TICK_MS + TICK_MS
    for arrival, reading in readings:
        while next_tick <= arrival:
            yield from ticks(addresses.partitions, next_tick)
            next_tick += TICK_MS
        key, partition = addresses.of(reading.vehicle) or addresses.nobody
        yield Message(partition, arrival, key, canonical_value(Recorded(b"", reading, arrival)))


def default_start_ms(now_ms: int, speedup: float, retention_ms: int | None, newest_ms: int | None) -> int:
    """When a city begins that was given no start.

    Now at real pace; with a speed-up 30 days ago, or half of the topic's retention if that is shorter. Not before
    `newest_ms`, what the topic holds already: a feed that is started again goes on where it was.
    """
    if speedup == 1:
        return now_ms
    start = now_ms - (PAST_MS if retention_ms is None else min(PAST_MS, retention_ms // 2))
    return start if newest_ms is None else min(max(start, newest_ms), now_ms)


def run_city(settings: Settings, options: CityOptions, stop: threading.Event) -> Summary:
    """`hatcast feed synthetic`: check the target, then send until `stop`.

    Raises HatcastError: what `open_target` and `refuse_if_late` raise, or the broker did not take a record.
    """
    calendar = Calendar(settings.policy)
    target = open_target(settings, options.start)
    start = _start(settings, options, target, calendar)
    readings = make_city(options, calendar).readings(start)
    with (
        Bar(calendar, None) as bar,
        RecordedProducer(confluent_options(settings), settings.topics.telemetry, stop) as sender,
    ):
        if start < now_ms() - TICK_MS:
            bar.note(f"the city's time begins at {calendar.local(start):%Y-%m-%d %H:%M:%S}")
        sender.send_all(city_messages(readings, target.addresses, start), Pace(options.speedup, 0, stop), bar.show)
        sender.finish()
    return Summary(
        topic=sender.topic,
        partitions=target.addresses.partitions,
        records=sender.records,
        ticks=sender.ticks,
        seconds=round(bar.seconds, 3),
        finished=True,
    )


def _start(settings: Settings, options: CityOptions, target: Target, calendar: Calendar) -> int:
    if options.start is not None:
        refuse_if_late(settings, target, calendar, options.start, _LATER)
        return options.start
    start = default_start_ms(now_ms(), options.speedup, target.retention_ms, target.newest_ms)
    if options.speedup != 1:
        open_target(settings, start)  # the same refusals as for a replay
    return start
