"""Consumer thread: fetches records and chains them into batches for every started partition."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiokafka
from aiokafka import TopicPartition
from aiokafka.errors import ConsumerStoppedError, OffsetOutOfRangeError
from faust.transport.drivers import aiokafka as driver
from mode.threads import WorkerThread

from hatcast.agents.clock import monotonic_s
from hatcast.agents.kafka.aio import back_off_reconnects
from hatcast.agents.kafka.batches.batch import METADATA_SECONDS, BatchSettings, RecordBatch
from hatcast.agents.kafka.batches.fetched import return_columns

if TYPE_CHECKING:
    from hatcast.agents.kafka.batches.consumer import BatchConsumer

Result = TypeVar("Result")

WAIT_SECONDS: Final = 0.5  # for records; new records end the wait at once
FIRST_WAIT_SECONDS: Final = 0.1  # the same until brokers have answered for all partitions, for which /readyz waits
QUEUE_FULL_SECONDS: Final = 0.02  # between checks of a full queue: less than the agent needs to drain it
FETCH_WAIT_MS: Final = 100  # a fetch of partitions at their end delays the broker's other partitions by this much
STOP_SECONDS: Final = 5.0


class _QuietThread(WorkerThread):
    """Thread that prints no traceback: mode has passed the error to the app by then."""

    def run(self) -> None:
        """Run the service's loop."""
        with suppress(Exception):
            super().run()


@dataclass(slots=True)
class Chain:
    """Chain of a partition's batches: its epoch, and the offset at which the next batch begins."""

    epoch: int
    next: int


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread, with a chain per started partition.

    Only this thread reads and writes the chains, and never across an ``await``. A partition without a chain is parked:
    paused in aiokafka, and none of its records are passed on.
    """

    Worker = _QuietThread

    def __init__(self, consumer: "BatchConsumer", settings: BatchSettings, **service: Any) -> None:
        self.settings = settings
        # By started partition, from the last fetch response: the log's end, the response's time (ms UTC), and of those
        # that wait for an open transaction its offset and since when (monotonic seconds). The app's loop reads them.
        self.ends: dict[int, int] = {}
        self.answered: dict[int, int] = {}
        self.blocked: dict[int, tuple[int, float]] = {}
        self._chains: dict[int, Chain] = {}
        self._arrived = asyncio.Event()
        self._batch_consumer = consumer
        super().__init__(consumer, **service)

    async def call(self, function: Callable[..., Coroutine[Any, Any, Result]], *args: object) -> Result:
        """Run a method of this class in this thread; calls run in order.

        Raises ConsumerStoppedError if the thread is stopping; Faust's ``call_thread`` would never return then.
        """
        if self.should_stop or self.thread_loop.is_closed():
            raise ConsumerStoppedError
        future = asyncio.run_coroutine_threadsafe(function(*args), self.thread_loop)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ConsumerStoppedError from None  # the thread has ended; this task was not cancelled

    async def assign(self, partitions: Collection[int]) -> None:
        """Fetch from these partitions only. Those that are started go on where they are; the others are parked."""
        consumer = self._ensure_consumer()
        consumer.assign([self._tp(partition) for partition in partitions])
        for partition in partitions:
            chain, tp = self._chains.get(partition), self._tp(partition)
            consumer.seek(tp, 0 if chain is None else chain.next)  # aiokafka would look for a position else
            if chain is None:
                consumer.pause(tp)

    async def start_chain(self, partition: int, offset: int, epoch: int) -> bool:
        """Fetch ``partition`` from ``offset`` on; return False if it is not assigned."""
        self._chains.pop(partition, None)
        self.ends.pop(partition, None)
        self.answered.pop(partition, None)
        self.blocked.pop(partition, None)
        consumer, tp = self._ensure_consumer(), self._tp(partition)
        if tp not in consumer.assignment():
            return False
        consumer.seek(tp, offset)
        consumer.resume(tp)
        self._chains[partition] = Chain(epoch, offset)
        return True

    async def park(self, partition: int) -> None:
        """Stop fetching a partition."""
        self._chains.pop(partition, None)
        self.blocked.pop(partition, None)
        self._pause([self._tp(partition)])

    async def take(self, capacity: int) -> list[RecordBatch]:
        """Return up to ``capacity`` batches; wait briefly for the first.

        Returns an empty list if there is no capacity or nothing was fetched.
        """
        if capacity <= 0:
            await asyncio.sleep(QUEUE_FULL_SECONDS)
            return []
        self._arrived.clear()
        batches = await self._drain(capacity)
        if not batches:
            all_answered = self._chains and self._chains.keys() <= self.answered.keys()
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS if all_answered else FIRST_WAIT_SECONDS):
                    await self._arrived.wait()
            batches = await self._drain(capacity)
        return batches

    async def log_range(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Return each partition's first offset and its end before the first open transaction. Raises KafkaError."""
        consumer = self._ensure_consumer()
        tps = [self._tp(partition) for partition in partitions]
        starts = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
        return {tp.partition: (starts[tp], ends[tp]) for tp in tps}

    def partition_count(self) -> int | None:
        """Return the last known number of partitions of the topic. Any thread may call it: it only reads."""
        known = None if self._consumer is None else self._consumer.partitions_for_topic(self.settings.topic)
        return None if known is None else len(known)

    async def _drain(self, capacity: int) -> list[RecordBatch]:
        """Return up to `capacity` batches of fetched records, without waiting."""
        # aiokafka drains one partition completely before the next, and fetches the drained ones again while the others
        # are processed. Round robin would drain all at the same time, and then wait for the broker.
        consumer = self._ensure_consumer()
        started = [self._tp(partition) for partition in self._chains]
        batches: list[RecordBatch] = []
        if not started:
            return batches
        try:
            fetched = await consumer.getmany(*started, max_records=capacity)  # of FetchedColumns: return_columns
        except OffsetOutOfRangeError as error:
            for tp in error.args[0]:
                self._lose(tp)
            return batches
        for tp, of_partition in fetched.items():
            for columns in of_partition:
                chain = self._chains.get(tp.partition)
                if chain is None:
                    break
                if columns.base != chain.next:  # aiokafka has reset the position
                    self._lose(tp)
                    break
                batches.append(RecordBatch(tp.partition, chain.epoch, *columns))
                chain.next = columns.next
        assigned = consumer.assignment()
        for partition, chain in self._chains.items():
            tp = self._tp(partition)
            end = consumer.highwater(tp) if tp in assigned else None
            if end is not None:
                self.ends[partition] = end
                self.answered[partition] = consumer.last_poll_timestamp(tp)
                self._note_blocked(partition, chain.next, consumer.last_stable_offset(tp), end)
        return batches

    def _note_blocked(self, partition: int, position: int, stable: int | None, end: int) -> None:
        """Note whether all that is committed was taken, and more is in the log, behind an open transaction."""
        if stable is None or not 0 <= stable <= position or stable >= end:  # -1 where a broker sends none
            self.blocked.pop(partition, None)
        elif partition not in self.blocked or self.blocked[partition][0] != stable:
            self.blocked[partition] = stable, monotonic_s()

    def _lose(self, tp: TopicPartition) -> None:
        chain = self._chains.pop(tp.partition, None)
        if chain is not None:
            self._pause([tp])
            self.parent_loop.call_soon_threadsafe(
                self._batch_consumer.lose_partition, tp.partition, chain.epoch, chain.next
            )

    def _pause(self, tps: Iterable[TopicPartition]) -> None:
        """Pause those of the partitions that are assigned."""
        consumer = self._ensure_consumer()
        consumer.pause(*(set(tps) & consumer.assignment()))

    def _tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self.settings.topic, partition)

    # Overrides of Faust's methods.

    async def on_start(self) -> None:
        """Start the consumer."""
        await super().on_start()
        self._arrived = return_columns(self._ensure_consumer(), self.settings.batch_records)

    def _create_consumer(self, loop: asyncio.AbstractEventLoop) -> aiokafka.AIOKafkaConsumer:
        """Create an aiokafka consumer that reads committed records and never resets a position by itself."""
        settings = self.settings
        consumer = aiokafka.AIOKafkaConsumer(
            client_id=settings.name,
            bootstrap_servers=[server.strip() for server in settings.bootstrap_servers.split(",")],
            enable_auto_commit=False,
            auto_offset_reset="none",  # "earliest" would silently skip records that retention deleted
            isolation_level="read_committed",  # Faust reads aborted transactions
            max_partition_fetch_bytes=settings.partition_bytes,
            fetch_max_bytes=settings.fetch_bytes,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            metadata_max_age_ms=round(METADATA_SECONDS * 1000),
            **settings.security,
        )
        back_off_reconnects(consumer._client)  # noqa: SLF001 - a producer has a public `client`, a consumer does not
        return consumer

    async def on_thread_stop(self) -> None:
        """Close the connections, but do not wait for aiokafka's request timeout if the broker does not answer."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await super().on_thread_stop()
        except TimeoutError:
            await self._disconnect()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # This task was not cancelled: aiokafka cancels a fetch that waits for its next attempt, and the error gets
            # here before its client is closed.
            await self._disconnect()

    async def _disconnect(self) -> None:
        """Close the connections at once, also with requests in flight."""
        await self._ensure_consumer()._client.close()  # noqa: SLF001 - there is no public way

    def close(self) -> None:
        """Do nothing: Faust calls it if a rebalance coincides with a stop, and would close aiokafka in the wrong loop.

        ``on_thread_stop`` always follows and closes it properly.
        """

    def on_crash(self, msg: str, *fmt: Any, **kwargs: Any) -> None:
        """Do nothing: ``crash`` logs the error, so Faust need not print it."""
