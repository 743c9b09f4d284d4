"""Reader of `hats.means`, `hats.budget` and `hats.estimates`, from the beginning, committed records only.

It is in no consumer group, commits no offsets and stores nothing: the compacted topics are read anew at every start.
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
from hatcast.agents.map.record import read_budget, read_estimate, read_release
from hatcast.agents.monitoring.declarations import DISPLAY_KAFKA_UP, DISPLAY_LAST_RELEASE
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.monitoring.meters import METERS
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

_WAIT_MS: Final = 200
_BROKER_TIMEOUT_MS: Final = 30_000
_MAX_RECORDS: Final = 2_000  # per poll: about 10 ms, so that the event loop still serves viewers


def start_position(settings: Settings) -> Position:
    """Return the position before the first record. Blocks.

    Without a topic of estimates only releases are read: no worker that publishes estimates has started yet.
    Raises HatcastError if the broker or another topic is missing.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    wait_for_broker(settings)
    try:  # of all topics: a request by name may create the topic
        metadata = AdminClient(confluent_options(settings)).list_topics(timeout=REQUEST_SECONDS)
    except KafkaException:
        raise HatcastError(f"lost the connection to {broker_name(settings)}: check that it runs") from None
    topics = settings.topics
    numbers = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
    for name in (topics.means, topics.budget):
        if not numbers.get(name):
            raise HatcastError(
                f"{broker_name(settings)} has no topic {name!r}: correct the name, or start a worker, which creates it"
            )
    if not numbers.get(topics.estimates):
        log.warning("no topic of estimates: showing releases only until the next start", topic=topics.estimates)
    offsets = [[0] * numbers.get(name, 0) for name in (topics.means, topics.budget, topics.estimates)]
    return Position(log_id(str(metadata.cluster_id), topics.means, topics.budget), *offsets)


class Reader:
    """Reader of the topics for as long as the map runs."""

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
        partitions += [TopicPartition(self._topics.estimates, each) for each in range(len(position.estimates))]
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
                    if record.topic == self._topics.budget:
                        changes.budget(read_budget(record.value, record.offset), record.partition)
                    elif record.topic == self._topics.estimates:
                        changes.add(read_estimate(record.value, record.partition, record.offset))
                    else:
                        METERS.set_to_current_time(DISPLAY_LAST_RELEASE)
                        if (release := read_release(record.value, record.partition, record.offset)) is not None:
                            changes.add(release)
                except (msgspec.DecodeError, ValueError, RecursionError):  # RecursionError: deeply nested JSON
                    self._skip(record)

    def _skip(self, record: "ConsumerRecord[bytes, bytes]") -> None:
        """Log the 1st, 10th, 100th ... skipped record, never its content: it was not validated."""
        self._skipped += 1
        if str(self._skipped).rstrip("0") == "1":
            where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.warning(
                "skipped a record that is not a release, an estimate or a budget", so_far=self._skipped, **where
            )
