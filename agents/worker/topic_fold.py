"""Fold of one topic into Redis: consumer group, ingest, checkpoints, heartbeats for silent partitions."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, cast

import faust
import structlog

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.agents.kafka.aio import (
    AIOKafkaProducer,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
    UnsupportedCodecError,
)
from hatcast.agents.kafka.batches.batch import BatchSettings, RecordBatch
from hatcast.agents.kafka.batches.consumer import batch_app
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.kafka.dead_letters import DeadLetters
from hatcast.agents.kafka.groups import remove_members, wait_for_group
from hatcast.agents.kafka.topic_rules import readable_codecs
from hatcast.agents.monitoring.declarations import HEARTBEATS, READINGS
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.redis.hat_store import HatStore
from hatcast.agents.worker.ingest import Ingest
from hatcast.agents.worker.membership import Membership
from hatcast.agents.worker.source import Connections, IngestOptions, Source, repeat
from hatcast.stream.errors import HatcastError, SettingError

log = structlog.get_logger()

LIVE_MS: Final = 600_000  # a live topic's greatest stored watermark is at most this old
_ROUND_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class HeartbeatSender:
    """Sends heartbeat records, which advance the watermarks of partitions whose vehicles are silent.

    A heartbeat is a record in the log, so every replay sees it. A worker sends one to a partition that it owns only if
    the log is read to its end, no record has arrived for `idle_after`, and the topic is live: today's clock must not
    close the slots of an old recording, except in a drain.    [docs/specification/fold.md, Heartbeat records]
    """

    ingest: Ingest
    store: HatStore
    producer: AIOKafkaProducer
    topic: str
    idle_after_ms: int
    live_ms: int | None  # the age of the greatest watermark of a live topic; None: send whatever it is, in a drain

    async def run(self, stopping: asyncio.Event) -> None:
        """Run a round once a second until `stopping` is set."""
        await repeat("ticks", "send heartbeats to idle partitions", self.round, _ROUND_S, stopping)

    async def round(self) -> None:
        """Send a heartbeat to each idle partition that this worker owns."""
        idle = [
            partition
            for partition, owned in self.ingest.partitions.items()
            if monotonic_s() - owned.last_arrival_s >= self.idle_after_ms / 1000
            and self.ingest.consumer.position_at_end(partition, owned.next)
        ]
        if not idle:
            return
        if self.live_ms is not None:
            newest_ms = max((each for each in await self.store.watermarks() if each is not None), default=None)
            if newest_ms is None or now_ms() - newest_ms > self.live_ms:
                return
        for partition in idle:
            await self.producer.send_and_wait(self.topic, b"", partition=partition, timestamp_ms=now_ms())
            METERS.count(HEARTBEATS)


Loop = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


class TopicFold:
    """Fold of one topic in one worker. Parts are attributes, so that a test can wrap a step of one of them."""

    def __init__(self, connections: Connections, source: Source, options: IngestOptions) -> None:
        settings, producer = connections.settings, connections.producer
        self._source = source
        self.dead_letters = DeadLetters(producer, settings.topics.dead_letters, source.topic)
        self._client = connections.client
        self._session_timeout_s = settings.session_timeout_s
        self.app, self.ingest = batch_app(
            _batch_settings(source, connections, options),
            lambda consumer: Ingest(source, consumer, self.dead_letters, settings.checkpoint_interval_s, options),
        )
        self.app.agent(self.app.batch_topic, name="ingest")(self._fold)
        member_id = self.app.batch_consumer.member_id
        self._membership = Membership(source.group, connections.client, settings.session_timeout_s, member_id)
        # Of all topics: a current watermark of any of them shows that the sources are live.
        hats = connections.store
        live_ms = LIVE_MS if options.drain is None else None
        self.heartbeats = HeartbeatSender(self.ingest, hats, producer, source.topic, settings.idle_after_ms, live_ms)

    def label(self, partition: int) -> str:
        """Return the label of a partition on `/metrics`: of telemetry its number."""
        return str(partition) if self._source.counter is READINGS else f"{self._source.store.topic}/{partition}"

    @property
    def loops(self) -> tuple[Loop, ...]:
        """Loops that run beside the app until the worker stops."""
        return self.ingest.checkpoint_regularly, self.heartbeats.run, self._membership.run

    async def start(self) -> None:
        """Join the group. Raises as BatchApp does, or a HatcastError; it has left the group then."""
        await wait_for_group(self._source.group, self._client)
        await self._membership.start()
        try:
            await self.app.start()
        except BaseException as error:
            await self.stop()
            raise self._explained(error) from None

    async def stop(self) -> None:
        """Write the last checkpoint, leave the group, and send the dead letters that wait."""
        try:
            await self.app.stop()
            # Through another connection: during a rebalance the broker does not answer on the first.
            if (member_id := self.app.batch_consumer.member_id()) is not None:
                try:
                    await remove_members(self._source.group, [member_id], self._client)
                except KafkaError:
                    log.warning("Kafka did not answer: the group reassigns the partitions after the session timeout")
            await self.dead_letters.flush()
        finally:
            self._membership.close()

    @property
    def crash(self) -> BaseException | None:
        """The error that ended the app; a HatcastError if the operator has to change something."""
        reason = self.app.crash_reason
        return None if reason is None else self._explained(reason)

    def _explained(self, error: BaseException) -> BaseException:
        """Return the same error, or a HatcastError if the operator has to change something."""
        match error:
            case UnsupportedCodecError():
                return HatcastError(
                    f"topic {self._source.topic} holds records in a compression that this worker cannot read (it reads"
                    f" {', '.join(readable_codecs())}): install the package cramjam beside hatcast, or let the"
                    " producers use gzip in a new topic; nothing was skipped"
                )
            case InvalidSessionTimeoutError():
                return SettingError(
                    "worker.session_timeout",
                    f"{self._session_timeout_s:g} s is one that Kafka's brokers refuse",
                    "set it between their group.min.session.timeout.ms and group.max.session.timeout.ms, by default 6s"
                    " and 30m",
                )
            case InconsistentGroupProtocolError():
                return HatcastError(
                    f"consumer group {self._source.group} has members that are not workers of this version: stop them,"
                    " and start this one again"
                )
            case _:
                return error

    async def _fold(self, stream: faust.StreamT[Any]) -> None:
        # noack: the ingest acknowledges, after the checkpoint. Faust's interface type lacks it.
        async for batch in cast("faust.Stream[RecordBatch]", stream).noack():
            await self.ingest.fold(batch)


def _batch_settings(source: Source, connections: Connections, options: IngestOptions) -> BatchSettings:
    client, settings = connections.client, connections.settings
    return BatchSettings(
        name=source.group,
        bootstrap_servers=client["bootstrap_servers"],
        topic=source.topic,
        partitions=None if options.drain is None else connections.partitions,
        session_timeout=settings.session_timeout_s,
        security={key: value for key, value in client.items() if key not in ("bootstrap_servers", "client_id")},
        group_options=confluent_options(settings),
    )
