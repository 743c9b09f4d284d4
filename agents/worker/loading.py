"""Load partitions: put their stored state in memory, and start reading at its offset.

Each partition has one task, which parks it and starts it again: from the stored state, or from memory once this
machine's clock allows a record that was dated too far ahead.
"""

import asyncio
from typing import Any

import structlog
from aiokafka.errors import ConsumerStoppedError, KafkaError
from redis.exceptions import RedisError

from hatcast.agents.clock import monotonic_s
from hatcast.agents.kafka.batches.consumer import BatchConsumer
from hatcast.agents.monitoring.failures import FailureLog, back_off_s
from hatcast.agents.redis.identity import OtherUserKey
from hatcast.agents.redis.partition_store import beyond_end_error
from hatcast.agents.worker.early_record import EarlyRecord
from hatcast.agents.worker.early_records import EarlyRecords
from hatcast.agents.worker.partition import OwnedPartition
from hatcast.agents.worker.source import IngestOptions, Source
from hatcast.stream.fold.checkpoint import Stored, restore
from hatcast.stream.fold.partition_fold import PartitionFold

log = structlog.get_logger()


class PartitionLoader:
    """Loads and starts the partitions of one topic. Retries with backoff while Redis or Kafka does not answer.

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

    def cancel(self) -> None:
        """Cancel all loads: the partitions are revoked."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._again.clear()

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

    def _restored(self, partition: int, stored: Stored) -> PartitionFold[Any]:
        """Return a new fold with a stored state. Raises ValueError if it lacks users, or is of another version."""
        fold = self._source.make_fold(partition)
        restore(fold, stored)
        return fold
