"""The only module that reads the system clocks; all other code takes the time as an argument or calls this module."""

import asyncio
import time
from contextlib import suppress


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
