"""Read the output topics from given positions to given ends, in bounded memory.

It reads the records of aborted transactions too: a consumer that reads uncommitted records may have seen them.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aiokafka.errors import KafkaConnectionError, KafkaError

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.kafka.cloud_events import is_from_other_domain
from hatcast.agents.redis.adoption import OutputPartition, Position

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

BATCH_RECORDS: Final = 1_000  # of one batch, at most
PARALLEL_PARTITIONS: Final = 8  # read at the same time
_POLL_S: Final = 0.1  # how long consume() waits to fill a batch
_COMMITTED_POLL_S: Final = 0.01
_TIMEOUT_S: Final = 30.0  # without any record
_BUFFER_LIMITS: Final = {  # of librdkafka, per partition and per response
    "queued.max.messages.kbytes": 2_048,
    "max.partition.fetch.bytes": 1_048_576,
    "fetch.max.bytes": 8_388_608,
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record on an output topic. `is_ours`: it is of our domain."""

    offset: int
    key: str
    value: bytes
    is_ours: bool


@dataclass(slots=True)
class OutputBatch:
    """Consecutive records of one output partition.

    following   the offset after them, and after the transaction markers and deleted records that follow them
    """

    place: OutputPartition
    following: int
    records: list[Record] = field(default_factory=list)


class OutputReader:
    """Reads output partitions. Not thread-safe; every method blocks. Raises KafkaConnectionError, of aiokafka."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._source = settings.topics.telemetry
        self._committed_reader: tuple[Consumer, ExitStack] | None = None  # for `committed`

    def ends(self, topics: Mapping[str, str]) -> dict[OutputPartition, Position]:
        """Return the end of every partition of some topics, open transactions included.

        topics   name -> Kafka's id, "" if the broker has none
        Raises if a topic cannot be read: it does not count as empty.
        """
        from confluent_kafka import TopicPartition

        found = {}
        with self._consumer("read_uncommitted") as consumer:
            for topic, topic_id in topics.items():
                for partition in _partitions(consumer, topic):
                    _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), _TIMEOUT_S, cached=False)
                    found[OutputPartition(topic, partition)] = Position(topic_id, end)
        return found

    def read(
        self, starts: Mapping[OutputPartition, int], ends: Mapping[OutputPartition, int]
    ) -> Generator[OutputBatch, int | None, None]:
        """Read partitions from their starts to at least their ends, in batches of at most `BATCH_RECORDS` records.

        Partitions are read in the order of `starts`. If the caller sends an offset, the batch's partition continues
        there.
        """
        from confluent_kafka import TopicPartition

        waiting = [place for place, start in starts.items() if start < ends[place]]
        positions: dict[OutputPartition, int] = {}  # of the partitions being read
        with self._consumer("read_uncommitted") as consumer:
            heard_s = monotonic_s()
            while waiting or positions:
                for place in waiting[: PARALLEL_PARTITIONS - len(positions)]:
                    waiting.remove(place)
                    positions[place] = starts[place]
                    consumer.incremental_assign([TopicPartition(*place, starts[place])])
                messages = consumer.consume(BATCH_RECORDS, _POLL_S)
                if messages:
                    heard_s = monotonic_s()
                elif monotonic_s() - heard_s > _TIMEOUT_S:
                    raise _connection_error("the output topics could not be read to their ends")
                for batch in self._batches(messages, positions):
                    place = batch.place
                    resume_at = yield batch
                    positions[place] = batch.following if resume_at is None else resume_at
                    if positions[place] >= ends[place]:
                        del positions[place]
                        consumer.incremental_unassign([TopicPartition(*place)])
                    elif resume_at is not None:
                        consumer.seek(TopicPartition(*place, resume_at))

    def _batches(
        self, messages: Iterable["Message"], positions: Mapping[OutputPartition, int]
    ) -> Iterable[OutputBatch]:
        """Group fetched messages by partition, without messages fetched before a seek."""
        found: dict[OutputPartition, OutputBatch] = {}
        for message in messages:
            place = OutputPartition(message.topic() or "", message.partition() or 0)
            offset, is_end = message.offset() or 0, _is_end(message)
            position = found[place].following if place in found else positions.get(place)
            if position is None or offset < position:
                continue
            batch = found.setdefault(place, OutputBatch(place, position))
            if not is_end:
                batch.records.append(self._record(message))
            batch.following = offset if is_end else offset + 1
        return found.values()

    def committed(self, place: OutputPartition, start: int, following: int) -> frozenset[str]:
        """Return the keys of the committed records from offset `start` to before `following`.

        Records after a transaction that is still open, which can only be another domain's, are left out.
        """
        from confluent_kafka import TopicPartition

        found: set[str] = set()
        consumer = self._committed_consumer()
        consumer.assign([TopicPartition(*place, start)])
        heard_s = monotonic_s()
        while monotonic_s() - heard_s <= _TIMEOUT_S:
            for message in consumer.consume(BATCH_RECORDS, _COMMITTED_POLL_S):
                heard_s = monotonic_s()
                if _is_end(message) or (message.offset() or 0) >= following:
                    return frozenset(found)
                record = self._record(message)
                if record.is_ours:
                    found.add(record.key)
                if record.offset + 1 >= following:
                    return frozenset(found)
        raise _connection_error("an output topic could not be read again")

    def _committed_consumer(self) -> "Consumer":
        """Return one consumer for all calls: connecting takes longer than reading."""
        if self._committed_reader is None:
            stack = ExitStack()
            self._committed_reader = stack.enter_context(self._consumer("read_committed")), stack
        return self._committed_reader[0]

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
        from confluent_kafka import Consumer, KafkaException

        options: dict[str, Any] = confluent_options(self._settings) | {
            "group.id": "hatcast-recovery",  # the library requires one; no offset is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # an offset that the log lacks must skip no records
            "isolation.level": isolation,
            # Do not wait for more records at the end of a partition, nor for long when the queue was full.
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 10,
            **_BUFFER_LIMITS,
        }
        consumer = Consumer(options)
        try:
            yield consumer
        except KafkaException as raised:
            raise _connection_error(str(raised)) from None
        finally:
            with suppress(KafkaException):
                consumer.close()


def _is_end(message: "Message") -> bool:
    """Return whether a message is the end of a partition and not a record. Raises KafkaConnectionError for an error."""
    from confluent_kafka import KafkaError as Code

    error = message.error()
    if error is not None and error.code() != Code._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name for it
        raise _connection_error(error.str())
    return error is not None


def _connection_error(why: str) -> KafkaError:
    return KafkaConnectionError(why)


def _partitions(consumer: "Consumer", topic: str) -> list[int]:
    found = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    if found.error is not None or not found.partitions:
        raise _connection_error(f"{topic}: {found.error}")
    return sorted(found.partitions)
