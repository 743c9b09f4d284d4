"""Faust app for record batches, without the default services that a worker does not need."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import faust
from faust.app.base import BootStrategy
from faust.tables.manager import TableManager
from faust.types import AppT, Message, TopicT
from mode.supervisors import CrashingSupervisor

from hatcast.agents.kafka.batches.batch import BatchHandler, BatchSettings, RecordBatch
from hatcast.agents.kafka.batches.consumer import BatchConsumer, BatchTransport

Handler = TypeVar("Handler", bound=BatchHandler)

STREAM_SECONDS: Final = 300.0


class BatchSchema(faust.Schema[Any, RecordBatch]):
    """Schema that passes batches through: they are objects, not bytes to decode."""

    def loads_key(self, app: AppT, message: Message, **_: Any) -> None:
        """Return None: the keys are inside the batch."""

    def loads_value(self, app: AppT, message: Message, **_: Any) -> RecordBatch:
        """Return the batch."""
        return cast("RecordBatch", message.value)


class ConsumerOnly(BootStrategy):
    """Boot strategy without Faust's producer (see agents/kafka/producers.py) and its web server on 0.0.0.0."""

    enable_kafka_producer = False
    enable_web = False


class NoTables(TableManager):
    """Manager of Faust's tables, of which the app has none: it does not wait a second until they are declared."""

    async def on_start(self) -> None:
        """Start what rebalances go through."""
        await self._update_channels()
        await self.recovery.start()


class BatchApp(faust.App):
    """Faust app whose agent on `batch_topic` receives record batches.

    Run it in the caller's event loop, with the caller's signal handlers: ``await app.start()``, then
    ``await app.wait_until_stopped()``, which also returns if the app has crashed (``app.crash_reason``), then
    ``await app.stop()``, which gives up the partitions and leaves the group. An agent that raises crashes the app.
    """

    BootStrategy = ConsumerOnly

    def _create_directories(self) -> None:
        """Make no folders: they are for tables. Overrides Faust's, which makes them in the working directory."""

    async def start(self) -> None:
        """Start the app. If it crashes during the start, raise the reason, such as KafkaConnectionError."""
        await super().start()
        while self.crashed:  # mode does not raise if the consumer's thread has ended before its check
            if self.crash_reason is not None:
                raise self.crash_reason
            await asyncio.sleep(0)  # the thread sets the reason right after the flag

    @property
    def batch_consumer(self) -> BatchConsumer:
        """The consumer; usable from its handler's first `on_assigned` on."""
        return cast("BatchConsumer", self.consumer)

    @property
    def batch_topic(self) -> TopicT:
        """Topic for ``@app.agent(app.batch_topic)``; the agent runs ``async for batch in stream.noack()``."""
        return self.topic(cast("BatchTransport", self.transport).settings.topic, schema=BatchSchema())


def batch_app(settings: BatchSettings, make_handler: Callable[[BatchConsumer], Handler]) -> tuple[BatchApp, Handler]:
    """Create the app and its consumer's handler, without starting it. Call this in the event loop that will run it."""
    app = BatchApp(
        settings.name,
        broker_session_timeout=settings.session_timeout,
        broker_rebalance_timeout=settings.rebalance_timeout,
        broker_commit_interval=settings.commit_interval,
        stream_buffer_maxsize=settings.queued_batches,
        stream_processing_timeout=STREAM_SECONDS,
        stream_wait_empty=False,  # it would wait for each batch, but batches are acknowledged by offset
        agent_supervisor=CrashingSupervisor,
        topic_allow_declare=False,
        topic_disable_leader=True,
        TableManager=NoTables,
        web_enabled=False,
    )
    app.transport = BatchTransport(app, settings, make_handler)
    return app, cast("Handler", app.batch_consumer.handler)
