"""Producers of one topic through librdkafka, which queues messages and later reports the delivery of each."""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from hatcast.agents.clock import monotonic_s
from hatcast.stream.errors import HatcastError
from hatcast.stream.replay.heartbeats import TelemetryMessage

QUEUE_KIB: Final = 64 << 10
QUEUE_FULL_WAIT_S: Final = 0.02
_PURGE_S: Final = 1.0
_FLUSH_S: Final = 0.1

Tag = TypeVar("Tag")
_Reports = deque[tuple[Tag | None, KafkaError | None]]


class QueuedProducer(ABC, Generic[Tag]):
    """Idempotent producer of one topic, with acks=all and explicit partitions.

    in_flight   messages without a delivery report, or whose report was not taken
    """

    def __init__(self, options: Mapping[str, Any], topic: str, settings: Mapping[str, Any]) -> None:
        """Args:
        options:   connection options (hatcast.agents.kafka.client.confluent_options)
        settings:  librdkafka's, of this kind of producer
        """
        self.topic = topic
        self.in_flight = 0
        self._reports: _Reports[Tag] = deque()
        self._producer = Producer(
            {
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": "lz4",
                "on_delivery": partial(_add_report, self._reports, None),
                **settings,
                **options,
            }
        )

    def _produce(self, message: TelemetryMessage, tag: Tag | None = None) -> bool:
        """Queue a message, whose delivery report will have the tag; return False if the queue is full.

        Raises HatcastError if librdkafka rejects the message.
        """
        partition, timestamp, key, value = message
        on_delivery = None if tag is None else partial(_add_report, self._reports, tag)
        try:
            self._producer.produce(self.topic, value, key, partition, timestamp=timestamp, on_delivery=on_delivery)
        except BufferError:
            return False
        except KafkaException as error:
            raise self._rejection(error.args[0], len(value)) from None
        self.in_flight += 1
        return True

    def _taken_reports(self) -> Iterator[tuple[Tag | None, KafkaError | None]]:
        """Take the delivery reports that have arrived, each as the message's tag and error."""
        for _ in range(len(self._reports)):
            self.in_flight -= 1
            yield self._reports.popleft()

    def _purge(self) -> None:
        """Drop the queued messages. Kafka may or may not have the unconfirmed ones."""
        self._producer.purge()
        self._producer.flush(_PURGE_S)

    @abstractmethod
    def _rejection(self, error: KafkaError, size: int | None = None) -> HatcastError:
        """Return the error for a permanent failure; `size` of the message if it was not queued. Contains no record."""


class PolledProducer(QueuedProducer[Tag]):
    """Producer whose caller polls for delivery reports.

    Context manager: leaving it by an exception drops the queued messages instead of waiting for their delivery.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            self._purge()

    @abstractmethod
    def poll(self, seconds: float = 0.0) -> None:
        """Handle delivery reports, waiting up to `seconds` for them. Raises HatcastError if a delivery failed."""

    def finish(self, patience_s: float = math.inf) -> bool:
        """Wait until the broker has everything; return False if it does not after `patience_s`. Raises as `poll`."""
        deadline_s = monotonic_s() + patience_s
        while self.in_flight and monotonic_s() < deadline_s:
            self._producer.flush(_FLUSH_S)  # ends the linger time
            self.poll()
        self.poll()
        return not self.in_flight


def one_line(error: KafkaError) -> str:
    """Return librdkafka's reason in one line."""
    return " ".join(error.str().split())


def _add_report(reports: _Reports[Tag], tag: Tag | None, error: KafkaError | None, _: Delivered) -> None:
    reports.append((tag, error))
