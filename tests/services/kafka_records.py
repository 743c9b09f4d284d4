"""Records into and out of a real Kafka, as simply as a test wants them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, cast

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

Headers = list[tuple[str, bytes | None]]

SECONDS: Final = 60.0
_MARKERS_S: Final = 5.0  # of a transaction that is still open they do not come at all
SILENT: Final = {"log_level": 0}  # librdkafka writes to standard error while a broker is down, as tests make it be


@dataclass(frozen=True, slots=True)
class Record:
    """One record to send."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None  # None: murmur2 of the key
    timestamp_ms: int | None = None  # None: now
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Received:
    """One record as it is in the log."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def answers(bootstrap_servers: str) -> bool:
    """True if a broker is there that can name a controller."""
    try:
        metadata = AdminClient({"bootstrap.servers": bootstrap_servers, **SILENT}).list_topics(timeout=2.0)
    except KafkaException:
        return False
    return bool(metadata.brokers) and metadata.controller_id >= 0


def produce(bootstrap_servers: str, topic: str, records: Iterable[Record]) -> None:
    """Send all and wait for acks=all; raises KafkaException if one record is refused."""
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "linger.ms": 5,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 1_000_000,
            "topic.metadata.propagation.max.ms": 2_000,  # a topic that nobody made is refused soon
            "message.timeout.ms": int(SECONDS * 1000),
            **SILENT,
        }
    )
    for record in records:
        partition = -1 if record.partition is None else record.partition  # librdkafka's "let the partitioner choose"
        timestamp = 0 if record.timestamp_ms is None else record.timestamp_ms  # librdkafka's "now"
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    on_delivery=delivered,
                    timestamp=timestamp,
                    headers=list(record.headers),
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    unsent = producer.flush(SECONDS)
    if refused or unsent:
        raise KafkaException(refused[0] if refused else KafkaError(KafkaError._MSG_TIMED_OUT))


def read(bootstrap_servers: str, topic: str, *, committed: bool) -> list[Received]:
    """All records up to the end at the time of reading, ordered by partition and offset.

    committed   without those of transactions that were aborted, or that stay open for five seconds
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tests-read",  # needed by the library; nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,  # the end is told when a fetch finds nothing: not after half a second
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            **SILENT,
        }
    )
    try:
        partitions = list(consumer.list_topics(topic, timeout=SECONDS).topics[topic].partitions)
        if committed:
            _wait_for_markers(bootstrap_servers, [TopicPartition(topic, each) for each in partitions])
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        received: list[Received] = []
        at_end: set[int] = set()
        deadline = time.monotonic() + SECONDS
        while len(at_end) < len(partitions):
            # it waits for the full number or the timeout, also when the ends are there
            for message in consumer.consume(10_000, timeout=0.05):
                error = message.error()
                if error is None:
                    received.append(_received(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition() or 0)
                else:
                    raise KafkaException(error)
                deadline = time.monotonic() + SECONDS
            if time.monotonic() > deadline:
                raise TimeoutError(f"the end of {topic} did not come in {SECONDS:g} s")
    finally:
        consumer.close()
    return sorted(received, key=lambda each: (each.partition, each.offset))


def first_offsets(bootstrap_servers: str, topic: str) -> list[int]:
    """The offset of the first record of each partition, aborted ones too; -1 where there is none."""
    options = {"group.id": "tests-read", "enable.partition.eof": True, "queued.min.messages": 1, **SILENT}
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "isolation.level": "read_uncommitted", **options})
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=SECONDS).topics[topic].partitions)
        found: dict[int, int] = {}
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        deadline = time.monotonic() + SECONDS
        while len(found) < len(partitions):
            for message in consumer.consume(100, timeout=0.05):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                found.setdefault(message.partition() or 0, -1 if error else message.offset() or 0)
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    finally:
        consumer.close()
    return [found[each] for each in partitions]


def _wait_for_markers(bootstrap_servers: str, partitions: list[TopicPartition]) -> None:
    """Return once what is there can be read: a broker answers a commit before it has written the markers."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, **SILENT})
    end = _ends(admin, partitions, IsolationLevel.READ_UNCOMMITTED)
    deadline = time.monotonic() + _MARKERS_S
    while time.monotonic() < deadline:
        stable = _ends(admin, partitions, IsolationLevel.READ_COMMITTED)
        if all(stable[each] >= end[each] for each in end):
            return
        time.sleep(0.02)


def _ends(admin: AdminClient, partitions: list[TopicPartition], isolation: IsolationLevel) -> dict[int, int]:
    """Partition -> the offset after its last record. Waits until partitions that were just made have a leader."""
    latest = OffsetSpec.latest()
    deadline = time.monotonic() + SECONDS
    while True:
        asked = admin.list_offsets(
            dict.fromkeys(partitions, latest), isolation_level=isolation, request_timeout=SECONDS
        )
        try:
            return {each.partition: future.result().offset for each, future in asked.items()}
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _received(message: Message) -> Received:
    return Received(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=tuple(cast("Headers", message.headers() or ())),  # librdkafka gives values as bytes or None
    )
