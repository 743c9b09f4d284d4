"""How far a feed may run ahead of the workers, where the broker forgets what it cannot keep.    [design 5]

librdkafka's mock cluster keeps 5 MiB of a partition and drops what is older, read or not.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from hatcast.agents.redis.keys import PartitionKeys

LIMIT_BYTES: Final = 2 << 20
RECORD_BYTES: Final = 80  # of a record beside its key and value, at most
_LOOK_S: Final = 0.05

Offsets = Callable[[], Sequence[int | None]]
"""Every partition's stored offset, the next record that its worker reads; None before the first checkpoint."""


def stored_offsets(redis: Any, name: str, partitions: int) -> Offsets:
    """Reads stored offsets of a policy (`redis`: a client of redis-py, not asyncio's; its errors pass through)."""
    keys = [PartitionKeys(name, partition).state for partition in range(partitions)]

    def read() -> list[int | None]:
        with redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hget(key, "offset")
            return [None if offset is None else int(offset) for offset in pipe.execute()]

    return read


class FlowControl:
    """Bounds the bytes of each partition that were sent and not folded yet.

    Counts offsets from `starts`, so it holds only if nobody else sends to the topic, and before compression.
    """

    def __init__(self, offsets: Offsets, starts: Sequence[int], limit_bytes: int = LIMIT_BYTES) -> None:
        """Args:
        offsets:  asked only when there seems to be no room
        starts:   the offset that each partition's first record will get
        """
        self._offsets = offsets
        self._limit = limit_bytes
        self._folded = list(starts)  # the offset of the first record still counted
        self._sizes: list[deque[int]] = [deque() for _ in starts]
        self._ahead = [0 for _ in starts]

    def wait(self, partition: int, size: int, stop: threading.Event) -> bool:
        """Count a record of `size` bytes in; returns True once it has room, False if the feed is to stop first.

        A record larger than the limit has room when nothing else is ahead.
        """
        size += RECORD_BYTES
        while self._ahead[partition] and self._ahead[partition] + size > self._limit:
            self._look()
            if self._ahead[partition] and self._ahead[partition] + size > self._limit and stop.wait(_LOOK_S):
                return False
        self._sizes[partition].append(size)
        self._ahead[partition] += size
        return True

    def _look(self) -> None:
        """Forget what was folded since."""
        for partition, offset in enumerate(self._offsets()):
            sizes = self._sizes[partition]
            while sizes and offset is not None and self._folded[partition] < offset:
                self._ahead[partition] -= sizes.popleft()
                self._folded[partition] += 1
