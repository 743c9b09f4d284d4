"""Two processes of tests: one has the run's Kafka and Redis, the other what needs neither.    [scripts/test]"""

from pathlib import PurePosixPath
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_WITH_SERVICES: Final = (
    "tests/faults",
    "tests/integration",
    "tests/invariants",
    "tests/laws/test_ledgers.py",
    "tests/laws/test_query_ledgers.py",
    "tests/laws/test_stores.py",
    "tests/laws/test_successions.py",
)
_EMBEDDED: Final = "tests/integration/test_demo.py"  # brings services of its own


class SideBySide(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist ships no types
    """Tests that share the services stay together and in order, since some of them break what the others use."""

    def _split_scope(self, nodeid: str) -> str:
        """The tests that go to one process, one after another: those with services, else those of one file."""
        file = nodeid.partition("::")[0]
        shared = any(PurePosixPath(file).is_relative_to(place) for place in _WITH_SERVICES)
        return "services" if shared and file != _EMBEDDED else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SideBySide:
    """Take the place of xdist's own; its groups by mark do not work under pytest 9.2."""
    return SideBySide(config, log)
