"""The limits of a drain, which its ingest keeps."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hatcast.agents.kafka.batches.batch import RecordBatch
from hatcast.stream.errors import HatcastError


@dataclass(frozen=True, slots=True)
class Drain:
    """The limits of a drain.

    ends            partition -> its end at the start: only heartbeat records may follow
    incomplete_ms   days that begin before this time (ms UTC) lack readings; None: none does
    """

    ends: Mapping[int, int] = field(default_factory=dict)
    incomplete_ms: int | None = None

    def check(self, batch: RecordBatch) -> None:
        """Raise HatcastError if a reading was sent after the start: its vehicle's other readings may be elsewhere."""
        end = self.ends.get(batch.partition)
        if end is None or batch.next <= end:
            return
        if any(value for offset, value in zip(batch.offsets, batch.values, strict=True) if offset >= end):
            raise HatcastError(
                f"telemetry partition {batch.partition}: a reading arrived during the drain: stop all feeds, then drain"
                " again; nothing is lost"
            )
