"""In-memory state of a partition that this worker owns."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from hatcast.agents.kafka.batches.batch import RecordBatch
from hatcast.agents.monitoring.kinds import Counter
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.worker.early_record import EarlyRecord
from hatcast.stream.fold.partition_fold import PartitionFold


@dataclass(slots=True)
class OwnedPartition:
    """In-memory state of one partition.

    base             the stored offset on which the changes in memory are based
    next             the next record to fold
    last_arrival_s   when the last record that counts as an arrival was folded (monotonic seconds)
    missing          records before `next` were deleted or compacted unread; the next record bounds their arrival times
    outcomes         outcome -> records, of those that are stored
    epoch            of the last batch; None before the first
    early            the record at `next` if it is dated too far ahead: nothing is folded until the clock allows it
    storing          held during a checkpoint
    """

    fold: PartitionFold[bytes]
    base: int
    next: int
    last_arrival_s: float
    missing: bool = False
    outcomes: Mapping[str, int] = field(default_factory=dict)
    epoch: int | None = None
    early: EarlyRecord | None = None
    storing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def note_missing(self, batch: RecordBatch) -> None:
        """Note until when missing records may have arrived, if some are, and the batch has the record after them."""
        self.missing = self.missing or batch.lost
        if self.missing and batch.timestamps:
            # They may have had readings of any time up to here.
            from_ms = batch.timestamps[0] + self.fold.policy.max_ahead_ms
            self.fold.complete_from = max(self.fold.complete_from or 0, from_ms)
            self.missing = False

    def split(self, batch: RecordBatch, now_ms: int) -> tuple[RecordBatch, EarlyRecord | None]:
        """Return the part of a batch that a clock of `now_ms` allows, and the first record that it does not allow."""
        allowed = self.fold.count_within_max_ahead(now_ms, batch.timestamps)
        if allowed == len(batch.timestamps):
            return batch, None
        early = EarlyRecord(batch.offsets[allowed], batch.timestamps[allowed], self.fold.policy.max_ahead_ms)
        return batch.first(allowed), early


def count_outcomes(counter: Counter, before: Mapping[str, int], stored: Mapping[str, int]) -> Mapping[str, int]:
    """Count the records that a checkpoint has added. Return `stored`.

    before, stored   outcome -> records of a partition, before the checkpoint and with it
    """
    for outcome, records in stored.items():
        if records > before.get(outcome, 0):
            METERS.count(counter, records - before.get(outcome, 0), outcome=outcome)
    return stored
