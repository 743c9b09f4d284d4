"""Record batch, consumer settings, and the interface between the transport and the ingest agent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec


class RecordBatch(msgspec.Struct, frozen=True, gc=False):
    """Records of one partition that were fetched together, as columns: one object per record costs more than the fold.

    Reading started at offset ``base`` and continues at ``next``. Offset holes, left by transaction markers, aborted
    transactions and compaction, are therefore inside a batch, and the batches of one epoch are a chain without gaps:
    each ``base`` is the ``next`` of the batch before. A batch without records crosses such a hole; fold it like any
    other, so that the stored offset reaches the end of the log.
    """

    partition: int  # partition of the topic
    epoch: int  # number of the partition's last start; batches of other epochs are dropped, unacknowledged
    # base, next: offsets, base < next; base <= offset < next for every record
    base: int
    next: int
    offsets: Sequence[int]  # one per record, ascending
    timestamps: Sequence[int]  # ms UTC, from the log
    values: Sequence[bytes | None]  # bytes, or None if null in the log: a heartbeat record
    # compaction has removed records between ``base`` and the first record, or ``next`` if there is none
    lost: bool = False

    def first(self, records: int) -> "RecordBatch":
        """Return the first `records` records, fewer than all, and the offset hole after them."""
        return msgspec.structs.replace(
            self,
            next=self.offsets[records],
            offsets=self.offsets[:records],
            timestamps=self.timestamps[:records],
            values=self.values[:records],
        )


class BatchHandler(Protocol):
    """Rebalance callbacks of the ingest agent. They run in the app's event loop; an exception from one ends the worker.

    An assigned partition is *parked*: not fetched, without an epoch. The handler starts each one with
    ``BatchConsumer.start_partition`` once it knows the offset of its state. Partitions that a rebalance does not move
    are read on during it.
    """

    def on_assigned(self, partitions: frozenset[int]) -> None:
        """Partitions were assigned, beside those held before; these are parked.

        Must not block: start a task that loads them, with backoff.
        """

    async def on_revoked(self, partitions: frozenset[int]) -> None:
        """Partitions are given up, in a rebalance or at a stop. Write their last checkpoints.

        No further batch of them arrives; acknowledgements still count. Cancelled after `REVOKE_SECONDS`.
        """

    def on_lost(self, partition: int, position: int) -> None:
        """The log does not have offset ``position`` (deleted by retention, or never written); the partition is parked.

        The handler loads and starts it again, and compares its offset with ``BatchConsumer.log_range`` to detect a gap.
        """


REVOKE_SECONDS: Final = 30.0  # for the last checkpoints of partitions that are given up: the others wait for them
# A group leader whose metadata does not have all partitions yet assigns fewer; it rebalances once it has them. Both
# clients refresh metadata every five minutes by default.
METADATA_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Settings of the batch consumer. Times in seconds."""

    name: str  # client id and consumer group
    bootstrap_servers: str
    topic: str
    partitions: int | None = None  # number of partitions that are read, the first ones; None: all
    session_timeout: float = 10.0
    commit_interval: float = 2.0
    # maximum number of records per batch: smaller batches cost speed, larger ones memory and latency
    batch_records: int = 2_000
    queued_batches: int = 16  # maximum number of batches that wait for the agent, over all partitions
    partition_bytes: int = 1 << 20  # maximum size of one fetch per partition
    fetch_bytes: int = 16 << 20  # maximum size of one fetch per broker
    # an event loop that hangs for so long loses the partitions to other workers; at least the session timeout. While
    # the agent only waits for its store, the worker stays in the group
    poll_seconds: float = 300.0
    # security_protocol, sasl_* and ssl_context, as keyword arguments of aiokafka's consumer
    security: Mapping[str, object] = field(default_factory=dict)
    group_options: Mapping[str, object] = field(default_factory=dict)  # the same as a configuration of librdkafka
