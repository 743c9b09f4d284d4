"""Run several tasks at once, in processes of their own, which report their steps."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context
from os import sched_getaffinity
from typing import Final, TypeVar

Result = TypeVar("Result")
Report = Callable[[int], None]

_LOOK_S: Final = 0.2  # between two looks at the steps of other processes
_report: Report = lambda _: None  # noqa: E731 - of this process, replaced below


def step() -> None:
    """Report one step of the present task; outside of a task do nothing."""
    _report(1)


def _report_to(report: Report) -> None:
    global _report  # noqa: PLW0603 - a process runs one task at a time, and steps are made deep in it
    _report = report


def in_processes(
    tasks: Sequence[Callable[[], Result]], stepped: Report = lambda _: None
) -> Iterator[tuple[int, Result]]:
    """Yield (position, result) of each task, as they end; tasks begin in order.

    With one processor, or one task, all run in this process. Otherwise tasks, such as a `partial` of a module's own
    function, and results are pickled. Calls `stepped` with the number of further steps. Raises what a task raises.
    """
    number = min(processors(), len(tasks))
    if number < 2:
        _report_to(stepped)
        try:
            yield from ((position, task()) for position, task in enumerate(tasks))
        finally:
            _report_to(lambda _: None)
        return
    context = get_context("spawn")
    steps = context.SimpleQueue()
    with ProcessPoolExecutor(number, context, _report_to, (steps.put,)) as pool:
        positions = {pool.submit(task): position for position, task in enumerate(tasks)}
        waiting = set(positions)
        while waiting:
            done, waiting = wait(waiting, _LOOK_S, FIRST_COMPLETED)
            while not steps.empty():
                stepped(steps.get())
            for future in done:
                yield positions[future], future.result()


def processors() -> int:
    """Return the number of processors that this process may use."""
    with suppress(AttributeError, OSError):  # not on every system
        return len(sched_getaffinity(0))
    return 1
