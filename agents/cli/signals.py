"""Signal handling of long-running commands."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets, for a clean stop; a second signal raises KeyboardInterrupt."""
    stop = threading.Event()

    def handle(_: int, __: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
