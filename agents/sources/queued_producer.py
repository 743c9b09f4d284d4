"""Producer that drops its queue when its context is left by an exception."""

from types import TracebackType
from typing import Final, Self

from confluent_kafka import Producer

_PURGE_S: Final = 1.0


class QueuedProducer:
    """Context manager: leaving it by an exception drops the queued messages instead of waiting for their delivery."""

    _producer: Producer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            self._producer.purge()
            self._producer.flush(_PURGE_S)
