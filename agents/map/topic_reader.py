"""Reading `hats.means` and `hats.budget`: from their beginning, committed records only, in no group.

Nothing is written to Kafka and nothing is remembered: a map that starts reads the compacted topics anew.
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
from hatcast.agents.kafka.cloud_events import comes_of_another
from hatcast.agents.map.event_id import Position, log_name
from hatcast.agents.map.feed import Feed
from hatcast.agents.map.record import read_budget, read_release
from hatcast.agents.monitoring.declarations import DISPLAY_KAFKA_UP, DISPLAY_LAST_RELEASE
from hatcast.agents.monitoring.failures import FailureLog
from hatcast.agents.monitoring.meters import METERS
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()

_WAIT_MS: Final = 200
_SILENT_MS: Final = 30_000
_MOST_RECORDS: Final = 2_000  # at a time: some 10 ms, so that viewers are served meanwhile


def find_log(settings: Settings) -> Position:
    """The beginning of the two topics. Blocks. Raises HatcastError: no broker, or one of the topics is not there."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    wait_for_broker(settings)
    try:  # all topics are asked for, since a broker may make one that is asked for by name
        found = AdminClient(confluent_options(settings)).list_topics(timeout=REQUEST_SECONDS)
    except KafkaException:
        raise HatcastError(f"{broker_name(settings)} was lost: see that it runs") from None
    means, budget = settings.topics.means, settings.topics.budget
    for name in (means, budget):
        if name not in found.topics or not found.topics[name].partitions:
            raise HatcastError(
                f"{broker_name(settings)} has no topic {name!r}: correct the name, or start a worker (it makes its own)"
            )
    partitions = [[0] * len(found.topics[name].partitions) for name in (means, budget)]
    return Position(log_name(str(found.cluster_id), means, budget), *partitions)


class Reader:
    """Follows the topics for as long as the map runs."""

    def __init__(self, settings: Settings, feed: Feed, *, check_crcs: bool = True) -> None:
        """Args: `check_crcs`, False for the mock cluster, whose transaction markers have no checksum."""
        self._topics = settings.topics
        self._where = broker_name(settings)
        self._feed = feed
        self._trouble = FailureLog("map")
        self._unread = 0
        self._consumer = AIOKafkaConsumer(
            **aiokafka_options(settings),
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
            check_crcs=check_crcs,
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """Read until `stopping`. A broker that goes away is waited for."""
        METERS.set_now(DISPLAY_LAST_RELEASE)  # one that never reads any is stale too
        position = self._feed.position
        partitions = [TopicPartition(self._topics.means, each) for each in range(len(position.means))]
        partitions += [TopicPartition(self._topics.budget, each) for each in range(len(position.budget))]
        try:
            ends = await self._begin(partitions)
            while not stopping.is_set():
                try:
                    with self._trouble.doing("read the output topics"):
                        batches = await self._consumer.getmany(timeout_ms=_WAIT_MS, max_records=_MOST_RECORDS)
                        if not self._feed.caught_up:
                            behind = [each for each in partitions if await self._consumer.position(each) < ends[each]]
                            self._feed.caught_up = not batches and not behind
                except KafkaError as error:
                    self._trouble.met(error)
                    METERS.set(DISPLAY_KAFKA_UP, 0)
                    await pause(self._trouble.wait_s, stopping)
                    continue
                self._trouble.over()
                METERS.set(DISPLAY_KAFKA_UP, int(self._answered(partitions)))
                if batches:
                    self._take([record for records in batches.values() for record in records])
                    await asyncio.sleep(0)
        finally:
            with suppress(KafkaError):
                await self._consumer.stop()

    async def _begin(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The ends that the partitions have now. Raises HatcastError if the broker was lost since `find_log`."""
        try:
            await self._consumer.start()
            self._consumer.assign(partitions)
            ends: Mapping[TopicPartition, int] = await self._consumer.end_offsets(partitions)
        except KafkaError as error:
            raise HatcastError(f"{self._where} was lost ({type(error).__name__}): see that it runs") from None
        return ends

    def _answered(self, partitions: Sequence[TopicPartition]) -> bool:
        """Whether a broker has answered lately: it does twice a second, also where there is nothing new."""
        heard_ms = max((self._consumer.last_poll_timestamp(each) or 0 for each in partitions), default=0)
        return not heard_ms or now_ms() - heard_ms < _SILENT_MS

    def _take(self, records: "Sequence[ConsumerRecord[bytes, bytes]]") -> None:
        with self._feed.changing() as changes:
            for record in records:
                if record.value is None or comes_of_another(record.headers, self._topics.telemetry):
                    continue
                try:
                    if record.topic == self._topics.means:
                        METERS.set_now(DISPLAY_LAST_RELEASE)
                        changes.release(read_release(record.value, record.partition, record.offset))
                    else:
                        changes.budget(read_budget(record.value, record.offset), record.partition)
                except (msgspec.DecodeError, ValueError, RecursionError):  # the last: JSON nested without end
                    self._pass_over(record)

    def _pass_over(self, record: "ConsumerRecord[bytes, bytes]") -> None:
        """Tell of the 1st, 10th, 100th ... of them, and never what it holds: nobody has looked at it."""
        self._unread += 1
        if str(self._unread).rstrip("0") == "1":
            where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.warning("what is no record of ours is passed over", so_far=self._unread, **where)
