"""SIGTERM and Ctrl-C of a worker process, and the deadline of its stop.

A worker may be killed at any time, so no step of a stop is needed for what is published: each saves others' time. A
start has none, and ends at once. The steps after it, in seconds at most:

    loops finish 10, or are cancelled 5         (agents/worker/worker.py)
    last checkpoints, of all folds at once 30   `REVOKE_SECONDS`: Redis is away
    leave the group 5, end the thread 5, leave through another connection 3, send dead letters 5    Kafka is away
    close the transactional producers 7, and the other one 7                                        likewise

So 45 without Redis, 47 without Kafka. What lasts longer, without both or in a library's thread, ends at `STOP_SECONDS`.
"""

import asyncio
import os
import signal
import threading
from typing import Final

import structlog

log = structlog.get_logger()

STOP_SECONDS: Final = 50.0  # below the 60 s after which Kubernetes and Compose kill it
UNDRAINED: Final = "stopped before all was drained: run `hatcast worker --drain` again"
_STARTING: Final = "stopped before it joined its group: nothing was folded or released"
_LATE: Final = "did not stop in order, and ends: nothing is lost, others may wait for the end of its session"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def end_at_signals(*, is_drain: bool) -> None:
    """End the process at once at SIGTERM or Ctrl-C, until `stop_at_signals`, with exit code 0, of a drain with 1.

    Without a handler the first process of a container ignores SIGTERM. No exception, which would wait for threads:
    librdkafka's calls last up to 30 seconds while Kafka is away.
    """
    undrained = [UNDRAINED] if is_drain else []
    for number in _SIGNALS:
        signal.signal(number, lambda *_: _end(int(is_drain), _STARTING, *undrained))


def stop_at_signals(stopping: asyncio.Event, *, is_drain: bool) -> None:
    """Set `stopping` at SIGTERM or Ctrl-C, and end the process `STOP_SECONDS` later if it has not ended by itself."""
    undrained = [UNDRAINED] if is_drain else []

    def stop() -> None:
        if not stopping.is_set():
            log.info("stopping: finishes its releases, writes checkpoints, leaves its group", at_most_s=STOP_SECONDS)
            timer = threading.Timer(STOP_SECONDS, _end, (int(is_drain), _LATE, *undrained))
            timer.daemon = True
            timer.start()
        stopping.set()

    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, stop)


def _end(code: int, *lines: str) -> None:
    """Say why, and end. In a thread, since the one that was interrupted may hold the lock of the log."""
    said = threading.Thread(target=lambda: [log.warning(line) for line in lines], daemon=True)
    said.start()
    said.join(1.0)
    os._exit(code)
