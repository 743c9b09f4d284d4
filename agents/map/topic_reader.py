"""Reader of the topics of the map from their beginning: committed records only, of those topics that exist."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple, Self

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from hatcast.agents.clock import monotonic_s, now_ms, pause
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.aio import AIOKafkaConsumer, ConsumerRecord, KafkaError, TopicPartition
from hatcast.agents.kafka.client import (
    REQUEST_SECONDS,
    aiokafka_options,
    broker_name,
    confluent_options,
    wait_for_broker,
)
from hatcast.agents.kafka.cloud_events import is_from_other_domain
from hatcast.agents.map.events import EventPosition, log_id
from hatcast.agents.map.feed import Feed, FeedChanges
from hatcast.agents.map.record import read_budget, read_estimate, read_release, read_running
from hatcast.agents.monitoring.declarations import DISPLAY_KAFKA_UP, DISPLAY_LAST_RELEASE
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.monitoring.meters import METERS
from hatcast.stream.errors import UNREADABLE, HatcastError

log = structlog.get_logger()


class MapTopics(NamedTuple):
    """Partitions of each topic, 0 while it does not exist."""

    cluster: str  # the cluster's id
    means: tuple[str, int]
    budget: tuple[str, int]
    estimates: tuple[str, int]
    queries: tuple[str, int]
    clusters: tuple[str, int]
    running: tuple[str, int]

    @classmethod
    def find(cls, settings: Settings) -> Self:
        """Look the topics up; creates none. Blocks. Raises HatcastError if no broker answers."""
        try:  # of all topics: a request by name may create the topic
            metadata = AdminClient(confluent_options(settings)).list_topics(timeout=REQUEST_SECONDS)
        except KafkaException:
            raise HatcastError(f"lost the connection to {broker_name(settings)}: check that it runs") from None
        sizes = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
        topics = settings.topics
        # Only policies with devices have clusterings; "" is read by nobody.
        clusters = topics.clusters if settings.policy.takes_reports else ""
        # Read wherever it exists, and missed where the policy has running means.
        running = topics.running if settings.policy.running or topics.running in sizes else ""
        names = (topics.means, topics.budget, topics.estimates, topics.queries, clusters, running)
        return cls(str(metadata.cluster_id), *((name, sizes.get(name, 0)) for name in names))

    @property
    def missing(self) -> list[str]:
        """Names of the topics that do not exist yet."""
        return [name for name, size in self[1:] if name and not size]

    def with_new(self, found: Self) -> Self:
        """Return these topics, and with them those of `found` that were missing."""
        if found.cluster != self.cluster:
            return self
        pairs = zip(self[1:], found[1:], strict=True)
        return type(self)(self.cluster, *(mine if mine[1] else its for mine, its in pairs))

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions."""
        return [TopicPartition(name, number) for name, size in self[1:] for number in range(size)]

    def start(self) -> EventPosition:
        """Return the position before the first record."""
        log_name = log_id(self.cluster, self.means[0], self.budget[0])
        return EventPosition(
            log_name, *([0] * size for _, size in (self.means, self.budget, self.estimates, self.running))
        )


def find_topics(settings: Settings) -> MapTopics:
    """Wait for a broker and look the topics up. Blocks.

    A topic of estimates, answers, clusterings or running means that does not exist yet is read once it does.
    Raises HatcastError if no broker answers or another topic is missing.
    """
    wait_for_broker(settings)
    found = MapTopics.find(settings)
    for name, size in (found.means, found.budget):
        if not size:
            raise HatcastError(
                f"{broker_name(settings)} has no topic {name!r}: correct the name, or start a worker, which creates it"
            )
    for name in found.missing:
        log.warning("a topic does not exist yet: showing the others until it does", topic=name)
    return found


_WAIT_MS: Final = 200
_MAX_RECORDS: Final = 2_000  # per poll: about 10 ms, so that the event loop still serves viewers
_LOOK_S: Final = 5.0  # between two looks for a topic that does not exist yet


class Reader:
    """Reader of the topics for as long as the map runs: in no consumer group, and anew at every start."""

    def __init__(self, settings: Settings, feed: Feed, topics: MapTopics, *, check_crcs: bool = True) -> None:
        """Args:
        check_crcs: False for librdkafka's mock cluster, whose transaction markers lack a checksum
        """
        self._settings = settings
        self._found = topics
        self._topics = settings.topics
        self._broker = broker_name(settings)
        self._feed = feed
        self._failures = FailureLog("map")
        self._skipped = 0
        self._next_look_s = monotonic_s() + _LOOK_S
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
        try:
            ends = await self._begin()
            while not stopping.is_set():
                try:
                    with self._failures.attempt("read the output topics"):
                        batches = await self._consumer.getmany(timeout_ms=_WAIT_MS, max_records=_MAX_RECORDS)
                        if not self._feed.caught_up and not batches:
                            reached = [await self._consumer.position(each) >= end for each, end in ends.items()]
                            if all(reached):
                                self._feed.serve()
                    self._observe_brokers()
                    await self._look_for_missing_topics()
                except KafkaError as error:
                    self._failures.failed(error)
                    self._observe_brokers()
                    await pause(self._failures.wait_s, stopping)
                    continue
                self._failures.clear()
                if batches:
                    self._apply([record for records in batches.values() for record in records])
                    await asyncio.sleep(0)
        finally:
            with suppress(KafkaError):
                await self._consumer.stop()

    async def _begin(self) -> Mapping[TopicPartition, int]:
        """Assign the partitions and return their end offsets. Raises HatcastError if the broker is lost."""
        partitions = self._found.partitions()
        try:
            await self._consumer.start()
            self._consumer.assign(partitions)
            ends: Mapping[TopicPartition, int] = await self._consumer.end_offsets(partitions)
        except KafkaError as error:
            raise HatcastError(
                f"lost the connection to {self._broker} ({type(error).__name__}): check that it runs"
            ) from None
        return ends

    def _observe_brokers(self) -> None:
        """Pass on when each partition was answered for: twice a second, even without new records."""
        freshness = self._feed.freshness
        freshness.answered([self._consumer.last_poll_timestamp(each) for each in self._consumer.assignment()])
        METERS.set(DISPLAY_KAFKA_UP, int(freshness.live(now_ms())))
        self._feed.send_status_if_changed()

    async def _look_for_missing_topics(self) -> None:
        """Read a topic from its beginning as soon as it exists. The other topics are read on where they are."""
        due = self._feed.caught_up and monotonic_s() >= self._next_look_s and self._feed.freshness.live(now_ms())
        if not self._found.missing or not due:
            return
        self._next_look_s = monotonic_s() + _LOOK_S
        with suppress(HatcastError):  # no broker answers: the next look is later
            found = self._found.with_new(await asyncio.to_thread(MapTopics.find, self._settings))
            if found != self._found:
                await self._read_also(found)

    async def _read_also(self, found: MapTopics) -> None:
        log.info("reading a topic that exists now", topics=sorted({*self._found.missing} - {*found.missing}))
        positions = {each: await self._consumer.position(each) for each in self._consumer.assignment()}
        self._found = found
        self._feed.add_topics(found.start())
        self._consumer.assign(found.partitions())
        for partition, offset in positions.items():
            self._consumer.seek(partition, offset)

    def _apply(self, records: "list[ConsumerRecord[bytes, bytes]]") -> None:
        self._feed.freshness.record(max(each.timestamp for each in records))
        with self._feed.batch() as changes:
            for record in records:
                if record.value is None or is_from_other_domain(record.headers, self._topics.telemetry):
                    continue
                try:
                    self._add(changes, record, record.value)
                except UNREADABLE:
                    self._skip(record)

    def _add(self, changes: FeedChanges, record: "ConsumerRecord[bytes, bytes]", value: bytes) -> None:
        if record.topic == self._topics.budget:
            changes.budget(read_budget(value, record.offset), record.partition)
        elif record.topic == self._topics.estimates:
            changes.add(read_estimate(value, record.partition, record.offset))
        elif record.topic == self._topics.running:
            changes.add(read_running(value, record.partition, record.offset))
        elif record.topic == self._topics.queries:
            changes.listed(self._feed.answers, value)
        elif record.topic == self._topics.clusters:
            changes.listed(self._feed.clusterings, value)
        else:
            METERS.set_to_current_time(DISPLAY_LAST_RELEASE)
            if (release := read_release(value, record.partition, record.offset)) is not None:
                changes.add(release)

    def _skip(self, record: "ConsumerRecord[bytes, bytes]") -> None:
        """Log the 1st, 10th, 100th ... skipped record, never its content: it was not validated."""
        self._skipped += 1
        if str(self._skipped).rstrip("0") == "1":
            log.warning(
                "skipped a record that is not of a kind which the map shows",
                so_far=self._skipped,
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
            )
