"""A partition that this worker owns: its state in memory, and how it is loaded from Redis."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from redis.exceptions import RedisError

from hatcast.agents.clock import monotonic_s
from hatcast.agents.kafka.aio import ConsumerStoppedError, KafkaError
from hatcast.agents.kafka.batches.batch import RecordBatch
from hatcast.agents.kafka.batches.consumer import BatchConsumer
from hatcast.agents.monitoring.declarations import Counter
from hatcast.agents.monitoring.failures import FailureLog, back_off_s
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.identity import OtherUserKey
from hatcast.agents.redis.partition_store import beyond_end_error
from hatcast.agents.worker.folds import EarlyRecord
from hatcast.agents.worker.source import IngestOptions, Source
from hatcast.stream.fold.checkpoint import StoredPartition, restore
from hatcast.stream.fold.partition_fold import PartitionFold

log = structlog.get_logger()

# Between looks at the clock, which may be set at any time. Also the shortest wait: if a clock is steadily behind, the
# next record has to wait as well, and this limits how often its partition is started again.
LOOK_S: Final = 1.0
# The wait ends after this time without an early record. Sources send heartbeat records every 10 s, so a clock that is
# steadily behind meets the next early record before.
CALM_S: Final = 15.0


@dataclass(slots=True)
class _Wait:
    """A partition's wait. Times in monotonic seconds."""

    record: EarlyRecord
    since_s: float
    last_s: float  # when its record was last too early


class EarlyRecords:
    """Partitions of one topic that wait for this machine's clock. Logs each wait when it begins and when it ends.

    A record dated more than `policy.max_ahead` ahead is not folded yet: it would close slots that are still open. It is
    not dropped either: the broker accepted it, and its outcome must not depend on the reader's clock. It stays unread
    in the log until the clock allows it.    [docs/specification/fold.md, Records ahead of the clock]
    """

    def __init__(self, topic: str) -> None:
        """Args: `topic`, for messages."""
        self._topic = topic
        self._waits: dict[int, _Wait] = {}

    def add(self, partition: int, record: EarlyRecord) -> None:
        """Add a partition, or update its record."""
        now_s = monotonic_s()
        wait = self._waits.get(partition)
        if wait is None:
            self._waits[partition] = _Wait(record, now_s, now_s)
            log.error(record.problem(self._topic, partition))
        else:
            wait.record, wait.last_s = record, now_s

    async def until_allowed(self, partition: int, record: EarlyRecord, is_needed: Callable[[], bool]) -> None:
        """Wait until the clock allows the record, or `is_needed()` is False. Looks every `LOOK_S`."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not is_needed() or record.is_allowed():
                return
            self.add(partition, record)

    def forget(self, partitions: Iterable[int]) -> None:
        """Remove partitions, without a log line: other workers own them now."""
        for partition in partitions:
            self._waits.pop(partition, None)

    def waiting(self) -> Mapping[int, EarlyRecord]:
        """Return partition -> the record that it waits for, or waited for within the last `CALM_S`. Log ended waits."""
        now_s = monotonic_s()
        for partition, wait in list(self._waits.items()):
            if now_s - wait.last_s > CALM_S:
                del self._waits[partition]
                log.info(
                    "no record is dated too far ahead any more",
                    topic=self._topic,
                    partition=partition,
                    after_s=round(wait.last_s - wait.since_s, 1),
                )
        return {partition: wait.record for partition, wait in self._waits.items()}

    def problem(self) -> str | None:
        """Return the message about the record furthest ahead, and the number of other waits; None if none waits."""
        waiting = self.waiting()
        if not waiting:
            return None
        partition = max(waiting, key=lambda each: waiting[each].timestamp_ms)
        others = f" ({len(waiting) - 1} more of its partitions wait)" if len(waiting) > 1 else ""
        return waiting[partition].problem(self._topic, partition) + others


@dataclass(slots=True)
class OwnedPartition:
    """In-memory state of one partition."""

    fold: PartitionFold[bytes]
    base: int  # the stored offset on which the changes in memory are based
    next: int  # the next record to fold
    last_arrival_s: float  # when the last record that counts as an arrival was folded (monotonic seconds)
    # records before `next` were deleted or compacted unread; the next record bounds their arrival times
    missing: bool = False
    outcomes: Mapping[str, int] = field(default_factory=dict)  # outcome -> records, of those that are stored
    epoch: int | None = None  # of the last batch; None before the first
    # the record at `next` if it is dated too far ahead: nothing is folded until the clock allows it
    early: EarlyRecord | None = None
    storing: asyncio.Lock = field(default_factory=asyncio.Lock)  # held during a checkpoint

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


class PartitionLoader:
    """Puts the stored state of a topic's partitions in memory, and starts reading at its offset.

    Each partition has one task, which parks it and starts it again: from the stored state, or from memory once this
    machine's clock allows a record that was dated too far ahead. It retries with backoff while Redis or Kafka does not
    answer.

    early_records   the partitions that wait for this machine's clock
    """

    def __init__(
        self,
        source: Source,
        consumer: BatchConsumer,
        partitions: dict[int, OwnedPartition],
        failures: FailureLog,
        options: IngestOptions,
    ) -> None:
        """Args:
        partitions: the partitions in memory, of the ingest
        failures: log of the ingest's loop
        """
        self.early_records = EarlyRecords(source.topic)
        self._source = source
        self._consumer = consumer
        self._partitions = partitions
        self._failures = failures
        self._options = options
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._again: set[int] = set()

    def load_soon(self, partition: int) -> None:
        """Drop a partition's memory, load its stored state, and start it there."""
        self._partitions.pop(partition, None)
        self._park_soon(partition)

    def wait_for_clock(self, partition: int, early: EarlyRecord) -> None:
        """Park a partition until this machine's clock allows its next record, then start it from memory."""
        self.early_records.add(partition, early)
        self._park_soon(partition)

    def cancel(self, partitions: Iterable[int]) -> None:
        """Cancel the loads of partitions that are revoked."""
        for partition in partitions:
            if (task := self._tasks.pop(partition, None)) is not None:
                task.cancel()
            self._again.discard(partition)

    def _park_soon(self, partition: int) -> None:
        running = self._tasks.get(partition)
        if running is not None and not running.done():
            self._again.add(partition)  # it may be too late for the running task to notice
            return
        task = asyncio.create_task(self._park_and_start(partition))
        task.add_done_callback(self._ended)
        self._tasks[partition] = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._options.fail(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))

    async def _park_and_start(self, partition: int) -> None:
        """Park a partition and start it; return when it is started, or not assigned any more."""
        attempt = 0
        while True:
            try:
                await self._consumer.park_partition(partition)
                if partition in self._consumer.assigned():
                    owned = self._partitions.get(partition)
                    if owned is not None and owned.early is not None:
                        await self._start_when_allowed(partition, owned, owned.early)
                    else:
                        with self._failures.attempt("load a partition", partition):
                            await self._load_and_start(partition)
            except ConsumerStoppedError:
                return
            except (RedisError, KafkaError) as error:
                self._failures.failed(error)
                await asyncio.sleep(back_off_s(attempt))
                attempt += 1
            else:
                if partition not in self._again:
                    return
                self._again.discard(partition)

    async def _start_when_allowed(self, partition: int, owned: OwnedPartition, early: EarlyRecord) -> None:
        """Start a partition from memory once the clock allows its next record, unless the memory is dropped."""
        await self.early_records.until_allowed(partition, early, lambda: self._partitions.get(partition) is owned)
        if self._partitions.get(partition) is owned:
            owned.early = None
            await self._start(partition, owned)

    async def _load_and_start(self, partition: int) -> None:
        if self._options.confirm_topic is not None:
            await self._options.confirm_topic()
        owned = await self._load(partition)
        self._partitions[partition], offset = owned, owned.base
        if await self._start(partition, owned):
            log.info("partition started", partition=partition, offset=offset)

    async def _start(self, partition: int, owned: OwnedPartition) -> bool:
        """Start reading at the partition's next record; drop its memory and return False if it is not assigned."""
        if await self._consumer.start_partition(partition, owned.next) is None:
            self._partitions.pop(partition, None)
            return False
        return True

    async def _load(self, partition: int) -> OwnedPartition:
        """Return a partition with its stored state. Raises HatcastError if the log does not continue it."""
        options, store = self._options, self._source.store
        start, end = (await self._consumer.log_range([partition]))[partition]
        try:
            offset, stored = await store.open(partition, start, options.user_key, accept_gap=options.accept_gap)
        except OtherUserKey:
            if options.restore is not None:  # if all of Redis went back to another key, this error has a simpler fix
                await options.restore()
            raise
        # After the open: whatever Redis loses from here on also ends our right to write to it, so everything that we
        # are going to store is under the user key that was found.
        if options.restore is not None:
            await options.restore()
        if offset > end:  # or `end` is old: this worker may have been paused while others folded on
            _, end = (await self._consumer.log_range([partition]))[partition]
        if offset > end:
            raise beyond_end_error(store.topic, partition, offset, end)
        stored, fold = await store.read_until(partition, stored, lambda read: self._restored(partition, read))
        if options.drain is not None and options.drain.incomplete_ms is not None:
            fold.complete_from = max(fold.complete_from or 0, options.drain.incomplete_ms)
        if stored.missing:
            log.warning(
                "earlier records were deleted: unreleased HATs of their days are incomplete", partition=partition
            )
        return OwnedPartition(fold, offset, offset, monotonic_s(), stored.missing, stored.outcomes)

    def _restored(self, partition: int, stored: StoredPartition) -> PartitionFold[Any]:
        """Return a new fold with a stored state. Raises ValueError if it lacks users, or is of another version."""
        fold = self._source.make_fold(partition)
        restore(fold, stored)
        return fold
