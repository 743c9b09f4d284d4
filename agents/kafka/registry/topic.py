"""Read and write the registry topic: one partition, compacted, the first writer of a fact wins.    [decisions/0026]

A write fences every older writer, reads the topic to its end and then decides, so no two writers decide on the same
facts. The topic holds a few records of each policy, so it is read as a whole, each time.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aiokafka.errors import KafkaConnectionError, KafkaError, UnknownTopicOrPartitionError

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.config.topics_table import REGISTRY_SUFFIX
from hatcast.agents.kafka.client import aiokafka_options, confluent_options
from hatcast.agents.kafka.registry.records import Facts, PolicyRecord
from hatcast.agents.kafka.transactional import start_producer, stop_producer
from hatcast.agents.monitoring.failures import back_off_s

if TYPE_CHECKING:
    from confluent_kafka import Consumer

Decide = Callable[[Facts], Mapping[str, bytes]]

PARTITION: Final = 0  # the only one, but on a mock cluster, where every topic has four
_POLL_S: Final = 0.1
_SILENCE_S: Final = 30.0
_WRITE_TRIES: Final = 8  # each begins by reading what is there by now


class Registry:
    """The registry of one domain."""

    def __init__(self, settings: Settings) -> None:
        self.topic = settings.topics.registry
        self._settings = settings
        self._transactional_id = f"hatcast/{settings.topics.telemetry}/registry"

    async def read(self) -> Facts:
        """Return what the topic says up to its end at the time of the call.

        Raises KafkaError of aiokafka's kind if the brokers do not answer or do not know the topic, and HatcastError if a
        record cannot be read.
        """
        return await asyncio.to_thread(read_registry, self._settings, self.topic)

    async def read_others(self) -> list[PolicyRecord]:
        """Return the policies in the other registries of this Kafka, as far as this user may see them.

        Raises as `read` does.
        """
        return await asyncio.to_thread(_policies_elsewhere, self._settings)

    async def write(self, decide: Decide) -> Facts:
        """Let `decide` name the records to write (key -> value), and write them in one transaction, or none.

        `decide` may be called again, with newer facts, where another writer was faster; what it raises ends the write.
        Returns the facts afterwards. Raises as `read` does.
        """
        attempt = 0
        while decide(facts := await self.read()):
            try:
                return await self._write_fenced(decide)
            except KafkaError:  # fenced, as a rule; brokers and aiokafka have several names for that
                if attempt == _WRITE_TRIES:
                    raise
                await asyncio.sleep(back_off_s(attempt))
                attempt += 1
        return facts

    async def _write_fenced(self, decide: Decide) -> Facts:
        """Fence the older writers, then read, decide and write. Raises KafkaError if a newer writer came."""
        producer = await start_producer(self._transactional_id, aiokafka_options(self._settings))
        try:
            facts = await self.read()
            changes = decide(facts)
            if not changes:
                return facts
            async with producer.transaction():
                sent = [
                    await producer.send(self.topic, value, key.encode(), PARTITION) for key, value in changes.items()
                ]
                await asyncio.gather(*sent)
        finally:
            await stop_producer(producer)
        return Facts.of(self.topic, {**facts.values, **changes})


def read_registry(settings: Settings, topic: str) -> Facts:
    """Read a registry topic to the end that it has now: the newest value of each key. Blocks.

    Raises UnknownTopicOrPartitionError if there is no such topic, KafkaConnectionError if the brokers stop answering,
    and HatcastError if a record cannot be read.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

    options = confluent_options(settings) | {
        "group.id": "hatcast-registry",  # the library wants one; nothing is committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer(options)
    try:
        _look_for(consumer, topic)
        consumer.assign([TopicPartition(topic, PARTITION, OFFSET_BEGINNING)])
        return Facts.of(topic, _read_to_end(consumer))
    except KafkaException as raised:
        raise KafkaConnectionError(str(raised)) from None
    finally:
        consumer.close()


def _policies_elsewhere(settings: Settings) -> list[PolicyRecord]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        names = AdminClient(confluent_options(settings)).list_topics(timeout=_SILENCE_S).topics
    except KafkaException as raised:
        raise KafkaConnectionError(str(raised)) from None
    found: list[PolicyRecord] = []
    for name in sorted(names):
        if name.endswith(REGISTRY_SUFFIX) and name != settings.topics.registry:
            with suppress(UnknownTopicOrPartitionError):  # it was deleted meanwhile
                found += read_registry(settings, name).policies.values()
    return found


def _look_for(consumer: "Consumer", topic: str) -> None:
    """Raise unless the brokers show the topic: one that cannot be looked at is not an empty one."""
    found = consumer.list_topics(topic, timeout=_SILENCE_S).topics[topic]
    if found.error is not None or PARTITION not in found.partitions:
        raise UnknownTopicOrPartitionError(f"{topic}: {found.error}")


def _read_to_end(consumer: "Consumer") -> dict[str, bytes]:
    from confluent_kafka import KafkaError as Code

    values: dict[str, bytes] = {}
    heard_s = monotonic_s()
    while monotonic_s() - heard_s < _SILENCE_S:
        message = consumer.poll(_POLL_S)
        if message is None:
            continue
        heard_s = monotonic_s()
        error = message.error()
        if error is not None:
            if error.code() == Code._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own name for it
                return values
            raise KafkaConnectionError(error.str())
        key, value = message.key(), message.value()
        if key is not None and value is not None:
            values[key.decode(errors="replace")] = value
    raise KafkaConnectionError("the registry topic could not be read to its end")
