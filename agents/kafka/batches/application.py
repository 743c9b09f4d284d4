"""The Faust app around the frames, with all that Faust starts by default and we do not need left out."""

import asyncio
import tempfile
from typing import Any, Final, cast

import faust
from faust.app.base import BootStrategy
from faust.types import AppT, Message, TopicT
from mode.supervisors import CrashingSupervisor

from hatcast.agents.kafka.batches.batch import BatchHandler, BatchSettings, RecordBatch
from hatcast.agents.kafka.batches.consumer import BatchConsumer, BatchTransport

STREAM_SECONDS: Final = 300.0


class BatchSchema(faust.Schema[Any, RecordBatch]):
    """Frames are no bytes: there is nothing to decode."""

    def loads_key(self, app: AppT, message: Message, **_: Any) -> None:
        """A frame has keys, not a key."""

    def loads_value(self, app: AppT, message: Message, **_: Any) -> RecordBatch:
        """The frame itself."""
        return cast("RecordBatch", message.value)


class ConsumerOnly(BootStrategy):
    """No producer (ours are transactional, see agents/kafka/producers.py) and no web server on 0.0.0.0."""

    enable_kafka_producer = False
    enable_web = False


class BatchApp(faust.App):
    """A Faust app whose agent on `batch_topic` is given Frames.

    Run it in a loop of your own, with your own signal handlers: ``await app.start()``, then
    ``await app.wait_until_stopped()``, which also returns when it crashed (``app.crash_reason``), then
    ``await app.stop()``, which lets the partitions go and leaves the group. An agent that raises crashes the app.
    """

    BootStrategy = ConsumerOnly

    async def start(self) -> None:
        """Start all; raises what ended it if it crashed meanwhile, such as KafkaConnectionError."""
        await super().start()
        while self.crashed:  # mode raises nothing itself if the consumer's thread ends before it looks
            if self.crash_reason is not None:
                raise self.crash_reason
            await asyncio.sleep(0)  # the thread writes the reason right after the flag

    @property
    def batch_consumer(self) -> BatchConsumer:
        """The consumer; usable once the handler's first `on_assigned` was called."""
        return cast("BatchConsumer", self.consumer)

    @property
    def batch_topic(self) -> TopicT:
        """For ``@app.agent(app.batch_topic)`` and ``async for frame in stream.noack()``."""
        return self.topic(cast("BatchTransport", self.transport).settings.topic, schema=BatchSchema())


def batch_app(settings: BatchSettings, handler: BatchHandler) -> BatchApp:
    """The app, not started. Call it inside the loop it is to run in."""
    folder = tempfile.TemporaryDirectory(prefix="hatcast-faust-")  # Faust's default is the current folder
    app = BatchApp(
        settings.name,
        datadir=folder.name,
        broker_session_timeout=settings.session_timeout,
        broker_rebalance_timeout=settings.rebalance_timeout,
        broker_commit_interval=settings.commit_interval,
        stream_buffer_maxsize=settings.queued_batches,
        stream_processing_timeout=STREAM_SECONDS,
        stream_wait_empty=False,  # it would wait for frames that are acknowledged by position only
        agent_supervisor=CrashingSupervisor,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
    )
    app.transport = BatchTransport(app, settings, handler)
    app.add_context(folder)
    return app
