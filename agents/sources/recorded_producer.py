"""Kafka producer of recordings and synthetic cities: in order, and every failed delivery raises."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from hatcast.agents.monitoring.declarations import BRIDGE_READINGS
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.sources.flow_control import FlowControl
from hatcast.agents.sources.pacing import Pace
from hatcast.agents.sources.queued_producer import QueuedProducer
from hatcast.stream.errors import HatcastError
from hatcast.stream.replay.heartbeats import Message

_QUEUE_MESSAGES: Final = 100_000
_QUEUE_KIB: Final = 64 << 10
_DELIVERY_MS: Final = 60_000
_POLL_EVERY: Final = 1_000  # messages between two polls for delivery reports
_QUEUE_FULL_WAIT_S: Final = 0.02

ProgressCallback = Callable[[int, int], object]
"""Called now and then with the number of records sent and the time (ms UTC) of the next."""


class RecordedProducer(QueuedProducer):
    """Idempotent producer of one topic, with acks=all and explicit partitions.

    records, heartbeats   readings and heartbeat records produced so far; `finish` waits until the broker has them
    """

    def __init__(
        self, options: Mapping[str, Any], topic: str, stop: threading.Event, flow_control: FlowControl | None = None
    ) -> None:
        """Args:
        options:       connection options (hatcast.agents.kafka.client.confluent_options)
        stop:          set it to stop the feed
        flow_control:  needed if the broker drops records that were not consumed
        """
        self.records = 0
        self.heartbeats = 0
        self.topic = topic
        self.stop = stop
        self._flow_control = flow_control
        self._reported = 0
        self._failed = 0
        self._reason = ""
        self._producer = Producer(
            {
                **options,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": "lz4",
                "linger.ms": 20,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": _QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": _QUEUE_KIB,
                "message.timeout.ms": _DELIVERY_MS,
                "delivery.report.only.error": True,  # a callback for every record halves the rate
                "on_delivery": self._on_delivery,
            }
        )

    def send_all(self, messages: Iterable[Message], pace: Pace, on_progress: ProgressCallback | None = None) -> bool:
        """Send messages when they are due; return False if the feed was stopped before their end.

        Raises HatcastError if the broker rejects one.
        """
        timestamp = 0

        def meanwhile() -> None:
            self.poll()
            if on_progress is not None:
                on_progress(self.records, timestamp)

        until_poll = 0
        for message in messages:
            timestamp = message.timestamp_ms
            if not pace.wait(timestamp, meanwhile) or not self._send(message):
                return False
            until_poll -= 1
            if until_poll < 0:
                until_poll = _POLL_EVERY
                meanwhile()
        meanwhile()
        return True

    def _send(self, message: Message) -> bool:
        """Produce a message, waiting while the queue is full; return False if the feed has to stop first."""
        partition, timestamp, key, value = message
        if self._flow_control is not None and not self._flow_control.wait(
            partition, len(key or b"") + len(value), self.stop
        ):
            return False
        while True:
            try:
                self._producer.produce(self.topic, value, key, partition, timestamp=timestamp)
            except BufferError:
                if self.stop.is_set():
                    return False
                self.poll(_QUEUE_FULL_WAIT_S)
            except KafkaException as error:
                raise self._delivery_error(error.args[0].str(), len(value)) from None
            else:
                break
        if key is None:
            self.heartbeats += 1
        else:
            self.records += 1
        return True

    def poll(self, seconds: float = 0.0) -> None:
        """Handle delivery reports, waiting up to `seconds` for them. Raises HatcastError if a delivery failed."""
        self._producer.poll(seconds)
        acknowledged = self.records - self._failed - len(self._producer)  # a lower bound: heartbeats are queued too
        if acknowledged > self._reported:
            METERS.count(BRIDGE_READINGS, acknowledged - self._reported)
            self._reported = acknowledged
        if self._failed:
            raise self._delivery_error(self._reason, None)

    def finish(self) -> None:
        """Wait until the broker has everything. Raises HatcastError if a delivery failed."""
        while len(self._producer):
            self._producer.flush(1.0)
            self.poll()
        self.poll()

    def _on_delivery(self, error: KafkaError | None, _: Delivered) -> None:
        if error is not None:
            self._failed += 1
            self._reason = error.str()

    def _delivery_error(self, reason: str, size: int | None) -> HatcastError:
        what = f"{self._failed or 'some'} records" if size is None else f"a record of {size} bytes"
        return HatcastError(
            f"Kafka rejected {what} ({' '.join(reason.split())}), so topic {self.topic} has only a part of the feed:"
            " fix that, and send the feed again to a new topic"
        )
