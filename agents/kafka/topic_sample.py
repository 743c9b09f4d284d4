"""Read the newest committed records of each partition of a topic, without a consumer group's offsets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import admin_client, broker_name
from hatcast.agents.kafka.partition_reader import is_end, next_messages, open_consumer
from hatcast.agents.kafka.topics import topic_range
from hatcast.stream.errors import HatcastError

_BATCH_RECORDS: Final = 1_000
_FILL_SECONDS: Final = 0.1
_NO_TIME: Final = -1


@dataclass(frozen=True, slots=True)
class SampledRecord:
    """A record of a topic. `ts`: its Kafka timestamp, ms UTC; -1 if it has none."""

    partition: int
    ts: int
    key: bytes | None
    value: bytes | None


def uncommitted_offsets(settings: Settings, topic: str, bounds: Sequence[tuple[int, int]]) -> int:
    """Return the number of offsets behind open transactions. `bounds`: as in `newest_records`."""
    from kafka import TopicPartition
    from kafka.admin import OffsetSpec

    partitions = [TopicPartition(topic, partition) for partition in range(len(bounds))]
    with admin_client(settings) as admin:
        ends = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        again = topic_range(settings, topic)  # a producer may have committed more meanwhile
    return sum(max(0, ends[each].offset - again[each.partition][1]) for each in partitions)


def newest_records(
    settings: Settings, topic: str, bounds: Sequence[tuple[int, int]], most: int
) -> Iterator[SampledRecord]:
    """Yield about `most` records, equally many of each partition, in the order of each partition.

    bounds   (first offset, offset after the last committed record) of each partition
    Raises HatcastError if the broker denies reading, or stops answering.
    """
    from confluent_kafka import KafkaException, TopicPartition

    each = max(1, most // len(bounds))
    ends = {partition: end for partition, (start, end) in enumerate(bounds) if end > start}
    options = {"auto.offset.reset": "earliest", "queued.max.messages.kbytes": 32_768}
    with open_consumer(settings, "doctor", options) as consumer:
        try:
            consumer.assign(
                [
                    TopicPartition(topic, partition, max(bounds[partition][0], end - each))
                    for partition, end in ends.items()
                ]
            )
            while ends:
                for message in next_messages(consumer, _BATCH_RECORDS, _FILL_SECONDS):
                    partition = message.partition()
                    if is_end(message):
                        ends.pop(-1 if partition is None else partition, None)
                        continue
                    offset = message.offset()
                    if partition is None or offset is None or partition not in ends:
                        continue
                    if offset < ends[partition]:
                        kind, timestamp = message.timestamp()
                        yield SampledRecord(partition, timestamp if kind else _NO_TIME, message.key(), message.value())
                    if offset + 1 >= ends[partition]:
                        del ends[partition]
        except KafkaException as raised:
            raise HatcastError(
                f"{broker_name(settings)} does not let this user read {topic} ({raised.args[0].str()}): grant READ on"
                " it and on the groups hatcast-*, or see the broker's log"
            ) from None
