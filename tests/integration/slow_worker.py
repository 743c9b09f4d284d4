"""A worker whose fetches take a second longer, so that every rebalance comes in the middle of one.

pipeline.worker(wrap=slow_down)
"""

import asyncio
from typing import Final

from hatcast.agents.kafka.batches import Frame
from hatcast.agents.kafka.batches.thread import FrameThread

SECONDS: Final = 1.0

_take = FrameThread.take


async def _late(self: FrameThread, room: int) -> list[Frame]:
    await asyncio.sleep(SECONDS)
    return await _take(self, room)


def slow_down() -> None:
    """Wrap the fetches of this process."""
    FrameThread.take = _late  # type: ignore[method-assign]  # the product has no switch for it
