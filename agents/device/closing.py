"""Runs of devices: slots close by wall-clock time, or by recorded time. And the producer of what is stored then.

`Outbox` sends each report or answer until the broker has it, or until the operator would reject it.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError

from hatcast.agents.clock import now_ms
from hatcast.agents.device.clusterings import DeviceClusterings
from hatcast.agents.device.fold import OwnMeans
from hatcast.agents.device.perturbation import Reporter
from hatcast.agents.device.stored import Marks, StoredMessage
from hatcast.agents.kafka.queued_producer import QUEUE_FULL_WAIT_S, PolledProducer, one_line
from hatcast.agents.sources.target import Pace
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.readings.vehicles import by_murmur2
from hatcast.stream.replay.heartbeats import RecordingPass, TelemetryMessage, heartbeats

_DELIVERY_MS: Final = 30_000  # per attempt; a live device then retries
_RETRIABLE: Final = (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE)  # noqa: SLF001 - librdkafka's own names


class Outbox(PolledProducer[StoredMessage]):
    """Producer of reports, whose delivery it marks in the state file.

    sent, expired   reports acknowledged by the broker, and reports too late to be sent, since the start
    heartbeats      heartbeat records sent since the start
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        topic: str,
        partitions: int,
        store: Marks,
        *,
        live: Callable[[], int] | None,
    ) -> None:
        """Args:
        options:  how to reach the broker (hatcast.agents.kafka.client.confluent_options)
        live:     the clock (ms UTC) of the reports' timestamps; a failed report is retried until it expires.
                  None: timestamps as recorded, and a failed report raises HatcastError
        """
        super().__init__(options, topic, {"linger.ms": 20, "message.timeout.ms": _DELIVERY_MS})
        self.partitions = partitions
        self.sent = 0
        self.expired = 0
        self.heartbeats = 0
        self._store = store
        self._live = live
        self._failure: KafkaError | None = None
        self._unreachable = False

    def send(self, reports: Iterable[StoredMessage]) -> None:
        """Produce reports; mark those that are late already as expired. Raises HatcastError as `poll` does."""
        late = []
        for stored in reports:
            now = None if self._live is None else self._live()
            if now is not None and now >= stored.closes_ms:
                late.append(stored.number)
                continue
            key, timestamp = stored.id.encode(), stored.sent_ms if now is None else now
            self._send(TelemetryMessage(by_murmur2(key, self.partitions), timestamp, key, stored.body), stored)
        if late:
            self._store.mark_expired(late)
            self.expired += len(late)
            log.warning("reports are too late to be sent; their charges stay spent", reports=len(late))

    def send_heartbeats(self, timestamp_ms: int) -> None:
        """Produce one heartbeat record per partition: of a fleet, whose recording is the only time source."""
        for message in heartbeats(self.partitions, timestamp_ms):
            self._send(message)
        self.heartbeats += self.partitions

    def _send(self, message: TelemetryMessage, stored: StoredMessage | None = None) -> None:
        while not self._produce(message, stored):
            self.poll(QUEUE_FULL_WAIT_S)

    def poll(self, seconds: float = 0.0) -> None:
        """Handle delivery reports, waiting up to `seconds`: mark acknowledged reports, send timed-out ones again.

        Raises HatcastError for a permanent delivery failure and, unless live, for any.
        """
        self._producer.poll(seconds)
        acked, to_retry = [], []
        for stored, error in self._taken_reports():
            if error is not None and stored is not None and self._live and error.code() in _RETRIABLE:
                to_retry.append(stored)
            elif error is not None:
                self._failure = error
            elif stored is not None:
                acked.append(stored.number)
        if acked:
            if self._unreachable:
                self._unreachable = False
                log.info("Kafka answers again")
            self._store.mark_sent(acked)
            self.sent += len(acked)
        if self._failure is not None:
            raise self._rejection(self._failure)
        if to_retry:
            if not self._unreachable:
                self._unreachable = True
                log.warning("Kafka does not answer; the reports are stored and retried")
            self.send(to_retry)

    @property
    def is_empty(self) -> bool:
        """Whether the broker has acknowledged everything."""
        return not self.in_flight

    def _rejection(self, error: KafkaError, _: int | None = None) -> HatcastError:
        return HatcastError(
            f"topic {self.topic} rejected a report ({one_line(error)}): fix that and start again; unsent"
            " reports are stored in the state file"
        )


log = structlog.get_logger()

_POLL_S: Final = 0.5
_BATCH: Final = 1_000  # readings between two checks of the clock

Arrived = tuple[int, Reading] | None
"""(arrival in ms UTC, reading); None: the source has ended."""


class LiveRun:
    """Run of a live device.

    readings   number of its readings so far
    """

    def __init__(
        self,
        means: OwnMeans,
        reporter: Reporter,
        outbox: Outbox,
        clock: Callable[[], int] = now_ms,
        clusterings: DeviceClusterings | None = None,
    ) -> None:
        """Args: `clock`, ms UTC; `clusterings` that it answers meanwhile."""
        self.readings = 0
        self._means = means
        self._reporter = reporter
        self._outbox = outbox
        self._clock = clock
        self._clusterings = clusterings

    def run(
        self,
        source: "queue.Queue[Arrived]",
        accepts: Callable[[Reading], bool],
        stop: threading.Event,
        *,
        with_end: bool,
    ) -> bool:
        """Run until the source has ended and its last slot is reported; return False if stopped before.

        with_end   wait for the last slot
        """
        ended = False
        while not stop.is_set():
            if not ended:
                ended = self._read(source, accepts)
            else:
                stop.wait(_POLL_S)
            self._report(self._clock())
            self._outbox.poll()
            if self._clusterings is not None:
                self._clusterings.poll(ended=False)
            if ended and (not with_end or self._means.due_ms is None):
                return True
        return False

    def _read(self, source: "queue.Queue[Arrived]", accepts: Callable[[Reading], bool]) -> bool:
        """Fold the readings that have arrived; return True if the source has ended."""
        try:
            arrived = source.get(timeout=_POLL_S)
            for _ in range(_BATCH):
                if arrived is None:
                    return True
                arrival, reading = arrived
                if accepts(reading):
                    self.readings += 1
                    self._report(arrival)  # first the slots that were due before this reading
                    self._means.add(arrival, arrival, reading)
                arrived = source.get_nowait()
        except queue.Empty:
            pass
        return False

    def _report(self, now: int) -> None:
        due = self._means.due_ms
        if due is not None and due <= now:
            without_key = self._reporter.tally.uncertified
            reports = self._reporter.draw(self._means.close(now, now), now)
            self._outbox.send(reports)
            if self._reporter.tally.uncertified > without_key:
                log.warning("no certified key of this date to sign with: run `hatcast keys request`")
            log.info("slot reported", reports=len(reports))


_POLL_EVERY: Final = 10_000  # records between two polls of the producer


class RecordedRun:
    """Run of devices over a recording.

    readings   number of their readings so far
    """

    def __init__(self, means: OwnMeans, reporter: Reporter, outbox: Outbox, pace: Pace) -> None:
        self.readings = 0
        self._means = means
        self._reporter = reporter
        self._outbox = outbox
        self._pace = pace

    def run(
        self,
        passage: RecordingPass,
        records: Iterable[tuple[int, Recorded]],
        accepts: Callable[[Reading], bool],
        *,
        heartbeats: bool,
        say: Callable[[int, int], object],
    ) -> bool:
        """Process all records; return False if stopped before their end.

        records     (arrival, record) in order of arrival, of all vehicles: they set the recorded time
        accepts     returns whether a reading is of these devices
        heartbeats  send heartbeat records to the topic: only for a fleet, the only time source of its recording. An
                    untrusted device must not advance the watermarks of others
        """
        seen = 0
        for timestamp, recorded in passage.with_heartbeats(records):
            if not self.take(timestamp, recorded, accepts, heartbeats=heartbeats):
                return False
            seen += recorded is not None
            if not seen % _POLL_EVERY or recorded is None:
                self._outbox.poll()
                say(seen, timestamp)
        return True

    def take(
        self, timestamp: int, recorded: Recorded | None, accepts: Callable[[Reading], bool], *, heartbeats: bool
    ) -> bool:
        """Wait for a record of the pass, report the slots due before it, and fold it; return False if stopped before.

        recorded   None: a heartbeat record
        """
        if not self._advance(timestamp):
            return False
        if recorded is None:
            if heartbeats:
                self._outbox.send_heartbeats(timestamp)
        elif recorded.reading is not None and accepts(recorded.reading):
            self.readings += 1
            self._means.add(now_ms(), timestamp, recorded.reading)
        return True

    def end(self, heartbeat_ms: int | None, note: Callable[[str], object]) -> bool:
        """Wait after the last record until the last slot is reported; return False if stopped before.

        heartbeat_ms  time (ms UTC) of a last heartbeat record, which closes the operator's last slot; None: send none
        note          gets a sentence about what is waited for
        """
        self._pace.disable_pacing()
        while (due := self._means.due_ms) is not None:
            if not self._wait(due, note):
                return False
        if heartbeat_ms is not None:
            if not self._wait(heartbeat_ms, note):
                return False
            self._outbox.send_heartbeats(heartbeat_ms)
        return True

    def _wait(self, until: int, note: Callable[[str], object]) -> bool:
        missing_s = (until - self._pace.ahead_ms - now_ms()) / 1000
        if missing_s > 0:
            note(f"waiting {missing_s:.0f} s until the last slot may be closed (skip this with --no-end)")
        return self._advance(until)

    def _advance(self, timestamp: int) -> bool:
        """Wait for a time (ms UTC); report the slots due until then, each at its own time. Return False if stopped."""
        while (due := self._means.due_ms) is not None and due <= timestamp:
            if not self._pace.wait(due, self._outbox.poll):
                return False
            self._outbox.send(self._reporter.draw(self._means.close(now_ms(), due), due))
        return self._pace.wait(timestamp, self._outbox.poll)
