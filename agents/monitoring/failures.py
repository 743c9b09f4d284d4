"""Log repeated failures of a loop: each cause at once and then once a minute, and once when they clear.

A log line names the operation, the service and the cause, never the error's own text: see agents/errors/causes.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from hatcast.agents.clock import monotonic_s
from hatcast.agents.errors.causes import FULL, cause_of, is_full
from hatcast.agents.monitoring.declarations import FAILURES
from hatcast.agents.monitoring.meters import METERS

log = structlog.get_logger()

_BACK_OFF_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_REPEAT_S: Final = 60.0
_NOTE: Final = "hatcast operation: "

Operation = tuple[str, int | None]
"""Name of an operation, and the partition that it is for; None if it is not for one partition."""


class FailureLog:
    """Failure log of one loop.

    Each operation of the loop runs inside `attempt`, which names its failure and records its success. `clear` logs for
    each failed operation that its retry succeeded, or that a retry was not needed: the operation had succeeded although
    its answer was lost, or another worker has done it.
    """

    def __init__(self, loop: str) -> None:
        """Args: `loop`, its name in the log and in the metric's label."""
        self._loop = loop
        self._since_s = 0.0
        self._tries = 0
        self._logged_s: dict[str, float] = {}  # cause -> when it was logged
        self._operations: dict[Operation, bool] = {}  # those that failed -> whether they have succeeded since
        self._skip_clear = False

    @contextmanager
    def attempt(self, operation: str, partition: int | None = None) -> Iterator[None]:
        """Run the block as an operation, named by a verb and its object; at the block's end it has succeeded."""
        with self.name_operation(operation, partition):
            yield
        self.succeeded(operation, partition)

    @contextmanager
    def name_operation(self, operation: str, partition: int | None = None) -> Iterator[None]:
        """Attach the operation's name to an exception of the block; the innermost name counts."""
        try:
            yield
        except Exception as error:
            if _operation_of(error) is None:
                error.add_note(f"{_NOTE}{operation}{'' if partition is None else f' #{partition}'}")
            raise

    def succeeded(self, operation: str, partition: int | None = None) -> None:
        """Record that this worker has done an operation, which may have failed before."""
        if (operation, partition) in self._operations:
            self._operations[operation, partition] = True

    def failed_partitions(self, operation: str) -> set[int]:
        """Return the partitions for which an operation has failed and not succeeded since."""
        failed = (key for key, succeeded in self._operations.items() if not succeeded)
        return {partition for name, partition in failed if name == operation and partition is not None}

    def skip_next_clear(self) -> None:
        """Ignore the next `clear`: this round of the loop could not retry the failed operations."""
        self._skip_clear = True

    def failed(self, error: Exception) -> None:
        """Log a failed attempt, unless its cause was logged within the last minute and since the last `clear`."""
        now_s = monotonic_s()
        if not self._tries:
            self._since_s = now_s
        self._tries += 1
        METERS.count(FAILURES, loop=self._loop)
        operation, partition = _operation_of(error) or (f"run the loop {self._loop}", None)
        # Libraries raise one error object several times, then for other operations.
        notes = getattr(error, "__notes__", [])
        notes[:] = [note for note in notes if not note.startswith(_NOTE)]
        self._operations[operation, partition] = False
        cause = cause_of(error)
        fields: dict[str, str | int | float] = {"loop": self._loop, "operation": operation, "service": cause.service}
        if cause.text in self._logged_s:
            if now_s - self._logged_s[cause.text] < _REPEAT_S:
                return
            fields |= {"since_s": round(now_s - self._since_s, 1), "tries": self._tries}
        self._logged_s[cause.text] = now_s
        if is_full(error):
            log.error(FULL, **fields)
        else:
            log.warning("operation failed, retrying", **fields, cause=cause.text, error=type(error).__name__)

    def clear(self) -> None:
        """Log the result of each failed operation and forget them: in this round nothing failed."""
        skip, self._skip_clear = self._skip_clear, False
        if skip:
            return
        if self._tries:
            after_s = round(monotonic_s() - self._since_s, 1)
            for event, succeeded in (("retry succeeded", True), ("retry not needed", False)):
                found = [key for key, has_succeeded in self._operations.items() if has_succeeded is succeeded]
                for operation in dict.fromkeys(name for name, _ in found):
                    partitions = sorted({part for name, part in found if name == operation and part is not None})
                    where = {"partitions": partitions} if partitions else {}
                    log.info(event, loop=self._loop, operation=operation, after_s=after_s, tries=self._tries, **where)
        self._tries = 0
        self._logged_s.clear()
        self._operations.clear()

    @property
    def wait_s(self) -> float:
        """Seconds to wait before the next attempt; 0 if the last one succeeded."""
        return back_off_s(self._tries - 1) if self._tries else 0.0


def _operation_of(error: BaseException) -> Operation | None:
    for note in getattr(error, "__notes__", ()):
        if note.startswith(_NOTE):
            operation, _, partition = note.removeprefix(_NOTE).partition(" #")
            return operation, int(partition) if partition else None
    return None


def back_off_s(attempt: int) -> float:
    """Return the seconds to wait after failed attempt number `attempt`, from 0: the backoff grows up to 5 s."""
    return _BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)]
