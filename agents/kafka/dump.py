"""A topic as lines for `batch --format kafka`, the oracle of the live pipeline.    [fold.md, "Formats"]

First line {"topic", "partitions", "start_offsets"}, then {"topic", "partition", "offset", "ts", "key", "value"}:
key and value in base64 (null where there is none), `ts` in ms UTC, each partition in the order of its offsets.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import broker_name, confluent_options
from hatcast.agents.kafka.topics import topic_range
from hatcast.stream.errors import HatcastError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

BATCH_RECORDS: Final = 5_000
QUEUE_KIB: Final = 32_768  # what the client may fetch ahead
FETCH_BYTES: Final = 262_144  # of one partition, packed: what is well packed is many times larger in memory
POLL_SECONDS: Final = 0.1
SILENCE_SECONDS: Final = 30.0  # a broker that gives nothing for so long, though there is more, is gone
_NO_TIME: Final = -1  # what Kafka says where a record has no timestamp


class Head(msgspec.Struct, frozen=True):
    """The first line. `start_offsets[p]` is where the log of partition p began: above 0, records were deleted."""

    topic: str
    partitions: int
    start_offsets: list[int]


class Line(msgspec.Struct, frozen=True, gc=False):
    """One record."""

    topic: str
    partition: int
    offset: int
    ts: int
    key: bytes | None
    value: bytes | None


_encode: Final = msgspec.json.Encoder().encode
_encode_lines: Final = msgspec.json.Encoder().encode_lines


class Dump:
    """A topic from the log's start to the end that it had when this was made; committed records only.

    head      the first line
    records   upper bound of the records to come (offsets may have holes)
    """

    def __init__(self, settings: Settings, topic: str, consumer: "Consumer") -> None:
        self._where = broker_name(settings)
        self._topic = topic
        self._consumer = consumer
        bounds = topic_range(settings, topic)
        self.head = Head(topic, len(bounds), [start for start, _ in bounds])
        self._ends = {partition: end for partition, (start, end) in enumerate(bounds) if end > start}
        self.records = sum(end - start for start, end in bounds)

    def chunks(self) -> Iterator[tuple[bytes, int]]:
        """(lines, records in them); memory is bounded whatever the topic's size.

        Raises HatcastError: the broker is gone, or records were deleted before they could be read.
        """
        from confluent_kafka import TopicPartition

        yield _encode(self.head) + b"\n", 0
        starts = self.head.start_offsets
        left = dict(self._ends)
        with self._naming_the_broker():
            self._consumer.assign([TopicPartition(self._topic, partition, starts[partition]) for partition in left])
            heard_s = monotonic_s()
            while left:
                messages = self._consumer.consume(BATCH_RECORDS, POLL_SECONDS)  # waits that long to fill a batch
                if messages:
                    heard_s = monotonic_s()
                elif monotonic_s() - heard_s > SILENCE_SECONDS:
                    raise HatcastError(f"{self._where} stopped answering in the middle of {self._topic}: try again")
                lines = self._lines(messages, left)
                if lines:
                    yield _encode_lines(lines), len(lines)

    def _lines(self, messages: "list[Message]", left: dict[int, int]) -> list[Line]:
        """The records before the end; a partition that has come to it is taken out of `left`."""
        from confluent_kafka import KafkaError, KafkaException

        topic = self._topic
        lines = []
        for message in messages:
            partition = message.partition()
            error = message.error()
            if error is not None:
                # The end of the log also stands where the last offsets are markers of transactions.
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name for it
                    raise KafkaException(error)
                if partition is not None and left.pop(partition, None) is not None:
                    self._pause(partition)
                continue
            offset = message.offset()
            if partition not in left or offset is None:
                continue
            if offset < left[partition]:
                kind, stamp = message.timestamp()
                lines.append(
                    Line(topic, partition, offset, stamp if kind else _NO_TIME, message.key(), message.value())
                )
            if offset + 1 >= left[partition]:
                del left[partition]
                self._pause(partition)
        return lines

    def _pause(self, partition: int) -> None:
        from confluent_kafka import TopicPartition

        self._consumer.pause([TopicPartition(self._topic, partition)])

    @contextmanager
    def _naming_the_broker(self) -> Iterator[None]:
        from confluent_kafka import KafkaError, KafkaException

        try:
            yield
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - librdkafka's own name for it
                raise HatcastError(
                    f"{self._where} deleted records of {self._topic} before they could be read: dump again, or raise"
                    " the topic's retention"
                ) from None
            raise HatcastError(
                f"{self._where} cannot give {self._topic} ({error.str()}): see the broker's log"
            ) from None


@contextmanager
def open_dump(settings: Settings, topic: str) -> Iterator[Dump]:
    """A dump of a topic. Raises HatcastError: the broker cannot be reached, or has no such topic."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        confluent_options(settings)
        | {
            "group.id": "hatcast-dump",  # the library wants one; nothing is committed
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": QUEUE_KIB,
            "max.partition.fetch.bytes": FETCH_BYTES,
            "fetch.wait.max.ms": 10,  # the end is told by a fetch that finds nothing
            "max.poll.interval.ms": 86_400_000,  # who reads our output may be slow
            "allow.auto.create.topics": False,
        }
    )
    try:
        yield Dump(settings, topic, consumer)
    finally:
        consumer.close()
