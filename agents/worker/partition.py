"""What a worker remembers of a partition that it owns."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from hatcast.agents.kafka.batches import RecordBatch
from hatcast.agents.worker.early_records import Ahead
from hatcast.stream.fold.partition_fold import PartitionFold


@dataclass(slots=True)
class Held:
    """A partition's memory.

    base       the stored offset that the memory's changes follow
    next       the next record to fold
    heard_s    when its last record came that counts as a sign of life (monotonic seconds)
    missing    records before `next` were deleted unread: the next record tells how long ago
    counted    outcome -> records, of those that are stored
    ahead      the record at `next` is dated too far ahead: nothing is folded until the clock allows it
    """

    fold: PartitionFold[bytes]
    base: int
    next: int
    heard_s: float
    missing: bool = False
    counted: Mapping[str, int] = field(default_factory=dict)
    epoch: int | None = None
    ahead: Ahead | None = None
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def split(self, batch: RecordBatch, now_ms: int) -> tuple[RecordBatch, Ahead | None]:
        """The part of a batch that a clock of `now_ms` allows, and the record behind it that it does not allow yet."""
        allowed = self.fold.count_within_max_ahead(now_ms, batch.timestamps)
        if allowed == len(batch.timestamps):
            return batch, None
        ahead = Ahead(batch.offsets[allowed], batch.timestamps[allowed], self.fold.policy.max_ahead_ms)
        return batch.first(allowed), ahead
