"""Live device: slots close by wall-clock time."""

import queue
import threading
from collections.abc import Callable
from typing import Final

import structlog

from hatcast.agents.clock import now_ms
from hatcast.agents.device.clusterings import Clusterings
from hatcast.agents.device.fold import OwnMeans
from hatcast.agents.device.outbox import Outbox
from hatcast.agents.device.perturbation import Reporter
from hatcast.stream.readings.reading import Reading

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
        clusterings: Clusterings | None = None,
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
