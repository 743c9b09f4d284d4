"""Devices over a recording, or in a city that does not exist: time passes as it was recorded."""

from collections.abc import Callable, Iterable
from typing import Final

from hatcast.agents.clock import now_ms
from hatcast.agents.device.fold import OwnMeans
from hatcast.agents.device.outbox import Outbox
from hatcast.agents.device.perturbation import Reporter
from hatcast.agents.sources.pacing import Pace
from hatcast.stream.readings.formats import Recorded
from hatcast.stream.readings.reading import Reading
from hatcast.stream.replay.heartbeats import RecordingPass

_LOOK_EVERY: Final = 10_000  # records between two looks at what the broker said


class Past:
    """Takes devices through recorded time.

    readings   of these devices, so far
    """

    def __init__(self, own: OwnMeans, reporter: Reporter, outbox: Outbox, pace: Pace) -> None:
        self.readings = 0
        self._own = own
        self._reporter = reporter
        self._outbox = outbox
        self._pace = pace

    def run(
        self,
        passage: RecordingPass,
        records: Iterable[tuple[int, Recorded]],
        takes: Callable[[Reading], bool],
        *,
        ticks: bool,
        say: Callable[[int, int], object],
    ) -> bool:
        """All records; False if it was stopped before their end.

        records  (arrival, record) in order of arrival: of everybody, since they are what the time base goes by
        takes    whether a reading is of these devices
        ticks    whether to tick the topic: for a fleet, which is the only clock of a recording. A device that nobody
                 trusts must not move the clocks of others
        """
        seen = 0
        for timestamp, recorded in passage.with_heartbeats(records):
            if not self._until(timestamp):
                return False
            if recorded is not None:
                seen += 1
                reading = recorded.reading
                if reading is not None and takes(reading):
                    self.readings += 1
                    self._own.read(now_ms(), timestamp, reading)
            elif ticks:
                self._outbox.tick(timestamp)
            if not seen % _LOOK_EVERY or recorded is None:
                self._outbox.look()
                say(seen, timestamp)
        return True

    def end(self, tick_ms: int | None, note: Callable[[str], object]) -> bool:
        """The silence after the last record, until the last slot is reported; False if it was stopped before.

        tick_ms  when (ms UTC) the operator closes the last slot: a last tick; None: for a device that does not tick
        note     told, in a sentence, what is waited for
        """
        self._pace.disable_pacing()
        while (due := self._own.due_ms) is not None:
            if not self._wait(due, note):
                return False
        if tick_ms is not None:
            if not self._wait(tick_ms, note):
                return False
            self._outbox.tick(tick_ms)
        return True

    def _wait(self, until: int, note: Callable[[str], object]) -> bool:
        missing_s = (until - self._pace.ahead_ms - now_ms()) / 1000
        if missing_s > 0:
            note(f"waiting {missing_s:.0f} s until the last slot may be closed (--no-end leaves that out)")
        return self._until(until)

    def _until(self, timestamp: int) -> bool:
        """Report the slots that are due up to a time, each at its own, and wait for that time."""
        while (due := self._own.due_ms) is not None and due <= timestamp:
            if not self._pace.wait(due, self._outbox.look):
                return False
            self._outbox.send(self._reporter.draw(self._own.close(now_ms(), due), due))
        return self._pace.wait(timestamp, self._outbox.look)
