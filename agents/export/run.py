"""Export of the new committed records of one output topic."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
from aiokafka.errors import KafkaError

from hatcast.agents.config.settings import Settings
from hatcast.agents.export.folder import ExportFolder, ExportProgress
from hatcast.agents.kafka.client import broker_name
from hatcast.agents.kafka.partition_reader import (
    connection_errors,
    is_end,
    next_messages,
    open_consumer,
    value_of_domain,
)
from hatcast.agents.kafka.topic_ids import TopicIds
from hatcast.agents.kafka.topics import topic_range
from hatcast.agents.tables.records import TABLES
from hatcast.stream.errors import HatcastError

BATCH_RECORDS: Final = 50_000
_FILL_S: Final = 0.2


@dataclass(slots=True)
class ExportBatch:
    """Values of records in offset order within each partition, and the offsets after them."""

    values: list[bytes] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewRecords:
    """Records of a topic that were not read before.

    topic_id   None if the broker is older than topic ids
    starts     partition -> first offset to read
    ends       partition -> offset after the last committed record
    """

    topic: str
    topic_id: str | None
    starts: Mapping[int, int]
    ends: Mapping[int, int]

    @property
    def most(self) -> int:
        """Upper bound of their number: offsets may have holes."""
        return sum(self.ends[partition] - start for partition, start in self.starts.items())

    def batches(self, settings: Settings) -> Iterator[ExportBatch]:
        """Yield the records of this domain in batches; memory is bounded. Raises HatcastError."""
        from confluent_kafka import TopicPartition

        remaining = {partition: end for partition, end in self.ends.items() if end > self.starts[partition]}
        if not remaining:
            return
        with _connection_errors(settings, self.topic), open_consumer(settings, "export", {}) as consumer:
            consumer.assign([TopicPartition(self.topic, each, self.starts[each]) for each in remaining])
            batch = ExportBatch()
            while remaining:
                for message in next_messages(consumer, BATCH_RECORDS, _FILL_S):
                    partition, offset = message.partition(), message.offset()
                    if partition is None or partition not in remaining:
                        continue
                    if is_end(message):
                        batch.offsets[partition] = remaining.pop(partition)
                        continue
                    if offset is None or offset >= remaining[partition]:
                        batch.offsets[partition] = remaining.pop(partition)
                        continue
                    value = value_of_domain(message, settings.topics.telemetry)
                    if value is not None:
                        batch.values.append(value)
                    batch.offsets[partition] = offset + 1
                if len(batch.values) >= BATCH_RECORDS or not remaining:
                    yield batch
                    batch = ExportBatch()


def new_records(settings: Settings, topic: str, before: ExportProgress | None) -> NewRecords:
    """Return the records after an earlier export.

    Raises HatcastError if the broker is unreachable, the topic does not exist, or is another one than before.
    """
    bounds = topic_range(settings, topic)
    with _connection_errors(settings, topic):
        topic_id = asyncio.run(_topic_id(settings, topic))
    ends = {partition: end for partition, (_, end) in enumerate(bounds)}
    starts = {partition: first for partition, (first, _) in enumerate(bounds)}
    if before is not None:
        behind = any(ends.get(partition, -1) < offset for partition, offset in before.offsets.items())
        if behind or (topic_id is not None and before.topic_id not in (None, topic_id)):
            raise HatcastError(
                f"{broker_name(settings)} has another topic {topic} than at the last export: it was created again, or"
                " this is another cluster; export to a new folder"
            )
        # Compaction removes only records that a later one replaces, so a start before the log start misses nothing.
        starts |= {partition: max(starts[partition], offset) for partition, offset in before.offsets.items()}
    return NewRecords(topic, topic_id, starts, ends)


async def _topic_id(settings: Settings, topic: str) -> str | None:
    return (await TopicIds(settings).read([topic]))[topic]


@contextmanager
def _connection_errors(settings: Settings, topic: str) -> Iterator[None]:
    """Turn errors of the Kafka clients within the block into one with a fix."""
    try:
        with connection_errors():
            yield
    except KafkaError:
        raise HatcastError(
            f"{broker_name(settings)} stopped answering while {topic} was read: run the export again, it goes on where"
            " it ended"
        ) from None


class Exported(msgspec.Struct, frozen=True):
    """Result for one table.

    records    records of the topic that were merged into the files
    rejected   records that are not of this table, which were left out
    """

    table: str
    topic: str
    records: int
    rejected: int


def export(settings: Settings, folder: ExportFolder, key: str, advance: Callable[[str, int], None]) -> Exported:
    """Merge the new records of a topic into a folder's files.

    key       the topic's key in `[topics]`, as in TABLES
    advance   called with the topic and the number of offsets that were read since the last call
    Raises HatcastError; the folder then holds what was read before, and the next call goes on there.
    """
    table, topic = TABLES[key], getattr(settings.topics, key)
    new = new_records(settings, topic, folder.progress(topic))
    progress = ExportProgress(new.topic_id, dict(new.starts))
    records = rejected = 0
    for batch in new.batches(settings):
        rows = [row for value in batch.values if (row := table.row(value)) is not None]
        folder.merge(table, rows)
        read = sum(offset - progress.offsets[partition] for partition, offset in batch.offsets.items())
        progress.offsets.update(batch.offsets)
        folder.set_progress(topic, progress)
        records += len(rows)
        rejected += len(batch.values) - len(rows)
        advance(topic, read)
    return Exported(table.name, topic, records, rejected)
