"""Read and write the registry topic: one partition, compacted, the first writer of a fact wins.    [decisions/0026]

A write fences the older writers, reads the topic to its end and then decides, so that no two writers decide on the same
facts. The topic has few records per policy, so it is read as a whole each time.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from hatcast.agents.config.settings import Settings
from hatcast.agents.config.topics_table import REGISTRY_SUFFIX
from hatcast.agents.kafka.client import aiokafka_options, confluent_options
from hatcast.agents.kafka.partition_reader import SILENCE_S, connection_errors, is_end, next_messages, open_consumer
from hatcast.agents.kafka.registry.records import Facts, PolicyRecord
from hatcast.agents.kafka.transactional import Transaction, start_producer, stop_producer, time_limit
from hatcast.agents.monitoring.failures import back_off_s

if TYPE_CHECKING:
    from confluent_kafka import Consumer

Decide = Callable[[Facts], Mapping[str, bytes]]

PARTITION: Final = 0  # the only one, except on a mock cluster, where every topic has four
_POLL_S: Final = 0.1
_WRITE_ATTEMPTS: Final = 8  # each one reads the topic again


class Registry:
    """Registry of one domain."""

    def __init__(self, settings: Settings) -> None:
        self.topic = settings.topics.registry
        self._settings = settings
        self._transactional_id = f"hatcast/{settings.topics.telemetry}/registry"

    async def read(self) -> Facts:
        """Return the topic's contents up to its end at the time of the call.

        Raises aiokafka's KafkaError if the brokers do not answer or do not know the topic, and HatcastError if a record
        cannot be decoded.
        """
        return await asyncio.to_thread(read_registry, self._settings, self.topic)

    async def read_others(self) -> list[PolicyRecord]:
        """Return the policies of the other registry topics on this Kafka that this user may read.

        Raises as `read` does.
        """
        return await asyncio.to_thread(_other_policies, self._settings)

    async def write(self, decide: Decide) -> Facts:
        """Write the records (key -> value) that `decide` returns, in one transaction; return the facts afterwards.

        `decide` is called again with newer facts if another writer was faster; an exception from it ends the write.
        Nothing is written if it returns nothing. Raises as `read` does.
        """
        attempt = 0
        while decide(facts := await self.read()):
            try:
                return await self._write_fenced(decide)
            except KafkaError:  # fenced, as a rule; brokers and aiokafka have several errors for it
                if attempt == _WRITE_ATTEMPTS:
                    raise
                await asyncio.sleep(back_off_s(attempt))
                attempt += 1
        return facts

    async def _write_fenced(self, decide: Decide) -> Facts:
        """Fence the older writers, then read, decide and write. Raises KafkaError if a newer writer fences this one."""
        producer = await start_producer(self._transactional_id, aiokafka_options(self._settings))
        try:
            facts = await self.read()
            changes = decide(facts)
            if not changes:
                return facts
            async with time_limit(), Transaction(producer):
                sent = [
                    await producer.send(self.topic, value, key.encode(), PARTITION) for key, value in changes.items()
                ]
                await asyncio.gather(*sent)
        finally:
            await stop_producer(producer)
        return Facts.of(self.topic, {**facts.values, **changes})


def read_registry(settings: Settings, topic: str) -> Facts:
    """Read a registry topic to its current end; the newest value of each key wins. Blocks.

    Raises UnknownTopicOrPartitionError if the topic does not exist, KafkaConnectionError if the brokers stop answering,
    and HatcastError if a record cannot be decoded.
    """
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    with open_consumer(settings, "registry", {}) as consumer, connection_errors():
        _check_exists(consumer, topic)
        consumer.assign([TopicPartition(topic, PARTITION, OFFSET_BEGINNING)])
        return Facts.of(topic, _read_to_end(consumer))


def _other_policies(settings: Settings) -> list[PolicyRecord]:
    from confluent_kafka.admin import AdminClient

    with connection_errors():
        names = AdminClient(confluent_options(settings)).list_topics(timeout=SILENCE_S).topics
    policies: list[PolicyRecord] = []
    for name in sorted(names):
        if name.endswith(REGISTRY_SUFFIX) and name != settings.topics.registry:
            with suppress(UnknownTopicOrPartitionError):  # it was deleted meanwhile
                policies += read_registry(settings, name).policies.values()
    return policies


def _check_exists(consumer: "Consumer", topic: str) -> None:
    """Raise UnknownTopicOrPartitionError unless the brokers list the topic: an invisible topic is not an empty one."""
    metadata = consumer.list_topics(topic, timeout=SILENCE_S).topics[topic]
    if metadata.error is not None or PARTITION not in metadata.partitions:
        raise UnknownTopicOrPartitionError(f"{topic}: {metadata.error}")


def _read_to_end(consumer: "Consumer") -> dict[str, bytes]:
    values: dict[str, bytes] = {}
    while not is_end(message := next_messages(consumer, 1, _POLL_S)[0]):
        key, value = message.key(), message.value()
        if key is not None and value is not None:
            values[key.decode(errors="replace")] = value
    return values
