"""Logs after a test are as before it: a command in the test's own process writes its logs to the stream that it had.

That stream is closed when the test is over, and a later test would wait for its own line in vain.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from hatcast.agents.errors.unexpected import ErrorTextFilter


@contextmanager
def logs_as_before() -> Iterator[None]:
    """Take back at the end what `configure_logs` has set meanwhile."""
    root, kafka = logging.getLogger(), logging.getLogger("kafka")
    level, propagates = root.level, kafka.propagate
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        # pytest's own handlers come and go with the phases of a test
        root.handlers[:] = [
            handler
            for handler in root.handlers
            if not any(isinstance(each, ErrorTextFilter) for each in handler.filters)
        ]
        root.setLevel(level)
        kafka.propagate = propagates


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    with logs_as_before():
        yield
