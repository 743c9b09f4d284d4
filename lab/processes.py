"""Run a function on several inputs at once, in processes of their own."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing import get_context
from os import sched_getaffinity
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def in_processes(function: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
    """Yield (position, result) of each task, as they end; tasks begin in order.

    With one processor, or one task, all run in this process. Otherwise `function` must be a module's own, and tasks and
    results are pickled. Raises what `function` raises.
    """
    number = min(processors(), len(tasks))
    if number < 2:
        yield from ((position, function(task)) for position, task in enumerate(tasks))
        return
    with ProcessPoolExecutor(number, mp_context=get_context("spawn")) as pool:
        positions = {pool.submit(function, task): position for position, task in enumerate(tasks)}
        for future in as_completed(positions):
            yield positions[future], future.result()


def processors() -> int:
    """Return the number of processors that this process may use."""
    with suppress(AttributeError, OSError):  # not on every system
        return len(sched_getaffinity(0))
    return 1
