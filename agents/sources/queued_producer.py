"""A producer whose queue is dropped where its user is left by an exception."""

from types import TracebackType
from typing import Final, Self

from confluent_kafka import Producer

_PURGE_S: Final = 1.0


class QueuedProducer:
    """Use it as a context manager: leaving it by an exception drops what is still queued, and does not wait."""

    _producer: Producer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            self._producer.purge()
            self._producer.flush(_PURGE_S)
