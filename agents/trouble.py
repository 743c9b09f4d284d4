"""What fails again and again is told once, and once when it is over: every loop would say it at each try.

Of an error only its kind is told. Its text may hold the command that failed, and with it a record or a contribution.
"""

from typing import Final

import structlog
from redis.exceptions import OutOfMemoryError, ResponseError

from agents.clock import monotonic_s
from agents.metrics.declared import TROUBLES
from agents.metrics.meters import METERS

log = structlog.get_logger()

FULL: Final = "Redis is full: raise its `maxmemory`; until there is room nothing goes on, and nothing is lost"
_BACK_OFF_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def is_full(error: BaseException) -> bool:
    """Whether Redis has refused a write for want of memory. Before 7.0 it hides that in the error of a script."""
    return isinstance(error, OutOfMemoryError) or (
        isinstance(error, ResponseError) and "OOM command not allowed" in str(error)
    )


class ClearError(Exception):
    """An error whose text is one clear line of ours, which names no reading and says what to do."""


class Trouble:
    """The trouble that one loop of a worker is in."""

    def __init__(self, loop: str) -> None:
        """Args: `loop`, as the log names it."""
        self._loop = loop
        self._since_s = 0.0
        self._tries = 0
        self._told: set[str] = set()

    def met(self, error: Exception) -> None:
        """A try has failed: tell it, if it is another failure than before."""
        if not self._tries:
            self._since_s = monotonic_s()
        self._tries += 1
        METERS.count(TROUBLES, loop=self._loop)
        reason = FULL if is_full(error) else str(error) if isinstance(error, ClearError) else type(error).__name__
        if reason in self._told:
            return
        self._told.add(reason)
        if reason is FULL:
            log.error(FULL, loop=self._loop)
        elif isinstance(error, ClearError):
            log.error(str(error), loop=self._loop)
        else:
            log.warning("not done, tried again", loop=self._loop, error=reason)

    def over(self) -> None:
        """A try has succeeded."""
        if self._tries:
            log.info("done again", loop=self._loop, after_s=round(monotonic_s() - self._since_s, 1), tries=self._tries)
        self._tries = 0
        self._told.clear()

    @property
    def wait_s(self) -> float:
        """How long to wait before the next try; 0 where the last one succeeded."""
        return back_off_s(self._tries - 1) if self._tries else 0.0


def back_off_s(attempt: int) -> float:
    """Seconds to wait after the try number `attempt` (from 0 on): longer and longer, so that nobody is hammered."""
    return _BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)]
