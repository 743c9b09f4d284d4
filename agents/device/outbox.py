"""Producer of stored reports: sends each until the broker acknowledges it, or until the operator would reject it."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from hatcast.agents.clock import monotonic_s
from hatcast.agents.device.store import Store, Stored
from hatcast.agents.sources.queued_producer import QueuedProducer
from hatcast.stream.errors import HatcastError
from hatcast.stream.readings.partitioner import by_murmur2

log = structlog.get_logger()

_DELIVERY_MS: Final = 30_000  # per attempt; a live device then retries
_QUEUE_FULL_S: Final = 0.02
_FINISH_S: Final = 10.0
_RETRIABLE: Final = (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE)  # noqa: SLF001 - librdkafka's own names


class Outbox(QueuedProducer):
    """Idempotent producer of one topic, acks=all.

    sent, expired   reports acknowledged by the broker, and reports too late to be sent, since the start
    heartbeats      heartbeat records sent since the start
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        topic: str,
        partitions: int,
        store: Store,
        *,
        live: Callable[[], int] | None,
    ) -> None:
        """Args:
        options:  how to reach the broker (hatcast.agents.kafka.client.confluent_options)
        live:     the clock (ms UTC) of the reports' timestamps; a failed report is retried until it expires.
                  None: timestamps as recorded, and a failed report raises HatcastError
        """
        self.topic = topic
        self.partitions = partitions
        self.sent = 0
        self.expired = 0
        self.heartbeats = 0
        self._store = store
        self._live = live
        self._in_flight: set[int] = set()
        self._heartbeats_in_flight = 0
        self._acked: list[int] = []
        self._to_retry: list[Stored] = []
        self._failure = ""
        self._unreachable = False
        self._producer = Producer(
            {
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": "lz4",
                "linger.ms": 20,
                "message.timeout.ms": _DELIVERY_MS,
                **options,
            }
        )

    def send(self, reports: Iterable[Stored]) -> None:
        """Produce reports; mark those that are late already as expired. Raises HatcastError as `poll` does."""
        late = []
        for stored in reports:
            now = None if self._live is None else self._live()
            if now is not None and now >= stored.closes_ms:
                late.append(stored.number)
                continue
            self._in_flight.add(stored.number)
            key = stored.id.encode()
            self._produce(
                stored.body,
                key,
                by_murmur2(key, self.partitions),
                timestamp=stored.sent_ms if now is None else now,
                on_delivery=partial(self._on_delivery, stored),
            )
        if late:
            self._store.mark_expired(late)
            self.expired += len(late)
            log.warning("reports are too late to be sent; their charges stay spent", reports=len(late))

    def send_heartbeats(self, timestamp_ms: int) -> None:
        """Produce one heartbeat record per partition: of a fleet, whose recording is the only time source."""
        for partition in range(self.partitions):
            self._produce(b"", None, partition, timestamp=timestamp_ms, on_delivery=self._on_heartbeat_delivery)
        self.heartbeats += self.partitions
        self._heartbeats_in_flight += self.partitions

    def _produce(self, value: bytes, key: bytes | None, partition: int, **options: Any) -> None:
        while True:
            try:
                self._producer.produce(self.topic, value, key, partition, **options)
            except BufferError:
                self.poll(_QUEUE_FULL_S)
            except KafkaException as error:
                raise self._delivery_error(error.args[0].str()) from None
            else:
                return

    def poll(self, seconds: float = 0.0) -> None:
        """Handle delivery reports, waiting up to `seconds`: mark acknowledged reports, send timed-out ones again.

        Raises HatcastError for a permanent delivery failure and, unless live, for any.
        """
        self._producer.poll(seconds)
        if self._acked:
            acked, self._acked = self._acked, []
            self._store.mark_sent(acked)
            self.sent += len(acked)
            self._in_flight.difference_update(acked)
        if self._failure:
            raise self._delivery_error(self._failure)
        if self._to_retry:
            to_retry, self._to_retry = self._to_retry, []
            self._in_flight.difference_update(stored.number for stored in to_retry)
            if not self._unreachable:
                self._unreachable = True
                log.warning("Kafka does not answer; the reports are stored and retried")
            self.send(to_retry)

    @property
    def is_empty(self) -> bool:
        """Whether the broker has acknowledged everything."""
        return not self._in_flight and not self._heartbeats_in_flight

    def finish(self, patience_s: float = _FINISH_S) -> bool:
        """Wait until the broker has everything; return False after `patience_s`: the rest is sent at the next start."""
        deadline_s = monotonic_s() + patience_s
        while not self.is_empty and monotonic_s() < deadline_s:
            self.poll(0.1)
        self.poll()
        return self.is_empty

    def _on_delivery(self, stored: Stored, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._acked.append(stored.number)
            if self._unreachable:
                self._unreachable = False
                log.info("Kafka answers again")
        elif self._live and error.code() in _RETRIABLE:
            self._to_retry.append(stored)
        else:
            self._failure = error.str()

    def _on_heartbeat_delivery(self, error: KafkaError | None, _: Message) -> None:
        self._heartbeats_in_flight -= 1
        if error is not None:
            self._failure = error.str()

    def _delivery_error(self, reason: str) -> HatcastError:
        return HatcastError(
            f"topic {self.topic} rejected a report ({' '.join(reason.split())}): fix that and start again; unsent"
            " reports are stored in the state file"
        )
