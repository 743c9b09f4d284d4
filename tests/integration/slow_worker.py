"""A worker whose fetches take a second longer, so that every rebalance comes in the middle of one.

pipeline.worker(wrap=slow_down)
"""

import asyncio
from typing import Final

from hatcast.agents.kafka.batches.batch import RecordBatch
from hatcast.agents.kafka.batches.thread import ConsumerThread

SECONDS: Final = 1.0

_take = ConsumerThread.take


async def _late(self: ConsumerThread, capacity: int) -> list[RecordBatch]:
    await asyncio.sleep(SECONDS)
    return await _take(self, capacity)


def slow_down() -> None:
    """Wrap the fetches of this process."""
    ConsumerThread.take = _late  # type: ignore[method-assign]  # the product has no switch for it
