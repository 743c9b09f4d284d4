"""Runs of devices: slots close by wall-clock time, or by recorded time."""

import queue
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from hatcast.agents.clock import now_ms
from hatcast.agents.device.clusterings import DeviceClusterings
from hatcast.agents.device.fold import OwnMeans
from hatcast.agents.device.outbox import Outbox
from hatcast.agents.device.perturbation import Reporter
from hatcast.agents.sources.pacing import Pace
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.replay.heartbeats import RecordingPass

log = structlog.get_logger()

_POLL_S: Final = 0.5
_BATCH: Final = 1_000  # readings between two checks of the clock

Arrived = tuple[int, Reading] | None  # (arrival in ms UTC, reading); None: the source has ended
ReadingFilter = Callable[[Reading], bool]  # returns whether a reading is of these devices


@dataclass(slots=True)
class LiveRun:
    """Run of a live device."""

    means: OwnMeans
    reporter: Reporter
    outbox: Outbox
    clock: Callable[[], int] = now_ms  # ms UTC
    clusterings: DeviceClusterings | None = None  # that it answers meanwhile
    readings: int = 0  # number of its readings so far

    def run(
        self,
        source: "queue.Queue[Arrived]",
        accepts: ReadingFilter,
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
            self._report(self.clock())
            self.outbox.poll()
            if self.clusterings is not None:
                self.clusterings.poll(ended=False)
            if ended and (not with_end or self.means.due_ms is None):
                return True
        return False

    def _read(self, source: "queue.Queue[Arrived]", accepts: ReadingFilter) -> bool:
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
                    self.means.add(arrival, arrival, reading)
                arrived = source.get_nowait()
        except queue.Empty:
            pass
        return False

    def _report(self, now: int) -> None:
        due = self.means.due_ms
        if due is not None and due <= now:
            without_key = self.reporter.tally.uncertified
            reports = self.reporter.draw(self.means.close(now, now), now)
            self.outbox.send(reports)
            if self.reporter.tally.uncertified > without_key:
                log.warning("no certified key of this date to sign with: run `hatcast keys request`")
            log.info("slot reported", reports=len(reports))


_POLL_EVERY: Final = 10_000  # records between two polls of the producer


@dataclass(slots=True)
class RecordedRun:
    """Run of devices over a recording."""

    means: OwnMeans
    reporter: Reporter
    outbox: Outbox
    pace: Pace
    readings: int = 0  # number of their readings so far

    def run(
        self,
        passage: RecordingPass,
        records: Iterable[tuple[int, Recorded]],
        accepts: ReadingFilter,
        *,
        heartbeats: bool,
        say: Callable[[int, int], object],
    ) -> bool:
        """Process all records; return False if stopped before their end.

        records     (arrival, record) in order of arrival, of all vehicles: they set the recorded time
        heartbeats  send heartbeat records to the topic: only for a fleet, the only time source of its recording. An
                    untrusted device must not advance the watermarks of others
        """
        seen = 0
        for timestamp, recorded in passage.with_heartbeats(records):
            if not self.take(timestamp, recorded, accepts, heartbeats=heartbeats):
                return False
            seen += recorded is not None
            if not seen % _POLL_EVERY or recorded is None:
                self.outbox.poll()
                say(seen, timestamp)
        return True

    def take(self, timestamp: int, recorded: Recorded | None, accepts: ReadingFilter, *, heartbeats: bool) -> bool:
        """Wait for a record of the pass, report the slots due before it, and fold it; return False if stopped before.

        recorded   None: a heartbeat record
        """
        if not self._advance(timestamp):
            return False
        if recorded is None:
            if heartbeats:
                self.outbox.send_heartbeats(timestamp)
        elif recorded.reading is not None and accepts(recorded.reading):
            self.readings += 1
            self.means.add(now_ms(), timestamp, recorded.reading)
        return True

    def end(self, heartbeat_ms: int | None, note: Callable[[str], object]) -> bool:
        """Wait after the last record until the last slot is reported; return False if stopped before.

        heartbeat_ms  time (ms UTC) of a last heartbeat record, which closes the operator's last slot; None: send none
        note          gets a sentence about what is waited for
        """
        self.pace.disable_pacing()
        while (due := self.means.due_ms) is not None:
            if not self._wait(due, note):
                return False
        if heartbeat_ms is not None:
            if not self._wait(heartbeat_ms, note):
                return False
            self.outbox.send_heartbeats(heartbeat_ms)
        return True

    def _wait(self, until: int, note: Callable[[str], object]) -> bool:
        missing_s = (until - self.pace.ahead_ms - now_ms()) / 1000
        if missing_s > 0:
            note(f"waiting {missing_s:.0f} s until the last slot may be closed (skip this with --no-end)")
        return self._advance(until)

    def _advance(self, timestamp: int) -> bool:
        """Wait for a time (ms UTC); report the slots due until then, each at its own time. Return False if stopped."""
        while (due := self.means.due_ms) is not None and due <= timestamp:
            if not self.pace.wait(due, self.outbox.poll):
                return False
            self.outbox.send(self.reporter.draw(self.means.close(now_ms(), due), due))
        return self.pace.wait(timestamp, self.outbox.poll)
