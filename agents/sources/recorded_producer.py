"""Kafka producer of recordings and synthetic cities: in order, and every failed delivery raises."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError

from hatcast.agents.kafka.queued_producer import QUEUE_FULL_WAIT_S, QUEUE_KIB, PolledProducer, one_line
from hatcast.agents.monitoring.declarations import BRIDGE_READINGS
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.sources.flow_control import FlowControl
from hatcast.agents.sources.pacing import Pace
from hatcast.stream.errors import HatcastError
from hatcast.stream.replay.heartbeats import Message

_QUEUE_MESSAGES: Final = 100_000
_DELIVERY_MS: Final = 60_000
_POLL_EVERY: Final = 1_000  # messages between two polls for delivery reports

ProgressCallback = Callable[[int, int], object]
"""Called now and then with the number of records sent and the time (ms UTC) of the next."""


class RecordedProducer(PolledProducer[None]):
    """Producer of records with their own timestamps.

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
        super().__init__(
            options,
            topic,
            {
                "linger.ms": 20,
                "batch.num.messages": 10_000,
                "queue.buffering.max.messages": _QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": QUEUE_KIB,
                "message.timeout.ms": _DELIVERY_MS,
                "delivery.report.only.error": True,  # a callback for every record halves the rate
            },
        )
        self.records = 0
        self.heartbeats = 0
        self.stop = stop
        self._flow_control = flow_control
        self._reported = 0
        self._failed = 0
        self._error: KafkaError | None = None

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
        partition, _, key, value = message
        if self._flow_control is not None and not self._flow_control.wait(
            partition, len(key or b"") + len(value), self.stop
        ):
            return False
        while not self._produce(message):
            if self.stop.is_set():
                return False
            self.poll(QUEUE_FULL_WAIT_S)
        if key is None:
            self.heartbeats += 1
        else:
            self.records += 1
        return True

    def poll(self, seconds: float = 0.0) -> None:
        """Handle delivery reports, waiting up to `seconds` for them. Raises HatcastError if a delivery failed."""
        self._producer.poll(seconds)
        for _, error in self._taken_reports():
            if error is not None:
                self._failed += 1
                self._error = error
        self.in_flight = len(self._producer)  # only errors are reported
        acknowledged = self.records - self._failed - self.in_flight  # a lower bound: heartbeats are in flight too
        if acknowledged > self._reported:
            METERS.count(BRIDGE_READINGS, acknowledged - self._reported)
            self._reported = acknowledged
        if self._error is not None:
            raise self._rejection(self._error)

    def _rejection(self, error: KafkaError, size: int | None = None) -> HatcastError:
        what = f"{self._failed} records" if size is None else f"a record of {size} bytes"
        return HatcastError(
            f"Kafka rejected {what} ({one_line(error)}), so topic {self.topic} has only a part of the feed:"
            " fix that, and send the feed again to a new topic"
        )
