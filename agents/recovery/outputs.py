"""Read the output topics from given positions to given ends, in bounded memory.

It reads the records of aborted transactions too: a consumer that reads uncommitted records may have seen them.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.aio import KafkaConnectionError
from hatcast.agents.kafka.client import ask_leaders
from hatcast.agents.kafka.cloud_events import is_from_other_domain
from hatcast.agents.kafka.partition_reader import SILENCE_S, connection_errors, is_end, next_messages, open_consumer
from hatcast.stream.ledger.adoption import OutputPartition, Position

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

BATCH_RECORDS: Final = 1_000  # of one batch, at most
PARALLEL_PARTITIONS: Final = 8  # read at the same time
_FILL_S: Final = 0.1  # how long to wait for a full batch
_COMMITTED_FILL_S: Final = 0.01
_FETCH_OPTIONS: Final = {
    "fetch.queue.backoff.ms": 10,  # how long fetching pauses after the queue was full
    # Limits of librdkafka's buffers, per partition and per response.
    "queued.max.messages.kbytes": 2_048,
    "max.partition.fetch.bytes": 1_048_576,
    "fetch.max.bytes": 8_388_608,
}


class LogRange(NamedTuple):
    """Range of an output partition: its first offset, and the position after its last record."""

    start: int
    end: Position


@dataclass(frozen=True, slots=True)
class Record:
    """A record on an output topic. `is_ours`: it is of our domain."""

    offset: int
    key: str
    value: bytes
    is_ours: bool


@dataclass(slots=True)
class OutputBatch:
    """Consecutive records of one output partition."""

    partition: OutputPartition
    following: int  # the offset after them, and after the transaction markers and deleted records that follow them
    records: list[Record] = field(default_factory=list)


class OutputReader:
    """Reads output partitions. Not thread-safe; every method blocks. Raises KafkaConnectionError, of aiokafka."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._source = settings.topics.telemetry
        self._committed_reader: tuple[Consumer, ExitStack] | None = None  # for `committed`

    def ranges(self, topics: Mapping[str, str]) -> dict[OutputPartition, LogRange]:
        """Return the present range of every partition of some topics, open transactions included.

        topics   name -> Kafka's id, "" if the broker has none
        Raises if a topic cannot be read: it does not count as empty.
        """
        found = {}
        with self._consumer("read_uncommitted") as consumer:
            for topic, topic_id in topics.items():
                metadata = consumer.list_topics(topic, timeout=SILENCE_S).topics[topic]
                if metadata.error is not None or not metadata.partitions:
                    raise KafkaConnectionError(f"{topic}: {metadata.error}")
                for partition in sorted(metadata.partitions):
                    start, end = _range(consumer, OutputPartition(topic, partition))
                    found[OutputPartition(topic, partition)] = LogRange(start, Position(topic_id, end))
        return found

    def read(
        self, starts: Mapping[OutputPartition, int], ends: Mapping[OutputPartition, int]
    ) -> Generator[OutputBatch, int | None, None]:
        """Read partitions from their starts to at least their ends, in batches of at most `BATCH_RECORDS` records.

        Partitions are read in the order of `starts`. If the caller sends an offset, the batch's partition continues
        there.
        """
        from confluent_kafka import TopicPartition

        waiting = [partition for partition, start in starts.items() if start < ends[partition]]
        positions: dict[OutputPartition, int] = {}  # of the partitions being read
        with self._consumer("read_uncommitted") as consumer:
            while waiting or positions:
                for partition in waiting[: PARALLEL_PARTITIONS - len(positions)]:
                    waiting.remove(partition)
                    positions[partition] = starts[partition]
                    consumer.incremental_assign([TopicPartition(*partition, starts[partition])])
                for batch in self._batches(next_messages(consumer, BATCH_RECORDS, _FILL_S), positions):
                    partition = batch.partition
                    resume_at = yield batch
                    positions[partition] = batch.following if resume_at is None else resume_at
                    if positions[partition] >= ends[partition]:
                        del positions[partition]
                        consumer.incremental_unassign([TopicPartition(*partition)])
                    elif resume_at is not None:
                        consumer.seek(TopicPartition(*partition, resume_at))

    def _batches(
        self, messages: Iterable["Message"], positions: Mapping[OutputPartition, int]
    ) -> Iterable[OutputBatch]:
        """Group fetched messages by partition, without messages fetched before a seek."""
        found: dict[OutputPartition, OutputBatch] = {}
        for message in messages:
            partition = OutputPartition(message.topic() or "", message.partition() or 0)
            offset, at_end = message.offset() or 0, is_end(message)
            position = found[partition].following if partition in found else positions.get(partition)
            if position is None or offset < position:
                continue
            batch = found.setdefault(partition, OutputBatch(partition, position))
            if not at_end:
                batch.records.append(self._record(message))
            batch.following = offset if at_end else offset + 1
        return found.values()

    def committed(self, partition: OutputPartition, start: int, following: int) -> frozenset[str]:
        """Return the keys of the committed records from offset `start` to before `following`.

        Records after a transaction that is still open, which can only be another domain's, are left out.
        """
        from confluent_kafka import TopicPartition

        found: set[str] = set()
        if self._committed_reader is None:  # one for all calls: connecting takes longer than reading
            stack = ExitStack()
            self._committed_reader = stack.enter_context(self._consumer("read_committed")), stack
        consumer = self._committed_reader[0]
        with connection_errors():
            consumer.assign([TopicPartition(*partition, start)])
            while True:
                for message in next_messages(consumer, BATCH_RECORDS, _COMMITTED_FILL_S):
                    if is_end(message) or (message.offset() or 0) >= following:
                        return frozenset(found)
                    record = self._record(message)
                    if record.is_ours:
                        found.add(record.key)
                    if record.offset + 1 >= following:
                        return frozenset(found)

    def close(self) -> None:
        """Close the open consumer. The reader can be used again."""
        reader, self._committed_reader = self._committed_reader, None
        if reader is not None:
            reader[1].close()

    def _record(self, message: "Message") -> Record:
        key, value = message.key() or b"", message.value() or b""
        headers: Any = message.headers() or []  # its type allows for a mapping, which only a producer takes
        is_ours = not is_from_other_domain(headers, self._source)
        return Record(message.offset() or 0, key.decode(errors="replace"), value, is_ours)

    @contextmanager
    def _consumer(self, isolation: str) -> "Iterator[Consumer]":
        options = {"isolation.level": isolation, **_FETCH_OPTIONS}
        with open_consumer(self._settings, "recovery", options) as consumer, connection_errors():
            yield consumer


def _range(consumer: "Consumer", partition: OutputPartition) -> tuple[int, int]:
    from confluent_kafka import TopicPartition

    return ask_leaders(lambda: consumer.get_watermark_offsets(TopicPartition(*partition), SILENCE_S, cached=False))
