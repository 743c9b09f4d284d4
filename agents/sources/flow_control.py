"""Flow control: limit how far a feed runs ahead of the workers.

librdkafka's mock cluster keeps 5 MiB of a partition and drops older records, consumed or not.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from hatcast.agents.redis.keys import PartitionKeys

LIMIT_BYTES: Final = 2 << 20
RECORD_BYTES: Final = 80  # overhead of a record beside its key and value, at most
_POLL_INTERVAL_S: Final = 0.05

Offsets = Callable[[], Sequence[int | None]]
"""Return each partition's stored offset, the next record that its worker reads; None before the first checkpoint."""


def stored_offsets(redis: Any, name: str, partitions: int) -> Offsets:
    """Return a reader of a policy's stored offsets. `redis`: a synchronous redis-py client; its errors pass through."""
    keys = [PartitionKeys(name, partition).state for partition in range(partitions)]

    def read() -> list[int | None]:
        with redis.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hget(key, "offset")
            return [None if offset is None else int(offset) for offset in pipe.execute()]

    return read


class FlowControl:
    """Bound the uncompressed bytes of each partition that were sent and not folded yet.

    It counts offsets from `starts`, so it must be the topic's only producer.
    """

    def __init__(self, offsets: Offsets, starts: Sequence[int], limit_bytes: int = LIMIT_BYTES) -> None:
        """Args:
        offsets:  called only when the limit seems to be reached
        starts:   offset that each partition's first record will get
        """
        self._offsets = offsets
        self._limit = limit_bytes
        self._next_offsets = list(starts)  # the offset of the first record still counted
        self._sizes: list[deque[int]] = [deque() for _ in starts]
        self._bytes_ahead = [0 for _ in starts]

    def wait(self, partition: int, size: int, stop: threading.Event) -> bool:
        """Wait until a record of `size` bytes fits, and count it; return False if the feed has to stop first.

        A record larger than the limit fits when nothing else is ahead.
        """
        size += RECORD_BYTES
        while not self._fits(partition, size):
            self._subtract_folded()
            if not self._fits(partition, size) and stop.wait(_POLL_INTERVAL_S):
                return False
        self._sizes[partition].append(size)
        self._bytes_ahead[partition] += size
        return True

    def _fits(self, partition: int, size: int) -> bool:
        ahead = self._bytes_ahead[partition]
        return not ahead or ahead + size <= self._limit

    def _subtract_folded(self) -> None:
        """Subtract the records that were folded since the last call."""
        for partition, offset in enumerate(self._offsets()):
            sizes = self._sizes[partition]
            while sizes and offset is not None and self._next_offsets[partition] < offset:
                self._bytes_ahead[partition] -= sizes.popleft()
                self._next_offsets[partition] += 1
