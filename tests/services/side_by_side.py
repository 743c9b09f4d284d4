"""Several processes of tests on few cores, a file at a time: while some wait, others compute.    [scripts/test]

Each process has a Kafka and a Redis of its own, which it starts with the first test that asks for one, so a test that
breaks them meets only the tests of its own process, before it or after it.    [docs/decisions/0009]
"""

import os
from collections.abc import Collection
from functools import cache
from pathlib import PurePosixPath
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# They wait for servers more than they compute. The longest first: a long file that comes last would run alone.
# A file that is not named here is run all the same, later.
WAITING: Final = (
    "tests/leaks/test_whole_system.py",
    "tests/invariants",
    "tests/faults",
    "tests/integration",
    "tests/laws/test_ledgers.py",
    "tests/laws/test_query_ledgers.py",
    "tests/laws/test_stores.py",
    "tests/laws/test_successions.py",
)
# Processes that compute, once no file is left that waits: with more of them each test takes longer, the run no less.
AT_ONCE: Final = (os.cpu_count() or 1) + 1


class SideBySide(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist ships no types
    """One process begins with what computes, all others with what waits; each ends with what the others left."""

    def _split_scope(self, nodeid: str) -> str:
        """The tests that go to one process, one after another: those of a file."""
        return nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        computes = node is self.nodes[0] and len(self.nodes) > 1
        self.workqueue.move_to_end(next_file(list(self.workqueue), computes=computes), last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """Give a process that is nearly done its next file, or end it."""
        if self._pending_of(self.assigned_work[node]) <= 2:  # asked first: this is called after each test
            others = sum(self._computes(each) for each in self.nodes if each is not node)
            if is_superfluous(self.workqueue, others):
                node.shutdown()  # behind its last tests
        super()._reschedule(node)

    def _computes(self, node: WorkerController) -> bool:
        """Whether a process has tests left that compute."""
        return any(not waits(file) and self._pending_of({file: of}) for file, of in self.assigned_work[node].items())


def next_file(left: list[str], *, computes: bool) -> str:
    """The file that a process takes next, of those that are left in the order of their names."""
    if computes:
        return next((file for file in left if not waits(file)), left[0])
    return min(left, key=_turn)


def is_superfluous(left: Collection[str], others: int) -> bool:
    """Whether a process would only compute what is left, beside enough others that do."""
    return bool(left) and not any(map(waits, left)) and others >= AT_ONCE


def waits(file: str) -> bool:
    """Whether a file's tests wait for servers more than they compute."""
    return _turn(file) < len(WAITING)


@cache  # asked of every file that is left, after each test
def _turn(file: str) -> int:
    """The place of a file among those that wait; files that compute come after all of them."""
    places = (turn for turn, place in enumerate(WAITING) if PurePosixPath(file).is_relative_to(place))
    return next(places, len(WAITING))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SideBySide:
    """Take the place of xdist's own; its groups by mark do not work under pytest 9.2."""
    config.option.loadscopereorder = False  # in the order of their names
    return SideBySide(config, log)
