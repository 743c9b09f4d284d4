"""The only module that reads the system clocks; all other code takes the time as an argument or calls this module."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

_CANCEL_TRIES: Final = 5


def now_ms() -> int:
    """Return the time in milliseconds UTC since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Return the seconds of a clock that never goes back, for intervals."""
    return time.monotonic()


async def pause(seconds: float, stopping: asyncio.Event) -> bool:
    """Wait for `seconds`, or until `stopping` is set; return True if it is not set, so the caller's loop continues."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
    return not stopping.is_set()


async def cancel_all(tasks: Iterable["asyncio.Future[Any]"]) -> None:
    """Cancel tasks and wait for their ends, whatever these are; at most five seconds.

    Once is not enough: redis-py, and `asyncio.wait_for` before Python 3.12, which aiomqtt and aio_pika use, swallow a
    cancellation that coincides with an answer.
    """
    waiting = set(tasks)
    for _ in range(_CANCEL_TRIES):
        if not waiting:
            return
        for task in waiting:
            task.cancel()
        ended, waiting = await asyncio.wait(waiting, timeout=1.0)
        await asyncio.gather(*ended, return_exceptions=True)
