"""Acknowledge messages to a source, in order, once Kafka has all of their readings.

MQTT requires acknowledgements in order [MQTT 5.0, 4.6]. In AMQP one acknowledgement can cover all earlier messages.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

_POLL_S: Final = 0.01


class PendingMessage:
    """One message of a source that has not been acknowledged.

    unconfirmed   its readings that Kafka has not confirmed, plus one until all of them have been produced
    """

    __slots__ = ("_tracker", "acknowledge", "unconfirmed")

    def __init__(self, tracker: "AckTracker", acknowledge: Callable[[], object]) -> None:
        self.unconfirmed = 1
        self.acknowledge = acknowledge
        self._tracker = tracker

    def confirm(self) -> None:
        """Count one reading as confirmed by Kafka, or the message as produced completely."""
        self.unconfirmed -= 1
        if not self.unconfirmed:
            self._tracker.acknowledge_confirmed()


class AckTracker:
    """Unacknowledged messages of one connection, in order of receipt."""

    def __init__(self) -> None:
        self._pending: deque[PendingMessage] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, acknowledge: Callable[[], object]) -> PendingMessage:
        """Track a received message. Calls `acknowledge` when Kafka has it and all earlier messages."""
        pending = PendingMessage(self, acknowledge)
        self._pending.append(pending)
        return pending

    def acknowledge_confirmed(self) -> None:
        """Acknowledge the confirmed messages up to the first unconfirmed one."""
        while self._pending and not self._pending[0].unconfirmed:
            self._pending.popleft().acknowledge()

    async def wait_until_empty(self) -> None:
        """Wait until Kafka has all messages, however long that takes."""
        while self._pending:
            await asyncio.sleep(_POLL_S)

    def discard(self, pending: PendingMessage) -> None:
        """Stop tracking a message that was not produced completely: the source sends it again."""
        if pending in self._pending:
            self._pending.remove(pending)

    def clear(self) -> None:
        """Drop all messages of a lost connection: the source sends them again on the next one."""
        self._pending.clear()
