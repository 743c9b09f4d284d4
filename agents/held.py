"""One partition in a worker's memory."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from stream.partition_fold import PartitionFold


@dataclass(slots=True)
class Held:
    """A partition's memory.

    base       the stored offset that the memory's changes follow
    next       the next record to fold
    heard_s    when its last record came that counts as a sign of life (monotonic seconds)
    missing    records before `next` were deleted unread: the next record tells how long ago
    counted    outcome -> records, of those that are stored
    """

    fold: PartitionFold[bytes]
    base: int
    next: int
    heard_s: float
    missing: bool = False
    counted: Mapping[str, int] = field(default_factory=dict)
    epoch: int | None = None
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
