"""Faust with one message per batch instead of one per record: its consumer, and its app."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar, cast

import faust
from aiokafka.errors import ConsumerStoppedError
from faust.app.base import BootStrategy
from faust.tables.manager import TableManager
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, AppT, ConsumerMessage, Message, TopicT
from faust.types.transports import ConsumerCallback, ConsumerT
from mode import Service
from mode.supervisors import CrashingSupervisor
from mode.types import ServiceT
from yarl import URL

from hatcast.agents.kafka.batches.batch import REVOKE_SECONDS, BatchHandler, BatchSettings, RecordBatch
from hatcast.agents.kafka.batches.group import GroupMember
from hatcast.agents.kafka.batches.thread import ConsumerThread


class BatchConsumer(driver.Consumer):
    """Consumer of record batches; runs in the app's event loop.

    A partition is either parked, or started with an epoch. Its group member says which partitions are assigned. Faust
    is told only once, and of one partition: it would stop all of them at every rebalance.
    """

    _thread: ConsumerThread

    def __init__(self, transport: "BatchTransport", *args: Any, **kwargs: Any) -> None:
        self.settings = transport.settings
        self._assigned: frozenset[int] = frozenset()
        self._epochs: dict[int, int] = {}
        self._acknowledged: dict[int, int] = {}  # not committed to Kafka yet
        self._rebalancing = asyncio.Lock()
        self._last_epoch = 0
        self.joined = asyncio.Event()
        super().__init__(transport, *args, **kwargs)
        self._member = GroupMember(self.settings, self)
        self.handler = transport.make_handler(self)

    # Called by the ingest agent.

    async def start_partition(self, partition: int, offset: int) -> int | None:
        """Start reading at ``offset``; return the new epoch, or None if the partition is not assigned (any more).

        Race-free order: `park_partition` (unless parked), load the state, put it in place, start. A batch then belongs
        to that state if its epoch equals `epoch` of its partition.
        Raises ConsumerStoppedError if the worker is stopping.
        """
        if partition not in self._assigned:
            return None
        self._last_epoch += 1
        # Before the call: the first batch may arrive before it returns.
        epoch = self._epochs[partition] = self._last_epoch
        self._acknowledged.pop(partition, None)
        started = await self._thread.call(self._thread.start_chain, partition, offset, epoch)
        if self._epochs.get(partition) != epoch:  # a rebalance, or a later start
            return None
        if not started:
            del self._epochs[partition]
            return None
        return epoch

    async def park_partition(self, partition: int) -> None:
        """Stop reading a partition; batches of it that are already on their way become stale."""
        self._epochs.pop(partition, None)
        await self._thread.call(self._thread.park, partition)

    def epoch(self, partition: int) -> int | None:
        """Return the partition's current epoch; None while it is parked, given up or not assigned."""
        return self._epochs.get(partition) if partition in self._assigned else None

    def assigned(self) -> frozenset[int]:
        """Return the assigned partitions, parked or started."""
        return self._assigned

    def acknowledge(self, partition: int, epoch: int, position: int) -> None:
        """Mark offset ``position`` for the commit to Kafka: everything before it is stored.

        Ignored if the epoch is over. Unlike ``event.ack()``, this keeps no batch in memory until the checkpoint.
        """
        if self._epochs.get(partition) == epoch:
            self._acknowledged[partition] = position

    def position_at_end(self, partition: int, position: int) -> bool:
        """Return whether ``position``, the ``next`` of the last folded batch, is the last known end of the log.

        The end includes open transactions: while one is open, no position is at the end.
        """
        end = self._thread.ends.get(partition)
        return end is not None and position >= end and partition in self._epochs

    def end(self, partition: int) -> int | None:
        """Return the last known end of the log; None before the first fetch response."""
        return self._thread.ends.get(partition)

    def waiting(self) -> int:
        """Return the number of batches that wait for the agent."""
        return max((channel.queue.qsize() for channel in self.app.topics), default=0)

    def in_group(self) -> bool:
        """Return whether this worker has joined its group, and its session has not ended since."""
        return self._member.is_in_group

    def member_id(self) -> str | None:
        """Return this worker's id in the group, also while it joins; None before and after."""
        return self._member.member_id

    def answered_ms(self) -> int | None:
        """Return the time of the last fetch response (ms UTC), of the partition for which it is oldest.

        None if nothing is being fetched, because no partition is started or the agent's queue is full. 0 if a started
        partition has not had a response yet.
        """
        if self._capacity() <= 0:
            return None
        return min((self._thread.answered.get(partition, 0) for partition in self._epochs), default=None)

    def blocked(self) -> dict[int, tuple[int, float]]:
        """Return the started partitions that wait for an open transaction: its offset, since when (monotonic s)."""
        return {partition: wait for partition, wait in self._thread.blocked.copy().items() if partition in self._epochs}

    def partition_count(self) -> int | None:
        """Return the last known number of partitions of the topic; None before the first metadata response."""
        return self._thread.partition_count()

    async def log_range(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Request the first offset and the end of the log of each partition. Raises KafkaError."""
        return await self._thread.call(self._thread.log_range, list(partitions))

    # Called by the consumer thread.

    def lose_partition(self, partition: int, epoch: int, position: int) -> None:
        """Notify the handler that the thread parked a partition: the log does not have its position."""
        if self._epochs.get(partition) == epoch:
            del self._epochs[partition]
            self.handler.on_lost(partition, position)

    # Called by its group member, in the event loop and one at a time; the group waits for each.

    async def gain(self, partitions: frozenset[int]) -> None:
        """Park further partitions, none if a rebalance moved only those of others; the handler starts them."""
        async with self._rebalancing:
            try:
                if not self.joined.is_set():
                    await self._begin()
                await self._own(partitions)
            except ConsumerStoppedError:
                pass
            except Exception as error:
                await self.crash(error)

    async def _begin(self) -> None:
        """Start Faust's flow as it does at the end of a rebalance, for one partition, without seeking."""
        app = cast("faust.App", self.app)
        app.on_rebalance_start()
        await self.on_partitions_assigned({self._tp})
        app.on_rebalance_end()
        self.joined.set()
        if not (self.should_stop or app.should_stop):
            app.flow_control.resume()
            self.resume_flow()
            await app._fetcher.maybe_start()  # noqa: SLF001 - only the end of a rebalance starts it

    async def _own(self, partitions: frozenset[int]) -> None:
        limit = self.settings.partitions
        gained = frozenset(each for each in partitions if limit is None or each < limit)
        if gained:
            await self._thread.call(self._thread.assign, self._assigned | gained)
            if not self.should_stop:  # a stop gives up what is assigned when it begins
                self._assigned |= gained
                self.handler.on_assigned(gained)

    async def give_up(self, partitions: frozenset[int]) -> None:
        """Give up partitions that another member gets, or already has, after their last checkpoint."""
        async with self._rebalancing:
            await self._give_up(partitions)

    async def _give_up(self, partitions: frozenset[int]) -> None:
        gone = partitions & self._assigned
        self._assigned -= gone  # so that none of them is started from here on, and no batch is folded
        if not gone:
            return
        try:
            async with asyncio.timeout(REVOKE_SECONDS):
                await self.handler.on_revoked(gone)
        except TimeoutError:
            self.log.warning("Partitions %s were revoked before their last checkpoint", sorted(gone))
        except Exception as error:
            await self.crash(error)
        for partition in gone:
            self._epochs.pop(partition, None)
            with suppress(ConsumerStoppedError):
                await self._thread.call(self._thread.park, partition)

    async def take_acknowledged(self) -> Mapping[int, int]:
        """Return the positions that were acknowledged since the last call."""
        positions, self._acknowledged = self._acknowledged, {}
        return positions

    # Overrides of Faust's methods.

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, self.settings, loop=self.loop, beacon=self.beacon)

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group."""
        self._member.join()

    async def on_stop(self) -> None:
        """Give up all partitions, and leave the group."""
        self.stop_flow()
        await self._give_up(self._assigned)  # at the same time as a rebalance: each may take `REVOKE_SECONDS`
        async with self._rebalancing:  # wait for what the rebalance gives up
            pass
        await self._member.leave()
        await super().on_stop()

    async def commit(self, topics: object = None, start_new_transaction: bool = True) -> bool:  # noqa: FBT001, FBT002 - Faust's interface
        """Do nothing: the group member commits the acknowledged offsets."""
        return False

    async def _drain_messages(self, fetcher: ServiceT) -> None:
        """Run Faust's loop without its two tasks per message and its gap tracking, which the batch chains replace."""
        fetching = cast("Service", fetcher)
        try:
            while not (self.should_stop or fetching.should_stop):
                for batch in await self._thread.call(self._thread.take, self._capacity()):
                    if self.flow_active and self.epoch(batch.partition) == batch.epoch:
                        await self.callback(self._message(batch))
        except ConsumerStoppedError:
            if not self.app.should_stop:
                raise

    def _capacity(self) -> int:
        """Return the free places in the agent's queue, so that putting a batch never blocks."""
        return self.settings.queued_batches - self.waiting()

    def _message(self, batch: RecordBatch) -> Message:
        tp = self._tp
        last = batch.timestamps[-1] / 1000 if batch.timestamps else 0.0
        message = ConsumerMessage(tp.topic, tp.partition, batch.next - 1, last, 0, None, None, cast("Any", batch), None)
        message.tp, message.generation_id = tp, self.app.consumer_generation_id
        return message

    @property
    def _tp(self) -> TP:
        """The only partition that Faust knows; each batch has its own partition's number."""
        return TP(self.settings.topic, 0)

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing: Faust would warn about parked partitions, and suggest settings that are not used here."""


class BatchTransport(driver.Transport):
    """Transport that creates the BatchConsumer with its settings and handler."""

    def __init__(
        self, app: Any, settings: BatchSettings, make_handler: Callable[[BatchConsumer], BatchHandler]
    ) -> None:
        """Args: `make_handler`, called once by the consumer's constructor."""
        super().__init__([URL(f"kafka://{server.strip()}") for server in settings.bootstrap_servers.split(",")], app)
        self.settings = settings
        self.make_handler = make_handler

    def create_consumer(self, callback: ConsumerCallback, **kwargs: Any) -> ConsumerT:
        """Create the app's only consumer."""
        return BatchConsumer(self, callback=callback, loop=self.loop, **kwargs)


Handler = TypeVar("Handler", bound=BatchHandler)


class BatchSchema(faust.Schema[Any, RecordBatch]):
    """Schema that passes batches through: they are objects, not bytes to decode."""

    def loads_key(self, app: AppT, message: Message, **_: Any) -> None:
        """Return None: the keys are inside the batch."""

    def loads_value(self, app: AppT, message: Message, **_: Any) -> RecordBatch:
        """Return the batch."""
        return cast("RecordBatch", message.value)


class ConsumerOnly(BootStrategy):
    """Boot strategy without Faust's producer (see agents/kafka/producers.py) and its web server on 0.0.0.0."""

    enable_kafka_producer = False
    enable_web = False


class NoTables(TableManager):
    """Manager of Faust's tables, of which the app has none: a rebalance ends without the loop that reads changelogs."""

    async def on_start(self) -> None:
        """Subscribe to the agents' topics at once. Faust would first wait a second for tables."""
        await self._update_channels()

    async def on_rebalance(self, *_: object) -> None:
        """Do nothing: `BatchConsumer` ends the rebalance."""

    async def wait_until_recovery_completed(self) -> bool:
        """Wait until the first rebalance has ended, or the app stops; return whether it stops."""
        return await self.wait_for_stopped(cast("Any", cast("BatchApp", self.app).batch_consumer.joined))


class BatchApp(faust.App):
    """Faust app whose agent on `batch_topic` receives record batches.

    Run it in the caller's event loop, with the caller's signal handlers: ``await app.start()``, then
    ``await app.wait_until_stopped()``, which also returns if the app has crashed (``app.crash_reason``), then
    ``await app.stop()``, which gives up the partitions and leaves the group. An agent that raises crashes the app.
    """

    BootStrategy = ConsumerOnly

    def _create_directories(self) -> None:
        """Make no folders: they are for tables. Overrides Faust's, which makes them in the working directory."""

    async def start(self) -> None:
        """Start the app. If it crashes during the start, raise the reason, such as KafkaConnectionError."""
        await super().start()
        while self.crashed:  # mode does not raise if the consumer's thread has ended before its check
            if self.crash_reason is not None:
                raise self.crash_reason
            await asyncio.sleep(0)  # the thread sets the reason right after the flag

    @property
    def batch_consumer(self) -> BatchConsumer:
        """The consumer; usable from its handler's first `on_assigned` on."""
        return cast("BatchConsumer", self.consumer)

    @property
    def batch_topic(self) -> TopicT:
        """Topic for ``@app.agent(app.batch_topic)``; the agent runs ``async for batch in stream.noack()``."""
        return self.topic(cast("BatchTransport", self.transport).settings.topic, schema=BatchSchema())


def batch_app(settings: BatchSettings, make_handler: Callable[[BatchConsumer], Handler]) -> tuple[BatchApp, Handler]:
    """Create the app and its consumer's handler, without starting it. Call this in the event loop that will run it."""
    app = BatchApp(
        settings.name,
        stream_buffer_maxsize=settings.queued_batches,
        stream_wait_empty=False,  # it would wait for each batch, but batches are acknowledged by offset
        agent_supervisor=CrashingSupervisor,
        topic_allow_declare=False,
        topic_disable_leader=True,
        TableManager=NoTables,
        web_enabled=False,
    )
    app.transport = BatchTransport(app, settings, make_handler)
    return app, cast("Handler", app.batch_consumer.handler)
