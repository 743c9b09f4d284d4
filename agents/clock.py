"""The only module that reads a clock: everything else is handed the time, or asks here."""

import asyncio
import time
from contextlib import suppress


def now_ms() -> int:
    """Milliseconds UTC since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_s() -> float:
    """Seconds of a clock that never goes back, for intervals."""
    return time.monotonic()


async def pause(seconds: float, stopping: asyncio.Event) -> bool:
    """Wait for so long, or until `stopping` is set; True if it is not: the loop goes on."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
    return not stopping.is_set()
