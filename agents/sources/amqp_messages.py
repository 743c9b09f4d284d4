"""AMQP messages as their publishers sent them: garbage beside the body is not decoded, and memory is bounded."""

import struct
from typing import Any, Final, cast

from aio_pika.abc import AbstractIncomingMessage
from aio_pika.message import IncomingMessage
from aio_pika.queue import QueueIterator
from pamqp import decode
from pamqp.header import ContentHeader

from hatcast.agents.sources.connection import MESSAGE_BYTES_MAX

OVERSIZED: Final = b"oversized"
"""In place of the body of a message that is too large. It is compared by identity."""

_QUEUED_BYTES_MAX: Final = 64 << 20
_HEADER: Final = struct.Struct(">HHQ")


def _decode_size(header: ContentHeader, data: bytes) -> None:
    """Decode the size of a message's body, and none of its properties, which no bridge reads.

    pamqp ends the connection at a time after the year 9999 or a text that is not UTF-8, in the properties or in a
    routing key. RabbitMQ checks neither, and would send the message again on each connection.
    """
    header.class_id, header.weight, header.body_size = _HEADER.unpack_from(data)


def _decode_short_text(value: bytes) -> tuple[int, str]:
    end = 1 + value[0]
    return end, value[1:end].decode(errors="replace")


cast("Any", ContentHeader).unmarshal = _decode_size  # pamqp has no hook for it
decode.METHODS["shortstr"] = _decode_short_text


class MessageIterator(QueueIterator):
    """Received messages that were not forwarded yet, bounded in bytes; the prefetch count bounds their number.

    overrun   a message did not fit. It and all later ones are dropped, and no later one may be acknowledged: that
              would acknowledge it too. The broker sends them again on the next connection
    """

    overrun = False
    _bytes = 0

    async def on_message(self, message: AbstractIncomingMessage) -> None:
        """Queue a message, without its body if that is too large."""
        if len(message.body) > MESSAGE_BYTES_MAX:
            cast("IncomingMessage", message).body = OVERSIZED
        self.overrun = self.overrun or self._bytes >= _QUEUED_BYTES_MAX
        if not self.overrun:
            self._bytes += len(message.body)
            await super().on_message(message)

    @property
    def is_finished(self) -> bool:
        """Return whether all queued messages were taken and no other will be."""
        return self.overrun and self._queue.empty()

    def release(self, message: AbstractIncomingMessage) -> None:
        """Return the room of a message that was forwarded."""
        self._bytes -= len(message.body)
