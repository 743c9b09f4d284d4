"""When a record may be sent: at the pace of its own time, and never far ahead of the clock on the wall."""

import threading
from collections.abc import Callable
from typing import Final

from hatcast.agents.clock import monotonic_s, now_ms

_SLEEP_MIN_S: Final = 0.01  # records due within it are sent together
_SLEEP_MAX_S: Final = 0.5


class Pace:
    """The first record is due at once, another one (its time - the first one's) / speedup later.

    speedup   60: a recorded hour a minute; 0: as fast as it goes
    ahead_ms  no record is due before its time - ahead_ms on the wall: what arrived later is sent when that is past
    """

    def __init__(self, speedup: float, ahead_ms: int, stop: threading.Event) -> None:
        self._speedup = speedup
        self.ahead_ms = ahead_ms
        self._stop = stop
        self._first_ms: int | None = None
        self._began_s = 0.0
        self._due_ms = -1

    def wait(self, timestamp_ms: int, meanwhile: Callable[[], object]) -> bool:
        """Return True once the record is due, False if the feed is to stop. Calls `meanwhile` while it waits."""
        if self._first_ms is None:
            self._first_ms, self._began_s = timestamp_ms, monotonic_s()
        while not self._stop.is_set():
            if timestamp_ms <= self._due_ms:
                return True
            missing_s = self._look(timestamp_ms, self._first_ms)
            if missing_s > 0:
                meanwhile()
                self._stop.wait(min(max(missing_s, _SLEEP_MIN_S), _SLEEP_MAX_S))
        return False

    def _look(self, timestamp_ms: int, first_ms: int) -> float:
        """Set the time that is due by now; returns how many seconds the record is from it, at least."""
        self._due_ms = wall = now_ms() + self.ahead_ms
        missing_s = (timestamp_ms - wall) / 1000
        if self._speedup > 0:
            paced = first_ms + int((monotonic_s() - self._began_s) * 1000 * self._speedup)
            self._due_ms = min(wall, paced)
            missing_s = max(missing_s, (timestamp_ms - paced) / 1000 / self._speedup)
        return missing_s

    def hurry(self) -> None:
        """What comes now is not paced any more, only kept from running ahead of the wall."""
        self._speedup = 0.0
