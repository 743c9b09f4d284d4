"""Pace of a replay: send records at the rate of their own times, and never far ahead of the wall clock."""

import threading
from collections.abc import Callable
from typing import Final

from hatcast.agents.clock import monotonic_s, now_ms

_SLEEP_MIN_S: Final = 0.01  # records due within it are sent together
_SLEEP_MAX_S: Final = 0.5


class Pace:
    """Pace of records: the first is due at once, each later one (its time - the first one's) / speedup after it.

    speedup   60: a recorded hour a minute; 0: unlimited
    ahead_ms  no record is due before its time - ahead_ms by the wall clock
    stop      set when the feed has to stop
    """

    def __init__(self, speedup: float, ahead_ms: int, stop: threading.Event) -> None:
        self._speedup = speedup
        self.ahead_ms = ahead_ms
        self.stop = stop
        self._first_ms: int | None = None
        self._began_s = 0.0
        self._due_ms = -1

    def wait(self, timestamp_ms: int, meanwhile: Callable[[], object]) -> bool:
        """Wait until a record is due, calling `meanwhile` now and then; return False if the feed has to stop first."""
        if self._first_ms is None:
            self._first_ms, self._began_s = timestamp_ms, monotonic_s()
        while not self.stop.is_set():
            if timestamp_ms <= self._due_ms:
                return True
            missing_s = self._update_due(timestamp_ms, self._first_ms)
            if missing_s > 0:
                meanwhile()
                self.stop.wait(min(max(missing_s, _SLEEP_MIN_S), _SLEEP_MAX_S))
        return False

    def _update_due(self, timestamp_ms: int, first_ms: int) -> float:
        """Set the latest time that is due now; return the seconds until the record is due, at least."""
        self._due_ms = wall = now_ms() + self.ahead_ms
        missing_s = (timestamp_ms - wall) / 1000
        if self._speedup > 0:
            paced = first_ms + int((monotonic_s() - self._began_s) * 1000 * self._speedup)
            self._due_ms = min(wall, paced)
            missing_s = max(missing_s, (timestamp_ms - paced) / 1000 / self._speedup)
        return missing_s

    def disable_pacing(self) -> None:
        """Send the rest without pacing, limited only by `ahead_ms`."""
        self._speedup = 0.0
