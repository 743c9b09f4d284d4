"""Faust's consumer, one message a frame instead of one a record."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from aiokafka.errors import ConsumerStoppedError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage, Message
from faust.types.transports import ConsumerCallback, ConsumerT
from mode import Service
from mode.types import ServiceT
from mode.utils.futures import notify
from yarl import URL

from hatcast.agents.kafka.batches.batch import BatchHandler, BatchSettings, RecordBatch
from hatcast.agents.kafka.batches.thread import ConsumerThread


class BatchConsumer(driver.Consumer):
    """What the ingest agent talks to, in the app's own loop.

    A partition is parked, or started and then has an epoch. Between thread and agent a frame can be lost at a
    rebalance only, and every rebalance ends all epochs.
    """

    _thread: ConsumerThread

    def __init__(self, transport: "BatchTransport", *args: Any, **kwargs: Any) -> None:
        self.settings = transport.settings
        self._handler = transport.handler
        self._assigned: frozenset[int] = frozenset()
        self._epochs: dict[int, int] = {}
        self._last_epoch = 0
        self._joined = False
        super().__init__(transport, *args, **kwargs)

    # What the agent calls.

    async def start_partition(self, partition: int, offset: int) -> int | None:
        """Read on from ``offset``, in a new epoch. None if the partition is not ours (any more).

        The order that has no race: `park_partition` (unless it is parked), load, put the memory in its place, start;
        a frame is then for that memory if its epoch is `epoch` of its partition.
        Raises ConsumerStoppedError if the worker is ending.
        """
        if partition not in self._assigned:
            return None
        self._last_epoch += 1
        epoch = self._epochs[partition] = self._last_epoch  # before the thread: its first frame may be here first
        tp = self._tp(partition)
        self._acked[tp].clear()
        self._acked_index[tp].clear()
        self._committed_offset[tp] = offset  # may be below what Kafka knows: Redis went back, and so do we
        started = await self._thread.call(self._thread.start_chain, partition, offset, epoch)
        if self._epochs.get(partition) != epoch:  # a rebalance, or a later start
            return None
        if not started:
            del self._epochs[partition]
            return None
        return epoch

    async def park_partition(self, partition: int) -> None:
        """Stop reading it; frames of it that are on their way are stale from now on."""
        self._epochs.pop(partition, None)
        await self._thread.call(self._thread.park, partition)

    def epoch(self, partition: int) -> int | None:
        """The epoch whose frames count; None while it is parked or not ours."""
        return self._epochs.get(partition)

    def assigned(self) -> frozenset[int]:
        """The partitions that are ours, parked or started."""
        return self._assigned

    def acknowledge(self, partition: int, epoch: int, position: int) -> None:
        """All before ``position`` is stored: Kafka may know. Without effect if the epoch is over.

        This, and not ``event.ack()``, keeps no frame in memory until the checkpoint.
        """
        if self._epochs.get(partition) == epoch:
            self._acked[self._tp(partition)] = [position - 1]

    def position_at_end(self, partition: int, position: int) -> bool:
        """Whether ``position`` (the next of the last frame that was folded) is the end of the log, as last heard of.

        The end counts transactions that are still open: behind one, nothing is at the end.
        """
        end = self._thread.ends.get(partition)
        return end is not None and position >= end and partition in self._epochs

    def end(self, partition: int) -> int | None:
        """The end of the log, as last heard of; None where that is not known yet."""
        return self._thread.ends.get(partition)

    def waiting(self) -> int:
        """Frames that wait for the agent."""
        return max((channel.queue.qsize() for channel in self.app.topics), default=0)

    def in_group(self) -> bool:
        """Whether we are a member of the group as far as we know: no rebalance under way, its coordinator known."""
        return self._joined and self._thread.in_group()

    def answered_ms(self) -> int | None:
        """When the brokers last answered for every partition that is read (ms UTC): that of the one silent longest.

        None where nothing is asked of them: nothing is read, or the agent's queue is full. 0 where a partition was
        started and has had no answer yet.
        """
        if self._room() <= 0:
            return None
        return min((self._thread.answered.get(partition, 0) for partition in self._epochs), default=None)

    def partition_count(self) -> int | None:
        """How many partitions the topic has, as last heard of; None where that is not known yet."""
        return self._thread.partition_count()

    async def log_range(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Partition -> first offset and end of the log. Asks the broker; raises KafkaError."""
        return await self._thread.call(self._thread.log_range, list(partitions))

    # What the thread calls.

    def lose_partition(self, partition: int, epoch: int, position: int) -> None:
        """The thread parked it, because the log does not have its position."""
        if self._epochs.get(partition) == epoch:
            del self._epochs[partition]
            self._handler.on_lost(partition, position)

    # From here on in place of Faust's own.

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, self.settings, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        """Where Faust asks for positions, at the end of every rebalance: all stay parked until the handler knows."""
        self._assigned = frozenset(tp.partition for tp in self.assignment() if tp.topic == self.settings.topic)
        self._joined = True
        self._handler.on_assigned(self._assigned)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Before a rebalance, which takes every partition away, those too that come back."""
        await self._let_go()
        await super().on_partitions_revoked(revoked)

    async def on_stop(self) -> None:
        """The end: Faust tells nobody that the partitions go."""
        await self._let_go()
        await super().on_stop()

    async def _let_go(self) -> None:
        partitions, self._assigned = self._assigned, frozenset()  # so nothing is started from here on
        self._joined = False
        self.stop_flow()
        self.app.flow_control.suspend()
        self.app.flow_control.clear()
        if partitions:
            try:
                async with asyncio.timeout(self.settings.revoke_seconds):
                    await self._handler.on_revoked(partitions)
            except TimeoutError:
                self.log.warning("Partitions %s went before the last checkpoint was written", sorted(partitions))
            except Exception as error:  # aiokafka would log it and go on
                await self.crash(error)
            await self.commit()
        self._epochs.clear()

    async def _drain_messages(self, fetcher: ServiceT) -> None:
        """Faust's loop without its two tasks a message and without its books of gaps; a frame's chain replaces them."""
        fetching = cast("Service", fetcher)
        try:
            while not (self.should_stop or fetching.should_stop):
                if not self.flow_active:
                    await self.wait(cast("Any", self.can_resume_flow))
                    continue
                for frame in await self._thread.call(self._thread.take, self._room()):
                    if self._is_current(frame):
                        # The generation of now, as the epoch is: `take` may wait across a rebalance, and Faust's
                        # stream drops what has an older one without a word.
                        await self.callback(self._message(frame, self.app.consumer_generation_id))
        except ConsumerStoppedError:
            if not self.app.should_stop:
                raise

    def _is_current(self, frame: RecordBatch) -> bool:
        return self.flow_active and self._epochs.get(frame.partition) == frame.epoch

    def _room(self) -> int:
        """Frames that the agent's queue still takes, so that putting one in never waits."""
        return self.settings.queued_batches - self.waiting()

    def _message(self, frame: RecordBatch, generation: int) -> Message:
        tp = self._tp(frame.partition)
        last = frame.timestamps[-1] / 1000 if frame.timestamps else 0.0
        message = ConsumerMessage(tp.topic, tp.partition, frame.next - 1, last, 0, None, None, cast("Any", frame), None)
        message.tp, message.generation_id = tp, generation
        return message

    def _tp(self, partition: int) -> TP:
        return TP(self.settings.topic, partition)

    def ack(self, message: Message) -> bool:
        """``event.ack()``, for who holds events; the epoch decides here too."""
        frame = cast("RecordBatch", message.value)
        message.acked = True
        self._unacked_messages.discard(message)
        self.acknowledge(frame.partition, frame.epoch, frame.next)
        notify(self._waiting_for_ack)
        return True

    def _new_offset(self, tp: TP) -> int | None:
        """The newest acknowledgement is the commit. Faust wants every offset before it, and a frame has but one."""
        acked = self._acked[tp]
        if not acked:
            return None
        newest = max(acked)
        acked.clear()
        self._acked_index[tp].clear()
        return newest + 1

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Nothing: holes are inside frames."""

    def on_buffer_full(self, tp: TP) -> None:
        """Nothing: `_room` asks the queue itself, before the fetch and not after it."""

    def on_buffer_drop(self, tp: TP) -> None:
        """Nothing, as above."""

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Nothing: it reports partitions that are parked on purpose, and advises settings that are not used."""


class BatchTransport(driver.Transport):
    """Makes BatchConsumers: this is how settings and handler come from the app to the consumer."""

    def __init__(self, app: Any, settings: BatchSettings, handler: BatchHandler) -> None:
        super().__init__([URL(f"kafka://{server.strip()}") for server in settings.bootstrap_servers.split(",")], app)
        self.settings = settings
        self.handler = handler

    def create_consumer(self, callback: ConsumerCallback, **kwargs: Any) -> ConsumerT:
        """The one consumer of the app."""
        return BatchConsumer(self, callback=callback, loop=self.loop, **kwargs)
