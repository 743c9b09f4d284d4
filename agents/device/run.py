"""Entry points of `hatcast device`: assemble the parts and run them."""

import queue
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.agents.config.settings import Settings
from hatcast.agents.device.closing import Arrived, LiveRun, ReadingFilter, RecordedRun
from hatcast.agents.device.clusterings import AnswerTally, DeviceClusterings, open_clusterings
from hatcast.agents.device.fold import OwnMeans, Rules
from hatcast.agents.device.outbox import Outbox
from hatcast.agents.device.perturbation import Reporter, Sign
from hatcast.agents.device.sources import fleet_filter
from hatcast.agents.device.store import DeviceStore, open_store
from hatcast.agents.errors.causes import require
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.kafka.grants import Role, check_permissions
from hatcast.agents.kafka.topics import topic_range
from hatcast.agents.recordings.pinned import Read
from hatcast.agents.sources.pacing import Pace, ProgressBar, print_summary
from hatcast.agents.sources.synthetic import CityOptions, default_start_ms, make_city
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import FormatChoice, Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.recording import Contents, Recording
from hatcast.stream.replay.heartbeats import RecordingPass


class DeviceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a device or a fleet: counts only, no places and no values."""

    topic: str
    partitions: int
    readings: dict[str, int]  # readings of its vehicles, by outcome
    reported: int  # HATs whose report was drawn and stored now
    reported_before: int  # HATs whose report was drawn before
    over_cap: int  # HATs without a report: the day's reports are used up
    forgotten: int  # HATs of days that are too old for the state file
    uncertified: int  # HATs without a report: no certified key of their date is left to sign with
    sent: int  # reports acknowledged by Kafka, also those of earlier starts
    expired: int  # reports that were too late to be sent
    unsent: int  # reports to send at the next start
    ticks: int  # heartbeat records sent
    answered: int  # rounds of clusterings answered now
    rejected: int  # rounds with parameters that the policy does not allow, or for which no budget was left
    seconds: float
    finished: bool  # False: stopped before its end

    def show(self, *, as_json: bool) -> None:
        """Print to standard output."""
        print_summary(
            self,
            f"{'' if self.finished else 'stopped: '}read {sum(self.readings.values()):,} readings, sent {self.sent:,}"
            f" reports to {self.topic} ({self.partitions} partitions) in {self.seconds:.1f} s",
            (self.reported_before, "HATs were reported before and are not reported again"),
            (self.over_cap, "HATs are not reported: the day's reports are used up"),
            (self.forgotten, "HATs are too old for the state file and may have been reported"),
            (self.uncertified, "HATs are not reported: the state file has no certified key of their date"),
            (self.expired, "reports were too late to be sent"),
            (self.unsent, "reports are stored and will be sent at the next start"),
            (self.answered, "rounds of clusterings were answered"),
            (self.rejected, "rounds of clusterings were rejected: other parameters, or no budget left"),
            as_json=as_json,
        )


_FINISH_S: Final = 10.0  # what the broker does not acknowledge until then is sent at the next start
_POLL_S: Final = 0.2
FAR_MS: Final = 1 << 60  # no limit ahead of now: the pace keeps a city from running ahead of the wall clock


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """Options of the user."""

    state: Path  # path of the state file
    choice: FormatChoice | None = None  # how records of readings are read; None: they are a synthetic city's
    most_hats: int | None = None  # most reports a day; None: as many as the policy allows
    with_end: bool = True  # report the last slot too, after the source has ended
    cluster_epsilon: float | None = None  # the most that clusterings of one local date may cost; None: answer none
    with_signatures: bool = False  # sign reports with the certified keys in the state file


@dataclass(slots=True)
class Device:
    """Components of a device or a fleet, in any mode."""

    rules: Rules
    store: DeviceStore
    outbox: Outbox
    means: OwnMeans
    reporter: Reporter
    clusterings: DeviceClusterings | None
    began_s: float = field(default_factory=monotonic_s)

    def answer(self, stop: threading.Event) -> None:
        """Answer rounds of clusterings after the readings have ended, until `stop` is set."""
        while self.clusterings is not None and not stop.is_set():
            self.clusterings.poll(ended=True, seconds=_POLL_S)
            self.outbox.poll()

    def summary(self, *, finished: bool) -> DeviceSummary:
        """Wait for the broker, then return the results."""
        all_sent = self.outbox.finish(_FINISH_S)
        answers = AnswerTally()
        if self.clusterings is not None:
            self.clusterings.finish()
            answers = self.clusterings.tally
        return DeviceSummary(
            topic=self.outbox.topic,
            partitions=self.outbox.partitions,
            readings=self.means.outcomes,
            **asdict(self.reporter.tally),
            sent=self.outbox.sent,
            expired=self.outbox.expired,
            unsent=0 if all_sent else len(self.store.unsent()),
            ticks=self.outbox.heartbeats,
            answered=answers.answered,
            rejected=answers.rejected,
            seconds=round(monotonic_s() - self.began_s, 3),
            finished=finished,
        )


@contextmanager
def open_device(
    settings: Settings, options: DeviceOptions, *, live: bool, contents: Contents = (), partitions: int | None = None
) -> Iterator[Device]:
    """Open a device and send its unsent reports and answers.

    contents     of a recording
    partitions   of topic `reports`; None: ask Kafka
    Raises HatcastError if the policy, the state file, Kafka or a topic is not usable, or if the state file has reports
    of readings that were read in another way.
    """
    rules = Rules(settings.policy, options.most_hats)
    sign: Sign | None = None
    if options.with_signatures:
        require("nacl", "--sign")
        from hatcast.stream.hybrid.signatures import sign_report

        sign = sign_report
    topic = settings.topics.reports
    if partitions is None:
        check_permissions(settings, Role.DEVICE)
        partitions = len(topic_range(settings, topic))
    # Imported here: noise takes seconds to load, and most errors are found before.
    from hatcast.stream.mechanisms.system import SystemNoise

    noise, epsilon = SystemNoise(), options.cluster_epsilon
    with ExitStack() as stack:
        store = stack.enter_context(open_store(options.state))
        read = None if options.choice is None else Read.of(options.choice, contents, settings)
        if read is not None:
            store.readings.check(read)
            store.readings.check_dates(rules.calendar)
        if sign is not None and not store.keys.has_certified():
            raise HatcastError(
                f"--sign: {options.state} has no certified key: run `hatcast keys request` and `hatcast keys install`"
            )
        outbox = stack.enter_context(
            Outbox(confluent_options(settings), topic, partitions, store, live=now_ms if live else None)
        )
        clusterings = None
        if epsilon is not None:
            clusterings = stack.enter_context(open_clusterings(settings, rules, store, noise, epsilon))
        reporter = Reporter(rules, store, noise, read=read, with_sums=clusterings is not None, sign=sign)
        outbox.send(store.unsent())
        yield Device(rules, store, outbox, OwnMeans(rules), reporter, clusterings)


def run_recording(
    settings: Settings,
    recording: Recording,
    accepts: ReadingFilter,
    options: DeviceOptions,
    pace: Pace,
    *,
    heartbeats: bool,
) -> DeviceSummary:
    """Run devices over a recording. `heartbeats`: see RecordedRun.run. Raises HatcastError."""
    with (
        open_device(settings, options, live=False, contents=recording.contents()) as device,
        ProgressBar(device.rules.calendar, len(recording)) as bar,
    ):
        run = RecordedRun(device.means, device.reporter, device.outbox, pace)
        passage = RecordingPass(settings.policy, device.rules.calendar, now_ms())
        finished = run.run(passage, recording, accepts, heartbeats=heartbeats, say=bar.show)
        if finished and options.with_end:
            finished = run.end(passage.end_ms() if heartbeats else None, bar.note)
        if finished and device.clusterings is not None:
            bar.note("answering clusterings until it is stopped")
            device.answer(pace.stop)
        return device.summary(finished=finished)


def run_city(settings: Settings, city: CityOptions, options: DeviceOptions, stop: threading.Event) -> DeviceSummary:
    """Run a fleet in a synthetic city until `stop` is set. Raises HatcastError."""
    with open_device(settings, options, live=False) as device, ProgressBar(device.rules.calendar, None) as bar:
        calendar = device.rules.calendar
        now = now_ms()
        start = default_start_ms(now, city.speedup, settings.retention_ms, None)
        run = RecordedRun(device.means, device.reporter, device.outbox, Pace(city.speedup, 0, stop))
        records = as_records(make_city(city, calendar).readings(start))
        run.run(
            RecordingPass(settings.policy, calendar, FAR_MS), records, fleet_filter(None), heartbeats=True, say=bar.show
        )
        return device.summary(finished=True)


def as_records(readings: Iterable[tuple[int, Reading]]) -> Iterator[tuple[int, Recorded]]:
    """Yield (arrival, record) of a synthetic city's (arrival, reading)."""
    for arrival, reading in readings:
        yield arrival, Recorded(b"", reading, arrival)


def run_live(
    settings: Settings,
    source: "queue.Queue[Arrived]",
    accepts: ReadingFilter,
    options: DeviceOptions,
    stop: threading.Event,
) -> DeviceSummary:
    """Run one device on live readings. Raises HatcastError."""
    with open_device(settings, options, live=True) as device:
        run = LiveRun(device.means, device.reporter, device.outbox, clusterings=device.clusterings)
        finished = run.run(source, accepts, stop, with_end=options.with_end)
        if finished:
            device.answer(stop)
        return device.summary(finished=finished)
