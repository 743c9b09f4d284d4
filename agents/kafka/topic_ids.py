"""Topic ids. Kafka gives a topic that is deleted and created again a new id.

aiokafka cannot read them, so librdkafka's admin client does: one metadata request, 1.5 ms and 0.5 ms of CPU.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from hatcast.agents.clock import monotonic_s
from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.aio import KafkaError, UnknownTopicOrPartitionError
from hatcast.agents.kafka.client import confluent_options
from hatcast.agents.kafka.partition_reader import connection_errors
from hatcast.agents.kafka.registry_checks import check_topic_id
from hatcast.agents.monitoring.failures import back_off_s

log = structlog.get_logger()

_REQUEST_S: Final = 3.0
_START_ATTEMPTS: Final = 8  # not every broker may know a topic that was created a moment ago
_ZERO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"  # a broker before 2.8 sends it for every topic


class TopicIds:
    """Reader of topic ids, with one connection for the life of a worker."""

    def __init__(self, settings: Settings) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient(confluent_options(settings))

    async def read(self, topics: Sequence[str]) -> dict[str, str | None]:
        """Return topic -> id, in the form that Kafka's tools print; None if the broker is older than topic ids.

        Raises UnknownTopicOrPartitionError with the names of those that are missing, and KafkaConnectionError if no
        broker answers.
        """
        from confluent_kafka import KafkaError as Code
        from confluent_kafka import KafkaException, TopicCollection

        ids: dict[str, str | None] = {}
        missing = []
        with connection_errors():
            futures = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=_REQUEST_S)
            for topic in topics:
                try:
                    text = str((await asyncio.wrap_future(futures[topic])).topic_id)
                    # As Kafka's tools print it: URL-safe base64.
                    ids[topic] = None if text == _ZERO_ID else text.replace("+", "-").replace("/", "_")
                except KafkaException as error:
                    if error.args[0].code() != Code.UNKNOWN_TOPIC_OR_PART:
                        raise
                    missing.append(topic)
        if missing:
            raise UnknownTopicOrPartitionError(", ".join(missing))
        return ids

    async def read_at_start(self, topics: Sequence[str]) -> dict[str, str | None]:
        """Read as `read` does, with retries for some seconds. Log a warning if the broker is older than topic ids."""
        for attempt in range(_START_ATTEMPTS - 1):
            try:
                ids = await self.read(topics)
                break
            except KafkaError:
                await asyncio.sleep(back_off_s(attempt))
        else:
            ids = await self.read(topics)
        for topic, topic_id in ids.items():
            if topic_id is None:
                log.warning("broker without topic ids: a recreated topic is not detected, update Kafka", topic=topic)
        return ids


class TopicIdCheck:
    """Check that a topic still has its registered id."""

    def __init__(self, ids: TopicIds, policy: str, topic: str, registered: str) -> None:
        self._ids = ids
        self._policy = policy
        self._topic = topic
        self._registered = registered
        self._lock = asyncio.Lock()
        self._confirmed_s = 0.0  # start of the last request that found the registered id

    async def confirm(self) -> None:
        """Return once a request that began after this call has found the registered id; calls share requests.

        Records fetched before the call then came from the registered topic, if the brokers agree on their metadata.
        Raises HatcastError if the id differs, and KafkaError if no broker answers or none knows the topic.
        """
        called_s = monotonic_s()
        async with self._lock:
            if self._confirmed_s > called_s:
                return
            await asyncio.sleep(0)  # so that the other partitions of this round call before the request
            began_s = monotonic_s()
            now = (await self._ids.read([self._topic]))[self._topic]
            check_topic_id(self._policy, self._topic, self._registered, now)
            self._confirmed_s = began_s
