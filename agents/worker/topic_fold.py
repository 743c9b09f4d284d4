"""Fold of one topic into Redis: consumer group, ingest, checkpoints, heartbeats for silent partitions."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import faust
from aiokafka import AIOKafkaProducer
from aiokafka.errors import UnsupportedCodecError

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.batches import BatchApp, BatchSettings, RecordBatch, batch_app
from hatcast.agents.kafka.dead_letters import DeadLetters
from hatcast.agents.kafka.topic_rules import readable_codecs
from hatcast.agents.monitoring.declarations import READINGS, REPORTS
from hatcast.agents.monitoring.kinds import Counter
from hatcast.agents.redis.contributions import HatStore
from hatcast.agents.redis.partition_state import PartitionStore
from hatcast.agents.worker.heartbeats import HeartbeatSender
from hatcast.agents.worker.ingest import Ingest, IngestOptions
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.partition_fold import PartitionFold

Loop = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Source:
    """A topic to fold, and its parts.

    group       the consumer group
    store       the state of the topic's partitions
    make_fold   makes a partition's empty fold
    counter     counts records by outcome
    """

    topic: str
    group: str
    store: PartitionStore
    make_fold: Callable[[int], PartitionFold[bytes]]
    counter: Counter


class TopicFold:
    """Fold of one topic in one worker. Parts are attributes, so that a test can wrap a step of one of them."""

    def __init__(
        self,
        settings: Settings,
        source: Source,
        hats: HatStore,
        producer: AIOKafkaProducer,
        client: Mapping[str, Any],
        options: IngestOptions,
    ) -> None:
        """Args:
        hats: of all topics: a current watermark of any of them shows that the sources are live
        client: options of aiokafka
        options: `topic`, `counter` and `arrivals_by_watermark` are set here, by the source
        """
        self._settings = settings
        self._source = source
        self.dead_letters = DeadLetters(producer, settings.topics.dead_letters, source.topic)
        self.ingest = Ingest(
            source.store,
            source.make_fold,
            self.dead_letters,
            settings.checkpoint_interval_s,
            replace(
                options,
                topic=source.topic,
                counter=source.counter,
                arrivals_by_watermark=source.counter is REPORTS,
            ),
        )
        self.app = self._app(client)
        self.ingest.attach(self.app.batch_consumer)  # before the start, which may assign partitions
        self.heartbeats = HeartbeatSender(self.ingest, hats, producer, source.topic, settings.idle_after_ms)

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
        return self.ingest.checkpoint_regularly, self.heartbeats.run

    async def start(self) -> None:
        """Join the group. Raises as BatchApp does."""
        await self.app.start()

    async def stop(self) -> None:
        """Write the last checkpoint and leave the group."""
        await self.app.stop()

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

    def _app(self, client: Mapping[str, Any]) -> BatchApp:
        security = {key: value for key, value in client.items() if key not in ("bootstrap_servers", "client_id")}
        app = batch_app(
            BatchSettings(
                name=self._source.group,
                bootstrap_servers=client["bootstrap_servers"],
                topic=self._source.topic,
                session_timeout=self._settings.session_timeout_s,
                security=security,
            ),
            self.ingest,
        )

        async def ingest(stream: faust.StreamT[Any]) -> None:
            # noack: the ingest acknowledges, after the checkpoint. Faust's interface type lacks it.
            async for batch in cast("faust.Stream[RecordBatch]", stream).noack():
                await self.ingest.fold(batch)

        app.agent(app.batch_topic, name="ingest")(ingest)
        return app
