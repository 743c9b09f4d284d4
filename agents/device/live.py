"""A live device: its clock is the one on the wall."""

import queue
import threading
from collections.abc import Callable
from typing import Final

import structlog

from hatcast.agents.clock import now_ms
from hatcast.agents.device.fold import OwnMeans
from hatcast.agents.device.outbox import Outbox
from hatcast.agents.device.perturbation import Reporter
from hatcast.stream.readings.reading import Reading

log = structlog.get_logger()

_LOOK_S: Final = 0.5
_BATCH: Final = 1_000  # readings between two looks at the clock

Arrived = tuple[int, Reading] | None
"""(ms UTC, reading); None: the source has ended."""


class Present:
    """Takes a device through the present.

    readings   so far
    """

    def __init__(self, own: OwnMeans, reporter: Reporter, outbox: Outbox, clock: Callable[[], int] = now_ms) -> None:
        """Args: `clock`, ms UTC."""
        self.readings = 0
        self._own = own
        self._reporter = reporter
        self._outbox = outbox
        self._clock = clock

    def run(
        self,
        source: "queue.Queue[Arrived]",
        takes: Callable[[Reading], bool],
        stop: threading.Event,
        *,
        with_end: bool,
    ) -> bool:
        """Until the source has ended and its last slot is reported; False if it was stopped before.

        with_end   wait for the last slot
        """
        ended = False
        while not stop.is_set():
            if not ended:
                ended = self._read(source, takes)
            else:
                stop.wait(_LOOK_S)
            self._report(self._clock())
            self._outbox.look()
            if ended and (not with_end or self._own.due_ms is None):
                return True
        return False

    def _read(self, source: "queue.Queue[Arrived]", takes: Callable[[Reading], bool]) -> bool:
        """What has come since; True if nothing more will."""
        try:
            arrived = source.get(timeout=_LOOK_S)
            for _ in range(_BATCH):
                if arrived is None:
                    return True
                arrival, reading = arrived
                if takes(reading):
                    self.readings += 1
                    self._report(arrival)  # a slot that was due before it
                    self._own.read(arrival, arrival, reading)
                arrived = source.get_nowait()
        except queue.Empty:
            pass
        return False

    def _report(self, now: int) -> None:
        due = self._own.due_ms
        if due is not None and due <= now:
            reports = self._reporter.draw(self._own.close(now, now), now)
            self._outbox.send(reports)
            log.info("a slot is over", reports=len(reports))
