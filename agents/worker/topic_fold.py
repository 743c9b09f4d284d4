"""Fold of one topic into Redis: consumer group, ingest, checkpoints, heartbeats for silent partitions."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import faust
from aiokafka.errors import UnsupportedCodecError

from hatcast.agents.kafka.batches.batch import BatchSettings, RecordBatch
from hatcast.agents.kafka.batches.consumer import batch_app
from hatcast.agents.kafka.dead_letters import DeadLetters
from hatcast.agents.kafka.groups import wait_for_group
from hatcast.agents.kafka.topic_rules import readable_codecs
from hatcast.agents.monitoring.declarations import READINGS
from hatcast.agents.worker.connections import Connections
from hatcast.agents.worker.heartbeats import LIVE_MS, HeartbeatSender
from hatcast.agents.worker.ingest import Ingest
from hatcast.agents.worker.membership import Membership
from hatcast.agents.worker.source import IngestOptions, Source
from hatcast.stream.errors import HatcastError

Loop = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


class TopicFold:
    """Fold of one topic in one worker. Parts are attributes, so that a test can wrap a step of one of them."""

    def __init__(self, connections: Connections, source: Source, options: IngestOptions) -> None:
        settings, producer = connections.settings, connections.producer
        self._source = source
        self.dead_letters = DeadLetters(producer, settings.topics.dead_letters, source.topic)
        self._client = connections.client
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
    def topic(self) -> str:
        """The topic's name."""
        return self._source.topic

    @property
    def loops(self) -> tuple[Loop, ...]:
        """Loops that run beside the app until the worker stops."""
        return self.ingest.checkpoint_regularly, self.heartbeats.run, self._membership.run

    async def start(self) -> None:
        """Join the group. Raises as BatchApp does."""
        await wait_for_group(self._source.group, self._client)
        await self._membership.start()
        try:
            await self.app.start()
        except BaseException:
            self._membership.close()
            raise

    async def stop(self) -> None:
        """Write the last checkpoint and leave the group."""
        try:
            await self.app.stop()
        finally:
            self._membership.close()

    @property
    def crash(self) -> BaseException | None:
        """The error that ended the app; a HatcastError if the operator has to change something."""
        reason = self.app.crash_reason
        if isinstance(reason, UnsupportedCodecError):
            return HatcastError(
                f"topic {self._source.topic} holds records in a compression that this worker cannot read (it reads"
                f" {', '.join(readable_codecs())}): install the package cramjam beside hatcast, or let the producers"
                " use gzip in a new topic; nothing was skipped"
            )
        return reason

    async def _fold(self, stream: faust.StreamT[Any]) -> None:
        # noack: the ingest acknowledges, after the checkpoint. Faust's interface type lacks it.
        async for batch in cast("faust.Stream[RecordBatch]", stream).noack():
            await self.ingest.fold(batch)


def _batch_settings(source: Source, connections: Connections, options: IngestOptions) -> BatchSettings:
    client = connections.client
    return BatchSettings(
        name=source.group,
        bootstrap_servers=client["bootstrap_servers"],
        topic=source.topic,
        partitions=None if options.drain is None else connections.partitions,
        session_timeout=connections.settings.session_timeout_s,
        security={key: value for key, value in client.items() if key not in ("bootstrap_servers", "client_id")},
    )
