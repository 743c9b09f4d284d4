"""The smallest worker that folds batches: a list for a state, a dictionary for Redis. With topics for it."""

import asyncio
import gc
import resource
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from hatcast.agents.kafka.batches.batch import BatchSettings, RecordBatch
from hatcast.agents.kafka.batches.consumer import batch_app
from tests.services import KafkaServer, Record

Row = tuple[int, int, int, bytes | None]  # partition, offset, timestamp, value
SESSION = 6.0  # the least that a broker takes


def rows_of(batch: RecordBatch) -> list[Row]:
    columns = zip(batch.offsets, batch.timestamps, batch.values, strict=True)
    return [(batch.partition, *row) for row in columns]


@dataclass
class Store:
    """Rows and offsets, changed together, and only from the offset that is expected."""

    offsets: dict[int, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    refused: int = 0

    def write(self, partition: int, base: int, position: int, rows: Iterable[Row]) -> bool:
        if self.offsets[partition] != base:
            self.refused += 1
            return False
        self.offsets[partition] = position
        self.rows += rows
        return True


@dataclass
class Memory:
    epoch: int
    stored: int
    next: int
    rows: list[Row] = field(default_factory=list)


class Worker:
    """Handler and agent: folds, writes every ``checkpoint`` batches, and lets go of what a rebalance moves."""

    def __init__(self, settings: BatchSettings, store: Store, checkpoint: int = 3) -> None:
        self.store, self.checkpoint = store, checkpoint
        self.memory: dict[int, Memory] = {}
        self.assignments: list[frozenset[int]] = []
        self.revocations: list[frozenset[int]] = []
        self.lost: list[tuple[int, int]] = []
        self.stale = 0
        self.seen: list[RecordBatch] = []
        self.start_by_itself = True
        self.pause = 0.0  # after every batch, seconds
        self.gate = asyncio.Event()
        self.gate.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.app, _ = batch_app(settings, lambda _: self)
        self.app.agent(self.app.batch_topic)(self.fold)
        self.consumer = self.app.batch_consumer

    def on_assigned(self, partitions: frozenset[int]) -> None:
        self.assignments.append(partitions)
        if self.start_by_itself:
            task = asyncio.create_task(self.load(partitions))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def on_revoked(self, partitions: frozenset[int]) -> None:
        self.revocations.append(partitions)
        self.write_all()
        for partition in partitions:
            self.memory.pop(partition, None)

    def on_lost(self, partition: int, position: int) -> None:
        self.lost.append((partition, position))
        self.memory.pop(partition, None)

    async def load(self, partitions: Iterable[int]) -> None:
        ranges = await self.consumer.log_range(partitions)
        for partition in partitions:
            offset = self.store.offsets.setdefault(partition, ranges[partition][0])
            epoch = await self.consumer.start_partition(partition, offset)
            if epoch is not None:
                self.memory[partition] = Memory(epoch, offset, offset)

    async def fold(self, stream: Any) -> None:
        async for batch in stream.noack():
            await self.gate.wait()
            self.take(batch)
            await asyncio.sleep(self.pause)

    def take(self, batch: RecordBatch) -> None:
        memory = self.memory.get(batch.partition)
        if memory is None or memory.epoch != batch.epoch or self.consumer.epoch(batch.partition) != batch.epoch:
            self.stale += 1
            return
        if batch.base != memory.next:
            raise BrokenChain(f"{batch.base} after {memory.next}")
        memory.next = batch.next
        memory.rows += rows_of(batch)
        self.seen.append(replace_values(batch))
        if len(self.seen) % self.checkpoint == 0 or self.consumer.position_at_end(batch.partition, batch.next):
            self.write_all()

    def write_all(self) -> None:
        for partition, memory in list(self.memory.items()):
            if self.store.write(partition, memory.stored, memory.next, memory.rows):
                self.consumer.acknowledge(partition, memory.epoch, memory.next)
                self.memory[partition] = replace_memory(memory)
            else:
                del self.memory[partition]


class BrokenChain(Exception):
    """A batch of the current epoch does not begin where the one before it ended."""


def replace_values(batch: RecordBatch) -> RecordBatch:
    """What a test looks at later, without the bytes."""
    return RecordBatch(batch.partition, batch.epoch, batch.base, batch.next, list(batch.offsets), [], [])


def replace_memory(memory: Memory) -> Memory:
    return replace(memory, stored=memory.next, rows=[])


@asynccontextmanager
async def running(settings: BatchSettings, store: Store, **options: Any) -> AsyncIterator[Worker]:
    """A started worker; it is stopped in order afterwards."""
    worker = Worker(settings, store)
    for name, value in options.items():
        setattr(worker, name, value)
    try:
        async with asyncio.timeout(30):
            await worker.app.start()
        yield worker
    finally:
        async with asyncio.timeout(30):
            await worker.app.stop()


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return once it is so; raise TimeoutError else."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def assert_chained(batches: list[RecordBatch]) -> None:
    ends: dict[tuple[int, int], int] = {}
    for batch in batches:
        assert batch.base == ends.get((batch.partition, batch.epoch), batch.base)
        assert batch.base < batch.next
        assert all(batch.base <= offset < batch.next for offset in batch.offsets)
        ends[batch.partition, batch.epoch] = batch.next


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def in_the_queue(topics: Iterable[Any]) -> list[RecordBatch]:
    return [event.value for topic in topics for event in topic.queue._queue]


def committed(kafka: KafkaServer, group: str, partitions: int) -> dict[int, int]:
    reader = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        found = reader.committed([TopicPartition(group, each) for each in range(partitions)], timeout=30)
        return {each.partition: each.offset for each in found}
    finally:
        reader.close()


def settings(kafka: KafkaServer, topic: str, **more: float) -> BatchSettings:
    wanted = {"session_timeout": SESSION, "commit_interval": 0.5, "batch_records": 50}
    return BatchSettings(topic, kafka.bootstrap_servers, topic, **{**wanted, **more})  # type: ignore[arg-type]


def numbered(count: int, partitions: int, size: int = 0) -> list[Record]:
    return [Record(b"%d" % i + b" " * size, b"k%d" % i, i % partitions, 1_000 + i) for i in range(count)]


def in_the_log(kafka: KafkaServer, topic: str) -> list[Row]:
    return [(each.partition, each.offset, each.timestamp_ms, each.value) for each in kafka.read(topic)]


def delete_records(kafka: KafkaServer, topic: str, partition: int, before: int) -> None:
    deleting = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in deleting.delete_records([TopicPartition(topic, partition, before)]).values():
        future.result()
