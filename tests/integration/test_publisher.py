"""The transactional producers against real Kafka."""

import asyncio
import gc
from contextlib import suppress

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, KafkaTimeoutError

from hatcast.agents.kafka import producers
from hatcast.agents.kafka.client import aiokafka_options
from hatcast.agents.kafka.producers import (
    OutputMessage,
    ProducerGone,
    Transaction,
    TransactionalProducers,
    start_producer,
    stop_producer,
)
from hatcast.agents.monitoring.failures import back_off_s
from tests.integration.harness import Pipeline
from tests.services import KafkaServer

WAIT_S = 120
pytestmark = pytest.mark.pipeline(topics=True)


async def test_a_publisher_that_was_fenced_fails_once_publishes_nothing_and_leaves_no_failure_unread(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    client = aiokafka_options(pipeline.settings)
    one, other = (
        TransactionalProducers(pipeline.name, "p", client),
        TransactionalProducers(pipeline.name, "p", client),
    )
    message = OutputMessage(pipeline.settings.topics.means, 0, b"key", b"value")
    try:
        await one.start_missing(frozenset([0]))
        await other.start_missing(frozenset([0]))
        with pytest.raises((ProducerGone, KafkaError)):
            await one.publish(0, [message, message])
    finally:
        await one.stop()
        await other.stop()
    gc.collect()  # asyncio complains of a failure that nobody has read once it is collected
    assert [record for record in caplog.records if record.name == "asyncio"] == []
    assert pipeline.published(committed=False) == {}


async def start(sends: TransactionalProducers) -> None:
    """Until it succeeds, as the release loop does: the abort of an older producer may be in its way."""
    while True:
        with suppress(KafkaError):
            return await sends.start_missing(frozenset([0]))
        await asyncio.sleep(back_off_s(0))


async def nothing_goes_on() -> None:
    """Nothing is left of a producer that was closed while Kafka stands still."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        assert not (await asyncio.wait(left, timeout=WAIT_S))[1]


async def publish(sends: TransactionalProducers, message: OutputMessage) -> None:
    """Until it succeeds; the start of a producer ends what is still open. A Kafka that was away may refuse at first."""
    while True:
        await start(sends)
        with suppress(KafkaError, ProducerGone):
            return await sends.publish(0, [message])
        await asyncio.sleep(back_off_s(0))


async def test_a_start_of_a_producer_that_kafka_gives_no_id_ends_and_the_next_one_succeeds(
    pipeline: Pipeline, breakable_kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka asks without end, so a release loop would stand still without a word."""
    monkeypatch.setattr(producers, "_LIMIT_S", 3.0)
    lookup = AIOKafkaClient.coordinator_lookup

    async def pause(client: AIOKafkaClient, *arguments: object) -> object:
        breakable_kafka.pause()  # it had answered until here
        return await lookup(client, *arguments)

    sends = TransactionalProducers(pipeline.name, "p", aiokafka_options(pipeline.settings))
    try:
        with monkeypatch.context() as patched:
            patched.setattr(AIOKafkaClient, "coordinator_lookup", pause)
            with pytest.raises(KafkaTimeoutError):
                await asyncio.wait_for(sends.start_missing(frozenset([0])), WAIT_S)
        breakable_kafka.resume()
        await asyncio.wait_for(
            publish(sends, OutputMessage(pipeline.settings.topics.means, 0, b"next", b"value")), WAIT_S
        )
    finally:
        breakable_kafka.resume()
        await sends.stop()
    assert pipeline.published().keys() == {"next"}


async def test_a_send_that_kafka_does_not_take_fails_and_is_not_published(
    pipeline: Pipeline, breakable_kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka's abort waits without end too."""
    topic = pipeline.settings.topics.means

    sends = TransactionalProducers(pipeline.name, "p", aiokafka_options(pipeline.settings))
    try:
        await asyncio.wait_for(start(sends), WAIT_S)
        breakable_kafka.pause()
        with monkeypatch.context() as patched, pytest.raises(KafkaTimeoutError):
            patched.setattr(producers, "_LIMIT_S", 3.0)
            await asyncio.wait_for(sends.publish(0, [OutputMessage(topic, 0, b"late", b"value")]), WAIT_S)
        await nothing_goes_on()
        with pytest.raises(ProducerGone):
            await sends.publish(0, [OutputMessage(topic, 0, b"gone", b"value")])
        breakable_kafka.resume()
        await asyncio.wait_for(publish(sends, OutputMessage(topic, 0, b"next", b"value")), WAIT_S)
    finally:
        breakable_kafka.resume()
        await sends.stop()
    assert pipeline.published().keys() == {"next"}


async def test_a_send_that_is_cancelled_while_kafka_does_not_answer_ends_and_is_not_published(
    pipeline: Pipeline, breakable_kafka: KafkaServer
) -> None:
    """Else a worker could not stop before Kafka answers again."""
    sends = TransactionalProducers(pipeline.name, "p", aiokafka_options(pipeline.settings))
    topic, sent = pipeline.settings.topics.means, asyncio.Event()
    try:
        await asyncio.wait_for(start(sends), WAIT_S)
        sender = sends._producers[0]._sender
        produce = sender._send_produce_req

        async def pause(*arguments: object) -> None:
            if not sent.is_set():
                breakable_kafka.pause()
                sent.set()
            await produce(*arguments)

        sender._send_produce_req = pause
        sending = asyncio.create_task(sends.publish(0, [OutputMessage(topic, 0, b"cancelled", b"value")]))
        await asyncio.wait_for(sent.wait(), WAIT_S)
        sending.cancel()
        ended, _ = await asyncio.wait([sending], timeout=WAIT_S)
        breakable_kafka.resume()
        assert ended == {sending}
        assert sending.cancelled()
        await nothing_goes_on()
        await asyncio.wait_for(publish(sends, OutputMessage(topic, 0, b"next", b"value")), WAIT_S)
    finally:
        breakable_kafka.resume()
        await sends.stop()
    assert pipeline.published().keys() == {"next"}


async def test_a_send_that_is_cancelled_after_its_producer_was_fenced_stays_cancelled(pipeline: Pipeline) -> None:
    """Else the stop of a worker would look like a failure of Kafka, and be tried again."""
    topic, client = pipeline.settings.topics.means, aiokafka_options(pipeline.settings)
    name = f"{pipeline.name}/fenced"

    with pytest.raises(asyncio.CancelledError):
        one = await start_producer(name, client)
        other = None
        try:
            async with Transaction(one):
                await one.send_and_wait(topic, b"value", b"cancelled", 0)
                other = await start_producer(name, client)
                raise asyncio.CancelledError
        finally:
            for each in filter(None, (one, other)):
                await stop_producer(each)
    assert pipeline.published() == {}
