"""One topic's records into Redis: the group that reads it, the fold, the checkpoints, ticks for silent partitions."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
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
from hatcast.agents.redis.user_keys import StoredKey
from hatcast.agents.worker.heartbeats import HeartbeatSender
from hatcast.agents.worker.ingest import Ingest
from hatcast.stream.errors import HatcastError
from hatcast.stream.fold.partition_fold import PartitionFold

Loop = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Source:
    """What is read, by whom, and where it goes.

    group       the consumer group
    store       the state of the topic's partitions
    make_fold   a partition's empty fold
    counted     by outcome, on `/metrics`
    """

    topic: str
    group: str
    store: PartitionStore
    make_fold: Callable[[int], PartitionFold[bytes]]
    counted: Counter


class TopicFold:
    """The ingest of one topic in one worker. Parts are attributes, so that a test can wrap a step of one of them."""

    app: BatchApp

    def __init__(
        self,
        settings: Settings,
        source: Source,
        hats: HatStore,
        producer: AIOKafkaProducer,
        fail: Callable[[Exception], None],
    ) -> None:
        """Args:
        hats: of all topics: any of their clocks tells that the feeds are live
        fail: ends the worker
        """
        self._settings = settings
        self._source = source
        self.dead_letters = DeadLetters(producer, settings.topics.dead_letters, source.topic)
        self.ingest = Ingest(source.store, source.make_fold, self.dead_letters, settings.checkpoint_interval_s, fail)
        self.ingest.counted = source.counted
        self.ingest.waits.topic = source.topic
        self.ingest.by_clock = source.counted is REPORTS
        self.ticker = HeartbeatSender(self.ingest, hats, producer, source.topic, settings.idle_after_ms)

    def label(self, partition: int) -> str:
        """How `/metrics` names a partition: that of telemetry by its number."""
        return str(partition) if self._source.counted is READINGS else f"{self._source.store.topic}/{partition}"

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self._source.topic

    @property
    def loops(self) -> tuple[Loop, ...]:
        """What runs beside the app until the worker stops."""
        return self.ingest.checkpoint_regularly, self.ticker.run

    def prepare(
        self, client: dict[str, Any], claim: Callable[[], Awaitable[None]], user_key: StoredKey, *, accept_gap: bool
    ) -> None:
        """Make the app. `claim`, `user_key`, `accept_gap`: see Ingest; `client`: options of aiokafka."""
        self.ingest.claim, self.ingest.user_key, self.ingest.accept_gap = claim, user_key, accept_gap
        self.app = self._app(client)
        self.ingest.attach(self.app.batch_consumer)  # before the start: partitions may be ours within it

    async def start(self) -> None:
        """Join the group. Raises as BatchApp does."""
        await self.app.start()

    async def stop(self) -> None:
        """Write the last checkpoint and leave the group."""
        await self.app.stop()

    @property
    def crash(self) -> BaseException | None:
        """What ended the app; a HatcastError where somebody has to change something."""
        reason = self.app.crash_reason
        if isinstance(reason, UnsupportedCodecError):
            return HatcastError(
                f"topic {self._source.topic} holds records in a compression that this worker cannot read (it reads"
                f" {', '.join(readable_codecs())}): install the package cramjam beside hatcast, or let the producers"
                " use gzip in a new topic; nothing was skipped"
            )
        return reason

    def _app(self, client: dict[str, Any]) -> BatchApp:
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
            # noack: the ingest acknowledges by itself, after the checkpoint. It is not in Faust's interface type.
            async for batch in cast("faust.Stream[RecordBatch]", stream).noack():
                await self.ingest.fold(batch)

        app.agent(app.batch_topic, name="ingest")(ingest)
        return app
