"""Reader of `hats.means` and `hats.budget`: from the beginning, committed records only, without a consumer group.

The map commits no offsets and stores nothing: it reads the compacted topics anew at every start.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import ConsumerRecord

from hatcast.agents.clock import now_ms, pause
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import (
    REQUEST_SECONDS,
    aiokafka_options,
    broker_name,
    confluent_options,
    wait_for_broker,
)
from hatcast.agents.kafka.cloud_events import is_from_other_domain
from hatcast.agents.map.event_id import Position, log_id
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.record import read_budget, read_release
from hatcast.agents.monitoring.declarations import DISPLAY_KAFKA_UP, DISPLAY_LAST_RELEASE
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.monitoring.meters import METERS
from hatcast.stream.errors import HatcastError
from hatcast.stream.records.fields import is_settlement

log = structlog.get_logger()

_WAIT_MS: Final = 200
_BROKER_TIMEOUT_MS: Final = 30_000
_MAX_RECORDS: Final = 2_000  # per poll: about 10 ms, so that the event loop still serves viewers


def start_position(settings: Settings) -> Position:
    """Return the position before the first record. Blocks. Raises HatcastError if the broker or a topic is missing."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    wait_for_broker(settings)
    try:  # of all topics: a request by name may create the topic
        metadata = AdminClient(confluent_options(settings)).list_topics(timeout=REQUEST_SECONDS)
    except KafkaException:
        raise HatcastError(f"lost the connection to {broker_name(settings)}: check that it runs") from None
    means, budget = settings.topics.means, settings.topics.budget
    for name in (means, budget):
        if name not in metadata.topics or not metadata.topics[name].partitions:
            raise HatcastError(
                f"{broker_name(settings)} has no topic {name!r}: correct the name, or start a worker, which creates it"
            )
    partitions = [[0] * len(metadata.topics[name].partitions) for name in (means, budget)]
    return Position(log_id(str(metadata.cluster_id), means, budget), *partitions)


class Reader:
    """Reader of both topics for as long as the map runs."""

    def __init__(self, settings: Settings, feed: Feed, *, check_crcs: bool = True) -> None:
        """Args: `check_crcs`, False for librdkafka's mock cluster: its transaction markers have no checksum."""
        self._topics = settings.topics
        self._broker = broker_name(settings)
        self._feed = feed
        self._failures = FailureLog("map")
        self._skipped = 0
        self._consumer = AIOKafkaConsumer(
            **aiokafka_options(settings),
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            check_crcs=check_crcs,
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """Read until `stopping` is set; retry while the broker is unreachable."""
        METERS.set_to_current_time(DISPLAY_LAST_RELEASE)  # a map that never gets a release is stale too
        position = self._feed.position
        partitions = [TopicPartition(self._topics.means, each) for each in range(len(position.means))]
        partitions += [TopicPartition(self._topics.budget, each) for each in range(len(position.budget))]
        try:
            ends = await self._begin(partitions)
            while not stopping.is_set():
                try:
                    with self._failures.attempt("read the output topics"):
                        batches = await self._consumer.getmany(timeout_ms=_WAIT_MS, max_records=_MAX_RECORDS)
                        if not self._feed.caught_up and not batches and await self._reached(ends):
                            self._feed.serve()
                except KafkaError as error:
                    self._failures.failed(error)
                    METERS.set(DISPLAY_KAFKA_UP, 0)
                    await pause(self._failures.wait_s, stopping)
                    continue
                self._failures.clear()
                METERS.set(DISPLAY_KAFKA_UP, int(self._broker_answers(partitions)))
                if batches:
                    self._apply([record for records in batches.values() for record in records])
                    await asyncio.sleep(0)
        finally:
            with suppress(KafkaError):
                await self._consumer.stop()

    async def _begin(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Assign the partitions and return their end offsets. Raises HatcastError if the broker is lost."""
        try:
            await self._consumer.start()
            self._consumer.assign(partitions)
            ends: Mapping[TopicPartition, int] = await self._consumer.end_offsets(partitions)
        except KafkaError as error:
            raise HatcastError(
                f"lost the connection to {self._broker} ({type(error).__name__}): check that it runs"
            ) from None
        return ends

    async def _reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all([await self._consumer.position(partition) >= end for partition, end in ends.items()])

    def _broker_answers(self, partitions: Sequence[TopicPartition]) -> bool:
        """Return whether a broker answered lately: it does so twice a second, even without new records."""
        answered_ms = max((self._consumer.last_poll_timestamp(each) or 0 for each in partitions), default=0)
        return not answered_ms or now_ms() - answered_ms < _BROKER_TIMEOUT_MS

    def _apply(self, records: "Sequence[ConsumerRecord[bytes, bytes]]") -> None:
        with self._feed.batch() as changes:
            for record in records:
                if record.value is None or is_from_other_domain(record.headers, self._topics.telemetry):
                    continue
                try:
                    if record.topic == self._topics.means:
                        METERS.set_to_current_time(DISPLAY_LAST_RELEASE)
                        if not is_settlement((record.key or b"").decode(errors="replace")):
                            changes.release(read_release(record.value, record.partition, record.offset))
                    else:
                        changes.budget(read_budget(record.value, record.offset), record.partition)
                except (msgspec.DecodeError, ValueError, RecursionError):  # RecursionError: deeply nested JSON
                    self._skip(record)

    def _skip(self, record: "ConsumerRecord[bytes, bytes]") -> None:
        """Log the 1st, 10th, 100th ... skipped record, never its content: it was not validated."""
        self._skipped += 1
        if str(self._skipped).rstrip("0") == "1":
            where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.warning("skipped a record that is not a release or a budget", so_far=self._skipped, **where)
