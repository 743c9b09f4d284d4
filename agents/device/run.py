"""`hatcast device`, put together."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.device.fold import OwnMeans, Rules
from hatcast.agents.device.live import Arrived, Present
from hatcast.agents.device.outbox import Outbox
from hatcast.agents.device.perturbation import Reporter
from hatcast.agents.device.recorded import Past
from hatcast.agents.device.sources import Fleet
from hatcast.agents.device.store import Store, open_store
from hatcast.agents.device.summary import Summary
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.kafka.topics import topic_range
from hatcast.agents.sources.pacing import Pace
from hatcast.agents.sources.progress import ProgressBar
from hatcast.agents.sources.synthetic import CityOptions, default_start_ms, make_city
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.recording import Recording
from hatcast.stream.replay.heartbeats import RecordingPass

_FAR_MS: Final = 1 << 60  # a city's pace keeps it from running ahead of the clock, for as long as it goes

Takes = Callable[[Reading], bool]


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """What a person may choose.

    state      the state file
    most_hats  reports a day at most; None: as many as the policy allows
    with_end   also report the last slot, when the source has ended
    """

    state: Path
    most_hats: int | None = None
    with_end: bool = True


class _Parts:
    """What every device is made of."""

    def __init__(self, settings: Settings, rules: Rules, store: Store, outbox: Outbox) -> None:
        # Loaded here: noise takes seconds to load, and what is refused before needs none.
        from hatcast.stream.mechanisms.system import SystemNoise

        self.settings = settings
        self.rules = rules
        self.store = store
        self.outbox = outbox
        self.own = OwnMeans(rules)
        self.reporter = Reporter(rules, store, SystemNoise())
        self._began_s = monotonic_s()

    def summary(self, *, finished: bool) -> Summary:
        """Wait for the broker, and say what was done."""
        done = self.outbox.finish()
        tally = self.reporter.tally
        return Summary(
            topic=self.outbox.topic,
            partitions=self.outbox.partitions,
            readings=self.own.outcomes,
            reported=tally.reported,
            reported_before=tally.reported_before,
            over_cap=tally.over_cap,
            forgotten=tally.forgotten,
            sent=self.outbox.sent,
            expired=self.outbox.expired,
            unsent=0 if done else len(self.store.unsent()),
            ticks=self.outbox.ticks,
            seconds=round(monotonic_s() - self._began_s, 3),
            finished=finished,
        )


@contextmanager
def _opened(settings: Settings, options: DeviceOptions, *, live: bool) -> Iterator[_Parts]:
    """A device that has sent what was left unsent. Raises HatcastError: the policy, the state file, Kafka or the topic."""
    rules = Rules(settings.policy, options.most_hats)
    topic = settings.topics.reports
    partitions = len(topic_range(settings, topic))
    with (
        open_store(options.state) as store,
        Outbox(confluent_options(settings), topic, partitions, store, live=now_ms if live else None) as outbox,
    ):
        parts = _Parts(settings, rules, store, outbox)
        outbox.send(store.unsent())
        yield parts


def run_recording(
    settings: Settings,
    recording: Recording,
    takes: Takes,
    options: DeviceOptions,
    pace: Pace,
    *,
    ticks: bool,
) -> Summary:
    """Devices over a recording. `ticks`: see Past.run. Raises HatcastError."""
    with _opened(settings, options, live=False) as parts, ProgressBar(parts.rules.calendar, len(recording)) as bar:
        past = Past(parts.own, parts.reporter, parts.outbox, pace)
        passage = RecordingPass(settings.policy, parts.rules.calendar, now_ms())
        finished = past.run(passage, recording, takes, ticks=ticks, say=bar.show)
        if finished and options.with_end:
            finished = past.end(passage.end_ms() if ticks else None, bar.note)
        return parts.summary(finished=finished)


def run_city(settings: Settings, city: CityOptions, options: DeviceOptions, stop: threading.Event) -> Summary:
    """A fleet in a city that does not exist, until `stop`. Raises HatcastError."""
    with _opened(settings, options, live=False) as parts, ProgressBar(parts.rules.calendar, None) as bar:
        calendar = parts.rules.calendar
        now = now_ms()
        start = default_start_ms(now, city.speedup, settings.retention_ms, None)
        past = Past(parts.own, parts.reporter, parts.outbox, Pace(city.speedup, 0, stop))
        records = _as_records(make_city(city, calendar).readings(start))
        past.run(RecordingPass(settings.policy, calendar, _FAR_MS), records, Fleet(None), ticks=True, say=bar.show)
        return parts.summary(finished=True)


def _as_records(readings: Iterable[tuple[int, Reading]]) -> Iterator[tuple[int, Recorded]]:
    for arrival, reading in readings:
        yield arrival, Recorded(b"", reading, arrival)


def run_live(
    settings: Settings,
    source: "queue.Queue[Arrived]",
    takes: Takes,
    options: DeviceOptions,
    stop: threading.Event,
) -> Summary:
    """One device on live readings. Raises HatcastError."""
    with _opened(settings, options, live=True) as parts:
        present = Present(parts.own, parts.reporter, parts.outbox)
        finished = present.run(source, takes, stop, with_end=options.with_end)
        return parts.summary(finished=finished)
