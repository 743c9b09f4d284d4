"""Where records end that nobody can read: place and reason, never the payload or the key.    [design 6, Topics]

Dead letters are for people who look for a broken feed. They hold up nothing: a flood is cut to some a second, and
what cannot be sent is counted. The exact numbers are the stored outcomes.
"""

import asyncio
from collections import deque
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from hatcast.agents.clock import monotonic_s, now_ms
from hatcast.agents.kafka.cloud_events import cloud_event
from hatcast.agents.monitoring.declarations import DEAD_LETTERS
from hatcast.agents.monitoring.meters import METERS

LETTERS_PER_SECOND: Final = 100


class Reason(StrEnum):
    """`undecodable`: the feed cannot read the record. `bad_record`: it breaks another rule of the topic."""

    UNDECODABLE = "undecodable"
    BAD_RECORD = "bad_record"


class DeadLetter(msgspec.Struct, frozen=True):
    """Where a record stands that nobody can read, and why: never its payload or its key."""

    topic: Annotated[str, msgspec.Meta(min_length=1, description="the telemetry topic")]
    partition: Annotated[int, msgspec.Meta(ge=0, description="of the record")]
    offset: Annotated[int, msgspec.Meta(ge=0, description="of the record")]
    reason: Reason

    @property
    def event_id(self) -> str:
        """The record's place: a letter that is sent again after a crash is the same event."""
        return f"{self.topic}/{self.partition}/{self.offset}"


class DeadLetters:
    """Sends dead letters by a started producer.

    sent      acknowledged
    dropped   over the limit, or not sendable
    """

    def __init__(
        self, producer: AIOKafkaProducer, topic: str, telemetry: str, per_second: int = LETTERS_PER_SECOND
    ) -> None:
        """Args:
        topic: where the letters go
        telemetry: where the records are
        """
        self.sent = 0
        self.dropped = 0
        self._producer = producer
        self._topic = topic
        self._telemetry = telemetry
        self._per_second = per_second
        self._second = 0
        self._left = per_second
        self._waiting: deque[DeadLetter] = deque()
        self._sender: asyncio.Task[None] | None = None

    def add(self, partition: int, offset: int, reason: str) -> None:
        """Take one letter, to be sent soon; over the limit it is only counted. Needs a running loop."""
        second = int(monotonic_s())
        if second != self._second:
            self._second, self._left = second, self._per_second
        # Letters that wait for a slow broker are within the limit too: memory stays bounded.
        if not self._left or len(self._waiting) >= self._per_second:
            self._drop()
            return
        self._left -= 1
        self._waiting.append(DeadLetter(self._telemetry, partition, offset, Reason(reason)))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())

    async def flush(self) -> None:
        """Wait until every letter taken so far is acknowledged or counted as dropped. Raises nothing."""
        if self._sender is not None:
            await self._sender

    async def _send(self) -> None:
        while self._waiting:
            letter = self._waiting.popleft()
            headers = cloud_event("dead-letter", letter.event_id, self._telemetry)
            try:
                await self._producer.send_and_wait(self._topic, _encode(letter), timestamp_ms=now_ms(), headers=headers)
            except (KafkaError, OSError):
                self._drop()
            else:
                self.sent += 1
                METERS.count(DEAD_LETTERS, result="sent")

    def _drop(self) -> None:
        self.dropped += 1
        METERS.count(DEAD_LETTERS, result="dropped")


_encode: Final = msgspec.json.Encoder().encode
