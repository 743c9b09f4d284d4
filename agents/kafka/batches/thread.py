"""The consumer's own thread: it fetches, and keeps the chain of every partition that was started."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import aiokafka
from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import ConsumerStoppedError, KafkaError
from aiokafka.structs import OffsetAndMetadata
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from hatcast.agents.kafka.backoff import back_off_reconnects
from hatcast.agents.kafka.batches.batch import BatchSettings, RecordBatch
from hatcast.agents.kafka.batches.fetched import Chunk, Fetched, Nothing

if TYPE_CHECKING:
    from hatcast.agents.kafka.batches.consumer import BatchConsumer

Result = TypeVar("Result")

WAIT_SECONDS: Final = 0.5  # for records; new ones end the wait at once
FULL_SECONDS: Final = 0.02  # between looks at a full queue: less than the agent needs for it
FETCH_WAIT_MS: Final = 100  # a fetch of partitions at their end holds up the others of that broker for as long
COMMIT_SECONDS: Final = 5.0
LEAVE_SECONDS: Final = 5.0
HEARTBEATS: Final = 5  # in a session timeout
# A group whose leader has just found the broker, and not yet the topic, hands out no partitions; it does so again where
# the leader sees them. aiokafka looks every five minutes.
METADATA_SECONDS: Final = 10.0
JOIN_SECONDS: Final = 10.0  # the broker holds the answer to a join back for the whole rebalance timeout


@dataclass(slots=True)
class Chain:
    """Where the next frame of a partition begins."""

    epoch: int
    next: int


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread with chains. Only this thread touches them, and never over an ``await``.

    A partition without a chain is parked: paused in aiokafka, and nothing of it is handed over.
    """

    def __init__(self, consumer: "BatchConsumer", settings: BatchSettings, **service: Any) -> None:
        self.settings = settings
        # Of what is fetched, also read by the app's loop: the log's end at the last answer, and when that was (ms UTC).
        self.ends: dict[int, int] = {}
        self.answered: dict[int, int] = {}
        self._chains: dict[int, Chain] = {}
        self._frames = consumer
        super().__init__(consumer, **service)

    async def call(self, function: Callable[..., Awaitable[Result]], *args: object) -> Result:
        """Run a method of this class in this thread, in the order of the calls.

        Not Faust's ``call_thread``: a call that comes while the thread stops would never return. Raises
        ConsumerStoppedError then.
        """
        if self.should_stop or self.thread_loop.is_closed():
            raise ConsumerStoppedError
        there = asyncio.run_coroutine_threadsafe(_coroutine(function(*args)), self.thread_loop)
        try:
            return await asyncio.wrap_future(there)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ConsumerStoppedError from None  # the thread ended, nobody cancelled us

    async def start_chain(self, partition: int, offset: int, epoch: int) -> bool:
        """Fetch ``partition`` from ``offset`` on; False if it is not ours."""
        self._chains.pop(partition, None)
        self.ends.pop(partition, None)
        self.answered.pop(partition, None)
        if not self._fetched().seek(self._tp(partition), offset):
            return False
        self._chains[partition] = Chain(epoch, offset)
        return True

    async def park(self, partition: int) -> None:
        """Fetch no more of it."""
        self._chains.pop(partition, None)
        self._fetched().pause([self._tp(partition)])

    async def take(self, room: int) -> list[RecordBatch]:
        """At most ``room`` frames, one a partition; waits a little for the first.

        Comes back empty-handed where there is no room, or nothing to fetch: the caller asks again, and that is what
        keeps the worker in its group while the agent stands still.
        """
        fetched = self._fetched()
        with fetched.polling():
            if room <= 0:
                await asyncio.sleep(FULL_SECONDS)
                return []
            frames = self._drain(fetched, room)
            if not frames:
                await fetched.wait(WAIT_SECONDS)
                frames = self._drain(fetched, room)
            return frames

    async def log_range(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """First offset and end (of what is readable: before the first open transaction) of each; raises KafkaError."""
        consumer = self._ensure_consumer()
        tps = [self._tp(partition) for partition in partitions]
        starts = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
        return {tp.partition: (starts[tp], ends[tp]) for tp in tps}

    def partition_count(self) -> int | None:
        """How many partitions the topic has, as last heard of. Called by the app's loop: it only looks."""
        known = None if self._consumer is None else self._consumer.partitions_for_topic(self.settings.topic)
        return None if known is None else len(known)

    def in_group(self) -> bool:
        """See `Fetched.in_group`. Called by the app's loop: it only looks."""
        return self._consumer is not None and Fetched(self._consumer).in_group()

    def _drain(self, fetched: Fetched, room: int) -> list[RecordBatch]:
        frames: list[RecordBatch] = []
        for tp in fetched.partitions():
            chain = self._chains.get(tp.partition) if tp.topic == self.settings.topic else None
            if chain is None:
                continue
            frames += self._drain_partition(fetched, tp, chain, room - len(frames))
            if len(frames) == room:
                break
        for partition in self._chains:
            end = fetched.highwater(self._tp(partition))
            if end is not None:
                self.ends[partition] = end
            answered = fetched.answered_ms(self._tp(partition))
            if answered is not None:
                self.answered[partition] = answered
        return frames

    def _drain_partition(self, fetched: Fetched, tp: TopicPartition, chain: Chain, room: int) -> list[RecordBatch]:
        # To its end, before the next partition: aiokafka fetches what ran empty while the others are worked on. Taking
        # turns empties all at the same time, and then everybody waits for the broker.
        frames: list[RecordBatch] = []
        while len(frames) < room:
            chunk = fetched.take(tp, chain.next, self.settings.batch_records)
            if chunk is Nothing.GONE:
                self._lose(fetched, tp, chain)
            if not isinstance(chunk, Chunk):
                break
            if chunk.next > chain.next:
                frames.append(_frame(tp.partition, chain, chunk))
                chain.next = chunk.next
        return frames

    def _lose(self, fetched: Fetched, tp: TopicPartition, chain: Chain) -> None:
        del self._chains[tp.partition]
        fetched.pause([tp])
        self.parent_loop.call_soon_threadsafe(self._frames.lose_partition, tp.partition, chain.epoch, chain.next)

    def _fetched(self) -> Fetched:
        return Fetched(self._ensure_consumer())

    def _tp(self, partition: int) -> TopicPartition:
        return TopicPartition(self.settings.topic, partition)

    # From here on in place of Faust's own.

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Before a rebalance: what is fetched from here on is nobody's."""
        self._chains.clear()
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """After a rebalance: all parked, before aiokafka has a position to fetch from."""
        self._chains.clear()
        self.ends.clear()
        self.answered.clear()
        self._fetched().pause(map(driver.ensure_aiokafka_TP, assigned))
        await super().on_partitions_assigned(assigned, generation_id)

    def _create_consumer(self, loop: asyncio.AbstractEventLoop) -> aiokafka.AIOKafkaConsumer:
        """An aiokafka consumer that reads what is committed and never chooses a position by itself."""
        wanted = self.settings
        consumer = aiokafka.AIOKafkaConsumer(
            client_id=wanted.name,
            group_id=wanted.name,
            bootstrap_servers=[server.strip() for server in wanted.bootstrap_servers.split(",")],
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
            enable_auto_commit=False,
            auto_offset_reset="none",  # "earliest" would jump over what retention deleted, without a word
            isolation_level="read_committed",  # Faust reads aborted transactions
            max_partition_fetch_bytes=wanted.partition_bytes,
            fetch_max_bytes=wanted.fetch_bytes,
            fetch_max_wait_ms=FETCH_WAIT_MS,
            max_poll_interval_ms=_ms(wanted.poll_seconds),
            metadata_max_age_ms=_ms(METADATA_SECONDS),
            session_timeout_ms=_ms(wanted.session_timeout),
            heartbeat_interval_ms=_ms(wanted.session_timeout / HEARTBEATS),
            rebalance_timeout_ms=_ms(wanted.rebalance_timeout),
            request_timeout_ms=_ms(wanted.rebalance_timeout + JOIN_SECONDS),
            **wanted.security,
        )
        back_off_reconnects(consumer._client)  # noqa: SLF001 - a producer shows its client, a consumer does not
        return consumer

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Kafka's committed offsets are for people: that they cannot be written is a warning, where Faust crashes."""
        wanted = {driver.ensure_aiokafka_TP(tp): OffsetAndMetadata(offset, "") for tp, offset in offsets.items()}
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._ensure_consumer().commit(wanted)
        except (KafkaError, TimeoutError) as error:
            self.log.warning("Offsets were not committed to Kafka: %r", error)
            return False
        return True

    async def on_thread_stop(self) -> None:
        """Leave the group, unless the broker does not answer: aiokafka would wait for its request timeout."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await super().on_thread_stop()
        except TimeoutError:
            await self._fetched().disconnect()
            self.log.warning("Kafka did not answer: the group takes the partitions back after the session timeout")
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Nobody cancelled us: aiokafka cancels a fetch that waits for its next try, and lets that through before
            # its client is closed. The group was left by then.
            await self._fetched().disconnect()

    def close(self) -> None:
        """Nothing. Faust calls it where a rebalance meets a stop, and closes aiokafka from the wrong loop.

        ``on_thread_stop`` follows in any case, and does it in order.
        """

    def _start_thread(self) -> None:
        with suppress(Exception):  # `crash` has told the app; threading would only print it once more
            super()._start_thread()

    def on_crash(self, msg: str, *fmt: Any, **kwargs: Any) -> None:
        """Nothing: ``crash`` logs it, so it need not be printed as well."""


async def _coroutine(awaitable: Awaitable[Result]) -> Result:
    return await awaitable


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _frame(partition: int, chain: Chain, chunk: Chunk) -> RecordBatch:
    records = chunk.records
    offsets: range | list[int] = range(0)
    if records:
        offsets = range(records[0].offset, records[-1].offset + 1)
        if len(offsets) != len(records):
            offsets = [record.offset for record in records]
    return RecordBatch(
        partition=partition,
        epoch=chain.epoch,
        base=chain.next,
        next=chunk.next,
        offsets=offsets,
        timestamps=[record.timestamp for record in records],
        keys=[record.key for record in records],
        values=[record.value for record in records],
    )
