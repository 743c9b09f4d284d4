"""`hatcast` whose fetches take a second longer, so that every rebalance comes in the middle of one.

python -m tests.integration.slow_worker worker --config FILE
"""

import asyncio
from typing import Final

from agents.cli import main
from agents.frames import Frame
from agents.frames.thread import FrameThread

SECONDS: Final = 1.0

_take = FrameThread.take


async def _late(self: FrameThread, room: int) -> list[Frame]:
    await asyncio.sleep(SECONDS)
    return await _take(self, room)


if __name__ == "__main__":
    FrameThread.take = _late  # type: ignore[method-assign]  # the product has no switch for it
    main()
