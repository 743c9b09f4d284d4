"""Dead letters: place and reason of records that could not be used, never their payload or key.

Dead letters help operators to find a broken feed. They never block the fold: at most 100 a second are sent, and letters
that are not sent are counted. The exact numbers are the stored outcomes.
"""

import asyncio
from collections import deque
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from hatcast.agents.clock import cancel_all, monotonic_s, now_ms
from hatcast.agents.kafka.aio import AIOKafkaProducer, KafkaError
from hatcast.agents.kafka.cloud_events import cloud_event
from hatcast.agents.monitoring.declarations import DEAD_LETTERS
from hatcast.agents.monitoring.meters import METERS

LETTERS_PER_SECOND: Final = 100
_FLUSH_S: Final = 5.0  # aiokafka alone tries each letter for 40 s while Kafka is away


class Reason(StrEnum):
    """Why a record was not used.

    undecodable     the format cannot decode the record
    bad_record      it breaks another rule of the topic
    bad_signature   a report that no device with a certified key has signed, where `worker.report_keys_file` is set
    """

    UNDECODABLE = "undecodable"
    BAD_RECORD = "bad_record"
    BAD_SIGNATURE = "bad_signature"


class DeadLetter(msgspec.Struct, frozen=True):
    """Place and reason of a record that could not be used, without its payload and key."""

    topic: Annotated[str, msgspec.Meta(min_length=1, description="the telemetry topic, or that of reports")]
    partition: Annotated[int, msgspec.Meta(ge=0, description="of the record")]
    offset: Annotated[int, msgspec.Meta(ge=0, description="of the record")]
    reason: Reason

    @property
    def event_id(self) -> str:
        """The record's place, so that a letter sent again after a crash is the same event."""
        return f"{self.topic}/{self.partition}/{self.offset}"


class DeadLetters:
    """Sender of dead letters, through a producer that is already started.

    sent      acknowledged letters
    dropped   letters over the limit, or that could not be sent
    """

    def __init__(
        self, producer: AIOKafkaProducer, topic: str, telemetry: str, per_second: int = LETTERS_PER_SECOND
    ) -> None:
        """Args:
        topic: the dead letter topic
        telemetry: the topic of the records
        """
        self.sent = 0
        self.dropped = 0
        self._producer = producer
        self._topic = topic
        self._telemetry = telemetry
        self._per_second = per_second
        self._second = 0
        self._remaining = per_second  # letters that may still be added in this second
        self._waiting: deque[DeadLetter] = deque()
        self._sender: asyncio.Task[None] | None = None

    def add(self, partition: int, offset: int, reason: str) -> None:
        """Queue one letter for sending; over the limit only count it. Needs a running event loop."""
        second = int(monotonic_s())
        if second != self._second:
            self._second, self._remaining = second, self._per_second
        # The limit also applies to letters that wait for a slow broker, so that memory stays bounded.
        if not self._remaining or len(self._waiting) >= self._per_second:
            self._drop()
            return
        self._remaining -= 1
        self._waiting.append(DeadLetter(self._telemetry, partition, offset, Reason(reason)))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())

    async def flush(self) -> None:
        """Wait until every queued letter is acknowledged or dropped: after five seconds all are. Raises nothing."""
        if self._sender is None:
            return
        _, unsent = await asyncio.wait([self._sender], timeout=_FLUSH_S)
        await cancel_all(unsent)
        while self._waiting:
            self._waiting.popleft()
            self._drop()

    async def _send(self) -> None:
        while self._waiting:
            letter = self._waiting.popleft()
            headers = cloud_event("dead-letter", letter.event_id, self._telemetry)
            try:
                await self._producer.send_and_wait(self._topic, _encode(letter), timestamp_ms=now_ms(), headers=headers)
            except (KafkaError, OSError):
                self._drop()
            except asyncio.CancelledError:
                self._drop()
                raise
            else:
                self.sent += 1
                METERS.count(DEAD_LETTERS, result="sent")

    def _drop(self) -> None:
        self.dropped += 1
        METERS.count(DEAD_LETTERS, result="dropped")


_encode: Final = msgspec.json.Encoder().encode
