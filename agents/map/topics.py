"""The topics that the map reads, and those of them that do not exist yet."""

from dataclasses import dataclass, replace
from typing import Self

import structlog
from aiokafka import TopicPartition

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import REQUEST_SECONDS, broker_name, confluent_options, wait_for_broker
from hatcast.agents.map.event_id import Position, log_id
from hatcast.stream.errors import HatcastError

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Topics:
    """Partitions of each topic, 0 while it does not exist.

    cluster   the cluster's id
    """

    cluster: str
    means: tuple[str, int]
    budget: tuple[str, int]
    estimates: tuple[str, int]
    queries: tuple[str, int]
    clusters: tuple[str, int]
    running: tuple[str, int]

    @classmethod
    def find(cls, settings: Settings) -> Self:
        """Look the topics up; creates none. Blocks. Raises HatcastError if no broker answers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:  # of all topics: a request by name may create the topic
            metadata = AdminClient(confluent_options(settings)).list_topics(timeout=REQUEST_SECONDS)
        except KafkaException:
            raise HatcastError(f"lost the connection to {broker_name(settings)}: check that it runs") from None
        sizes = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
        topics = settings.topics
        # Only policies with devices have clusterings; "" is read by nobody.
        clusters = topics.clusters if settings.policy.takes_reports else ""
        # Read wherever it exists, and missed where the policy has running means.
        running = topics.running if settings.policy.running or topics.running in sizes else ""
        names = (topics.means, topics.budget, topics.estimates, topics.queries, clusters, running)
        return cls(str(metadata.cluster_id), *((name, sizes.get(name, 0)) for name in names))

    @property
    def missing(self) -> list[str]:
        """Names of the topics that do not exist yet."""
        return [name for name, size in self._all if name and not size]

    def with_new(self, found: Self) -> Self:
        """Return these topics, and with them those of `found` that were missing."""
        if found.cluster != self.cluster:
            return self
        estimates = self.estimates if self.estimates[1] else found.estimates
        queries = self.queries if self.queries[1] else found.queries
        clusters = self.clusters if self.clusters[1] else found.clusters
        running = self.running if self.running[1] else found.running
        return replace(self, estimates=estimates, queries=queries, clusters=clusters, running=running)

    @property
    def _all(self) -> tuple[tuple[str, int], ...]:
        return self.means, self.budget, self.estimates, self.queries, self.clusters, self.running

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions."""
        return [TopicPartition(name, number) for name, size in self._all for number in range(size)]

    def start(self) -> Position:
        """Return the position before the first record."""
        log_name = log_id(self.cluster, self.means[0], self.budget[0])
        return Position(log_name, *([0] * size for _, size in (self.means, self.budget, self.estimates, self.running)))


def find_topics(settings: Settings) -> Topics:
    """Wait for a broker and look the topics up. Blocks.

    A topic of estimates, answers, clusterings or running means that does not exist yet is read once it does.
    Raises HatcastError if no broker answers or another topic is missing.
    """
    wait_for_broker(settings)
    found = Topics.find(settings)
    for name, size in (found.means, found.budget):
        if not size:
            raise HatcastError(
                f"{broker_name(settings)} has no topic {name!r}: correct the name, or start a worker, which creates it"
            )
    for name in found.missing:
        log.warning("a topic does not exist yet: showing the others until it does", topic=name)
    return found
