"""Reader of the rounds of clusterings on `hats.clusters`, from its beginning; it goes on while Kafka is away."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from hatcast.agents.config.settings import Settings
from hatcast.agents.kafka.client import broker_name
from hatcast.agents.kafka.partition_reader import open_consumer
from hatcast.agents.kafka.topics import topic_range
from hatcast.stream.errors import HatcastError
from hatcast.stream.kmeans.messages import Round, decode_round

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_BATCH: Final = 500


class RoundReader:
    """Rounds on the topic, in order."""

    def __init__(self, settings: Settings, consumer: "Consumer") -> None:
        self._broker = broker_name(settings)
        self._topic = settings.topics.clusters
        self._consumer = consumer

    def take(self, seconds: float = 0.0) -> Iterator[Round]:
        """Yield the rounds that have arrived, waiting up to `seconds`. Raises HatcastError if the topic is denied."""
        from confluent_kafka import KafkaError

        for message in self._consumer.consume(_BATCH, seconds):
            error = message.error()
            if error is not None:
                # Errors below 0 are librdkafka's own: the end of the partition, or brokers that it dials again.
                if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART):
                    raise HatcastError(f"{self._broker} does not show {self._topic} ({error.str()}): grant Read on it")
                continue
            round_ = decode_round(message.value() or b"")
            if round_ is not None:
                yield round_


@contextmanager
def open_rounds(settings: Settings) -> Iterator[RoundReader]:
    """Open the reader at the beginning of the topic. Raises HatcastError if the topic does not exist."""
    from confluent_kafka import TopicPartition

    topic = settings.topics.clusters
    bounds = topic_range(settings, topic)
    with open_consumer(settings, "device", {}) as consumer:
        consumer.assign([TopicPartition(topic, partition, start) for partition, (start, _) in enumerate(bounds)])
        yield RoundReader(settings, consumer)
