"""Read the output topics from given positions to given ends, in bounded memory.

Every record counts, those of aborted transactions too: a reader of uncommitted records may have seen them.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from aiokafka.errors import KafkaConnectionError, KafkaError

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.kafka.cloud_events import comes_of_another
from hatcast.agents.redis.adoption import OutputPartition, Position

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

CHUNK: Final = 1_000  # records that are handed over together, at most
SIDE_BY_SIDE: Final = 8  # partitions that are read at once
_POLL_S: Final = 0.1  # consume() waits that long to fill a batch
_COMMITTED_POLL_S: Final = 0.01
_SILENCE_S: Final = 30.0
_BYTES: Final = {  # what librdkafka may hold of a partition, and of an answer
    "queued.max.messages.kbytes": 2_048,
    "max.partition.fetch.bytes": 1_048_576,
    "fetch.max.bytes": 8_388_608,
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record on an output topic. `is_ours`: it is of our telemetry topic."""

    offset: int
    key: str
    value: bytes
    is_ours: bool


@dataclass(slots=True)
class Stretch:
    """Consecutive records of one output partition.

    following   the offset after them: behind transaction markers and removed records that follow
    """

    place: OutputPartition
    following: int
    records: list[Record] = field(default_factory=list)


class OutputReader:
    """Reads output partitions. Not thread-safe; every method blocks. Raises KafkaConnectionError, of aiokafka."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._source = settings.topics.telemetry
        self._again: tuple[Consumer, ExitStack] | None = None  # who reads committed records, for `committed`

    def ends(self, topics: Mapping[str, str]) -> dict[OutputPartition, Position]:
        """Return the end of every partition of some topics, open transactions included.

        topics   name -> Kafka's id, "" where the broker has none
        A topic that cannot be looked at is not an empty one: raises.
        """
        from confluent_kafka import TopicPartition

        found = {}
        with self._consumer("read_uncommitted") as consumer:
            for topic, topic_id in topics.items():
                for partition in _partitions(consumer, topic):
                    _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), _SILENCE_S, cached=False)
                    found[OutputPartition(topic, partition)] = Position(topic_id, end)
        return found

    def read(
        self, starts: Mapping[OutputPartition, int], ends: Mapping[OutputPartition, int]
    ) -> Generator[Stretch, int | None, None]:
        """Read partitions from their starts to at least their ends, in stretches of at most `CHUNK` records.

        Partitions are begun in the order of `starts`. Send back an offset, and the partition goes on there.
        """
        from confluent_kafka import TopicPartition

        waiting = [place for place, start in starts.items() if start < ends[place]]
        positions: dict[OutputPartition, int] = {}  # of those that are being read
        with self._consumer("read_uncommitted") as consumer:
            heard_s = monotonic_s()
            while waiting or positions:
                for place in waiting[: SIDE_BY_SIDE - len(positions)]:
                    waiting.remove(place)
                    positions[place] = starts[place]
                    consumer.incremental_assign([TopicPartition(*place, starts[place])])
                messages = consumer.consume(CHUNK, _POLL_S)
                if messages:
                    heard_s = monotonic_s()
                elif monotonic_s() - heard_s > _SILENCE_S:
                    raise _lost("the output topics could not be read to their ends")
                for stretch in self._stretches(messages, positions):
                    place = stretch.place
                    elsewhere = yield stretch
                    positions[place] = stretch.following if elsewhere is None else elsewhere
                    if positions[place] >= ends[place]:
                        del positions[place]
                        consumer.incremental_unassign([TopicPartition(*place)])
                    elif elsewhere is not None:
                        consumer.seek(TopicPartition(*place, elsewhere))

    def _stretches(self, messages: Iterable["Message"], positions: Mapping[OutputPartition, int]) -> Iterable[Stretch]:
        """What was fetched, by partition. What was fetched before a partition went on elsewhere is left out."""
        found: dict[OutputPartition, Stretch] = {}
        for message in messages:
            place = OutputPartition(message.topic() or "", message.partition() or 0)
            offset, is_end = message.offset() or 0, _is_end(message)
            position = found[place].following if place in found else positions.get(place)
            if position is None or offset < position:
                continue
            stretch = found.setdefault(place, Stretch(place, position))
            if not is_end:
                stretch.records.append(self._record(message))
            stretch.following = offset if is_end else offset + 1
        return found.values()

    def committed(self, place: OutputPartition, start: int, following: int) -> frozenset[str]:
        """Return the keys of the committed records from one offset to before another.

        A record behind a transaction that is still open, which is then another domain's, is left out.
        """
        from confluent_kafka import TopicPartition

        found: set[str] = set()
        consumer = self._committed_consumer()
        consumer.assign([TopicPartition(*place, start)])
        heard_s = monotonic_s()
        while monotonic_s() - heard_s <= _SILENCE_S:
            for message in consumer.consume(CHUNK, _COMMITTED_POLL_S):
                heard_s = monotonic_s()
                if _is_end(message) or (message.offset() or 0) >= following:
                    return frozenset(found)
                record = self._record(message)
                if record.is_ours:
                    found.add(record.key)
                if record.offset + 1 >= following:
                    return frozenset(found)
        raise _lost("an output topic could not be read again")

    def _committed_consumer(self) -> "Consumer":
        """One for all calls: to connect takes longer than to read."""
        if self._again is None:
            held = ExitStack()
            self._again = held.enter_context(self._consumer("read_committed")), held
        return self._again[0]

    def close(self) -> None:
        """Close what is left open. The reader can be used again."""
        again, self._again = self._again, None
        if again is not None:
            again[1].close()

    def _record(self, message: "Message") -> Record:
        key, value = message.key() or b"", message.value() or b""
        headers: Any = message.headers() or []  # its type allows for a mapping, which only a producer takes
        is_ours = not comes_of_another(headers, self._source)
        return Record(message.offset() or 0, key.decode(errors="replace"), value, is_ours)

    @contextmanager
    def _consumer(self, isolation: str) -> "Iterator[Consumer]":
        from confluent_kafka import Consumer, KafkaException

        options: dict[str, Any] = confluent_options(self._settings) | {
            "group.id": "hatcast-recovery",  # the library wants one; nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # an offset that the log does not have skips nothing
            "isolation.level": isolation,
            # No waiting for more where there is none, and none for room where the queue was full.
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 10,
            **_BYTES,
        }
        consumer = Consumer(options)
        try:
            yield consumer
        except KafkaException as raised:
            raise _lost(str(raised)) from None
        finally:
            with suppress(KafkaException):
                consumer.close()


def _is_end(message: "Message") -> bool:
    """Whether it is the end of a partition, and no record. Raises KafkaConnectionError for an error."""
    from confluent_kafka import KafkaError as Code

    error = message.error()
    if error is not None and error.code() != Code._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name for it
        raise _lost(error.str())
    return error is not None


def _lost(why: str) -> KafkaError:
    return KafkaConnectionError(why)


def _partitions(consumer: "Consumer", topic: str) -> list[int]:
    found = consumer.list_topics(topic, timeout=_SILENCE_S).topics[topic]
    if found.error is not None or not found.partitions:
        raise _lost(f"{topic}: {found.error}")
    return sorted(found.partitions)
