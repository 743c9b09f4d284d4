"""Read a policy's committed records on `hats.means` from given positions to its end."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.cloud_events import is_from_other_domain
from hatcast.agents.kafka.partition_reader import connection_errors, is_end, next_messages, open_consumer
from hatcast.agents.recovery.outputs import OutputReader
from hatcast.stream.records import ReleaseRecord
from hatcast.stream.tracker.observations import read_release

_BATCH: Final = 1_000
_FILL_S: Final = 0.05  # how long to wait for a full batch
_FETCH_OPTIONS: Final = {"queued.max.messages.kbytes": 2_048, "max.partition.fetch.bytes": 1_048_576}


@dataclass(frozen=True, slots=True)
class ReadRelease:
    """A record and its place."""

    partition: int
    offset: int
    record: ReleaseRecord


class MeansReader:
    """Reader of the records of one policy and domain. Every method blocks. Raises KafkaConnectionError, of aiokafka.

    positions   partition -> offset of the next record to read
    """

    def __init__(self, settings: Settings, positions: Mapping[int, int]) -> None:
        self.positions = dict(positions)
        self._settings = settings
        self._policy = settings.policy
        self._topic = settings.topics.means

    def read(self) -> tuple[list[ReadRelease], bool]:
        """Return the new records, in offset order within a partition, and whether they are all up to the present end.

        They are not while a transaction before the end is open: it may hide committed records behind it.
        """
        from confluent_kafka import TopicPartition

        places = OutputReader(self._settings).ends({self._topic: ""})
        ends = {place.partition: position.offset for place, position in places.items()}
        pending = {partition for partition, end in ends.items() if self.positions.get(partition, 0) < end}
        found: list[ReadRelease] = []
        with open_consumer(self._settings, "estimates", _FETCH_OPTIONS) as consumer, connection_errors():
            consumer.assign([TopicPartition(self._topic, each, self.positions.get(each, 0)) for each in pending])
            while pending:
                for message in next_messages(consumer, _BATCH, _FILL_S):
                    partition, offset = message.partition() or 0, message.offset() or 0
                    if partition not in pending:
                        continue
                    at_end = is_end(message)
                    if not at_end:
                        found += self._release_of(message, partition, offset)
                    self.positions[partition] = offset if at_end else offset + 1
                    if at_end or offset + 1 >= ends[partition]:
                        pending.remove(partition)
        return found, all(self.positions.get(partition, 0) >= end for partition, end in ends.items())

    def _release_of(self, message: Any, partition: int, offset: int) -> list[ReadRelease]:
        """Return a message's release, or nothing if it is not one of this policy and domain."""
        if is_from_other_domain(message.headers() or [], self._settings.topics.telemetry):
            return []
        record = read_release(message.value() or b"", self._policy)
        return [] if record is None else [ReadRelease(partition, offset, record)]
