"""Ingest: fold record batches into contributions, and store them in Redis by checkpoints.

A partition's memory is a cache of what Redis stores plus what was folded since. Any doubt about it (a checkpoint that
was rejected or not answered, a batch that does not follow the last one) is resolved in the same way: drop the memory,
load the stored state, and continue from the stored offset in a new epoch.
[docs/specification/release.md, Fold state]
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

import structlog
from aiokafka.errors import ConsumerStoppedError, KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import monotonic_s, now_ms, pause
from hatcast.agents.kafka.batches import BatchConsumer, RecordBatch
from hatcast.agents.kafka.dead_letters import DeadLetters
from hatcast.agents.monitoring.declarations import CHECKPOINT_SECONDS, CHECKPOINTS, READINGS, REBALANCES
from hatcast.agents.monitoring.failures import FailureLog, back_off_s
from hatcast.agents.monitoring.kinds import Counter
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.identity import partition_count_error
from hatcast.agents.redis.partition_state import PartitionStore
from hatcast.agents.redis.user_keys import OtherUserKey, StoredKey
from hatcast.agents.release.counters import count_outcomes
from hatcast.agents.worker.early_records import EarlyRecord, EarlyRecords
from hatcast.agents.worker.partition import OwnedPartition
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.checkpoint import restore, take_changes
from hatcast.stream.fold.partition_fold import PartitionFold

log = structlog.get_logger()

_CHECKPOINT: Final = "write a checkpoint"
CHECKPOINT_RECORDS: Final = 100_000  # of one partition; with the interval this bounds what only memory holds


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """Options of an ingest, and the callbacks to its worker.

    fail                   ends the worker; called with a HatcastError or an unexpected error
    topic                  the topic's name in messages; None: the store's
    counter                counts stored records by outcome
    arrivals_by_watermark  only records that advance the watermark count as arrivals: anybody may send reports, and
                           could otherwise hold a partition's watermark back for ever with old records
    accept_gap             continue after records were deleted unread, instead of raising
    user_key               under which the partitions are folded
    restore                restores the policy and the user key in Redis; called whenever a state is loaded
    confirm_topic          checks that the topic is still the registered one; None if the broker has no topic ids
    on_rollback            called if a stored offset is not the one that was stored last
    """

    fail: Callable[[Exception], None]
    topic: str | None = None
    counter: Counter = READINGS
    arrivals_by_watermark: bool = False
    accept_gap: bool = False
    user_key: StoredKey | None = None
    restore: Callable[[], Awaitable[None]] | None = None
    confirm_topic: Callable[[], Awaitable[None]] | None = None
    on_rollback: Callable[[], None] = lambda: None


class Ingest:
    """Folds the partitions that this worker owns. Implements `BatchHandler`.

    partitions      the partitions in memory
    early_records   the partitions that wait for this machine's clock
    answered_s      when Redis last answered (monotonic seconds); None: not yet
    stored_s        the same, with everything stored that was folded until then
    """

    def __init__(
        self,
        store: PartitionStore,
        make_fold: Callable[[int], PartitionFold[bytes]],
        dead_letters: DeadLetters,
        checkpoint_interval_s: float,
        options: IngestOptions,
    ) -> None:
        """Args:
        make_fold: makes a partition's empty fold
        """
        self.partitions: dict[int, OwnedPartition] = {}
        self.early_records = EarlyRecords(store.topic if options.topic is None else options.topic)
        self.answered_s: float | None = None
        self.stored_s: float | None = None
        self._options = options
        self._failures = FailureLog("ingest")
        self._store = store
        self._make_fold = make_fold
        self._dead_letters = dead_letters
        self._interval = checkpoint_interval_s
        self._fail = options.fail
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._load_again: set[int] = set()
        self._consumer: BatchConsumer | None = None

    def attach(self, consumer: BatchConsumer) -> None:
        """Set the consumer: its app needs this ingest, so it is made later."""
        self._consumer = consumer

    @property
    def consumer(self) -> BatchConsumer:
        """The consumer. Raises ConsumerStoppedError before `attach`."""
        if self._consumer is None:
            raise ConsumerStoppedError
        return self._consumer

    # Called by the transport.

    def on_assigned(self, partitions: frozenset[int]) -> None:
        """Load the state of each assigned partition, then continue from its offset."""
        log.info("partitions assigned", partitions=sorted(partitions))
        METERS.count(REBALANCES)
        count = self.consumer.partition_count()
        if count not in (None, self._store.partitions):  # partitions were added while the worker ran
            self._fail(partition_count_error(self._store.name, self._store.partitions, count))
            return
        self.early_records.keep_only(partitions)
        for partition in partitions:
            self._load_soon(partition)

    async def on_revoked(self, partitions: frozenset[int]) -> None:
        """Write the last checkpoint of each partition, then drop the memory: before a rebalance, and at the end."""
        for task in self._loading.values():
            task.cancel()
        self._loading.clear()
        self._load_again.clear()
        try:
            await asyncio.gather(*(self.checkpoint(partition) for partition in partitions))
        finally:
            self.partitions.clear()
        log.info("partitions revoked", partitions=sorted(partitions))

    def on_lost(self, partition: int, position: int) -> None:
        """Load a partition whose position is no longer in the log: loading finds the gap and reports it."""
        log.warning("position not in the log", partition=partition, offset=position)
        self._load_soon(partition)

    # Called by the agent and the worker.

    async def fold(self, batch: RecordBatch) -> None:
        """Fold a batch, up to the first record that is dated too far ahead of this machine's clock.

        Waits for Redis only at such a record, or if `CHECKPOINT_RECORDS` are not stored yet.
        """
        partition = batch.partition
        if self.consumer.epoch(partition) != batch.epoch:
            return  # fetched before the last seek: it will be fetched again
        owned = self.partitions.get(partition)
        if owned is not None and owned.early is not None:
            return  # fetched after a record that waits for the clock: it will be fetched again
        if owned is None or owned.next != batch.base:
            self._load_soon(partition)
            return
        now = now_ms()
        batch, early = owned.split(batch, now)
        if owned.missing and batch.timestamps:
            # The deleted records may have had readings of any time up to here.
            owned.fold.complete_from = batch.timestamps[0] + owned.fold.policy.max_ahead_ms
            owned.missing = False
        watermark = owned.fold.watermark
        undecodable = owned.fold.apply(now, batch.timestamps, batch.values)
        owned.next, owned.epoch = batch.next, batch.epoch
        if owned.fold.watermark != watermark if self._options.arrivals_by_watermark else batch.offsets:
            owned.last_arrival_s = monotonic_s()
        for index in undecodable:
            self._dead_letters.add(partition, batch.offsets[index], "undecodable")
        owned.early = early
        if early is not None or owned.next - owned.base >= CHECKPOINT_RECORDS:
            await self.checkpoint(partition)  # before it is parked: Kafka then accepts no acknowledgement
        if early is not None and self.partitions.get(partition) is owned:
            self.early_records.add(partition, early)
            self._park_soon(partition)

    async def checkpoint_regularly(self, stopping: asyncio.Event) -> None:
        """Write checkpoints every interval until `stopping` is set; a checkpoint is never interrupted."""
        silent = 0  # rounds in a row without an answer of Redis
        while await pause(max(self._interval, back_off_s(silent - 1) if silent else 0.0), stopping):
            stored = await asyncio.gather(*(self.checkpoint(partition) for partition in list(self.partitions)))
            self.early_records.waiting()  # logs waits that have ended
            silent = 0 if await self._reload_forgotten() else silent + 1
            if not silent:
                self.answered_s = monotonic_s()
                if all(stored) and self.partitions.keys() >= self.consumer.assigned():
                    self.stored_s = self.answered_s
                    if not self._is_behind(self._failures.failed_partitions(_CHECKPOINT)):
                        self._failures.clear()

    def _is_behind(self, partitions: Iterable[int]) -> bool:
        """Return True if one of these is owned and has records that are not stored again yet."""
        owned = [(partition, self.partitions[partition]) for partition in partitions if partition in self.partitions]
        return any(not self.consumer.position_at_end(partition, each.base) for partition, each in owned)

    async def _reload_forgotten(self) -> bool:
        """Load idle partitions whose stored offset went back: without checkpoints they would not notice it.

        Returns False if Redis did not answer.
        """
        idle = {
            partition: (owned, owned.base) for partition, owned in self.partitions.items() if owned.next == owned.base
        }
        try:
            with self._failures.attempt("read the stored offsets"):
                stored = await self._store.offsets()
        except RedisError as error:
            self._failures.failed(error)
            return False  # the next checkpoint or round checks the state
        for partition, (owned, base) in idle.items():
            unchanged = self.partitions.get(partition) is owned and owned.next == owned.base == base
            if unchanged and stored[partition] != base:
                log.warning("stored offset went back", partition=partition, base=base)
                self._options.on_rollback()
                self._load_soon(partition)
        return True

    async def checkpoint(self, partition: int) -> bool:
        """Store what a partition has folded since its last checkpoint, and acknowledge it to Kafka.

        Returns False if it is not certainly stored: then the memory is dropped and the stored state loaded.
        """
        owned = self.partitions.get(partition)
        if owned is None:
            return False
        async with owned.storing:
            if self.partitions.get(partition) is not owned:
                return False
            if owned.next == owned.base:
                return True
            following = owned.next
            stored = await self._store_changes(partition, owned)
            if self.partitions.get(partition) is not owned:
                return False
            if not stored:
                self._load_soon(partition)
                return False
            owned.base = following
            owned.fold.drop_closed()
            if owned.epoch is not None:
                self.consumer.acknowledge(partition, owned.epoch, following)
            return True

    async def _store_changes(self, partition: int, owned: OwnedPartition) -> bool:
        """Write the changes; False if Redis rejected them, or if it is unknown whether they are stored."""
        following, changes = owned.next, take_changes(owned.fold)
        try:
            with METERS.timed(CHECKPOINT_SECONDS), self._failures.name_operation(_CHECKPOINT, partition):
                if self._options.confirm_topic is not None:  # after the last of these records was fetched, not before
                    await self._options.confirm_topic()
                stored = await self._store.checkpoint(partition, owned.base, following, changes)
        except (RedisError, KafkaError) as error:  # it may be stored nevertheless
            METERS.count(CHECKPOINTS, result="failed")
            self._failures.failed(error)
            return False
        except HatcastError as error:
            self.partitions.pop(partition, None)
            self._fail(error)
            return False
        except BaseException:  # cancelled, or a bug: these changes are taken from the memory
            self.partitions.pop(partition, None)
            raise
        METERS.count(CHECKPOINTS, result="stored" if stored else "refused")
        if stored:
            self._failures.succeeded(_CHECKPOINT, partition)
            owned.outcomes = count_outcomes(self._options.counter, owned.outcomes, changes.outcomes)
        else:
            log.warning("checkpoint rejected", partition=partition, base=owned.base)
            self._options.on_rollback()  # or another worker has the partition
        return stored

    # Loading, and waiting for the clock: one task for each partition parks and starts it.

    def _load_soon(self, partition: int) -> None:
        self.partitions.pop(partition, None)
        self._park_soon(partition)

    def _park_soon(self, partition: int) -> None:
        running = self._loading.get(partition)
        if running is not None and not running.done():
            self._load_again.add(partition)  # it may be too late for the running task to notice
            return
        task = asyncio.create_task(self._load(partition))
        task.add_done_callback(self._loaded)
        self._loading[partition] = task

    def _loaded(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))

    async def _load(self, partition: int) -> None:
        """Park the partition, wait for the clock or load its state, and start it there.

        Retries with backoff; ends when the partition is started, or not assigned any more.
        """
        attempt = 0
        while True:
            try:
                await self.consumer.park_partition(partition)
                if partition in self.consumer.assigned():
                    owned = self.partitions.get(partition)
                    if owned is not None and owned.early is not None:
                        await self._start_when_allowed(partition, owned, owned.early)
                    else:
                        with self._failures.attempt("load a partition", partition):
                            await self._start(partition)
            except ConsumerStoppedError:
                return
            except (RedisError, KafkaError) as error:
                self._failures.failed(error)
                await asyncio.sleep(back_off_s(attempt))
                attempt += 1
            else:
                if partition not in self._load_again:
                    return
                self._load_again.discard(partition)

    async def _start_when_allowed(self, partition: int, owned: OwnedPartition, early: EarlyRecord) -> None:
        """Start a partition from memory once the clock allows its next record, unless the memory is dropped."""
        await self.early_records.until_allowed(partition, early, lambda: self.partitions.get(partition) is owned)
        if self.partitions.get(partition) is owned:
            owned.early = None
            if await self.consumer.start_partition(partition, owned.next) is None:
                self.partitions.pop(partition, None)

    async def _start(self, partition: int) -> None:
        options = self._options
        if options.confirm_topic is not None:
            await options.confirm_topic()
        start, end = (await self.consumer.log_range([partition]))[partition]
        try:
            offset, stored = await self._store.open(partition, start, options.user_key, accept_gap=options.accept_gap)
        except OtherUserKey:
            if options.restore is not None:  # if all of Redis went back to another key, this error has a simpler fix
                await options.restore()
            raise
        # After the open: whatever Redis loses from here on also ends our right to write to it, so everything that we
        # are going to store is under the user key that was found.
        if options.restore is not None:
            await options.restore()
        if offset > end:  # or `end` is old: this worker may have been paused while others folded on
            _, end = (await self.consumer.log_range([partition]))[partition]
        if offset > end:
            raise HatcastError(
                f"{self._store.topic} partition {partition}: the stored offset {offset} is beyond the topic's end"
                f" {end}: this is not the topic that was folded; configure the old one, or start under a new"
                " policy.name"
            )
        fold = self._make_fold(partition)
        restore(fold, stored)
        if stored.missing:
            log.warning(
                "earlier records were deleted: unreleased HATs of their days are incomplete", partition=partition
            )
        self.partitions[partition] = OwnedPartition(
            fold, offset, offset, monotonic_s(), stored.missing, stored.outcomes
        )
        if await self.consumer.start_partition(partition, offset) is None:
            self.partitions.pop(partition, None)
        else:
            log.info("partition started", partition=partition, offset=offset)
