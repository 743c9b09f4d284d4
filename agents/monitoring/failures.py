"""Repeated failures of a loop: logged once for each cause, and once when they are over.

A line names the operation, the service and the cause, never the error's own text: see agents/errors/causes.py.
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
_NOTE: Final = "hatcast operation: "

Operation = tuple[str, int | None]
"""What is done, and to which partition, where it is done to each."""


class FailureLog:
    """What fails in one loop of a worker.

    Steps run inside `doing`, so that a failure has their name, and so that its end is logged as what it was: an
    operation that has succeeded since was done again; of any other nothing is left to do here, since it was done
    before its answer was lost, or elsewhere.
    """

    def __init__(self, loop: str) -> None:
        """Args: `loop`, as the log names it."""
        self._loop = loop
        self._since_s = 0.0
        self._tries = 0
        self._logged_causes: set[str] = set()
        self._operations: dict[Operation, bool] = {}  # whether it was done since
        self._skip_clear = False

    @contextmanager
    def attempt(self, operation: str, partition: int | None = None) -> Iterator[None]:
        """Name the operation of the block, a verb and its object, and count it as done at the block's end."""
        with self.name_operation(operation, partition):
            yield
        self.succeeded(operation, partition)

    @contextmanager
    def name_operation(self, operation: str, partition: int | None = None) -> Iterator[None]:
        """Name the operation that fails where the block does; the innermost name counts."""
        try:
            yield
        except Exception as error:
            _name_operation(error, operation, partition)
            raise

    def succeeded(self, operation: str, partition: int | None = None) -> None:
        """This worker has done an operation, which may have failed before."""
        if (operation, partition) in self._operations:
            self._operations[operation, partition] = True

    def failed_partitions(self, operation: str) -> set[int]:
        """Return the partitions for which an operation has failed and was not done since."""
        failed = (key for key, done in self._operations.items() if not done)
        return {partition for name, partition in failed if name == operation and partition is not None}

    def skip_next_clear(self) -> None:
        """The loop could not get to what failed before: the next `over` is left out."""
        self._skip_clear = True

    def failed(self, error: Exception) -> None:
        """Log a failed try, unless its cause was logged since the loop last worked."""
        if not self._tries:
            self._since_s = monotonic_s()
        self._tries += 1
        METERS.count(FAILURES, loop=self._loop)
        operation, partition = _operation_of(error) or (f"run the loop {self._loop}", None)
        _remove_operation(error)
        self._operations[operation, partition] = False
        cause = cause_of(error)
        if cause.text in self._logged_causes:
            return
        self._logged_causes.add(cause.text)
        named = {"loop": self._loop, "operation": operation, "service": cause.service}
        if is_full(error):
            log.error(FULL, **named)
        else:
            log.warning("not done, tried again", **named, cause=cause.text, error=type(error).__name__)

    def clear(self) -> None:
        """Log what became of the failed operations, after a try in which nothing failed."""
        skipped, self._skip_clear = self._skip_clear, False
        if skipped:
            return
        if self._tries:
            after_s = round(monotonic_s() - self._since_s, 1)
            for event, was_done in (("done again", True), ("nothing left to do here", False)):
                for operation, partitions in _grouped(self._operations, was_done=was_done).items():
                    where = {"partitions": partitions} if partitions else {}
                    log.info(event, loop=self._loop, operation=operation, after_s=after_s, tries=self._tries, **where)
        self._tries = 0
        self._logged_causes.clear()
        self._operations.clear()

    @property
    def wait_s(self) -> float:
        """How long to wait before the next try; 0 where the last one succeeded."""
        return back_off_s(self._tries - 1) if self._tries else 0.0


def _name_operation(error: BaseException, operation: str, partition: int | None = None) -> None:
    """Attach the operation that failed to its error; the first name stays."""
    if _operation_of(error) is None:
        error.add_note(f"{_NOTE}{operation}{'' if partition is None else f' #{partition}'}")


def _operation_of(error: BaseException) -> Operation | None:
    for note in getattr(error, "__notes__", ()):
        if note.startswith(_NOTE):
            operation, _, partition = note.removeprefix(_NOTE).partition(" #")
            return operation, int(partition) if partition else None
    return None


def _remove_operation(error: BaseException) -> None:
    """Libraries raise one error in several places: the next operation that it ends is another."""
    notes = getattr(error, "__notes__", [])
    notes[:] = [note for note in notes if not note.startswith(_NOTE)]


def _grouped(failed: dict[Operation, bool], *, was_done: bool) -> dict[str, list[int]]:
    """Operation -> its partitions, of those that were done since or were not."""
    found: dict[str, list[int]] = {}
    for (operation, partition), done in failed.items():
        if done is was_done:
            found.setdefault(operation, [])
            if partition is not None:
                found[operation] = sorted({*found[operation], partition})
    return found


def back_off_s(attempt: int) -> float:
    """Seconds to wait after the try number `attempt` (from 0 on): longer and longer, so that nobody is hammered."""
    return _BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)]
