"""Stored reports to the topic: each until the broker has said that it has it, or until nobody would take it."""

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

_DELIVERY_MS: Final = 30_000  # one try; a live device then tries again
_FULL_S: Final = 0.02
_FINISH_S: Final = 10.0
_LATER: Final = (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE)  # noqa: SLF001 - librdkafka's names of its own


class Outbox(QueuedProducer):
    """An idempotent producer of one topic, acks=all.

    sent, expired   reports that the broker has, or that came too late to be sent, since the start
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
        live:     the clock (ms UTC) that reports are dated by, and they are tried again until nobody would take them.
                  None: dated as recorded, and what is not taken ends it
        """
        self.topic = topic
        self.partitions = partitions
        self.sent = 0
        self.expired = 0
        self.ticks = 0
        self._store = store
        self._live = live
        self._waiting: set[int] = set()
        self._ticking = 0
        self._acked: list[int] = []
        self._again: list[Stored] = []
        self._refused = ""
        self._away = False
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
        """Hand reports over; those that are late already are marked so. Raises HatcastError as `look` does."""
        late = []
        for stored in reports:
            now = None if self._live is None else self._live()
            if now is not None and now >= stored.closes_ms:
                late.append(stored.number)
                continue
            self._waiting.add(stored.number)
            key = stored.id.encode()
            self._produce(
                stored.body,
                key,
                by_murmur2(key, self.partitions),
                timestamp=stored.sent_ms if now is None else now,
                on_delivery=partial(self._told, stored),
            )
        if late:
            self._store.mark_expired(late)
            self.expired += len(late)
            log.warning("reports came too late to be sent; what they cost stays spent", reports=len(late))

    def tick(self, timestamp_ms: int) -> None:
        """One tick for each partition: of a fleet, whose recording is the only clock that there is."""
        for partition in range(self.partitions):
            self._produce(b"", None, partition, timestamp=timestamp_ms, on_delivery=self._ticked)
        self.ticks += self.partitions
        self._ticking += self.partitions

    def _produce(self, value: bytes, key: bytes | None, partition: int, **how: Any) -> None:
        while True:
            try:
                self._producer.produce(self.topic, value, key, partition, **how)
            except BufferError:
                self.look(_FULL_S)
            except KafkaException as error:
                raise self._refusal(error.args[0].str()) from None
            else:
                return

    def look(self, seconds: float = 0.0) -> None:
        """Hear what the broker said, waiting so long for it; mark what it has, send again what did not get there.

        Raises HatcastError for what trying again would not change, and, unless live, for anything that was not taken.
        """
        self._producer.poll(seconds)
        if self._acked:
            acked, self._acked = self._acked, []
            self._store.mark_sent(acked)
            self.sent += len(acked)
            self._waiting.difference_update(acked)
        if self._refused:
            raise self._refusal(self._refused)
        if self._again:
            again, self._again = self._again, []
            self._waiting.difference_update(stored.number for stored in again)
            if not self._away:
                self._away = True
                log.warning("Kafka does not answer; reports are kept and tried again")
            self.send(again)

    @property
    def is_empty(self) -> bool:
        """Whether the broker has everything."""
        return not self._waiting and not self._ticking

    def finish(self, patience_s: float = _FINISH_S) -> bool:
        """Wait until the broker has everything; False if it has not in time: the rest is sent at the next start."""
        deadline_s = monotonic_s() + patience_s
        while not self.is_empty and monotonic_s() < deadline_s:
            self.look(0.1)
        self.look()
        return self.is_empty

    def _told(self, stored: Stored, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._acked.append(stored.number)
            if self._away:
                self._away = False
                log.info("Kafka answers again")
        elif self._live and error.code() in _LATER:
            self._again.append(stored)
        else:
            self._refused = error.str()

    def _ticked(self, error: KafkaError | None, _: Message) -> None:
        self._ticking -= 1
        if error is not None:
            self._refused = error.str()

    def _refusal(self, reason: str) -> HatcastError:
        return HatcastError(
            f"topic {self.topic} did not take a report ({' '.join(reason.split())}): mend that and start again; what"
            " was not sent is kept in the state file"
        )
