"""Producer of stored reports or answers: sends each until the broker has it, or until the operator would reject it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError

from hatcast.agents.device.stored import MessageTable, StoredMessage
from hatcast.agents.kafka.queued_producer import QUEUE_FULL_WAIT_S, PolledProducer, one_line
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.vehicles import by_murmur2
from hatcast.stream.replay.heartbeats import TelemetryMessage, heartbeats

log = structlog.get_logger()

_DELIVERY_MS: Final = 30_000  # per attempt; a live device then retries
_RETRIABLE: Final = (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE)  # noqa: SLF001 - librdkafka's own names


class Outbox(PolledProducer[StoredMessage]):
    """Producer of reports, whose delivery it marks in the state file."""

    def __init__(
        self,
        options: Mapping[str, Any],
        topic: str,
        partitions: int,
        store: MessageTable,
        *,
        live: Callable[[], int] | None,
    ) -> None:
        """Args:
        options:  how to reach the broker (hatcast.agents.kafka.client.confluent_options)
        live:     the clock (ms UTC) of the reports' timestamps; a failed report is retried until it expires.
                  None: timestamps as recorded, and a failed report raises HatcastError
        """
        super().__init__(options, topic, {"linger.ms": 20, "message.timeout.ms": _DELIVERY_MS})
        self.partitions = partitions
        # sent, expired: reports acknowledged by the broker, and reports too late to be sent, since the start
        self.sent = 0
        self.expired = 0
        self.heartbeats = 0  # heartbeat records sent since the start
        self._store = store
        self._live = live
        self._failure: KafkaError | None = None
        self._unreachable = False

    def send(self, reports: Iterable[StoredMessage]) -> None:
        """Produce reports; mark those that are late already as expired. Raises HatcastError as `poll` does."""
        late = []
        for stored in reports:
            now = None if self._live is None else self._live()
            if now is not None and now >= stored.closes_ms:
                late.append(stored.number)
                continue
            key, timestamp = stored.id.encode(), stored.sent_ms if now is None else now
            self._send(TelemetryMessage(by_murmur2(key, self.partitions), timestamp, key, stored.body), stored)
        if late:
            self._store.mark("expired", late)
            self.expired += len(late)
            log.warning("reports are too late to be sent; their charges stay spent", reports=len(late))

    def send_heartbeats(self, timestamp_ms: int) -> None:
        """Produce one heartbeat record per partition: of a fleet, whose recording is the only time source."""
        for message in heartbeats(self.partitions, timestamp_ms):
            self._send(message)
        self.heartbeats += self.partitions

    def _send(self, message: TelemetryMessage, stored: StoredMessage | None = None) -> None:
        while not self._produce(message, stored):
            self.poll(QUEUE_FULL_WAIT_S)

    def poll(self, seconds: float = 0.0) -> None:
        """Handle delivery reports, waiting up to `seconds`: mark acknowledged reports, send timed-out ones again.

        Raises HatcastError for a permanent delivery failure and, unless live, for any.
        """
        self._producer.poll(seconds)
        acked, to_retry = [], []
        for stored, error in self._taken_reports():
            if error is not None and stored is not None and self._live and error.code() in _RETRIABLE:
                to_retry.append(stored)
            elif error is not None:
                self._failure = error
            elif stored is not None:
                acked.append(stored.number)
        if acked:
            if self._unreachable:
                self._unreachable = False
                log.info("Kafka answers again")
            self._store.mark("sent", acked)
            self.sent += len(acked)
        if self._failure is not None:
            raise self._rejection(self._failure)
        if to_retry:
            if not self._unreachable:
                self._unreachable = True
                log.warning("Kafka does not answer; the reports are stored and retried")
            self.send(to_retry)

    def _rejection(self, error: KafkaError, _: int | None = None) -> HatcastError:
        return HatcastError(
            f"topic {self.topic} rejected a report ({one_line(error)}): fix that and start again; unsent"
            " reports are stored in the state file"
        )
