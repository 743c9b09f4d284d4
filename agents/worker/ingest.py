"""Ingest: fold record batches into contributions, and store them in Redis by checkpoints.

A partition's memory is a cache of what Redis stores plus what was folded since. Any doubt about it (a checkpoint that
was rejected or not answered, a batch that does not follow the last one) is resolved in the same way: drop the memory,
load the stored state, and continue from the stored offset in a new epoch.
[docs/specification/release.md, Fold state]
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

import structlog
from redis.exceptions import RedisError

from hatcast.agents.clock import monotonic_s, now_ms, pause
from hatcast.agents.kafka.aio import KafkaError
from hatcast.agents.kafka.batches.batch import RecordBatch
from hatcast.agents.kafka.batches.consumer import BatchConsumer
from hatcast.agents.kafka.dead_letters import DeadLetters
from hatcast.agents.monitoring.declarations import (
    CHECKPOINT_SECONDS,
    CHECKPOINTS,
    ID_DAYS,
    READINGS,
    REBALANCES,
    REPORTS,
)
from hatcast.agents.monitoring.failures import FailureLog, back_off_s
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.identity import partition_count_error
from hatcast.agents.redis.partition_store import compacted_error
from hatcast.agents.worker.partition import OwnedPartition, PartitionLoader, count_outcomes
from hatcast.agents.worker.source import IngestOptions, Source
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.checkpoint import take_changes
from hatcast.stream.fold.open_slots import IdSpans
from hatcast.stream.fold.partition_fold import PartitionFold

log = structlog.get_logger()

PATIENCE_S: Final = 60.0  # Kafka's default for how long a transaction may take


class OpenTransactions:
    """Partitions of one topic of which nothing more can be read until a transaction has ended. Logs each wait once.

    A consumer of committed records reads up to the last stable offset, the first record of the oldest open transaction.
    A producer of telemetry that hangs inside one, or died where the broker never ends it, holds up its partition, and
    with it every slot of all.
    """

    def __init__(self, topic: str, consumer: BatchConsumer) -> None:
        """Args: `topic`, for messages."""
        self._topic = topic
        self._consumer = consumer
        self._logged: dict[int, int] = {}  # partition -> last stable offset

    def look(self) -> None:
        """Log waits that have become too long, and those that have ended."""
        waits = self._waits()
        for partition, (offset, since_s) in waits.items():
            if self._logged.get(partition) != offset:
                log.error(self._text(partition, offset, since_s))
        for partition in self._logged.keys() - waits.keys():
            if self._consumer.epoch(partition) is not None:  # or another worker reads it, or this one again soon
                log.info("partition is read on: the transaction has ended", topic=self._topic, partition=partition)
        self._logged = {partition: offset for partition, (offset, _) in waits.items()}

    def problem(self) -> str | None:
        """Return the longest wait, for `/readyz`; None if none is too long."""
        waits = self._waits()
        if not waits:
            return None
        longest = min(waits, key=lambda partition: waits[partition][1])
        others = f" ({len(waits) - 1} more of its partitions wait)" if len(waits) > 1 else ""
        return self._text(longest, *waits[longest]) + others

    def _waits(self) -> dict[int, tuple[int, float]]:
        until_s = monotonic_s() - PATIENCE_S
        return {partition: wait for partition, wait in self._consumer.blocked().items() if wait[1] <= until_s}

    def _text(self, partition: int, offset: int, since_s: float) -> str:
        return (
            f"{self._topic} partition {partition} waits at offset {offset} for {monotonic_s() - since_s:.0f} s: a"
            " producer has not ended its transaction; end it by kafka-transactions.sh (docs/runbook.md)"
        )


_CHECKPOINT: Final = "write a checkpoint"
CHECKPOINT_RECORDS: Final = 100_000  # of one partition; with the interval this bounds what only memory holds


class Ingest:
    """Folds the partitions that this worker owns. Implements `BatchHandler`.

    partitions      the partitions in memory
    early_records   the partitions that wait for this machine's clock
    open_transactions   those that wait for the end of a transaction
    answered_s      when Redis last answered (monotonic seconds); None: not yet
    answers_s       how long each of its last answers took, in seconds
    stored_s        the same, with everything stored that was folded until then
    """

    def __init__(
        self,
        source: Source,
        consumer: BatchConsumer,
        dead_letters: DeadLetters,
        checkpoint_interval_s: float,
        options: IngestOptions,
    ) -> None:
        self.consumer = consumer
        self.partitions: dict[int, OwnedPartition] = {}
        self.answered_s: float | None = None
        self.answers_s: deque[float] = deque(maxlen=3)
        self.stored_s: float | None = None
        self._failures = FailureLog("ingest")
        self._loader = PartitionLoader(source, consumer, self.partitions, self._failures, options)
        self.early_records = self._loader.early_records
        self.open_transactions = OpenTransactions(source.topic, consumer)
        self._source = source
        self._store = source.store
        self._dead_letters = dead_letters
        self._interval = checkpoint_interval_s
        self._options = options

    def redis_problem(self) -> str | None:
        """Return why a Redis Cluster has not run a command lately, or None."""
        return self._store.cluster_problem()

    # Called by the transport.

    def on_assigned(self, partitions: frozenset[int]) -> None:
        """Load the state of each assigned partition, then continue from its offset."""
        log.info("partitions assigned", partitions=sorted(partitions))
        METERS.count(REBALANCES)
        if self._has_grown():
            return
        for partition in partitions:
            self._loader.load_soon(partition)

    def _has_grown(self) -> bool:
        """Return True, and end the worker, if partitions were added: records of one user are in two of them then."""
        counts = [each + 1 for each in self.consumer.assigned()] + [self.consumer.partition_count() or 0]
        if self._options.drain is not None or max(counts) <= self._store.partitions:
            return False
        self._options.fail(partition_count_error(self._store.name, self._store.partitions, max(counts)))
        return True

    async def on_revoked(self, partitions: frozenset[int]) -> None:
        """Write the last checkpoint of each partition, then drop its memory: in a rebalance, and at the end."""
        self._loader.cancel(partitions)
        try:
            await asyncio.gather(*(self.checkpoint(partition) for partition in partitions))
        finally:
            for partition in partitions:
                self.partitions.pop(partition, None)
            self.early_records.forget(partitions)
        log.info("partitions revoked", partitions=sorted(partitions))

    def on_lost(self, partition: int, position: int) -> None:
        """Load a partition whose position is not in the log any more; loading reports the gap."""
        log.warning("position not in the log", partition=partition, offset=position)
        self._loader.load_soon(partition)

    # Called by the agent and the worker.

    async def fold(self, batch: RecordBatch) -> None:
        """Fold a batch up to the first record that is dated too far ahead of this machine's clock.

        Waits for Redis only at such a record, or if `CHECKPOINT_RECORDS` are not stored yet.
        """
        partition = batch.partition
        if self.consumer.epoch(partition) != batch.epoch:
            return  # fetched before the last seek: it will be fetched again
        owned = self.partitions.get(partition)
        if owned is not None and owned.early is not None:
            return  # fetched after a record that waits for the clock: it will be fetched again
        if owned is None or owned.next != batch.base:
            self._loader.load_soon(partition)
            return
        if self._is_beyond_drain(batch) or self._is_at_hole(batch, owned):
            return
        now = now_ms()
        batch, early = owned.split(batch, now)
        owned.note_missing(batch)
        watermark = owned.fold.watermark
        letters = owned.fold.apply(now, batch.timestamps, batch.values)
        owned.next, owned.epoch = batch.next, batch.epoch
        # Anybody may send reports, and could hold a partition's watermark back for ever with old ones.
        if owned.fold.watermark != watermark if self._source.counter is REPORTS else batch.offsets:
            owned.last_arrival_s = monotonic_s()
        for index, outcome in letters.items():
            self._dead_letters.add(partition, batch.offsets[index], outcome)
        owned.early = early
        if early is not None or owned.next - owned.base >= CHECKPOINT_RECORDS:
            await self.checkpoint(partition)  # before it is parked: Kafka then accepts no acknowledgement
        if early is not None and self.partitions.get(partition) is owned:
            self._loader.wait_for_clock(partition, early)

    def _is_beyond_drain(self, batch: RecordBatch) -> bool:
        """Return True, and end the worker, if a reading was sent after a drain began."""
        if self._options.drain is None:
            return False
        try:
            self._options.drain.check(batch)
        except HatcastError as error:
            self._options.fail(error)
            return True
        return False

    def _is_at_hole(self, batch: RecordBatch, owned: OwnedPartition) -> bool:
        """Return True, and end the worker, if compaction has removed records here and that is not accepted."""
        if not batch.lost:
            return False
        until = batch.offsets[0] if batch.offsets else batch.next
        if not self._options.accept_gap:
            self._options.fail(compacted_error(self._store.topic, batch.partition, batch.base, until))
            return True
        if owned.fold.complete_from is None:  # a compacted log has thousands of holes
            log.warning("records were compacted away", partition=batch.partition, first=batch.base, next=until)
        return False

    async def checkpoint_regularly(self, stopping: asyncio.Event) -> None:
        """Write checkpoints every interval until `stopping` is set; a checkpoint is never interrupted."""
        silent = 0  # rounds in a row without an answer of Redis
        while await pause(max(self._interval, back_off_s(silent - 1) if silent else 0.0), stopping):
            if self._has_grown():  # a rebalance that adds partitions may bring this worker none
                return
            stored = await asyncio.gather(*(self.checkpoint(partition) for partition in list(self.partitions)))
            self.early_records.waiting()  # logs waits that have ended
            self.open_transactions.look()
            silent = 0 if await self._reload_forgotten() else silent + 1
            if not silent:
                self.answered_s = monotonic_s()
                if all(stored) and self.partitions.keys() >= self.consumer.assigned():
                    self.stored_s = self.answered_s
                    # Without a group nothing is assigned, so nothing fails: that is no success.
                    failed = self._failures.failed_partitions(_CHECKPOINT)
                    if self.consumer.in_group() and not self._is_behind(failed):
                        self._failures.clear()

    def _is_behind(self, partitions: Iterable[int]) -> bool:
        """Return True if one of these is owned and has records that are not stored again yet."""
        owned = [(partition, self.partitions[partition]) for partition in partitions if partition in self.partitions]
        return any(not self.consumer.position_at_end(partition, each.base) for partition, each in owned)

    async def _reload_forgotten(self) -> bool:
        """Load idle partitions whose stored offset went back; other partitions notice it at a checkpoint.

        Returns False if Redis did not answer.
        """
        idle = {
            partition: (owned, owned.base) for partition, owned in self.partitions.items() if owned.next == owned.base
        }
        asked_s = monotonic_s()
        try:
            with self._failures.attempt("read the stored offsets"):
                stored = await self._store.offsets()
            self.answers_s.append(monotonic_s() - asked_s)
        except RedisError as error:
            self._failures.failed(error)
            return False  # the next checkpoint or round checks the state
        for partition, (owned, base) in idle.items():
            unchanged = self.partitions.get(partition) is owned and owned.next == owned.base == base
            if unchanged and stored[partition] != base:
                log.warning("stored offset went back", partition=partition, base=base)
                self._options.on_rollback()
                self._loader.load_soon(partition)
        return True

    async def checkpoint(self, partition: int) -> bool:
        """Write a partition's changes since its last checkpoint to Redis, and acknowledge them to Kafka.

        Returns False if it is not certainly stored: then the memory is dropped and the stored state loaded.
        """
        owned = self.partitions.get(partition)
        if owned is None:
            return False
        async with owned.storing:
            if self.partitions.get(partition) is not owned:
                return False
            if owned.next == owned.base or owned.missing:  # what is missing is stored with the record after it
                return True
            following = owned.next
            stored = await self._store_changes(partition, owned)
            if self.partitions.get(partition) is not owned:
                return False
            if not stored:
                self._loader.load_soon(partition)
                return False
            owned.base = following
            owned.fold.drop_closed()
            self._count_spans(owned.fold)
            if owned.epoch is not None:
                self.consumer.acknowledge(partition, owned.epoch, following)
            return True

    def _count_spans(self, fold: PartitionFold[bytes]) -> None:
        """Count the vehicles of telemetry's days that have ended."""
        spans, fold.spans = fold.spans, IdSpans()
        if self._source.counter is READINGS:
            METERS.count(ID_DAYS, spans.few, slots="few")
            METERS.count(ID_DAYS, spans.many, slots="many")

    async def _store_changes(self, partition: int, owned: OwnedPartition) -> bool:
        """Write the changes; False if Redis rejected them, or if it is unknown whether they are stored."""
        following, changes = owned.next, take_changes(owned.fold, journal=True)
        try:
            with METERS.timed(CHECKPOINT_SECONDS), self._failures.name_operation(_CHECKPOINT, partition):
                if self._options.confirm_topic is not None:  # after the last of these records was fetched, not before
                    await self._options.confirm_topic()
                if self._options.open_dates is not None and changes.rules:
                    changes.rules = await self._options.open_dates(changes.rules)
                stored = await self._store.checkpoint(partition, owned.base, following, changes)
        except (RedisError, KafkaError) as error:  # it may be stored nevertheless
            METERS.count(CHECKPOINTS, result="failed")
            self._failures.failed(error)
            return False
        except HatcastError as error:
            self.partitions.pop(partition, None)
            self._options.fail(error)
            return False
        except BaseException:  # cancelled, or a bug: these changes are taken from the memory
            self.partitions.pop(partition, None)
            raise
        METERS.count(CHECKPOINTS, result="stored" if stored else "refused")
        if stored:
            self._failures.succeeded(_CHECKPOINT, partition)
            owned.outcomes = count_outcomes(self._source.counter, owned.outcomes, changes.outcomes)
        else:
            log.warning("checkpoint rejected", partition=partition, base=owned.base)
            self._options.on_rollback()  # or another worker has the partition
        return stored
