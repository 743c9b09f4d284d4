"""Dumps of a topic, as JSON lines: `hatcast dump` writes them, `hatcast batch --format kafka` folds them.

The format (docs/specification/fold.md, Formats): the first line is {"topic", "partitions", "start_offsets"}, the others
are {"topic", "partition", "offset", "ts", "key", "value"}, in offset order within each partition. Key and value are in
base64, or null; `ts` is in ms UTC.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final

import msgspec

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import broker_name
from hatcast.agents.kafka.partition_reader import is_end, next_messages, open_consumer
from hatcast.agents.kafka.topics import topic_range
from hatcast.stream.errors import UNREADABLE, HatcastError, RecordingError
from hatcast.stream.readings.formats import Format, Recorded
from hatcast.stream.readings.recording import Recording

if TYPE_CHECKING:
    from confluent_kafka import Consumer


BATCH_RECORDS: Final = 5_000
QUEUE_KIB: Final = 32_768  # prefetch limit of the client
FETCH_BYTES: Final = 262_144  # per partition, compressed: in memory a well compressed batch is many times larger
FILL_SECONDS: Final = 0.1  # how long to wait for a full batch
_NO_TIME: Final = -1  # Kafka's timestamp for a record without one


class DumpHead(msgspec.Struct, frozen=True):
    """First line of a dump. `start_offsets[p]` is the log start of partition p; above 0, records were deleted."""

    topic: str
    partitions: int
    start_offsets: list[int]


class DumpLine(msgspec.Struct, frozen=True, gc=False):
    """One record of a dump."""

    topic: str
    partition: int
    offset: int
    ts: int
    key: bytes | None
    value: bytes | None


_encode: Final = msgspec.json.Encoder().encode
_encode_lines: Final = msgspec.json.Encoder().encode_lines


def lines_between(
    consumer: "Consumer", topic: str, starts: Mapping[int, int], ends: Mapping[int, int]
) -> Iterator[list[DumpLine]]:
    """Yield the committed records of partitions from their starts to before their ends, in batches. `ends`: above them.

    Raises KafkaException, as `next_messages` does.
    """
    from confluent_kafka import TopicPartition

    remaining = dict(ends)
    consumer.assign([TopicPartition(topic, partition, starts[partition]) for partition in remaining])
    while remaining:
        lines = []
        for message in next_messages(consumer, BATCH_RECORDS, FILL_SECONDS):
            at_end, partition, offset = is_end(message), message.partition(), message.offset()
            if partition not in remaining or offset is None:
                continue
            if not at_end and offset < remaining[partition]:
                kind, timestamp = message.timestamp()
                ts = timestamp if kind else _NO_TIME
                lines.append(DumpLine(topic, partition, offset, ts, message.key(), message.value()))
            if at_end or offset + 1 >= remaining[partition]:
                del remaining[partition]
                consumer.pause([TopicPartition(topic, partition)])
        if lines:
            yield lines


class TopicDump:
    """Committed records of a topic, from the log start to the end that it had when this object was created.

    head      first line of the dump
    records   upper bound of the number of records (offsets may have holes)
    """

    def __init__(self, settings: Settings, topic: str, consumer: "Consumer") -> None:
        self._broker = broker_name(settings)
        self._topic = topic
        self._consumer = consumer
        bounds = topic_range(settings, topic)
        self.head = DumpHead(topic, len(bounds), [start for start, _ in bounds])
        self._ends = {partition: end for partition, (start, end) in enumerate(bounds) if end > start}
        self.records = sum(end - start for start, end in bounds)

    def chunks(self) -> Iterator[tuple[bytes, int]]:
        """Yield (lines, number of records in them); memory is bounded for any size of the topic.

        Raises HatcastError if the broker is gone, or records were deleted before they were read.
        """
        yield _encode(self.head) + b"\n", 0
        starts = dict(enumerate(self.head.start_offsets))
        with self._translate_kafka_errors():
            for lines in lines_between(self._consumer, self._topic, starts, self._ends):
                yield _encode_lines(lines), len(lines)

    @contextmanager
    def _translate_kafka_errors(self) -> Iterator[None]:
        from confluent_kafka import KafkaError, KafkaException

        topic = self._topic
        known = {  # by librdkafka's own names
            KafkaError._TIMED_OUT: f"stopped answering in the middle of {topic}: try again",  # noqa: SLF001
            KafkaError._AUTO_OFFSET_RESET: f"deleted records of {topic} before they were read: dump again, or raise the"  # noqa: SLF001
            " topic's retention",
        }
        try:
            yield
        except KafkaException as raised:
            error = raised.args[0]
            what = known.get(error.code(), f"failed to send {topic} ({error.str()}): see the broker's log")
            raise HatcastError(f"{self._broker} {what}") from None


@contextmanager
def open_dump(settings: Settings, topic: str) -> Iterator[TopicDump]:
    """Open a dump of a topic. Raises HatcastError if the broker is unreachable or does not have the topic."""
    options = {
        "auto.offset.reset": "error",
        "queued.max.messages.kbytes": QUEUE_KIB,
        "max.partition.fetch.bytes": FETCH_BYTES,
        "max.poll.interval.ms": 86_400_000,  # the reader of our output may be slow
    }
    with open_consumer(settings, "dump", options) as consumer:
        yield TopicDump(settings, topic, consumer)


# A dump may consist of several files: each starts with the header, and offsets keep increasing.
def _lines(stream: BinaryIO, path: str) -> Iterator[Recorded]:
    """Yield a dump's lines unparsed. They carry no arrival time, so all tie and stay in file order."""
    del path
    for line in stream:
        if not line.isspace():
            yield Recorded(line, None, None)


# For hatcast.agents.recordings.files, which opens plain files, gzip and pipes, and raises RecordingError.
_LINES: Final = [set(each.__struct_fields__) for each in (DumpHead, DumpLine)]
DUMP: Final = Format(
    "kafka", lambda _: None, _lines, shows=lambda _, names: any(each.issubset(names) for each in _LINES)
)

_read_head: Final = msgspec.json.Decoder(DumpHead).decode
_read_line: Final = msgspec.json.Decoder(DumpLine).decode
_FIX: Final = "give the output of `hatcast dump`"


def is_head(line: bytes) -> bool:
    """Return whether a line is the first one of a dump."""
    try:
        _read_head(line)
    except UNREADABLE:
        return False
    return True


class Dump:
    """The checked records of a dump: one topic, partitions of the header, increasing offsets.

    Raises RecordingError: on construction if the first line is not a header, else during iteration.
    """

    def __init__(self, recording: Recording, name: str) -> None:
        self._recording = recording
        self._name = name
        first = next(iter(recording), None)
        if first is None:
            raise RecordingError(name, "is empty", _FIX)
        self.head = self._head(first[1].raw, 1)

    def __len__(self) -> int:
        """Return the number of lines, including headers."""
        return len(self._recording)

    def __iter__(self) -> Iterator[DumpLine]:
        head = self.head
        following = list(head.start_offsets)
        for number, (_, recorded) in enumerate(self._recording, start=1):
            try:
                line = _read_line(recorded.raw)
            except UNREADABLE:
                if self._head(recorded.raw, number) != head:
                    raise self._error(number, "is the header of another dump", "give parts of one dump") from None
                continue
            if line.topic != head.topic or not 0 <= line.partition < head.partitions:
                raise self._error(number, "is of a topic or partition that the header does not name", _FIX)
            if line.offset < following[line.partition]:
                raise self._error(number, f"has offset {line.offset}, which does not increase in its partition", _FIX)
            following[line.partition] = line.offset + 1
            yield line

    def _head(self, raw: bytes, number: int) -> DumpHead:
        try:
            head = _read_head(raw)
        except UNREADABLE:
            raise self._error(number, "is not a line of a dump", _FIX) from None
        if head.partitions < 1 or len(head.start_offsets) != head.partitions:
            raise self._error(number, "does not have one start offset for each partition", _FIX)
        return head

    def _error(self, number: int, problem: str, fix: str) -> RecordingError:
        return RecordingError(self._name, f"line {number} {problem}", fix)
