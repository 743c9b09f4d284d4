"""A frame, and what the transport and the ingest agent owe each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec


class RecordBatch(msgspec.Struct, frozen=True, gc=False):
    """One partition's records as fetched at once: columns, because a Python object a record costs more than the fold.

    ``base`` is the position the chunk was read *from* and ``next`` the one that reading goes on at, so the holes that
    compaction, transaction markers and aborted transactions leave are inside a frame, and the frames of one epoch are
    a chain without gaps: each one's base is the next of the one before. A frame without records only crosses such a
    hole; fold it like any other, so that the stored offset reaches the end of the log.

    partition     of the topic
    epoch         of the partition's last start: frames of another epoch are dropped, unacknowledged
    base, next    offsets, base < next; every record lies in base <= offset < next
    offsets       one for each record, rising
    timestamps    ms UTC, the log's own
    keys, values  raw; None where the log has none (a tick)
    """

    partition: int
    epoch: int
    base: int
    next: int
    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]

    def first(self, records: int) -> "RecordBatch":
        """The first `records` of them, fewer than all, and the hole in front of the one that follows."""
        return RecordBatch(
            partition=self.partition,
            epoch=self.epoch,
            base=self.base,
            next=self.offsets[records],
            offsets=self.offsets[:records],
            timestamps=self.timestamps[:records],
            keys=self.keys[:records],
            values=self.values[:records],
        )


class BatchHandler(Protocol):
    """Who folds the frames. All three are called in the app's own loop and raise nothing: an exception ends the worker.

    After every rebalance all partitions are *parked*: not fetched, without an epoch. The handler starts each one with
    ``BatchConsumer.start_partition`` once it knows where its state stands. What it kept in memory from before the
    rebalance may be kept: the offset it stands at is then the one to start from, and the check of the stored offset at
    the next checkpoint finds out if another worker had the partition in between.
    """

    def on_assigned(self, partitions: frozenset[int]) -> None:
        """These are now ours, all of them parked. Must not wait: start a task that loads them, with back-off."""

    async def on_revoked(self, partitions: frozenset[int]) -> None:
        """These were ours until now, at a rebalance or at the end; no frame comes any more. Last chance to write.

        Acknowledgements still count. It may take ``BatchSettings.revoke_seconds``, then it is cancelled.
        """

    def on_lost(self, partition: int, position: int) -> None:
        """The log does not have ``position`` (deleted by age, or never written): parked, to be loaded and started.

        Whoever starts it compares with ``BatchConsumer.log_range``: this is where a gap shows.
        """


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Where frames come from. Times in seconds.

    name                also the consumer group
    batch_records       most records of a frame: smaller ones cost speed, larger ones memory and a slower loop
    queued_batches       most frames that wait for the agent, over all partitions
    partition_bytes     most bytes that the broker sends of a partition in advance
    fetch_bytes         the same over all partitions of a broker
    poll_seconds        without a poll for so long, the worker gives its partitions up: its loop hangs. An agent that
                        waits for its store is not that: the poll goes on, and the worker stays in the group
    security            security_protocol, sasl_* and ssl_context, as aiokafka's consumer takes them
    """

    name: str
    bootstrap_servers: str
    topic: str
    session_timeout: float = 10.0
    rebalance_timeout: float = 60.0
    commit_interval: float = 2.0
    batch_records: int = 500
    queued_batches: int = 16
    partition_bytes: int = 1 << 20
    fetch_bytes: int = 16 << 20
    poll_seconds: float = 300.0
    security: Mapping[str, object] = field(default_factory=dict)

    @property
    def revoke_seconds(self) -> float:
        """Half of what the group waits for us at a rebalance; the rest is for Faust, the commit and the join."""
        return self.rebalance_timeout / 2
