"""Readings of a live source into Kafka: bounded, in order, and each confirmed.    [design 4, Ticks; 6, Topics]"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from hatcast.agents.clock import monotonic_s
from hatcast.agents.monitoring.declarations import BRIDGE_READINGS
from hatcast.agents.monitoring.meters import METERS
from hatcast.agents.monitoring.server import READY
from hatcast.agents.sources.acknowledgements import Delivery
from hatcast.stream.errors import HatcastError
from hatcast.stream.replay.heartbeats import Message

_QUEUE_KIB: Final = 64 << 10
SILENT_S: Final = 10.0  # without an answer from Kafka
_POLL_S: Final = 0.1
_FULL_S: Final = 0.02
_CLOCK_IS_AHEAD: Final = "see that this machine's clock is right, it is ahead of Kafka's by more than max_ahead"


class LiveProducer:
    """A producer of one topic for an event loop: idempotent, acks=all, every message to the partition it names.

    It tries for ever: while Kafka is away, what was handed over waits, and `send` waits for room. So nothing is lost,
    and memory is bounded by `limit` messages and 64 MiB.

    in_flight   messages that Kafka has not confirmed
    confirmed   readings that it has
    """

    def __init__(
        self, options: Mapping[str, Any], topic: str, limit: int, failed: Callable[[HatcastError], object]
    ) -> None:
        """Args:
        options:  how to reach the broker (hatcast.agents.kafka.client.confluent_options)
        limit:    messages in flight at most
        failed:   called in the loop once Kafka has refused what it will never take
        """
        self.topic = topic
        self.limit = limit
        self.in_flight = 0
        self.confirmed = 0
        self._heard_s = monotonic_s()  # when Kafka last answered, or had nothing to answer
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Event()
        self._room.set()
        self._heard: deque[tuple[Delivery | None, KafkaError | None]] = deque()
        self._closed = threading.Event()
        self._producer = Producer(
            {
                **options,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": "lz4",
                "linger.ms": 5,
                "queue.buffering.max.messages": limit + 100_000,  # ticks come on top
                "queue.buffering.max.kbytes": _QUEUE_KIB,
                "message.timeout.ms": 0,  # a source is told only of what Kafka has: there is nobody else to try again
            }
        )
        self._listener = threading.Thread(target=self._listen, name="outlet", daemon=True)
        self._listener.start()

    async def send(self, message: Message, parcel: Delivery) -> None:
        """Hand a reading over, waiting for room; the parcel hears when Kafka has it."""
        while self.in_flight >= self.limit:
            self._room.clear()
            await self._room.wait()
        while not self._take(message, parcel):
            await asyncio.sleep(_FULL_S)
        parcel.left += 1

    def tick(self, message: Message) -> None:
        """Hand a tick over; one that finds no room is left out, since the clock has the next one too."""
        self._take(message, None)

    def _take(self, message: Message, parcel: Delivery | None) -> bool:
        partition, timestamp, key, value = message
        heard = partial(self._delivered, parcel)
        try:
            self._producer.produce(self.topic, value, key, partition, timestamp=timestamp, on_delivery=heard)
        except BufferError:
            return False
        except KafkaException as error:
            raise self._refusal(error.args[0]) from None
        if not self.in_flight:
            self._heard_s = monotonic_s()
        self.in_flight += 1
        return True

    def waits_s(self) -> float:
        """For how many seconds messages have been waiting without a word from Kafka; 0 where none waits."""
        return monotonic_s() - self._heard_s if self.in_flight else 0.0

    def state(self) -> str:
        """For `/readyz`."""
        waits_s = self.waits_s()
        return READY if waits_s < SILENT_S else f"no answer for {waits_s:.0f} s"

    async def finish(self, seconds: float) -> int:
        """Wait until Kafka has everything, or for so long; returns how many messages it has not."""
        until_s = monotonic_s() + seconds
        while self.in_flight and monotonic_s() < until_s:
            self._producer.flush(0)  # ends what lingers
            await asyncio.sleep(_FULL_S)
        return self.in_flight

    async def close(self) -> None:
        """Send nothing more. What Kafka has not confirmed by now, it may or may not have."""
        self._closed.set()
        await asyncio.to_thread(self._listener.join)
        self._producer.purge()
        self._producer.flush(1.0)

    def _listen(self) -> None:
        """Hear Kafka's answers, in a thread of its own; the loop is told of many at once."""
        while not self._closed.is_set():
            self._producer.poll(_POLL_S)
            if self._heard:
                self._loop.call_soon_threadsafe(self._settle)

    def _delivered(self, parcel: Delivery | None, error: KafkaError | None, _: Delivered) -> None:
        self._heard.append((parcel, error))

    def _settle(self) -> None:
        """In the loop: make room, and tell the parcels."""
        self._heard_s = monotonic_s()
        before = self.confirmed
        for _ in range(len(self._heard)):
            parcel, error = self._heard.popleft()
            self.in_flight -= 1
            if error is not None:
                self._failed(self._refusal(error))
            elif parcel is not None:
                self.confirmed += 1
                parcel.confirmed()
        if self.in_flight < self.limit:
            self._room.set()
        METERS.count(BRIDGE_READINGS, self.confirmed - before)

    def _refusal(self, error: KafkaError) -> HatcastError:
        """What Kafka will not take however often it is asked. The text holds no record."""
        mend = "mend that, and start again"
        if error.code() == KafkaError.INVALID_TIMESTAMP:
            mend = _CLOCK_IS_AHEAD
        return HatcastError(
            f"Kafka does not take readings on topic {self.topic} ({' '.join(error.str().split())}): {mend}"
        )
