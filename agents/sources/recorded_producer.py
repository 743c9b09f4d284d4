"""Messages into Kafka, in order, with nothing lost in silence."""

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
_LOOK_EVERY: Final = 1_000  # messages between two looks at what the broker said
_FULL_S: Final = 0.02

Say = Callable[[int, int], object]
"""Told now and then how many records were sent, and the time (ms UTC) of the next."""


class RecordedProducer(QueuedProducer):
    """A producer of one topic: idempotent, acks=all, every message to the partition it names.

    records, ticks   handed over so far; `finish` says whether the broker has them
    """

    def __init__(
        self, options: Mapping[str, Any], topic: str, stop: threading.Event, room: FlowControl | None = None
    ) -> None:
        """Args:
        options:  how to reach the broker (hatcast.agents.kafka.client.confluent_options)
        stop:     set it to end the feed soon
        room:     where the broker forgets what it cannot keep
        """
        self.records = 0
        self.ticks = 0
        self.topic = topic
        self.stop = stop
        self._room = room
        self._counted = 0
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
                "delivery.report.only.error": True,  # a callback for each record would halve the rate
                "on_delivery": self._delivered,
            }
        )

    def send_all(self, messages: Iterable[Message], pace: Pace, say: Say | None = None) -> bool:
        """Send messages when they are due; True at their end, False if the feed was stopped before.

        Raises HatcastError if the broker did not take one.
        """
        timestamp = 0

        def meanwhile() -> None:
            self.look()
            if say is not None:
                say(self.records, timestamp)

        look_in = 0
        for message in messages:
            timestamp = message.timestamp_ms
            if not pace.wait(timestamp, meanwhile) or not self._send(message):
                return False
            look_in -= 1
            if look_in < 0:
                look_in = _LOOK_EVERY
                meanwhile()
        meanwhile()
        return True

    def _send(self, message: Message) -> bool:
        """Hand a message over, waiting while the queue is full; False if the feed is to stop first."""
        partition, timestamp, key, value = message
        if self._room is not None and not self._room.wait(partition, len(key or b"") + len(value), self.stop):
            return False
        while True:
            try:
                self._producer.produce(self.topic, value, key, partition, timestamp=timestamp)
            except BufferError:
                if self.stop.is_set():
                    return False
                self.look(_FULL_S)
            except KafkaException as error:
                raise self._refused(error.args[0].str(), len(value)) from None
            else:
                break
        if key is None:
            self.ticks += 1
        else:
            self.records += 1
        return True

    def look(self, seconds: float = 0.0) -> None:
        """Hear what the broker refused, waiting so long for it. Raises HatcastError."""
        self._producer.poll(seconds)
        acknowledged = self.records - self._failed - len(self._producer)  # or more: ticks wait there too
        if acknowledged > self._counted:
            METERS.count(BRIDGE_READINGS, acknowledged - self._counted)
            self._counted = acknowledged
        if self._failed:
            raise self._refused(self._reason, None)

    def finish(self) -> None:
        """Wait until the broker has everything. Raises HatcastError if it does not take it."""
        while len(self._producer):
            self._producer.flush(1.0)
            self.look()
        self.look()

    def _delivered(self, error: KafkaError | None, _: Delivered) -> None:
        if error is not None:
            self._failed += 1
            self._reason = error.str()

    def _refused(self, reason: str, size: int | None) -> HatcastError:
        what = f"{self._failed or 'some'} records" if size is None else f"a record of {size} bytes"
        return HatcastError(
            f"Kafka did not take {what} ({' '.join(reason.split())}), so topic {self.topic} holds a part of the feed"
            " only: mend that, and send it again to a new topic"
        )
