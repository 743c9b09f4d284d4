"""Consumer thread: fetches records and chains them into batches for every started partition."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiokafka
from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import ConsumerStoppedError, KafkaError, OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.threads import WorkerThread

from hatcast.agents.clock import monotonic_s
from hatcast.agents.kafka.aio import back_off_reconnects
from hatcast.agents.kafka.batches.batch import BatchSettings, RecordBatch
from hatcast.agents.kafka.batches.fetched import FetchedChunk, return_chunks

if TYPE_CHECKING:
    from hatcast.agents.kafka.batches.consumer import BatchConsumer

Result = TypeVar("Result")

WAIT_SECONDS: Final = 0.5  # for records; new records end the wait at once
FIRST_WAIT_SECONDS: Final = 0.1  # the same until brokers have answered for all partitions, for which /readyz waits
QUEUE_FULL_SECONDS: Final = 0.02  # between checks of a full queue: less than the agent needs to drain it
FETCH_WAIT_MS: Final = 100  # a fetch of partitions at their end delays the broker's other partitions by this much
NO_PARTITION: Final = TopicPartition("", 0)  # a poll of it returns nothing
COMMIT_SECONDS: Final = 5.0
LEAVE_SECONDS: Final = 5.0
HEARTBEATS_PER_SESSION: Final = 5  # per session timeout
# A group leader whose metadata does not have the topic yet assigns no partitions; it rebalances once its metadata has
# them. aiokafka's default refreshes metadata every five minutes.
METADATA_SECONDS: Final = 10.0
JOIN_SECONDS: Final = 10.0  # added to the rebalance timeout, for which the broker delays the join response


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

    async def call(self, function: Callable[..., Awaitable[Result]], *args: object) -> Result:
        """Run a method of this class in this thread; calls run in order.

        Raises ConsumerStoppedError if the thread is stopping; Faust's ``call_thread`` would never return then.
        """
        if self.should_stop or self.thread_loop.is_closed():
            raise ConsumerStoppedError
        future = asyncio.run_coroutine_threadsafe(_coroutine(function(*args)), self.thread_loop)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ConsumerStoppedError from None  # the thread has ended; this task was not cancelled

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

        Returns an empty list if there is no capacity or nothing was fetched. The caller calls again, and these polls
        keep the worker in its group while the agent is blocked.
        """
        if capacity <= 0:
            await self._ensure_consumer().getmany(NO_PARTITION)
            await asyncio.sleep(QUEUE_FULL_SECONDS)
            return []
        self._arrived.clear()
        batches = await self._drain(capacity)
        if not batches:
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_SECONDS if self._all_answered() else FIRST_WAIT_SECONDS):
                    await self._arrived.wait()
            batches = await self._drain(capacity)
        return batches

    async def commit_positions(self, positions: Mapping[int, int]) -> bool:
        """Commit offsets; log a failure as a warning, where Faust would crash: only operators read these offsets."""
        commits = {self._tp(partition): OffsetAndMetadata(position, "") for partition, position in positions.items()}
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._ensure_consumer().commit(commits)
        except (KafkaError, TimeoutError) as error:
            self.log.warning("Offsets were not committed to Kafka: %r", error)
            return False
        return True

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

    def in_group(self) -> bool:
        """Return whether the coordinator is known and no rejoin is needed. Any thread may call it: it only reads."""
        consumer = self._consumer
        if consumer is None or consumer._coordinator is None or consumer._subscription.subscription is None:  # noqa: SLF001 - there is no public way
            return False
        coordinator, subscription = consumer._coordinator, consumer._subscription.subscription  # noqa: SLF001 - as above
        return coordinator.coordinator_id is not None and not coordinator.need_rejoin(subscription)

    def member_id(self) -> str | None:
        """Return this worker's id in the group, also while it joins. Any thread may call it: it only reads."""
        coordinator = None if self._consumer is None else self._consumer._coordinator  # noqa: SLF001 - as above
        return None if coordinator is None else coordinator.member_id or None

    def _all_answered(self) -> bool:
        return bool(self._chains) and self._chains.keys() <= self.answered.keys()

    async def _drain(self, capacity: int) -> list[RecordBatch]:
        """Return up to `capacity` batches of fetched records. It waits only while the group rebalances."""
        # aiokafka drains one partition completely before the next, and fetches the drained ones again while the others
        # are processed. Round robin would drain all at the same time, and then wait for the broker.
        consumer = self._ensure_consumer()
        started = [self._tp(partition) for partition in self._chains]
        batches: list[RecordBatch] = []
        try:
            fetched = await consumer.getmany(*(started or [NO_PARTITION]), max_records=capacity)
        except OffsetOutOfRangeError as error:
            # For aiokafka this poll never ends, so it would not notice any more that the event loop hangs.
            consumer._subscription._fetch_count -= 1  # noqa: SLF001 - there is no public way
            for tp in error.args[0]:
                self._lose(tp)
            return batches
        for tp, chunks in fetched.items():
            for chunk in chunks:
                chain = self._chains.get(tp.partition)
                if chain is None:  # a rebalance ended the chain meanwhile
                    break
                if chunk.base != chain.next:  # aiokafka has reset the position
                    self._lose(tp)
                    break
                batches.append(_record_batch(tp.partition, chain, chunk))
                chain.next = chunk.next
        self._note_positions(consumer)
        return batches

    def _note_positions(self, consumer: aiokafka.AIOKafkaConsumer) -> None:
        """Store the log's end and the time of the last fetch response of each started partition."""
        assigned = consumer.assignment()
        for partition, chain in self._chains.items():
            tp = self._tp(partition)
            end = consumer.highwater(tp) if tp in assigned else None
            if end is not None:
                self.ends[partition] = end
                self.answered[partition] = consumer.last_poll_timestamp(tp)
                self._note_blocked(partition, chain.next, consumer.last_stable_offset(tp), end)

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
        self._arrived = return_chunks(self._ensure_consumer(), self.settings.batch_records)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Discard anything fetched after revocation."""
        self._chains.clear()
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Park all partitions after a rebalance, before aiokafka has a position to fetch from."""
        self._chains.clear()
        self.ends.clear()
        self.answered.clear()
        self.blocked.clear()
        self._pause(map(driver.ensure_aiokafka_TP, assigned))
        await super().on_partitions_assigned(assigned, generation_id)

    def _create_consumer(self, loop: asyncio.AbstractEventLoop) -> aiokafka.AIOKafkaConsumer:
        """Create an aiokafka consumer that reads committed records and never resets a position by itself."""
        settings = self.settings
        consumer = aiokafka.AIOKafkaConsumer(
            client_id=settings.name,
            group_id=settings.name,
            bootstrap_servers=[server.strip() for server in settings.bootstrap_servers.split(",")],
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
            enable_auto_commit=False,
            auto_offset_reset="none",  # "earliest" would silently skip records that retention deleted
            isolation_level="read_committed",  # Faust reads aborted transactions
            max_partition_fetch_bytes=settings.partition_bytes,
            fetch_max_bytes=settings.fetch_bytes,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            max_poll_interval_ms=_ms(settings.poll_seconds),
            metadata_max_age_ms=_ms(METADATA_SECONDS),
            session_timeout_ms=_ms(settings.session_timeout),
            heartbeat_interval_ms=_ms(settings.session_timeout / HEARTBEATS_PER_SESSION),
            rebalance_timeout_ms=_ms(settings.rebalance_timeout),
            request_timeout_ms=_ms(settings.rebalance_timeout + JOIN_SECONDS),
            **settings.security,
        )
        back_off_reconnects(consumer._client)  # noqa: SLF001 - a producer has a public `client`, a consumer does not
        return consumer

    async def on_thread_stop(self) -> None:
        """Leave the group, but do not wait for aiokafka's request timeout if the broker does not answer."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await super().on_thread_stop()
        except TimeoutError:
            await self._disconnect()
            self.log.warning("Kafka did not answer: the group reassigns the partitions after the session timeout")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # This task was not cancelled: aiokafka cancels a fetch that waits for its next attempt, and the error gets
            # here before its client is closed. By then it has left the group.
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


async def _coroutine(awaitable: Awaitable[Result]) -> Result:
    return await awaitable


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _record_batch(partition: int, chain: Chain, chunk: FetchedChunk) -> RecordBatch:
    return RecordBatch(
        partition=partition,
        epoch=chain.epoch,
        base=chain.next,
        next=chunk.next,
        offsets=chunk.offsets,
        timestamps=chunk.timestamps,
        values=chunk.values,
        lost=chunk.lost,
    )
